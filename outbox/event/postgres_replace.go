package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

// stageChunk is how many staged sources are handed to the module at once.
const stageChunk = 1000

// stageRetry is when a source that could not be taken over is tried again.
const stageRetry = time.Minute

// Replace begins the adoption of a new lineage.
func (s *PostgresStore) Replace(ctx context.Context, lineage string) (Replacement, error) {
	state, err := s.State(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.o.Pool.Exec(ctx, s.sql["forget stages"]); err != nil {
		return nil, err
	}
	return &postgresReplacement{s: s, run: uuid.NewString(), old: state.Lineage, lineage: lineage, staged: map[client.Resource]bool{}}, nil
}

// postgresReplacement stages in a table, so that a large registry needs no memory.
type postgresReplacement struct {
	s            *PostgresStore
	run          string
	old, lineage string
	// staged tells which sources have a version; those without are gone.
	staged map[client.Resource]bool
}

// Stage notes sources as the new lineage states them.
func (r *postgresReplacement) Stage(ctx context.Context, changes []Change) error {
	c := columns(changes)
	for _, change := range changes {
		r.staged[change.Resource] = change.Version > 0
	}
	_, err := r.s.o.Pool.Exec(ctx, r.s.sql["stage"], r.run, c.kinds, c.keys, c.versions, c.bodies, c.fetched)
	return err
}

// Discard drops what was staged.
func (r *postgresReplacement) Discard(ctx context.Context) error {
	_, err := r.s.o.Pool.Exec(ctx, r.s.sql["discard"], r.run)
	return err
}

// Commit replaces all stored versions by the staged ones.
func (r *postgresReplacement) Commit(ctx context.Context, reason string, hold []Row) error {
	s := r.s
	return s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql["lock"], s.o.Schema); err != nil {
			return err
		}
		if err := s.inLineage(ctx, tx, r.old); err != nil {
			return err
		}
		held := make([]client.Resource, len(hold))
		for i, row := range hold {
			held[i] = row.Resource
			delete(r.staged, row.Resource)
		}
		kinds, keys := split(held)
		if _, err := tx.Exec(ctx, s.sql["unstage"], r.run, kinds, keys); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql["make room"], r.run); err != nil {
			return err
		}
		if err := r.holdRest(ctx, tx, reason); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql["forget retries"]); err != nil {
			return err
		}
		if err := r.takeStage(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql["set lineage"], r.lineage)
		return err
	})
}

// holdRest holds every source that the new lineage does not know: those that
// the scan found missing, and any that another replica took meanwhile.
func (r *postgresReplacement) holdRest(ctx context.Context, tx pgx.Tx, reason string) error {
	s := r.s
	if _, err := tx.Exec(ctx, s.sql["forget holds"]); err != nil {
		return err
	}
	var rest int
	if err := tx.QueryRow(ctx, s.sql["count rest"]).Scan(&rest); err != nil || rest == 0 {
		return err
	}
	var id int64
	if err := tx.QueryRow(ctx, s.sql["hold"], r.lineage, reason).Scan(&id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql["hold rest"], id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.sql["unversion rest"])
	return err
}

// takeStage stores the staged versions and hands the sources to the module.
func (r *postgresReplacement) takeStage(ctx context.Context, tx pgx.Tx) error {
	s := r.s
	done, err := tx.Exec(ctx, s.sql["take stage"], r.run)
	if err != nil {
		return err
	}
	versions := int64(0)
	for _, versioned := range r.staged {
		if versioned {
			versions++
		}
	}
	if done.RowsAffected() != versions {
		return fmt.Errorf("%d sources were staged and %d are there: the scan starts over", versions, done.RowsAffected())
	}
	var after client.Resource
	for {
		rows, err := tx.Query(ctx, s.sql["staged"], r.run, string(after.Kind), after.Key, stageChunk)
		if err != nil {
			return err
		}
		changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Change, err error) {
			var body *string
			err = row.Scan(&c.Resource.Kind, &c.Resource.Key, &c.Version, &body, &c.FetchedAt)
			if body != nil {
				c.Body = json.RawMessage(*body)
			}
			return c, err
		})
		if err != nil || len(changes) == 0 {
			return err
		}
		after = changes[len(changes)-1].Resource
		if err := r.write(ctx, tx, changes); err != nil {
			return err
		}
	}
}

// write hands sources to the module inside of the transaction. One that cannot
// be written keeps what the module had of it and goes to the retry list.
func (r *postgresReplacement) write(ctx context.Context, tx pgx.Tx, changes []Change) error {
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		return r.s.write(ctx, inner, changes, nil)
	})
	var f changeFault
	if err == nil || !errors.As(err, &f) {
		return err
	}
	if middle := len(changes) / 2; middle > 0 {
		if err := r.write(ctx, tx, changes[:middle]); err != nil {
			return err
		}
		return r.write(ctx, tx, changes[middle:])
	}
	c := changes[0]
	batch := &pgx.Batch{}
	batch.Queue(r.s.sql["unversion"], string(c.Resource.Kind), c.Resource.Key)
	batch.Queue(r.s.sql["defer"], []string{string(c.Resource.Kind)}, []string{c.Resource.Key}, []int64{c.Version}, []int32{1}, []string{f.Error()}, stageRetry)
	return tx.SendBatch(ctx, batch).Close()
}
