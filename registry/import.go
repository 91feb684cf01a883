package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/app/problem"
	"hubn/registry/client"
	"hubn/registry/rpsl"
)

const (
	// importQueue is how long an import waits for another, and for the locks of
	// writers that are not done. An import of the largest registries takes less.
	importQueue = 60 * time.Second
	// importTimeout bounds one attempt; far above what a million objects take.
	importTimeout = 30 * time.Minute
	// importAttempts is how often an import is planned anew because somebody
	// changed what it was planned from.
	importAttempts = 5
	// importOffenders is how many objects an import may lose to the database's own
	// rules, which parsing and planning should have known, before it is given up:
	// each costs some dry runs.
	importOffenders = 20
	// importChanges bounds the changes that the result lists, and importRefusals
	// the refusals that the job's row keeps.
	importChanges, importRefusals = 1000, 10000
)

// importer carries imports into the database, one at a time in the whole
// installation.
type importer struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	// act makes a transaction the actor's, for the change log, in a job.
	act func(ctx context.Context, tx pgx.Tx, job int64) error
	// stage tells how far the import is.
	stage func(client.ImportProgress)
}

// importRequest is one import.
type importRequest struct {
	actor   string
	input   rpsl.Input
	options rpsl.Options
	dryRun  bool
	objects int
	job     int64
}

// add parses one object into the request.
func (r *importRequest) add(raw rpsl.Raw) {
	r.objects++
	object, err := rpsl.Parse(raw)
	if err == nil {
		r.input.Objects = append(r.input.Objects, object)
		return
	}
	var refusal *rpsl.Refusal
	if !errors.As(err, &refusal) {
		refusal = &rpsl.Refusal{File: raw.File, Line: raw.Line, Reason: err.Error()}
	}
	r.input.Refused = append(r.input.Refused, refusal)
}

// run imports, and answers what changed. An error means that nothing did.
func (im *importer) run(ctx context.Context, req importRequest) (*client.ImportResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, importTimeout, problem.New(problem.Unavailable,
		"the import took more than %s and was given up; nothing was changed; import it in parts", importTimeout))
	defer cancel()
	if err := im.begin(ctx, &req); err != nil {
		return nil, err
	}
	result, err := im.untilTaken(ctx, req)
	if err != nil {
		im.failed(req, err)
		return nil, err
	}
	return result, nil
}

// untilTaken tries until an attempt holds: again where somebody changed what the
// plan relied on, and without the object that the database itself refuses.
func (im *importer) untilTaken(ctx context.Context, req importRequest) (*client.ImportResult, error) {
	offenders := 0
	for attempt := 1; ; attempt++ {
		result, err := im.attempt(ctx, req)
		refused := refusedByDatabase(err)
		switch {
		case err == nil:
			return result, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case refused != nil && attempt == 1, isTransient(err) && attempt < importAttempts:
			// What the database refuses is at first taken for a race as well: the
			// next plan sees what the other writer did.
			im.log.InfoContext(ctx, "import is planned again", "job", req.job, "attempt", attempt, "reason", err)
			pause(ctx, time.Duration(attempt)*20*time.Millisecond)
		case refused != nil && offenders < importOffenders:
			offenders++
			if err := im.dropOffender(ctx, &req, refused); err != nil {
				return nil, err
			}
			attempt = 0
		case refused != nil:
			return nil, problem.New(problem.Conflict, "more than %d objects are refused by the database, the last because %s; nothing was changed",
				importOffenders, refusedBecause(refused)).Because(err)
		case isTransient(err):
			return nil, problem.New(problem.Conflict,
				"other writers changed what the import relies on %d times in a row (%v); nothing was changed; try again", attempt, err).Because(err)
		default:
			return nil, err
		}
	}
}

const sqlImportLineage = `SELECT registry.lineage_current()::text`

// attempt reads, plans and writes in one transaction.
func (im *importer) attempt(ctx context.Context, req importRequest) (*client.ImportResult, error) {
	started := time.Now()
	tx, err := im.pool.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := im.enter(ctx, tx, req.job); err != nil {
		return nil, err
	}
	im.stage(client.ImportProgress{Stage: "planning", Total: req.objects})
	state, plan, err := planImport(ctx, tx, req)
	if err != nil {
		return nil, err
	}
	result := importResult(req, plan, state)
	if !plan.Empty() {
		im.stage(client.ImportProgress{Stage: "writing", Total: result.Added + result.Changed + result.Deleted})
		if err := applyImport(ctx, tx, state, plan); err != nil {
			return nil, err
		}
	}
	if err := tx.QueryRow(ctx, sqlImportLineage).Scan(&result.Lineage); err != nil {
		return nil, fmt.Errorf("read the lineage: %w", err)
	}
	result.Took = client.Seconds(time.Since(started).Seconds())
	if req.dryRun {
		if err := tx.Rollback(ctx); err != nil {
			return nil, fmt.Errorf("roll back the dry run: %w", err)
		}
		return result, im.finish(ctx, im.pool, req, result)
	}
	if err := im.finish(ctx, tx, req, result); err != nil {
		return nil, err
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return result, nil
}

const (
	sqlImportTimeouts = `
SELECT set_config('lock_timeout', $1, true),
       set_config('statement_timeout', $2, true),
       set_config('idle_in_transaction_session_timeout', $2, true)`
	sqlImportTryAlone = `SELECT pg_try_advisory_xact_lock(hashtextextended('registry.import', 0))`
	sqlImportAlone    = `SELECT pg_advisory_xact_lock(hashtextextended('registry.import', 0))`
)

// enter makes the transaction the only import that runs.
func (im *importer) enter(ctx context.Context, tx pgx.Tx, job int64) error {
	if err := im.act(ctx, tx, job); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, sqlImportTimeouts, milliseconds(importQueue), milliseconds(importTimeout))
	if err != nil {
		return fmt.Errorf("set the import's timeouts: %w", err)
	}
	var alone bool
	if err := tx.QueryRow(ctx, sqlImportTryAlone).Scan(&alone); err != nil {
		return fmt.Errorf("lock imports: %w", err)
	}
	if alone {
		return nil
	}
	im.stage(client.ImportProgress{Stage: "waiting"})
	_, err = tx.Exec(ctx, sqlImportAlone)
	if isCode(err, lockNotAvailable) {
		return problem.New(problem.Conflict,
			"another import has been running for more than %s; nothing was changed; try again when it is done", importQueue)
	}
	if err != nil {
		return fmt.Errorf("wait for the other import: %w", err)
	}
	return nil
}

// planImport reads the state and plans, and again where the plan would lose
// PTR records, which then keep their prefixes.
func planImport(ctx context.Context, tx pgx.Tx, req importRequest) (*importState, *rpsl.Plan, error) {
	state, err := readImportState(ctx, tx, scopeOf(req.input, req.options.Prune))
	if err != nil {
		return nil, nil, err
	}
	for {
		plan := rpsl.PlanImport(state.State, req.input, req.options)
		lost, err := state.lostRecords(ctx, tx, &plan)
		if err != nil {
			return nil, nil, err
		}
		if !lost {
			return state, &plan, nil
		}
	}
}

// importDatabase is a pool or a transaction.
type importDatabase interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

const (
	sqlCloseImportJobs = `
UPDATE registry.import_job
SET state = 'failed',
    finished_at = clock_timestamp(),
    progress = progress || '{"error": "the process that ran it ended"}'
WHERE state = 'running'
  AND created_at < clock_timestamp() - $1::interval`
	sqlBeginImportJob = `
INSERT INTO registry.import_job (format, actor, state, dry_run, prune)
VALUES ('rpsl', $1, 'running', $2, $3)
RETURNING id`
	sqlFinishImportJob = `
UPDATE registry.import_job
SET state = 'done',
    finished_at = clock_timestamp(),
    progress = $2,
    refused = $3
WHERE id = $1`
	sqlFailImportJob = `
UPDATE registry.import_job
SET state = 'failed',
    finished_at = clock_timestamp(),
    progress = jsonb_build_object('error', $2::text)
WHERE id = $1`
)

// begin notes the import's job. Jobs whose process ended long ago are closed.
func (im *importer) begin(ctx context.Context, req *importRequest) error {
	if _, err := im.pool.Exec(ctx, sqlCloseImportJobs, 2*importTimeout); err != nil {
		return fmt.Errorf("close old import jobs: %w", err)
	}
	err := im.pool.QueryRow(ctx, sqlBeginImportJob, req.actor, req.dryRun, req.options.Prune).Scan(&req.job)
	if err != nil {
		return fmt.Errorf("note the import: %w", err)
	}
	return nil
}

// finish closes the job, in the import's own transaction where it writes.
func (im *importer) finish(ctx context.Context, db importDatabase, req importRequest, result *client.ImportResult) error {
	result.Job = req.job
	progress := *result
	refused := progress.Refused
	progress.Refused, progress.Changes, progress.Notes = nil, nil, nil
	if len(refused) > importRefusals {
		refused = refused[:importRefusals]
	}
	if _, err := db.Exec(ctx, sqlFinishImportJob, req.job, progress, refused); err != nil {
		return fmt.Errorf("note the import's end: %w", err)
	}
	return nil
}

// failed closes the job of an import that changed nothing.
func (im *importer) failed(req importRequest, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := im.pool.Exec(ctx, sqlFailImportJob, req.job, problem.Of(databaseProblem(cause)).Detail); err != nil {
		im.log.Warn("the failed import could not be noted", "job", req.job, "error", err)
	}
}

const lockNotAvailable = "55P03"

// refusedByDatabase is the error of a statement that a rule of the database
// refused (classes 22 and 23: data and integrity), or nil.
func refusedByDatabase(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if errors.As(err, &e) && len(e.Code) == 5 && (e.Code[:2] == "22" || e.Code[:2] == "23") {
		return e
	}
	return nil
}

// isTransient tells whether another attempt may succeed: rows changed meanwhile,
// a deadlock (40P01), a serialisation failure (40001), a lock that was not got.
func isTransient(err error) bool {
	var changed *importChangedError
	return errors.As(err, &changed) || isCode(err, "40P01") || isCode(err, "40001") || isCode(err, lockNotAvailable)
}

func isCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// pause waits about d, less where ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
