package event

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

// Want notes that a full reconciliation is needed.
func (s *PostgresStore) Want(ctx context.Context, reason string) error {
	_, err := s.o.Pool.Exec(ctx, s.sql["want"], reason)
	return err
}

// Reconciled notes that a full reconciliation is complete.
func (s *PostgresStore) Reconciled(ctx context.Context, wanted int64) error {
	batch := &pgx.Batch{}
	batch.Queue(s.sql["reconciled"], wanted)
	batch.Queue(s.sql["prune"])
	return s.o.Pool.SendBatch(ctx, batch).Close()
}

// Allow notes that a foreign lineage may be adopted.
func (s *PostgresStore) Allow(ctx context.Context, lineage string) error {
	_, err := s.o.Pool.Exec(ctx, s.sql["allow"], lineage)
	return err
}

// Defer puts sources on the retry list.
func (s *PostgresStore) Defer(ctx context.Context, pause time.Duration, retries []Retry) error {
	if len(retries) == 0 {
		return nil
	}
	n := len(retries)
	kinds, keys := make([]string, n), make([]string, n)
	versions, attempts, reasons := make([]int64, n), make([]int32, n), make([]string, n)
	for i, r := range retries {
		kinds[i], keys[i] = string(r.Resource.Kind), r.Resource.Key
		versions[i], attempts[i], reasons[i] = r.Version, int32(min(r.Attempts, 1<<30)), r.Reason
	}
	_, err := s.o.Pool.Exec(ctx, s.sql["defer"], kinds, keys, versions, attempts, reasons, pause)
	return err
}

// Due claims sources of the retry list whose time has come.
func (s *PostgresStore) Due(ctx context.Context, pause time.Duration, limit int) ([]Retry, error) {
	rows, err := s.o.Pool.Query(ctx, s.sql["due"], pause, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRetry)
}

// Retries answers the retry list's length and some of it.
func (s *PostgresStore) Retries(ctx context.Context, limit int) (n int, some []Retry, err error) {
	if err := s.o.Pool.QueryRow(ctx, s.sql["count retries"]).Scan(&n); err != nil || limit == 0 || n == 0 {
		return n, nil, err
	}
	rows, err := s.o.Pool.Query(ctx, s.sql["retries"], limit)
	if err != nil {
		return n, nil, err
	}
	some, err = pgx.CollectRows(rows, scanRetry)
	return n, some, err
}

func scanRetry(row pgx.CollectableRow) (r Retry, err error) {
	return r, row.Scan(&r.Resource.Kind, &r.Resource.Key, &r.Version, &r.Attempts, &r.Reason, &r.Since, &r.Next)
}

// Settle takes sources off the retry list.
func (s *PostgresStore) Settle(ctx context.Context, resources []client.Resource) error {
	if len(resources) == 0 {
		return nil
	}
	kinds, keys := split(resources)
	_, err := s.o.Pool.Exec(ctx, s.sql["settle"], kinds, keys)
	return err
}

// Hold notes a held withdrawal.
func (s *PostgresStore) Hold(ctx context.Context, lineage, reason string, rows []Row) (id int64, err error) {
	err = s.transact(ctx, func(tx pgx.Tx) error {
		if err := s.inLineage(ctx, tx, lineage); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.sql["hold"], lineage, reason).Scan(&id); err != nil {
			return err
		}
		kinds, keys, versions := make([]string, len(rows)), make([]string, len(rows)), make([]int64, len(rows))
		for i, r := range rows {
			kinds[i], keys[i], versions[i] = string(r.Resource.Kind), r.Resource.Key, r.Version
		}
		_, err := tx.Exec(ctx, s.sql["hold sources"], kinds, keys, versions, id)
		return err
	})
	return id, err
}

// Release takes sources out of held withdrawals.
func (s *PostgresStore) Release(ctx context.Context, resources []client.Resource) error {
	kinds, keys := split(resources)
	_, err := s.o.Pool.Exec(ctx, s.sql["release"], kinds, keys)
	return err
}

// Holds answers the held withdrawals.
func (s *PostgresStore) Holds(ctx context.Context) ([]HeldSet, error) {
	rows, err := s.o.Pool.Query(ctx, s.sql["holds"])
	if err != nil {
		return nil, err
	}
	var out []HeldSet
	var set HeldSet
	var decided *time.Time
	var r client.Resource
	_, err = pgx.ForEachRow(rows,
		[]any{&set.ID, &set.Lineage, &set.Reason, &set.Decision, &set.HeldAt, &set.DecidedBy, &decided, &r.Kind, &r.Key},
		func() error {
			if len(out) == 0 || out[len(out)-1].ID != set.ID {
				if set.DecidedAt = (time.Time{}); decided != nil {
					set.DecidedAt = *decided
				}
				out = append(out, set)
			}
			last := &out[len(out)-1]
			last.Resources = append(last.Resources, r)
			return nil
		})
	return out, err
}

// Decide notes an operator's decision on a held withdrawal.
func (s *PostgresStore) Decide(ctx context.Context, id int64, decision Decision, by string) (bool, error) {
	done, err := s.o.Pool.Exec(ctx, s.sql["decide"], id, string(decision), by)
	return done.RowsAffected() == 1, err
}
