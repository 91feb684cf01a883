package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// jobBeat is the pause between two updates of a running job's row: what a
	// progress bar shows, and how soon a job that another instance runs is stopped.
	jobBeat = 500 * time.Millisecond
	// jobSilence is how long a running job may not have said that it is alive before
	// it counts as failed: its process ended.
	jobSilence = time.Minute
	// jobsAtOnce bounds the imports whose rows are in memory; one is written at a
	// time, the others wait.
	jobsAtOnce = 4
)

// bulkJobs are the jobs that this process runs.
type bulkJobs struct {
	mu      sync.Mutex
	running map[int64]context.CancelCauseFunc
	// slots hold the imports from the reading of their rows to their end.
	slots   chan struct{}
	stopped bool
	work    sync.WaitGroup
}

func newBulkJobs() *bulkJobs {
	return &bulkJobs{running: map[int64]context.CancelCauseFunc{}, slots: make(chan struct{}, jobsAtOnce)}
}

var errJobCancelled = errors.New("the import was cancelled")

// run waits until ctx is done and ends the jobs, so that their connections are
// free before the pool is closed.
func (j *bulkJobs) run(ctx context.Context) error {
	<-ctx.Done()
	j.mu.Lock()
	j.stopped = true
	for _, cancel := range j.running {
		cancel(starting())
	}
	j.mu.Unlock()
	j.work.Wait()
	return ctx.Err()
}

// start runs a job in the background.
func (j *bulkJobs) start(ctx context.Context, id int64, work func(context.Context)) {
	ctx, cancel := context.WithCancelCause(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		cancel(starting())
	}
	j.running[id] = cancel
	j.work.Go(func() {
		defer func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			delete(j.running, id)
			cancel(nil)
			<-j.slots
		}()
		work(ctx)
	})
}

// cancel ends a job that runs here.
func (j *bulkJobs) cancel(id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if cancel := j.running[id]; cancel != nil {
		cancel(errJobCancelled)
	}
}

// jobProgress is what a job's row keeps.
type jobProgress struct {
	Stage       string              `json:"stage,omitempty"`
	Done        int                 `json:"done"`
	Total       int                 `json:"total"`
	Kinds       map[client.Kind]int `json:"kinds,omitempty"`
	Skipped     int                 `json:"skipped,omitempty"`
	ErrorsCount int                 `json:"errors_count,omitempty"`
	Error       string              `json:"error,omitempty"`
}

const (
	sqlJobBeat = `
UPDATE registry.import_job
SET progress = $2,
    seen_at = clock_timestamp()
WHERE id = $1
  AND state = 'running'
RETURNING cancelled_by IS NOT NULL`
	sqlJobDone = `
UPDATE registry.import_job
SET state = 'done',
    progress = $2,
    finished_at = clock_timestamp()
WHERE id = $1
  AND state = 'running'
  AND cancelled_by IS NULL`
	sqlJobOver = `
UPDATE registry.import_job
SET state = $2,
    progress = $3,
    refused = $4,
    finished_at = clock_timestamp()
WHERE id = $1
  AND state = 'running'`
)

// bulkJob is a job while it runs.
type bulkJob struct {
	s      *service
	id     int64
	rows   *bulkRows
	dryRun bool
	reason string

	mu       sync.Mutex
	progress jobProgress
}

func (j *bulkJob) at(change func(*jobProgress)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.progress)
}

func (j *bulkJob) now() jobProgress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progress
}

// run carries the job out and notes how it ended.
func (j *bulkJob) run(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, importTimeout, problem.New(problem.Unavailable,
		"the import took more than %s and was given up; import it in parts", importTimeout))
	defer cancel()
	db, err := j.s.open()
	if err == nil {
		err = j.untilTaken(ctx, db)
	}
	if err == nil {
		j.s.wake.hint()
		return
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	j.over(db, err)
}

// over notes the end of a job that wrote nothing.
func (j *bulkJob) over(db *database, cause error) {
	state := client.JobFailed
	switch {
	case errors.Is(cause, errJobCancelled):
		state = client.JobCancelled
	case errors.Is(cause, errRowsRefused):
	default:
		e := problem.Of(databaseProblem(cause))
		if e.Kind == problem.Internal {
			j.s.log.Error("an import failed", "job", j.id, "error", cause)
		}
		j.at(func(p *jobProgress) { p.Error = e.Detail })
	}
	j.rows.sortErrors()
	j.at(func(p *jobProgress) { p.Stage, p.Done, p.ErrorsCount = "", 0, j.rows.errorsCount })
	if db == nil {
		return
	}
	refused := j.rows.errors
	if refused == nil {
		refused = []client.ImportError{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := db.pool.Exec(ctx, sqlJobOver, j.id, string(state), j.now(), refused); err != nil {
		j.s.log.Warn("the end of an import could not be noted", "job", j.id, "error", err)
	}
}

// untilTaken tries until an attempt holds: again where others changed what the
// places of the rows depend on.
func (j *bulkJob) untilTaken(ctx context.Context, db *database) error {
	for attempt := 1; ; attempt++ {
		err := j.attempt(ctx, db)
		var row *rowRefusedError
		raced := isTransient(err) || refusedByDatabase(err) != nil && attempt == 1
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case raced && attempt < importAttempts:
			j.s.log.Info("a bulk import is tried again", "job", j.id, "attempt", attempt, "reason", err)
			pause(ctx, time.Duration(attempt)*20*time.Millisecond)
		case errors.As(err, &row):
			j.rows.refuseProblem(row.line, row.kind, row.cause)
			return errRowsRefused
		default:
			return err
		}
	}
}

// attempt checks and writes all rows in one transaction.
func (j *bulkJob) attempt(ctx context.Context, db *database) error {
	j.rows.again()
	beat := j.beat(ctx, db)
	defer beat.stop()
	tx, err := db.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := j.enter(ctx, tx); err != nil {
		return err
	}
	j.at(func(p *jobProgress) {
		p.Stage, p.Done, p.Total, p.Kinds = "checking", 0, j.rows.total(), j.rows.kinds()
	})
	places, err := j.rows.check(ctx, tx)
	if err != nil {
		return err
	}
	if j.rows.errorsCount > 0 {
		return errRowsRefused
	}
	j.at(func(p *jobProgress) {
		p.Stage, p.Total, p.Skipped = "writing", j.rows.total()-j.rows.skipped, j.rows.skipped
	})
	w := &bulkWrite{tx: tx, rows: j.rows, places: places, progress: func(done int) { j.at(func(p *jobProgress) { p.Done = done }) }}
	if err := w.write(ctx); err != nil {
		return err
	}
	if err := j.writeOthers(ctx, tx, w); err != nil {
		return err
	}
	beat.stop()
	return j.commit(ctx, tx, db)
}

// commit ends the transaction with the job's end in it; that of a dry run is noted
// after all else is rolled back.
func (j *bulkJob) commit(ctx context.Context, tx pgx.Tx, db *database) error {
	j.at(func(p *jobProgress) { p.Stage = "" })
	var done importDatabase = tx
	if j.dryRun {
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		done = db.pool
	}
	tag, err := done.Exec(ctx, sqlJobDone, j.id, j.now())
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errJobCancelled
	}
	if j.dryRun {
		return nil
	}
	return tx.Commit(ctx)
}

// enter makes the transaction the caller's, and the only import that writes.
func (j *bulkJob) enter(ctx context.Context, tx pgx.Tx) error {
	c := callOf(ctx)
	reason := j.reason
	if reason == "" {
		reason = "import " + strconv.FormatInt(j.id, 10)
	}
	if _, err := tx.Exec(ctx, sqlActing, c.principal.Name, c.principal.TokenID, c.requestID, reason); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlImportTimeouts, milliseconds(importTimeout), milliseconds(importTimeout)); err != nil {
		return err
	}
	j.at(func(p *jobProgress) { p.Stage = "waiting" })
	if _, err := tx.Exec(ctx, sqlImportAlone); err != nil {
		return fmt.Errorf("wait for the other import: %w", err)
	}
	_, err := tx.Exec(ctx, sqlImportTimeouts, milliseconds(importQueue), milliseconds(importTimeout))
	return err
}

// writeOthers writes rows of the kinds that nobody has many of, each as its POST
// would; all that are refused are noted.
func (j *bulkJob) writeOthers(ctx context.Context, tx pgx.Tx, w *bulkWrite) error {
	wrong := j.rows.errorsCount
	for _, row := range j.rows.others {
		err := func() error {
			inner, err := tx.Begin(ctx) // a savepoint
			if err != nil {
				return err
			}
			if _, err := j.s.nouns()[row.kind].create(joining(ctx, &writing{Tx: inner}), row.body); err != nil {
				_ = inner.Rollback(ctx)
				return &rowRefusedError{row.line, row.kind, err}
			}
			return inner.Commit(ctx)
		}()
		var refused *rowRefusedError
		if errors.As(err, &refused) && ctx.Err() == nil && !isTransient(err) {
			j.rows.refuseProblem(row.line, row.kind, refused.cause)
			continue
		}
		if err != nil {
			return err
		}
		w.done++
		w.progress(w.done)
	}
	if j.rows.errorsCount > wrong {
		return errRowsRefused
	}
	return nil
}

// jobBeating writes a job's progress until it is stopped.
type jobBeating struct {
	once sync.Once
	done chan struct{}
	work sync.WaitGroup
}

// beat begins to write the job's progress into its row, and ends the job when
// someone cancels it there.
func (j *bulkJob) beat(ctx context.Context, db *database) *jobBeating {
	b := &jobBeating{done: make(chan struct{})}
	b.work.Go(func() {
		ticker := time.NewTicker(jobBeat)
		defer ticker.Stop()
		for {
			select {
			case <-b.done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			var cancelled bool
			err := db.pool.QueryRow(ctx, sqlJobBeat, j.id, j.now()).Scan(&cancelled)
			switch {
			case err == nil && cancelled, errors.Is(err, pgx.ErrNoRows):
				j.s.jobs.cancel(j.id)
			case err != nil && ctx.Err() == nil:
				j.s.log.Warn("the progress of an import could not be noted", "job", j.id, "error", err)
			}
		}
	})
	return b
}

func (b *jobBeating) stop() {
	b.once.Do(func() { close(b.done) })
	b.work.Wait()
}

// refusedRows reads what a job's row keeps of its wrong rows: those of RPSL have
// members of their own.
func refusedRows(format string, refused []byte) ([]client.ImportError, error) {
	if format != "rpsl" {
		var rows []client.ImportError
		return rows, json.Unmarshal(refused, &rows)
	}
	var objects []client.ImportRefusal
	if err := json.Unmarshal(refused, &objects); err != nil {
		return nil, err
	}
	rows := make([]client.ImportError, len(objects))
	for i, o := range objects {
		rows[i] = client.ImportError{File: o.File, Line: o.Line, Kind: o.Class, Field: o.Attribute, Value: o.Key, Reason: o.Reason}
		if o.Value != "" {
			rows[i].Value = o.Value
		}
	}
	return rows, nil
}
