package event

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/registry/client"
)

// Apply applies each change whose version is newer than the one held.
func (s *PostgresStore) Apply(ctx context.Context, lineage string, changes []Change) ([]Outcome, error) {
	return s.parts(ctx, len(changes), func(from, to int) ([]Outcome, error) {
		return s.applyTogether(ctx, lineage, changes[from:to])
	})
}

// Withdraw applies that sources are gone.
func (s *PostgresStore) Withdraw(ctx context.Context, lineage string, rows []Row) ([]Outcome, error) {
	return s.parts(ctx, len(rows), func(from, to int) ([]Outcome, error) {
		return s.withdrawTogether(ctx, lineage, rows[from:to])
	})
}

// parts runs one transaction over n changes; where one of them cannot be made,
// over halves, down to the single one that fails.
func (s *PostgresStore) parts(ctx context.Context, n int, run func(from, to int) ([]Outcome, error)) ([]Outcome, error) {
	var halve func(from, to int) ([]Outcome, error)
	halve = func(from, to int) ([]Outcome, error) {
		outcomes, err := run(from, to)
		var fault changeFault
		switch {
		case err == nil || !errors.As(err, &fault):
			return outcomes, err
		case to-from == 1:
			return []Outcome{{Result: Failed, Err: fault.err}}, nil
		}
		middle := from + (to-from)/2
		first, err := halve(from, middle)
		if err != nil {
			return nil, err
		}
		second, err := halve(middle, to)
		return append(first, second...), err
	}
	if n == 0 {
		return nil, nil
	}
	return halve(0, n)
}

// changeFault is an error that is of a change, not of reaching the store.
type changeFault struct{ err error }

func (f changeFault) Error() string { return f.err.Error() }
func (f changeFault) Unwrap() error { return f.err }

// fault tells a change that cannot be made from a store or Registry that cannot
// be reached.
func fault(ctx context.Context, conn *pgx.Conn, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrAgain) || client.ReasonOf(err) != "" || conn != nil && conn.IsClosed() {
		return err
	}
	var p *pgconn.PgError
	if errors.As(err, &p) {
		switch p.Code[:2] {
		case "08", "25", "40", "42", "53", "57", "58":
			// The connection, a read-only server, a lost race, privileges and
			// missing tables, resources, a shutdown, the system: nothing that
			// another change would not meet as well.
			return err
		}
		if p.Code == "55P03" { // lock_timeout
			return err
		}
	}
	return changeFault{err}
}

// prepareRetries is how often changes are prepared anew because a concurrent
// change of the same sources overtook the preparation.
const prepareRetries = 3

// prepared prepares changes and runs do, again where what was prepared no
// longer holds.
func (s *PostgresStore) prepared(ctx context.Context, lineage string, changes []Change, do func(tx pgx.Tx, prepared any) error) error {
	for attempt := 0; ; attempt++ {
		var prepared any
		if s.o.Prepare != nil {
			err := safely(func() (err error) {
				prepared, err = s.o.Prepare(ctx, lineage, changes)
				return err
			})
			if err != nil {
				return fault(ctx, nil, err)
			}
		}
		err := s.transact(ctx, func(tx pgx.Tx) error {
			if err := s.inLineage(ctx, tx, lineage); err != nil {
				return err
			}
			return do(tx, prepared)
		})
		if errors.Is(err, ErrAgain) && attempt < prepareRetries {
			continue
		}
		return err
	}
}

// write hands changes to the module.
func (s *PostgresStore) write(ctx context.Context, tx pgx.Tx, changes []Change, prepared any) error {
	if len(changes) == 0 {
		return nil
	}
	err := safely(func() error { return s.o.Write(ctx, tx, changes, prepared) })
	if err != nil {
		return fault(ctx, tx.Conn(), err)
	}
	return nil
}

func (s *PostgresStore) applyTogether(ctx context.Context, lineage string, changes []Change) ([]Outcome, error) {
	var newer map[client.Resource]bool
	err := s.prepared(ctx, lineage, changes, func(tx pgx.Tx, prepared any) (err error) {
		if newer, err = s.take(ctx, tx, changes); err != nil {
			return err
		}
		write := of(newer, changes)
		if err := s.write(ctx, tx, write, prepared); err != nil {
			return err
		}
		return s.tidy(ctx, tx, changes, write)
	})
	if err != nil {
		return nil, err
	}
	return outcomesOf(newer, changes), nil
}

// of are the changes of some resources.
func of(resources map[client.Resource]bool, changes []Change) (out []Change) {
	for _, c := range changes {
		if resources[c.Resource] {
			out = append(out, c)
		}
	}
	return out
}

// outcomesOf are the outcomes of changes of which some were applied.
func outcomesOf(applied map[client.Resource]bool, changes []Change) []Outcome {
	outcomes := make([]Outcome, len(changes))
	for i, c := range changes {
		outcomes[i].Result = Stale
		if applied[c.Resource] {
			outcomes[i].Result = Applied
		}
	}
	return outcomes
}

// take stores the versions of changes that are newer, and answers which.
func (s *PostgresStore) take(ctx context.Context, tx pgx.Tx, changes []Change) (map[client.Resource]bool, error) {
	c := columns(changes)
	rows, err := tx.Query(ctx, s.sql["take"], c.kinds, c.keys, c.versions, c.gone, c.fetched)
	if err != nil {
		return nil, err
	}
	return taken(rows)
}

func taken(rows pgx.Rows) (map[client.Resource]bool, error) {
	out := map[client.Resource]bool{}
	var r client.Resource
	_, err := pgx.ForEachRow(rows, []any{&r.Kind, &r.Key}, func() error {
		out[r] = true
		return nil
	})
	return out, err
}

// tidy takes what is up to date off the retry list, and what changed out of the
// held withdrawals.
func (s *PostgresStore) tidy(ctx context.Context, tx pgx.Tx, all, changed []Change) error {
	c := columns(all)
	batch := &pgx.Batch{}
	batch.Queue(s.sql["settle up to"], c.kinds, c.keys, c.versions)
	if len(changed) > 0 {
		w := columns(changed)
		batch.Queue(s.sql["release"], w.kinds, w.keys)
	}
	return tx.SendBatch(ctx, batch).Close()
}

func (s *PostgresStore) withdrawTogether(ctx context.Context, lineage string, rows []Row) ([]Outcome, error) {
	changes := make([]Change, len(rows))
	for i, r := range rows {
		changes[i] = Change{Resource: r.Resource, Version: r.Version}
	}
	var gone map[client.Resource]bool
	err := s.prepared(ctx, lineage, changes, func(tx pgx.Tx, prepared any) error {
		c := columns(changes)
		found, err := tx.Query(ctx, s.sql["withdraw"], c.kinds, c.keys, c.versions)
		if err != nil {
			return err
		}
		if gone, err = taken(found); err != nil {
			return err
		}
		write := of(gone, changes)
		if err := s.write(ctx, tx, write, prepared); err != nil {
			return err
		}
		return s.tidy(ctx, tx, write, write)
	})
	if err != nil {
		return nil, err
	}
	return outcomesOf(gone, changes), nil
}

// Expected tells which of some sources have a newer version in the Registry
// than the store holds, so that their event is on the way; it is for Write. The
// event then waits for the transaction, so that whatever Write notes in the name
// of the source is replaced by what the event brings.
func (s *PostgresStore) Expected(ctx context.Context, tx pgx.Tx, sources []client.TupleSource) (map[client.Resource]bool, error) {
	kinds, keys, versions := make([]string, len(sources)), make([]string, len(sources)), make([]int64, len(sources))
	for i, source := range sources {
		kinds[i], keys[i], versions[i] = string(source.Resource.Kind), source.Resource.Key, source.Version
	}
	if _, err := tx.Exec(ctx, s.sql["expect"], kinds, keys); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, s.sql["expected"], kinds, keys, versions)
	if err != nil {
		return nil, err
	}
	return taken(rows)
}

// changeColumns are changes as the arrays of a statement.
type changeColumns struct {
	kinds, keys []string
	versions    []int64
	gone        []bool
	bodies      []*string
	fetched     []time.Time
}

func columns(changes []Change) changeColumns {
	n := len(changes)
	c := changeColumns{
		make([]string, n), make([]string, n), make([]int64, n), make([]bool, n), make([]*string, n), make([]time.Time, n),
	}
	for i, change := range changes {
		c.kinds[i], c.keys[i] = string(change.Resource.Kind), change.Resource.Key
		c.versions[i], c.gone[i], c.fetched[i] = change.Version, change.Gone(), change.FetchedAt
		if !change.Gone() {
			body := string(change.Body)
			c.bodies[i] = &body
		}
	}
	return c
}
