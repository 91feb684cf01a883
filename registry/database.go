package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/registry/client"
	"hubn/schema/pooler"
)

// databaseRole is what the Registry's connections act as.
const databaseRole = "hubn_registry"

// retries is how often a transaction runs again after a deadlock, a
// serialization failure, or an overlap that another transaction just created.
const retries = 3

// database is the pool of the Registry's connections.
type database struct {
	pool *pgxpool.Pool
	// limits is the SQL that gives a transaction its limits; empty where the
	// session has them.
	limits string
}

const (
	sqlCurrentUser  = `SELECT current_user::text`
	sqlLineageCheck = `SELECT registry.lineage_check()::text`
)

// openDatabase makes the pool and waits for its first connection, which says
// whether this is a primary and whether the history is still the same.
// Every connection tells saw its lineage.
func openDatabase(ctx context.Context, url string, settings Settings, saw func(lineage string)) (*database, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("database.url cannot be read: write postgresql://user@host/database (its text is not repeated here, it may hold a password)")
	}
	config.MaxConns = int32(settings.MaxConnections)
	parameters := config.ConnConfig.RuntimeParams
	parameters["application_name"] = "hubn-registry"
	parameters["timezone"] = "UTC"
	pooled, err := pooler.Ask(ctx, url)
	if err != nil {
		return nil, err
	}
	db := &database{}
	if pooled {
		// Of the parameters that a client may send, poolers know the two above.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		for name, value := range limits(settings) {
			db.limits += "; SET LOCAL " + name + " = '" + value + "'"
		}
	} else {
		maps.Copy(parameters, limits(settings))
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		var user, lineage string
		if err := conn.QueryRow(ctx, sqlCurrentUser).Scan(&user); err != nil {
			return err
		}
		if user != databaseRole && pooled {
			return pooler.RoleError("registry.database_url", user, databaseRole)
		}
		if user != databaseRole {
			if _, err := conn.Exec(ctx, `SET ROLE `+databaseRole); err != nil {
				return fmt.Errorf("take the role %s (run `hubn migrate` as the database's owner): %w", databaseRole, err)
			}
		}
		if err := conn.QueryRow(ctx, sqlLineageCheck).Scan(&lineage); err != nil {
			return fmt.Errorf("check the lineage (run `hubn migrate` if the schema is missing): %w", err)
		}
		saw(lineage)
		return nil
	}
	if db.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := db.pool.Ping(ctx); err != nil {
		db.pool.Close()
		return nil, err
	}
	return db, nil
}

// limits bound what a statement or a transaction may take, by the names of
// PostgreSQL's parameters.
func limits(settings Settings) map[string]string {
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		"jit":                                 "off", // statements are short: compiling costs more than it saves
		"statement_timeout":                   milliseconds(settings.StatementTimeout),
		"lock_timeout":                        milliseconds(settings.LockTimeout),
		"idle_in_transaction_session_timeout": milliseconds(settings.IdleInTransactionTimeout),
	}
}

func (d *database) close() { d.pool.Close() }

// open is the database while the Registry runs.
func (s *service) open() (*database, error) {
	if db := s.db.Load(); db != nil {
		return db, nil
	}
	return nil, starting()
}

// reading is a transaction that sees one snapshot.
type reading struct {
	pgx.Tx
	// Lineage is the one that the snapshot belongs to.
	Lineage string
	// At is when the snapshot was taken, by the database's clock.
	At time.Time
}

const sqlSnapshot = `SELECT registry.lineage_current()::text, statement_timestamp()`

// read runs f in a REPEATABLE READ, READ ONLY transaction. The answer carries
// the snapshot's lineage.
func (s *service) read(ctx context.Context, f func(context.Context, *reading) error) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	r := &reading{}
	r.Tx, err = db.begin(ctx, options, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlSnapshot).Scan(&r.Lineage, &r.At)
	})
	if err != nil {
		return databaseProblem(err)
	}
	defer func() { _ = r.Rollback(context.WithoutCancel(ctx)) }()
	s.sawLineage(ctx, r.Lineage)
	if err := f(ctx, r); err != nil {
		return databaseProblem(err)
	}
	return databaseProblem(r.Commit(ctx))
}

// begin begins a transaction and runs its first statement. A pool of connections
// that died together, when the server restarted, costs no request: as long as
// nothing was done, a dead connection is no reason to fail.
func (d *database) begin(ctx context.Context, options pgx.TxOptions, first func(pgx.Tx) error) (pgx.Tx, error) {
	if d.limits != "" {
		options.BeginQuery = beginSQL(options) + d.limits
	}
	for attempt := 0; ; attempt++ {
		tx, err := d.pool.BeginTx(ctx, options)
		if err == nil {
			if err = first(tx); err == nil {
				return tx, nil
			}
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
		if attempt == 1 || !lost(err) || ctx.Err() != nil {
			return nil, err
		}
		d.pool.Reset() // the others are of the same age
	}
}

// beginSQL is the SQL that begins a transaction with options.
func beginSQL(options pgx.TxOptions) string {
	sql := "BEGIN"
	if options.IsoLevel != "" {
		sql += " ISOLATION LEVEL " + string(options.IsoLevel)
	}
	return sql + " " + string(options.AccessMode)
}

// lost tells whether a connection was there and is no more.
func lost(err error) bool {
	var (
		refused *pgconn.PgError
		connect *pgconn.ConnectError
	)
	if errors.As(err, &refused) {
		return strings.HasPrefix(refused.Code, "57P") // the server is being stopped
	}
	return !errors.As(err, &connect)
}

// writing is a transaction that changes the Registry in the name of a caller.
type writing struct {
	pgx.Tx
	Lineage string
	// deferred is set when the transaction put constraints off.
	deferred bool
}

const sqlActing = `
SELECT registry.lineage_current()::text,
       set_config('hubn.actor', $1, true),
       set_config('hubn.token', $2, true),
       set_config('hubn.request_id', $3, true),
       set_config('hubn.reason', $4, true)`

// errRollback ends a dry run: the transaction did all its work and leaves no trace.
var errRollback = errors.New("dry run")

// write runs f in a transaction in the caller's name, and wakes the outbox's
// workers when it is committed. f may run several times.
func (s *service) write(ctx context.Context, f func(context.Context, *writing) error) error {
	return s.writeBecause(ctx, "", f)
}

// writeBecause is write with a reason for the change log.
func (s *service) writeBecause(ctx context.Context, reason string, f func(context.Context, *writing) error) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err = s.writeOnce(ctx, db, reason, f)
		if err == nil {
			s.wake.hint()
			return nil
		}
		if attempt == retries || !worthRetrying(err) {
			return databaseProblem(err)
		}
		s.metrics.retried.Inc()
	}
}

func (s *service) writeOnce(ctx context.Context, db *database, reason string, f func(context.Context, *writing) error) error {
	c, w := callOf(ctx), &writing{}
	var err error
	w.Tx, err = db.begin(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		var ignored [4]string
		return tx.QueryRow(ctx, sqlActing, c.principal.Name, c.principal.TokenID, c.requestID, reason).
			Scan(&w.Lineage, &ignored[0], &ignored[1], &ignored[2], &ignored[3])
	})
	if err != nil {
		return err
	}
	defer func() { _ = w.Rollback(context.WithoutCancel(ctx)) }()
	s.sawLineage(ctx, w.Lineage)
	if err := f(ctx, w); err != nil {
		return err
	}
	return w.Commit(ctx)
}

// sawLineage makes the answer carry the lineage of its snapshot.
func (s *service) sawLineage(ctx context.Context, lineage string) {
	callOf(ctx).lineage = lineage
	if s.lineage.get() != lineage {
		s.lineage.set(lineage)
	}
}

// worthRetrying are the errors after which the same transaction may succeed:
// deadlock, serialization failure, a sibling that another created meanwhile
// (then it is the parent or a child next time), space that another took meanwhile,
// a connection that was dead before anything was sent.
func worthRetrying(err error) bool {
	var (
		refused *pgconn.PgError
		race    racedError
	)
	if errors.As(err, &race) {
		return true
	}
	if errors.As(err, &refused) {
		switch refused.Code {
		case "40P01", "40001", "23P01":
			return true
		}
		return false
	}
	return pgconn.SafeToRetry(err)
}

const sqlLockLanes = `SELECT registry.outbox_lock($1, $2)`

// lockLanes takes the lanes of several aggregates in the one order that everybody
// uses, for a transaction that changes them in several statements.
func (w *writing) lockLanes(ctx context.Context, resources ...client.Resource) error {
	kinds, keys := make([]string, len(resources)), make([]string, len(resources))
	for i, r := range resources {
		kinds[i], keys[i] = string(r.Kind), r.Key
	}
	_, err := w.Exec(ctx, sqlLockLanes, kinds, keys)
	return err
}

// The versions that this transaction has made: its change-log entries name the
// aggregates, and a lane whose last event is this transaction's moved. The bound
// on at is for pruning.
const sqlProduced = `
SELECT l.agg_type,
       l.agg_key,
       l.last_seq
FROM (
  SELECT DISTINCT kind, agg_key
  FROM registry.change_log
  WHERE xid = pg_current_xact_id()
    AND kind = ANY($1)
    AND at >= transaction_timestamp() - interval '1 minute'
    AND at < transaction_timestamp() + interval '1 day'
) touched
JOIN registry.outbox_lane l ON l.agg_type = touched.kind AND l.agg_key = touched.agg_key
JOIN registry.outbox_event e ON e.lane_id = l.lane_id AND e.seq = l.last_seq AND e.created_at = l.last_event_at
WHERE e.xid = pg_current_xact_id()
ORDER BY l.agg_type, l.agg_key`

// produced are the versions that this transaction has made so far.
func (w *writing) produced(ctx context.Context) ([]client.Produced, error) {
	rows, err := w.Query(ctx, sqlProduced, client.SourceKinds)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p client.Produced, err error) {
		return p, row.Scan(&p.Resource.Kind, &p.Resource.Key, &p.Version)
	})
}
