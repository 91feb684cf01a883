package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/schema/pooler"
)

// otherConnections are those that watching, measuring and settling late need
// besides one for each worker.
const otherConnections = 4

// applicationName is what the worker's connections are called in pg_stat_activity.
const applicationName = "hubn outbox"

// openPool opens connections that act as the worker's role. Statements are
// described once and never prepared by name, so that a transaction pooler may
// stand between; the server also plans each for its very parameters then, which
// is what prunes partitions at planning time.
func openPool(ctx context.Context, url string, workers int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("outbox.database_url cannot be read: write postgresql://user@host/database (its text is not repeated here: it may hold a password)")
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.ConnConfig.RuntimeParams["application_name"] = applicationName
	config.MaxConns = int32(workers + otherConnections)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := assumeRole(ctx, conn); err != nil {
			return err
		}
		// History may have changed while there was no connection (DESIGN 5).
		_, err := conn.Exec(ctx, `SELECT registry.lineage_check()`)
		return err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

func assumeRole(ctx context.Context, conn *pgx.Conn) error {
	var user string
	if err := conn.QueryRow(ctx, `SELECT current_user`).Scan(&user); err != nil {
		return err
	}
	if user == role {
		return nil
	}
	switch pooled, err := pooler.Between(ctx, conn); {
	case err != nil:
		return err
	case pooled:
		return pooler.RoleError("outbox.database_url", user, role)
	}
	if _, err := conn.Exec(ctx, `SET ROLE `+role); err != nil {
		return fmt.Errorf("act as the PostgreSQL role %s (connect as it, or as a member of it): %w", role, err)
	}
	return nil
}

// batchSettings hold for one transaction, so that they survive a pooler. A
// claim or an acknowledgement that a crash of the server forgets is harmless:
// the claimant's name never comes again and the fence suppresses what is
// published twice; so nothing waits for the disk. The batch's rows are found by
// their keys: the planner, who knows a new partition badly, might read all of it.
const batchSettings = `
	SELECT set_config('synchronous_commit', 'off', true),
	       set_config('jit', 'off', true),
	       set_config('enable_seqscan', 'off', true),
	       set_config('enable_hashjoin', 'off', true),
	       set_config('enable_mergejoin', 'off', true)`

// staleDescription is the SQLSTATE of a statement whose result changed since it
// was described: a migration ran in between.
const staleDescription = "0A000"

// statement is one of a transaction, and what takes its rows.
type statement struct {
	sql  string
	args []any
	take func(pgx.Rows) error
}

// transact runs statements as one transaction in one round trip, under batchSettings.
func (w *Worker) transact(ctx context.Context, statements ...statement) error {
	settings := statement{batchSettings, nil, func(pgx.Rows) error { return nil }}
	return w.roundTrip(ctx, append([]statement{settings}, statements...)...)
}

// roundTrip runs statements as one transaction in one round trip.
func (w *Worker) roundTrip(ctx context.Context, statements ...statement) error {
	ctx, cancel := context.WithTimeout(ctx, w.pace.statement)
	defer cancel()
	err := w.roundTripOnce(ctx, statements)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == staleDescription {
		err = w.roundTripOnce(ctx, statements)
	}
	w.noteDatabase(err)
	if err != nil {
		return databaseError{err}
	}
	return nil
}

// outage is since when and why something cannot be reached.
type outage struct {
	since time.Time
	cause error
}

// noteDatabase keeps for the status since when statements fail.
func (w *Worker) noteDatabase(err error) {
	switch {
	case err == nil:
		if w.database.Swap(nil) != nil {
			w.wantSweep()
		}
	case !errors.Is(err, context.Canceled):
		w.database.CompareAndSwap(nil, &outage{time.Now(), err})
	}
}

// databaseError tells a fault of the database from one of Redis, where both may be.
type databaseError struct{ error }

func (e databaseError) Unwrap() error { return e.error }

func isDatabase(err error) bool {
	var of databaseError
	return errors.As(err, &of)
}

// errLocked: another worker holds the advisory lock.
var errLocked = errors.New("another worker is at it")

// underLock runs f in a transaction that holds an advisory lock, or answers errLocked.
func (w *Worker) underLock(ctx context.Context, lock string, f func(pgx.Tx) error) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return databaseError{err}
	}
	// Does nothing after a commit; with a ctx that is done, it would close the connection.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var mine bool
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, lock).Scan(&mine); err != nil {
		return databaseError{err}
	}
	if !mine {
		return errLocked
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return databaseError{err}
	}
	return nil
}

func (w *Worker) roundTripOnce(ctx context.Context, statements []statement) (err error) {
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := w.pool.SendBatch(ctx, batch)
	// The transaction commits when its results are closed.
	defer func() { err = errors.Join(err, results.Close()) }()
	for _, s := range statements {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		for rows.Next() {
			if err := s.take(rows); err != nil {
				rows.Close()
				return err
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}
