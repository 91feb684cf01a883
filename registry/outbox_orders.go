package registry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/registry/client"
)

const (
	// orderBatch is how many lanes one transaction of a bulk order locks: writers
	// of those wait for that long only.
	orderBatch = 500
	// orderTime is how long one request works on a bulk order before it answers
	// with where to go on.
	orderTime = 10 * time.Second
	// retryPasses is how often lanes that a writer or worker held are tried again.
	retryPasses = 5
)

type orderInput struct {
	Body client.OutboxOrder
}

type orderOutput struct {
	Body client.OutboxResult
}

// checkTarget refuses an order that is not about exactly one thing.
func checkTarget(t client.OutboxTarget) error {
	named := 0
	for _, given := range []bool{t.Lane != "", t.Stream != nil, t.All} {
		if given {
			named++
		}
	}
	if named != 1 {
		return problem.New(problem.Invalid, "name exactly one of lane, stream and all")
	}
	if t.Stream != nil && (*t.Stream < 0 || *t.Stream >= event.Streams) {
		return problem.New(problem.Invalid, "streams are numbered 0 to %d", event.Streams-1).At("body.stream", "is not a stream", *t.Stream)
	}
	return nil
}

// targetName is how the audit names a target.
func targetName(t client.OutboxTarget) string {
	switch {
	case t.Lane != "":
		return "lane:" + t.Lane
	case t.Stream != nil:
		return "stream:" + strconv.Itoa(*t.Stream)
	}
	return "all"
}

// A claimed lane is not touched: a worker is at it, and would only be fenced off.
const (
	retryWhere = `
WHERE ready_at IS NOT NULL
  AND attempts > 0
  AND claimed_by IS NULL
  AND next_at > clock_timestamp()
  AND ($1::smallint IS NULL OR stream_no = $1)
  AND ($2::bigint IS NULL OR lane_id = $2)`
	sqlRetryCount = `
SELECT count(*)
FROM registry.outbox_lane` + retryWhere
	sqlRetry = `
UPDATE registry.outbox_lane
SET next_at = clock_timestamp()
WHERE lane_id = ANY (ARRAY(
  SELECT lane_id
  FROM registry.outbox_lane` + retryWhere + `
  LIMIT $3
  FOR NO KEY UPDATE SKIP LOCKED))`
)

func (s *service) retryLanes(ctx context.Context, in *orderInput) (*orderOutput, error) {
	o := in.Body
	if err := checkTarget(o.OutboxTarget); err != nil {
		return nil, err
	}
	out := orderOutput{Body: client.OutboxResult{DryRun: o.DryRun}}
	var lane *int64
	err := s.write(ctx, func(ctx context.Context, tx *writing) error {
		out.Body.Lineage = tx.Lineage
		if o.Lane != "" {
			id, err := findLane(ctx, tx, o.Lane)
			if err != nil {
				return err
			}
			lane = &id
		}
		if err := tx.QueryRow(ctx, sqlRetryCount, o.Stream, lane).Scan(&out.Body.Matched); err != nil || o.DryRun || out.Body.Matched == 0 {
			return err
		}
		return audit(ctx, tx, "retry", targetName(o.OutboxTarget), o.Reason, map[string]any{"lanes": out.Body.Matched})
	})
	for pass := 0; err == nil && !o.DryRun && out.Body.Changed < out.Body.Matched && pass < retryPasses; {
		var changed int64
		err = s.write(ctx, func(ctx context.Context, tx *writing) error {
			tag, err := tx.Exec(ctx, sqlRetry, o.Stream, lane, orderBatch)
			changed = tag.RowsAffected()
			return err
		})
		out.Body.Changed += changed
		if changed < orderBatch {
			pass++
		}
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

const (
	sqlPauseLane = `
UPDATE registry.outbox_lane
SET state = 'paused'
WHERE lane_id = $1
  AND state = 'active'`
	sqlResumeLane = `
UPDATE registry.outbox_lane
SET state = 'active',
    next_at = clock_timestamp()
WHERE lane_id = $1
  AND state = 'paused'`
	sqlStreamsToPause = `
SELECT count(*)
FROM registry.outbox_stream
WHERE paused <> $1
  AND ($2::smallint IS NULL OR stream_no = $2)`
	sqlPauseStreams = `
UPDATE registry.outbox_stream
SET paused = $1
WHERE paused <> $1
  AND ($2::smallint IS NULL OR stream_no = $2)`
)

func (s *service) pauseLanes(ctx context.Context, in *orderInput) (*orderOutput, error) {
	return s.setPaused(ctx, in.Body, true)
}

func (s *service) resumeLanes(ctx context.Context, in *orderInput) (*orderOutput, error) {
	return s.setPaused(ctx, in.Body, false)
}

// setPaused pauses or resumes; Matched and Changed count the lanes, or the
// streams, that were not so already.
func (s *service) setPaused(ctx context.Context, o client.OutboxOrder, paused bool) (*orderOutput, error) {
	if err := checkTarget(o.OutboxTarget); err != nil {
		return nil, err
	}
	action, sql := "resume", sqlResumeLane
	if paused {
		action, sql = "pause", sqlPauseLane
	}
	var out orderOutput
	err := s.write(ctx, func(ctx context.Context, tx *writing) error {
		out.Body = client.OutboxResult{Lineage: tx.Lineage, DryRun: o.DryRun}
		var change func() (pgconn.CommandTag, error)
		if o.Lane != "" {
			id, err := findLane(ctx, tx, o.Lane)
			if err != nil {
				return err
			}
			is, err := laneIsPaused(ctx, tx, id)
			if err != nil {
				return err
			}
			if is != paused {
				out.Body.Matched = 1
			}
			change = func() (pgconn.CommandTag, error) { return tx.Exec(ctx, sql, id) }
		} else {
			if err := tx.QueryRow(ctx, sqlStreamsToPause, paused, o.Stream).Scan(&out.Body.Matched); err != nil {
				return err
			}
			change = func() (pgconn.CommandTag, error) { return tx.Exec(ctx, sqlPauseStreams, paused, o.Stream) }
		}
		if o.DryRun || out.Body.Matched == 0 {
			return nil
		}
		tag, err := change()
		if err != nil {
			return err
		}
		out.Body.Changed = tag.RowsAffected()
		return audit(ctx, tx, action, targetName(o.OutboxTarget), o.Reason, nil)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// A lane may be paused while it has nothing to publish.
const sqlLanePaused = `SELECT state = 'paused' FROM registry.outbox_lane WHERE lane_id = $1`

func laneIsPaused(ctx context.Context, q querier, id int64) (paused bool, err error) {
	return paused, q.QueryRow(ctx, sqlLanePaused, id).Scan(&paused)
}

type skipInput struct {
	Body client.OutboxSkip
}

// The function locks the lane, checks the bound, and writes the audit.
const sqlSkip = `SELECT registry.outbox_skip($1, $2, $3, $4)`

func (s *service) skipEvents(ctx context.Context, in *skipInput) (*orderOutput, error) {
	o := in.Body
	var out orderOutput
	err := s.write(ctx, func(ctx context.Context, tx *writing) error {
		out.Body = client.OutboxResult{Lineage: tx.Lineage, DryRun: o.DryRun, Matched: 1}
		id, err := findLane(ctx, tx, o.Lane)
		if err != nil {
			return err
		}
		if o.DryRun {
			lane, err := readLane(ctx, tx, id)
			if err != nil {
				return err
			}
			if o.Through <= lane.PubSeq || o.Through > lane.LastSeq {
				return skipBound(lane, o.Through)
			}
			out.Body.Events = o.Through - lane.PubSeq
			return nil
		}
		err = tx.QueryRow(ctx, sqlSkip, id, o.Through, callOf(ctx).principal.Name, o.Reason).Scan(&out.Body.Events)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "22003" {
			return problem.New(problem.Conflict, "%s", refused.Message).At("body.through", "is not an unpublished event of the lane", o.Through)
		}
		out.Body.Changed = 1
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func skipBound(lane client.OutboxLane, through int64) error {
	if lane.Pending == 0 {
		return problem.New(problem.Conflict, "lane %d (%s) has published all its %d events: there is nothing to skip", lane.Lane, lane.Resource, lane.LastSeq)
	}
	return problem.New(problem.Conflict, "lane %d has unpublished events from %d to %d: %d is none of them", lane.Lane, lane.PubSeq+1, lane.LastSeq, through).
		At("body.through", "is not an unpublished event of the lane", through)
}

type replayInput struct {
	Body client.OutboxReplay
}

const (
	replayWhere = `
WHERE l.agg_type NOT IN ('command', 'barrier')
  AND ($1::bigint IS NULL OR l.lane_id = $1)
  AND ($2::smallint IS NULL OR l.stream_no = $2)
  AND ($3 = '' OR l.agg_type = $3)
  AND ($4::timestamptz IS NULL OR l.last_event_at >= $4)`
	sqlReplayCount = `
SELECT count(*)
FROM registry.outbox_lane l` + replayWhere
	sqlReplayBatch = `
SELECT l.lane_id, l.agg_type, l.agg_key
FROM registry.outbox_lane l` + replayWhere + `
  AND (l.agg_type, l.agg_key) > ($5, $6)
ORDER BY l.agg_type, l.agg_key
LIMIT $7`
	sqlReplay = `SELECT registry.outbox_replay($1)`
)

// replay works through the lanes in the order in which everybody locks them, a
// batch in each transaction, so that writers never wait long.
func (s *service) replay(ctx context.Context, in *replayInput) (*orderOutput, error) {
	o := in.Body
	if err := checkTarget(o.OutboxTarget); err != nil {
		return nil, err
	}
	if o.Kind != "" {
		if _, err := sourceOf(o.Kind); err != nil {
			return nil, err
		}
	}
	place := client.Resource{}
	began, err := PageParams{After: o.After}.decode("replay", &place.Kind, &place.Key)
	if err != nil {
		return nil, err
	}
	out := orderOutput{Body: client.OutboxResult{DryRun: o.DryRun}}
	args, err := s.beginReplay(ctx, o, !began, &out.Body)
	if err != nil || o.DryRun {
		return &out, err
	}
	for started := s.clock(); ; {
		lanes, err := s.replayBatch(ctx, args, &place, &out.Body)
		if err != nil {
			return nil, err
		}
		if lanes < orderBatch {
			return &out, nil
		}
		if s.clock().Sub(started) > orderTime {
			out.Body.Next = cursor("replay", place.Kind, place.Key)
			return &out, nil
		}
	}
}

// beginReplay counts what the order is about and records it; it answers the
// arguments of replayWhere.
func (s *service) beginReplay(ctx context.Context, o client.OutboxReplay, first bool, result *client.OutboxResult) (args []any, err error) {
	var since *time.Time
	if !o.Since.IsZero() {
		since = &o.Since
	}
	return args, s.record(ctx, func(ctx context.Context, tx *writing) error {
		result.Lineage = tx.Lineage
		var lane *int64
		if o.Lane != "" {
			id, err := findLane(ctx, tx, o.Lane)
			if err != nil {
				return err
			}
			lane = &id
		}
		args = []any{lane, o.Stream, string(o.Kind), since}
		if !first {
			return nil
		}
		if err := tx.QueryRow(ctx, sqlReplayCount, args...).Scan(&result.Matched); err != nil || o.DryRun {
			return err
		}
		return audit(ctx, tx, "replay", targetName(o.OutboxTarget), o.Reason,
			map[string]any{"aggregates": result.Matched, "kind": o.Kind, "since": since})
	})
}

// replayBatch replays the lanes after place, and moves place behind them.
func (s *service) replayBatch(ctx context.Context, where []any, place *client.Resource, result *client.OutboxResult) (lanes int, err error) {
	from := *place
	var events int64
	err = s.write(ctx, func(ctx context.Context, tx *writing) error {
		args := append(append([]any{}, where...), string(from.Kind), from.Key, orderBatch)
		rows, err := tx.Query(ctx, sqlReplayBatch, args...)
		if err != nil {
			return err
		}
		ids := []int64{}
		var id int64
		if _, err := pgx.ForEachRow(rows, []any{&id, &place.Kind, &place.Key}, func() error { ids = append(ids, id); return nil }); err != nil {
			return err
		}
		lanes = len(ids)
		if lanes == 0 {
			return nil
		}
		return tx.QueryRow(ctx, sqlReplay, ids).Scan(&events)
	})
	if err == nil {
		result.Changed += int64(lanes)
		result.Events += events
	}
	return lanes, err
}
