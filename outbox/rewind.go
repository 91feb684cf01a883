package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// rewindSQL takes back what Redis no longer has, under a new token: whoever has
// the lane claimed cannot acknowledge any more. head_at is looked for in all
// partitions. Lanes that a writer has locked, or that moved, are left to the
// next audit, which their next publication asks for.
const rewindSQL = `
	WITH wanted AS (
	  SELECT *
	  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w (lane_id, pub_seq, fence)
	), held AS (
	  SELECT l.lane_id
	  FROM registry.outbox_lane l
	  WHERE l.lane_id = ANY ($1)
	  ORDER BY l.lane_id
	  FOR NO KEY UPDATE SKIP LOCKED
	), rewound AS (
	  UPDATE registry.outbox_lane l
	  SET pub_seq = w.fence,
	      claim_token = l.claim_token + 1,
	      claimed_by = NULL,
	      next_at = now(),
	      queued_at = now(),
	      head_at = coalesce((SELECT min(e.created_at)
	                          FROM registry.outbox_event e
	                          WHERE e.lane_id = l.lane_id
	                            AND e.seq > w.fence), l.last_event_at)
	  FROM wanted w
	  JOIN held USING (lane_id)
	  WHERE l.lane_id = w.lane_id
	    AND l.pub_seq = w.pub_seq
	  RETURNING l.lane_id, w.fence
	)
	SELECT r.lane_id,
	       EXISTS (SELECT FROM registry.outbox_event e WHERE e.lane_id = r.lane_id AND e.seq = r.fence + 1)
	FROM rewound r`

// keepPartitionsSQL keeps partitions from being dropped in this transaction.
const keepPartitionsSQL = `SELECT pg_advisory_xact_lock_shared(hashtextextended('registry.outbox_retention', 0))`

// rewind publishes again what Redis lost. It answers the lanes that it took
// back, and for each whether its next event is still there.
func (w *Worker) rewind(ctx context.Context, lanes []auditedLane) (map[int64]bool, error) {
	ids, pubSeqs, fences := make([]int64, len(lanes)), make([]int64, len(lanes)), make([]int64, len(lanes))
	for i, l := range lanes {
		ids[i], pubSeqs[i], fences[i] = l.id, l.pubSeq, l.fence
	}
	fixed := map[int64]bool{}
	err := w.transact(ctx,
		statement{keepPartitionsSQL, nil, func(pgx.Rows) error { return nil }},
		statement{rewindSQL, []any{ids, pubSeqs, fences}, func(rows pgx.Rows) error {
			var id int64
			var there bool
			err := rows.Scan(&id, &there)
			fixed[id] = there
			return err
		}})
	if err != nil {
		return nil, fmt.Errorf("take back what Redis lost of %d lanes: %w", len(lanes), err)
	}
	if len(fixed) > 0 {
		w.wake(again)
	}
	return fixed, nil
}

// rewindLanes takes back lanes that the script refused for a gap, and asks for
// an audit of all: what lost one may have lost others.
func (w *Worker) rewindLanes(ctx context.Context, lanes []*lane, expires time.Time) error {
	if len(lanes) == 0 {
		return nil
	}
	behind := make([]auditedLane, 0, len(lanes))
	for _, l := range lanes {
		behind = append(behind, auditedLane{id: l.id, stream: l.stream, pubSeq: l.pubSeq, lastSeq: l.lastSeq, fence: l.outcome.fence})
	}
	fixed, err := w.rewind(ctx, behind)
	var left []*lane
	for _, l := range lanes {
		if _, done := fixed[l.id]; done {
			w.metrics.lost.Add(float64(l.pubSeq - l.outcome.fence))
			continue
		}
		left = append(left, l)
	}
	w.settle(ctx, givenBack(left, expires))
	if err != nil {
		return err
	}
	w.log.Warn("Redis has lost published events: they are published again", "lanes", len(lanes), "fixed", len(fixed))
	w.wantAudit("the publishing script found a gap")
	return nil
}
