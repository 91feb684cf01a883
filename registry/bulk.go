package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const csvMedia = "text/csv"

func (s *service) bulkRoutes() {
	const tag = "import and export"
	s.jobs = newBulkJobs()
	s.nounTable = s.makeNouns()
	inputSchema[*prefixRow](s) // what a row of a prefix may say beyond a POST's body
	text := func(about string) *huma.MediaType {
		return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: about}}
	}
	register(s, operation{
		method: http.MethodPost, path: "/v1/imports", id: "start-import", tag: tag,
		summary: "Import rows of CSV or NDJSON as a job", needs: importData, status: http.StatusAccepted,
		description: "All rows are taken in one transaction, or none. The answer comes when all are read; the job then tells its progress, " +
			"and every row that cannot be taken at once, with line, field and reason. A job that runs can be cancelled.",
		problems: []problem.Kind{problem.Conflict, problem.TooLarge},
		maxBody:  -1, bodyTimeout: -1,
		body: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			ndjson:   text(`Lines of JSON: {"kind": "prefix", "body": {…}}; the body is what a POST to the kind's collection takes`),
			csvMedia: text("Rows under a header whose columns are those of an export: prefix,organisation,kind,origin,…"),
		}},
	}, s.startImport)
	register(s, operation{
		method: http.MethodGet, path: "/v1/imports", id: "list-imports", tag: tag,
		summary: "List jobs of import, the newest first", needs: importData,
	}, s.listImports)
	register(s, operation{
		method: http.MethodGet, path: "/v1/imports/{id}", id: "get-import", tag: tag,
		summary: "Read a job of import: its progress, or its wrong rows", needs: importData,
		problems: []problem.Kind{problem.NotFound},
	}, s.getImport)
	register(s, operation{
		method: http.MethodPost, path: "/v1/imports/{id}/cancel", id: "cancel-import", tag: tag,
		summary: "Cancel a job of import that runs", needs: importData,
		description: "It then has written nothing. The answer is the job as it is now; it is over when its state is cancelled.",
		problems:    []problem.Kind{problem.NotFound, problem.Conflict},
	}, s.cancelImport)
}

type startImportInput struct {
	Kind           string `query:"kind" maxLength:"40" doc:"What the rows of CSV are: prefix, ptr, asn, organisation, anycast; the header tells it where it is left out"`
	Existing       string `query:"existing" enum:"refuse,skip" default:"refuse" doc:"A row whose resource is there already is an error, or is left as it is"`
	DryRun         bool   `query:"dry_run" doc:"Check and write everything, and keep nothing of it"`
	Reason         string `query:"reason" maxLength:"1000" doc:"Why, for the change log"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeated request with the same key gets the first one's job, for 24 hours"`
	ContentType    string `header:"Content-Type" doc:"text/csv or application/x-ndjson"`

	answer  http.ResponseWriter
	request *http.Request
}

// Resolve keeps the request, whose body is read as it comes.
func (in *startImportInput) Resolve(h huma.Context) []error {
	in.request, in.answer = humago.Unwrap(h)
	return nil
}

const sqlStartJob = `
INSERT INTO registry.import_job (format, actor, principal, reason, state, dry_run, prune)
VALUES ($1, $2, $3, $4, 'running', $5, false)
RETURNING id`

func (s *service) startImport(ctx context.Context, in *startImportInput) (*answer[client.ImportJob], error) {
	select {
	case s.jobs.slots <- struct{}{}:
	default:
		return nil, problem.New(problem.RateLimited, "%d imports are under way: wait until one of them is done", jobsAtOnce)
	}
	started := false
	defer func() {
		if !started {
			<-s.jobs.slots
		}
	}()
	rows, format, hash, err := s.readRows(in)
	if err != nil {
		return nil, err
	}
	request := []any{hash, format, in.Kind, in.Existing, in.DryRun}
	params := CreateParams{IdempotencyKey: in.IdempotencyKey}
	var id int64
	out, err := mutate(ctx, s, params, request, func(ctx context.Context, w *writing) (m made[client.ImportJob], err error) {
		p := callOf(ctx).principal
		if err := w.QueryRow(ctx, sqlStartJob, format, p.Name, p.id(), in.Reason, in.DryRun).Scan(&id); err != nil {
			return m, err
		}
		m.object, err = oneJob(ctx, w, id)
		m.location = "/v1/imports/" + strconv.FormatInt(id, 10)
		return m, err
	})
	if err != nil {
		return nil, err
	}
	out.Status = http.StatusAccepted
	if id == 0 { // the key's first request made the job
		return out, nil
	}
	started = true
	job := &bulkJob{s: s, id: id, rows: rows, dryRun: in.DryRun, reason: in.Reason}
	// The job outlives the request, whose call the server goes on to write to.
	call := *callOf(ctx)
	s.jobs.start(context.WithValue(context.WithoutCancel(ctx), callKey{}, &call), id, job.run)
	return out, nil
}

// readRows reads the body to its end. An error is one of the whole; what is wrong
// with a row is kept with the rows.
func (s *service) readRows(in *startImportInput) (rows *bulkRows, format, hash string, err error) {
	body := &steadyReader{from: http.MaxBytesReader(in.answer, in.request.Body, importBody), control: http.NewResponseController(in.answer)}
	defer body.done()
	sum := sha256.New()
	from := io.TeeReader(body, sum)
	rows = &bulkRows{s: s, skipExisting: in.Existing == "skip"}
	media, _, _ := mime.ParseMediaType(in.ContentType)
	switch media {
	case csvMedia:
		format, err = "csv", rows.readCSV(from, client.Kind(in.Kind))
	case ndjson:
		format, err = "ndjson", rows.readNDJSON(from)
		if err == nil && in.Kind != "" {
			err = invalid("query.kind", in.Kind, "the lines of NDJSON say their kinds themselves: leave kind out")
		}
	default:
		err = invalid("header.Content-Type", in.ContentType, "the body is %s or %s: say which in Content-Type", csvMedia, ndjson)
	}
	rows.wrong = rows.errorsCount
	return rows, format, hex.EncodeToString(sum.Sum(nil)), err
}

const (
	sqlJobs = `
SELECT id,
       format,
       CASE WHEN state = 'running'
             AND CASE format WHEN 'rpsl' THEN created_at < clock_timestamp() - interval '1 hour'
                             ELSE seen_at < clock_timestamp() - interval '1 minute' END
            THEN 'failed' ELSE state END,
       state,
       actor,
       reason,
       dry_run,
       progress,
       coalesce(cancelled_by, ''),
       created_at,
       finished_at
FROM registry.import_job`
	sqlJob        = sqlJobs + ` WHERE id = $1`
	sqlJobRefused = `
SELECT format,
       refused
FROM registry.import_job
WHERE id = $1`
	sqlCancelJob = `
UPDATE registry.import_job
SET cancelled_by = $2,
    state = CASE WHEN seen_at < clock_timestamp() - $3::interval THEN 'cancelled' ELSE state END
WHERE id = $1
  AND state = 'running'
  AND format <> 'rpsl'`
)

func scanJob(row pgx.CollectableRow) (j client.ImportJob, err error) {
	var (
		state    client.JobState
		progress []byte
		kept     struct {
			jobProgress
			Objects int             `json:"objects"` // of an import of RPSL
			Kinds   json.RawMessage `json:"kinds"`
		}
	)
	if err := row.Scan(&j.ID, &j.Format, &j.State, &state, &j.Actor, &j.Reason, &j.DryRun, &progress, &j.CancelledBy, &j.CreatedAt, &j.FinishedAt); err != nil {
		return j, err
	}
	if err := json.Unmarshal(progress, &kept); err != nil {
		return j, err
	}
	if j.Kinds, err = kindsOfJob(j.Format, kept.Kinds); err != nil {
		return j, err
	}
	j.Stage, j.Done, j.Total = kept.Stage, kept.Done, kept.Total
	j.Skipped, j.ErrorsCount, j.Error = kept.Skipped, kept.ErrorsCount, kept.Error
	if j.Format == "rpsl" && j.State == client.JobDone {
		j.Done, j.Total = kept.Objects, kept.Objects
	}
	if j.State == client.JobFailed && state == client.JobRunning {
		j.Stage, j.Error = "", "the process that ran it ended; nothing was written"
	}
	j.CreatedAt = j.CreatedAt.UTC()
	if j.FinishedAt != nil {
		finished := j.FinishedAt.UTC()
		j.FinishedAt = &finished
	}
	return j, nil
}

// kindsOfJob counts what a job wrote of each kind: an import of RPSL keeps what it
// added, changed and deleted.
func kindsOfJob(format string, kept json.RawMessage) (kinds map[client.Kind]int, err error) {
	if len(kept) == 0 {
		return nil, nil
	}
	if format != "rpsl" {
		return kinds, json.Unmarshal(kept, &kinds)
	}
	var counts map[client.Kind]client.ImportCounts
	if err := json.Unmarshal(kept, &counts); err != nil || len(counts) == 0 {
		return nil, err
	}
	kinds = map[client.Kind]int{}
	for kind, c := range counts {
		kinds[kind] = c.Added + c.Changed + c.Deleted
	}
	return kinds, nil
}

// oneJob reads a job with its wrong rows.
func oneJob(ctx context.Context, q querier, id int64) (client.ImportJob, error) {
	rows, err := q.Query(ctx, sqlJob, id)
	if err != nil {
		return client.ImportJob{}, err
	}
	job, err := pgx.CollectExactlyOneRow(rows, scanJob)
	if errors.Is(err, pgx.ErrNoRows) {
		return job, unknown("import", strconv.FormatInt(id, 10))
	}
	if err != nil {
		return job, err
	}
	var (
		format  string
		refused []byte
	)
	if err := q.QueryRow(ctx, sqlJobRefused, id).Scan(&format, &refused); err != nil {
		return job, err
	}
	job.Errors, err = refusedRows(format, refused)
	job.ErrorsCount = max(job.ErrorsCount, len(job.Errors))
	return job, err
}

type listImportsInput struct{ PageParams }

func (in *listImportsInput) query() (*query, error) {
	q := newQuery(sqlJobs)
	var before int64
	if ok, err := in.decode("imports", &before); err != nil {
		return nil, err
	} else if ok {
		q.and(`id < ?`, before)
	}
	q.page(`id DESC`, in.limit())
	return q, nil
}

func (s *service) listImports(ctx context.Context, in *listImportsInput) (*list[client.ImportJob], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanJob, func(j client.ImportJob) string { return cursor("imports", j.ID) })
}

type ImportPath struct {
	ID int64 `path:"id" minimum:"1"`
}

type jobAnswer struct{ Body client.ImportJob }

func (s *service) getImport(ctx context.Context, in *ImportPath) (*jobAnswer, error) {
	out := &jobAnswer{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = oneJob(ctx, tx, in.ID)
		return err
	})
	return out, err
}

func (s *service) cancelImport(ctx context.Context, in *ImportPath) (*jobAnswer, error) {
	out := &jobAnswer{}
	err := s.write(ctx, func(ctx context.Context, w *writing) error {
		tag, err := w.Exec(ctx, sqlCancelJob, in.ID, callOf(ctx).principal.Name, jobSilence)
		if err != nil {
			return err
		}
		if out.Body, err = oneJob(ctx, w, in.ID); err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return problem.New(problem.Conflict, "the import %d cannot be cancelled: it is %s (imports of RPSL end with their request)", in.ID, out.Body.State)
		}
		return nil
	})
	if err == nil {
		s.jobs.cancel(in.ID)
	}
	return out, err
}
