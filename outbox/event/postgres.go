package event

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/registry/client"
)

// PostgresOptions describe a store in a module's own database schema. Pool,
// Schema and Write must be set.
type PostgresOptions struct {
	// Pool is of connections as the module's role.
	Pool *pgxpool.Pool
	// Schema is the module's schema; its numbered SQL holds the tables of PostgresTables.
	Schema string
	// Prepare looks at changes before their transaction begins; it may ask the
	// Registry, in the lineage given, which nothing may do inside of one. What it
	// answers is given to Write. An error that is of an unavailable Registry makes
	// the changes wait.
	Prepare func(ctx context.Context, lineage string, changes []Change) (prepared any, err error)
	// Write makes the changes in the module's own tables, in the transaction that
	// stores their versions; it is called only with changes that are newer than
	// what the store held. prepared is nil where a whole lineage is replaced:
	// then the transaction holds all of it. An error rolls back; after ErrAgain
	// everything is done again, after any other the changes are tried in halves,
	// so that one that cannot be made stops no other.
	Write func(ctx context.Context, tx pgx.Tx, changes []Change, prepared any) error
	// Describe adds what the module itself has to say to the reports of sources:
	// the detail, or that what was derived failed. nil adds nothing.
	Describe func(ctx context.Context, db Querier, items []client.ReportItem) error
}

// Querier reads a database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// PostgresStore is a Store in a module's database schema.
type PostgresStore struct {
	o   PostgresOptions
	sql map[string]string
}

var _ Store = (*PostgresStore)(nil)

// NewPostgresStore makes a store; it touches no database.
func NewPostgresStore(o PostgresOptions) *PostgresStore {
	s := &PostgresStore{o: o, sql: map[string]string{}}
	for name, text := range postgresStatements {
		s.sql[name] = strings.ReplaceAll(text, "{schema}", pgx.Identifier{o.Schema}.Sanitize())
	}
	return s
}

// PostgresTables is the SQL of the tables that the store needs in a schema. A
// module has it as one of its numbered files, word for word; a test of the
// module compares the two.
func PostgresTables(schema string) string {
	return strings.ReplaceAll(postgresTables, "{schema}", schema)
}

// conflictRetries is how often a transaction that lost a race is run again.
const conflictRetries = 3

// transact runs do in a transaction, again where it lost a race.
func (s *PostgresStore) transact(ctx context.Context, do func(tx pgx.Tx) error) error {
	for attempt := 0; ; attempt++ {
		err := pgx.BeginFunc(ctx, s.o.Pool, do)
		var p *pgconn.PgError
		if errors.As(err, &p) && (p.Code == "40001" || p.Code == "40P01") && attempt < conflictRetries {
			continue
		}
		return err
	}
}

// inLineage locks the store's lineage against a replacement, and checks it.
func (s *PostgresStore) inLineage(ctx context.Context, tx pgx.Tx, lineage string) error {
	if _, err := tx.Exec(ctx, s.sql["lock shared"], s.o.Schema); err != nil {
		return err
	}
	var own string
	if err := tx.QueryRow(ctx, s.sql["lineage"]).Scan(&own); err != nil {
		return err
	}
	if own != lineage {
		return fmt.Errorf("%w: it is of %q, not %q", ErrLineage, own, lineage)
	}
	return nil
}

// State reads the consumer's notes.
func (s *PostgresStore) State(ctx context.Context) (State, error) {
	var state State
	var reconciled *time.Time
	err := s.o.Pool.QueryRow(ctx, s.sql["state"]).Scan(
		&state.Lineage, &state.Allowed, &state.Wanted, &state.Done, &state.Reason, &reconciled, &state.Now)
	if reconciled != nil {
		state.ReconciledAt = *reconciled
	}
	return state, err
}

// Begin makes lineage the store's, if it has none yet.
func (s *PostgresStore) Begin(ctx context.Context, lineage string) error {
	return s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql["lock"], s.o.Schema); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql["begin"], lineage); err != nil {
			return err
		}
		return s.inLineage(ctx, tx, lineage)
	})
}

// Held answers what is held of the resources.
func (s *PostgresStore) Held(ctx context.Context, resources []client.Resource) (map[client.Resource]Held, error) {
	kinds, keys := split(resources)
	rows, err := s.o.Pool.Query(ctx, s.sql["held"], kinds, keys)
	if err != nil {
		return nil, err
	}
	out := make(map[client.Resource]Held, len(resources))
	var r client.Resource
	var h Held
	_, err = pgx.ForEachRow(rows, []any{&r.Kind, &r.Key, &h.Version, &h.Gone}, func() error {
		out[r] = h
		return nil
	})
	return out, err
}

// Published is how many sources the store holds as present.
func (s *PostgresStore) Published(ctx context.Context) (n int, err error) {
	return n, s.o.Pool.QueryRow(ctx, s.sql["published"]).Scan(&n)
}

// Inventory answers sources that the store holds as present.
func (s *PostgresStore) Inventory(ctx context.Context, after client.Resource, limit int) ([]Row, error) {
	rows, err := s.o.Pool.Query(ctx, s.sql["inventory"], string(after.Kind), after.Key, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Row, err error) {
		return r, row.Scan(&r.Resource.Kind, &r.Resource.Key, &r.Version)
	})
}

// Describe says what is to be reported of sources.
func (s *PostgresStore) Describe(ctx context.Context, after client.Resource, limit int, resources ...client.Resource) ([]client.ReportItem, error) {
	statement, args := s.sql["describe"], []any{string(after.Kind), after.Key, limit}
	if len(resources) > 0 {
		kinds, keys := split(resources)
		statement, args = s.sql["describe some"], []any{kinds, keys}
	}
	rows, err := s.o.Pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (client.ReportItem, error) {
		var i client.ReportItem
		var set *int64
		var present bool
		err := row.Scan(&i.Resource.Kind, &i.Resource.Key, &i.Version, &present, &i.FetchedAt, &set)
		i.State = client.ReportApplied
		switch {
		case !present:
			i.State = client.ReportWithdrawn
		case set != nil:
			i.State, i.Reason = client.ReportHeld, fmt.Sprintf("its withdrawal is held: approve or reject %d", *set)
		}
		return i, err
	})
	if err != nil || s.o.Describe == nil || len(items) == 0 {
		return items, err
	}
	return items, s.o.Describe(ctx, s.o.Pool, items)
}

// split is resources as two columns.
func split(resources []client.Resource) (kinds, keys []string) {
	kinds, keys = make([]string, len(resources)), make([]string, len(resources))
	for i, r := range resources {
		kinds[i], keys[i] = string(r.Kind), r.Key
	}
	return kinds, keys
}
