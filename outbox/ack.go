package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// settleSQL ends claims: it notes what the fence has reached, what failed, and
// gives lanes back. Lanes that a writer has locked are skipped and settled
// later, or one idle session would hold up a whole batch. The token and the
// claimant's name must be those of the claim: what the first part reads is locked,
// so the others need not look at it again. head_at moves to the last
// published event, which is never after the first unpublished one.
const settleSQL = `
	WITH held AS (
	  SELECT w.*,
	         l.claim_token = w.token AND l.claimed_by = w.claimant IS TRUE AS mine,
	         w.through > w.before AS advanced,
	         l.attempts
	  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::text[])
	    AS w (lane_id, token, claimant, before, through, head_at, failure)
	  JOIN registry.outbox_lane l ON l.lane_id = w.lane_id
	  ORDER BY l.lane_id
	  FOR NO KEY UPDATE OF l SKIP LOCKED
	), settled AS (
	  UPDATE registry.outbox_lane l
	  SET pub_seq = h.through,
	      published_at = CASE WHEN h.advanced THEN now() ELSE l.published_at END,
	      queued_at = CASE WHEN h.advanced THEN now() ELSE l.queued_at END,
	      head_at = h.head_at,
	      claimed_by = NULL,
	      attempts = CASE WHEN h.failure <> '' THEN CASE WHEN h.advanced THEN 1 ELSE h.attempts + 1 END
	                      WHEN h.advanced THEN 0
	                      ELSE h.attempts END,
	      last_error = CASE WHEN h.failure <> '' THEN left(h.failure, 1000)
	                        WHEN h.advanced THEN NULL
	                        ELSE l.last_error END,
	      last_error_at = CASE WHEN h.failure <> '' THEN now() ELSE l.last_error_at END,
	      next_at = CASE WHEN h.failure = '' THEN now() ELSE now() + ` + backoffSQL + ` END
	  FROM held h
	  WHERE l.lane_id = h.lane_id
	    AND h.mine
	), marked AS (
	  UPDATE registry.outbox_event e
	  SET published_at = now()
	  FROM held h
	  WHERE h.mine
	    AND e.lane_id = h.lane_id
	    AND e.seq > h.before
	    AND e.seq <= h.through
	    AND e.created_at BETWEEN $8 AND $9
	)
	SELECT lane_id, mine, attempts, now()
	FROM held`

// settlement is what is to be noted of one lane.
type settlement struct {
	lane    *lane
	through int64  // pub_seq from now on
	failure string // empty: none
	expires time.Time
}

// settle ends claims; what a writer holds, or the database did not take, is left
// to settleLate.
func (w *Worker) settle(ctx context.Context, settlements []settlement) {
	if len(settlements) == 0 {
		return
	}
	locked, err := w.settleOnce(ctx, settlements)
	if err != nil {
		w.log.Warn("claims could not be settled: trying again", "lanes", len(settlements), "error", err)
		locked = settlements
	}
	w.later(lateWork{settlements: locked})
}

// settleOnce answers those whose lanes a writer holds.
func (w *Worker) settleOnce(ctx context.Context, settlements []settlement) ([]settlement, error) {
	byID := make(map[int64]settlement, len(settlements))
	for _, s := range settlements {
		byID[s.lane.id] = s
	}
	begun := time.Now()
	err := w.transact(ctx, statement{settleSQL, settleArguments(settlements), func(rows pgx.Rows) error {
		var id int64
		var mine bool
		var attempts int
		var at time.Time
		if err := rows.Scan(&id, &mine, &attempts, &at); err != nil {
			return err
		}
		w.settled(byID[id], mine, attempts, at)
		delete(byID, id)
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("settle the claims of %d lanes: %w", len(settlements), err)
	}
	w.metrics.ack.Observe(time.Since(begun).Seconds())
	locked := make([]settlement, 0, len(byID))
	for _, s := range settlements {
		if _, left := byID[s.lane.id]; left {
			locked = append(locked, s)
		}
	}
	return locked, nil
}

// settled counts what became of one settlement; attempts are the failures before it.
func (w *Worker) settled(s settlement, mine bool, attempts int, at time.Time) {
	l := s.lane
	if !mine {
		if s.through > l.pubSeq {
			w.metrics.fenced.Inc()
		}
		return
	}
	for _, e := range l.events {
		if e.seq <= s.through {
			w.metrics.commitToPublish.Observe(at.Sub(e.createdAt).Seconds())
		}
	}
	if s.failure == "" {
		return
	}
	w.metrics.attempts.Inc()
	if attempts++; s.through > l.pubSeq {
		attempts = 1
	}
	if attempts >= slowAttempts {
		w.log.Error("a lane keeps failing: it is tried every 15 minutes; see `hubn outbox show` and `hubn outbox skip`",
			"resource", l.resource, "attempts", attempts, "error", s.failure)
		return
	}
	w.log.Warn("an event cannot be published; the lane backs off", "resource", l.resource, "attempts", attempts, "error", s.failure)
}

func settleArguments(settlements []settlement) []any {
	n := len(settlements)
	ids, tokens, claimants := make([]int64, n), make([]int64, n), make([]string, n)
	before, through := make([]int64, n), make([]int64, n)
	heads, failures := make([]time.Time, n), make([]string, n)
	var first, last time.Time
	for i, s := range settlements {
		l := s.lane
		ids[i], tokens[i], claimants[i] = l.id, l.token, l.claimant
		before[i], through[i], heads[i], failures[i] = l.pubSeq, s.through, l.headAt, s.failure
		for _, e := range l.events {
			if e.seq > s.through {
				break
			}
			heads[i] = e.createdAt
			if first.IsZero() || e.createdAt.Before(first) {
				first = e.createdAt
			}
			if e.createdAt.After(last) {
				last = e.createdAt
			}
		}
	}
	return []any{ids, tokens, claimants, before, through, heads, failures, first, last}
}

// givenBack is what is to be noted of lanes that end as they were claimed,
// whatever their outcome was.
func givenBack(lanes []*lane, expires time.Time) []settlement {
	settle := make([]settlement, 0, len(lanes))
	for _, l := range lanes {
		l.outcome = outcome{}
		settle = append(settle, settlement{lane: l, through: l.pubSeq, expires: expires})
	}
	return settle
}

// settlements turns the outcomes of a batch into what is to be noted. Lanes with
// a gap, or whose fence is beyond, are not among them: audit.go deals with those.
func settlements(lanes []*lane, expires time.Time) (settle []settlement, gaps, beyonds []*lane) {
	for _, l := range lanes {
		o := l.outcome
		switch o.verdict {
		case gap:
			gaps = append(gaps, l)
		case beyond:
			beyonds = append(beyonds, l)
		case sent, rejected:
			s := settlement{lane: l, through: max(o.fence, l.pubSeq), expires: expires}
			if o.failed {
				s.failure = o.message
			}
			settle = append(settle, s)
		case unsent:
			settle = append(settle, settlement{lane: l, through: l.pubSeq, expires: expires})
		}
	}
	return settle, gaps, beyonds
}
