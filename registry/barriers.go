package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) barrierRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/barriers", id: "create-barrier", tag: "waiting",
		summary: "Make a barrier behind everything that is committed now", needs: wait, status: http.StatusCreated,
	}, s.createBarrier)
	register(s, operation{
		method: http.MethodGet, path: "/v1/barriers/{id}", id: "get-barrier", tag: "waiting",
		summary: "Take a barrier as far as it goes, and say where it is", needs: wait, unlogged: true,
		problems: []problem.Kind{problem.NotFound},
	}, s.getBarrier)
}

type barrierOutput struct {
	Body client.Barrier
}

const (
	sqlBarrierCreate  = `SELECT registry.barrier_create()`
	sqlBarrierAdvance = `SELECT registry.barrier_advance($1)`
	sqlBarrier        = `
SELECT b.lineage::text,
       b.raised_at IS NOT NULL
FROM registry.barrier b
WHERE b.id = $1`
	// A later barrier on a stream proves this one too. Modules that consume
	// nothing hold nobody up.
	sqlBarrierModules = `
SELECT m.name,
       NOT EXISTS (
         SELECT
         FROM registry.module_instance i
         WHERE i.module = m.name
           AND i.seen_at >= statement_timestamp() - $2::integer * make_interval(secs => i.interval_seconds)),
       missing.streams,
       coalesce(missing.reason, '')
FROM registry.module m
CROSS JOIN LATERAL (
  SELECT count(*) AS streams,
         min(nullif(a.reason, '')) AS reason
  FROM registry.barrier_stream b
  LEFT JOIN registry.applied_state a ON a.module = m.name
    AND a.agg_type = 'barrier'
    AND a.agg_key = b.stream_no::text
    AND a.lineage = $3::text::uuid
    AND a.version >= b.version
  WHERE b.barrier_id = $1
    AND a.state IS DISTINCT FROM 'applied'
) missing
WHERE cardinality(m.kinds) > 0
ORDER BY m.name`
)

func (s *service) createBarrier(ctx context.Context, _ *struct{}) (*barrierOutput, error) {
	var out barrierOutput
	err := s.write(ctx, func(ctx context.Context, tx *writing) error {
		var id int64
		if err := tx.QueryRow(ctx, sqlBarrierCreate).Scan(&id); err != nil {
			return err
		}
		var err error
		out.Body, err = advanceBarrier(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type barrierInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *service) getBarrier(ctx context.Context, in *barrierInput) (*barrierOutput, error) {
	var out barrierOutput
	err := s.write(ctx, func(ctx context.Context, tx *writing) (err error) {
		out.Body, err = advanceBarrier(ctx, tx, in.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// advanceBarrier takes the barrier on and reads where it is.
func advanceBarrier(ctx context.Context, tx *writing, id int64) (client.Barrier, error) {
	b := client.Barrier{ID: id, Modules: []client.BarrierModule{}}
	err := tx.QueryRow(ctx, sqlBarrier, id).Scan(&b.Lineage, &b.Raised)
	if errors.Is(err, pgx.ErrNoRows) {
		return b, problem.New(problem.NotFound, "there is no barrier %d: barriers are kept for a week, and a restore may have lost it; make another", id)
	}
	if err != nil {
		return b, err
	}
	if b.Lineage != tx.Lineage {
		// What it waited for belongs to a history that is over: no report can
		// name its versions any more.
		b.Superseded = tx.Lineage
		return b, nil
	}
	if !b.Raised {
		if err := tx.QueryRow(ctx, sqlBarrierAdvance, id).Scan(&b.Ahead); err != nil {
			return b, err
		}
		b.Raised = b.Ahead == 0
	}
	rows, err := tx.Query(ctx, sqlBarrierModules, id, silentIntervals, tx.Lineage)
	if err != nil {
		return b, err
	}
	b.Done = b.Raised
	var m client.BarrierModule
	_, err = pgx.ForEachRow(rows, []any{&m.Module, &m.Stale, &m.Missing, &m.Reason}, func() error {
		b.Modules = append(b.Modules, barrierModule(b.Raised, m))
		b.Done = b.Done && b.Modules[len(b.Modules)-1].Done
		return nil
	})
	return b, err
}

// barrierModule says what a module still lacks.
func barrierModule(raised bool, m client.BarrierModule) client.BarrierModule {
	m.Done = raised && m.Missing == 0
	switch {
	case m.Done:
		m.Reason = ""
	case m.Stale:
		m.Reason = fmt.Sprintf("%s is not heard of; if it will not come back: hubn modules forget %s", m.Module, m.Module)
	case m.Reason == "" && !raised:
		m.Reason = "the changes before the barrier are not published yet"
	case m.Reason == "":
		m.Reason = fmt.Sprintf("has not reported the barrier on %d streams", m.Missing)
	}
	return m
}
