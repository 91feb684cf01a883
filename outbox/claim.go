package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubn/outbox/event"
	"hubn/registry/client"
)

// claimSQL takes the lanes that have been ready longest. What another claims or
// a writer holds is skipped. The database's clock decides. ready_at leaves out
// idle, paused and backing-off lanes, next_at the few that are claimed, whose
// place in the index a claim does not change. The array keeps the planner from
// joining: it looks the rows up.
const claimSQL = `
	UPDATE registry.outbox_lane
	SET claim_token = claim_token + 1,
	    claimed_by = $2,
	    next_at = now() + $3::interval
	WHERE lane_id = ANY (ARRAY(
	  SELECT lane_id
	  FROM registry.outbox_lane
	  WHERE ready_at <= now()
	    AND next_at <= now()
	    AND stream_no NOT IN (SELECT stream_no FROM registry.outbox_stream WHERE paused)
	  ORDER BY ready_at, lane_id
	  LIMIT $1
	  FOR NO KEY UPDATE SKIP LOCKED))
	RETURNING lane_id, stream_no, agg_type, agg_key, claim_token, pub_seq, last_seq, head_at, last_event_at`

// fetchSQL reads the first events of each lane. It is a second statement, so a
// second snapshot: with the claim's own it could read again what the former
// owner acknowledged just before. The outer bounds prune partitions when it is
// planned, the lane's own when it runs.
const fetchSQL = `
	SELECT c.lane_id, e.seq, e.created_at, e.event_id, e.kind, e.payload::text
	FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::timestamptz[]) AS c (lane_id, pub_seq, last_seq, head_at)
	CROSS JOIN LATERAL (
	  SELECT seq, created_at, event_id, kind, payload
	  FROM registry.outbox_event
	  WHERE lane_id = c.lane_id
	    AND seq > c.pub_seq
	    AND seq <= c.last_seq
	    AND created_at >= c.head_at
	    AND created_at BETWEEN $5 AND $6
	  ORDER BY seq
	  LIMIT $7
	) e`

// streamsSQL reads the epoch that events are to be published in, and the
// lineage. That one was checked when the connection was made and is once a
// second besides, since behind a pooler the server may become another one
// without a new connection: what is published until then, the resync entries of
// the new lineage's epochs cover.
const streamsSQL = `
	SELECT stream_no, paused, coalesce(lineage || '/' || epoch, ''), coalesce(lineage = current, false), current::text
	FROM registry.outbox_stream
	CROSS JOIN (SELECT registry.lineage_current() AS current OFFSET 0) l`

// lane is one claimed lane on its way through a batch.
type lane struct {
	id       int64
	stream   int
	resource client.Resource
	token    int64
	claimant string
	pubSeq   int64
	lastSeq  int64
	headAt   time.Time
	lastAt   time.Time
	events   []row
	outcome  outcome
	// duplicates is how many of the events the fence suppressed.
	duplicates int
}

// streamState is what the database says of a stream.
type streamState struct {
	paused  bool
	epoch   string // "<lineage>/<uuid>"; empty before the first
	current bool   // the epoch's lineage is the Registry's
	lineage string // the Registry's
}

// claim takes up to limit lanes in a claimant's name, which no other claim of
// any process ever has.
func (w *Worker) claim(ctx context.Context, claimant string, limit int) ([]*lane, error) {
	var lanes []*lane
	err := w.transact(ctx, statement{claimSQL, []any{limit, claimant, w.settings.Lease}, func(rows pgx.Rows) error {
		l := &lane{claimant: claimant}
		lanes = append(lanes, l)
		return rows.Scan(&l.id, &l.stream, &l.resource.Kind, &l.resource.Key, &l.token, &l.pubSeq, &l.lastSeq, &l.headAt, &l.lastAt)
	}})
	if err != nil {
		return nil, fmt.Errorf("claim lanes: %w", err)
	}
	return lanes, nil
}

// claimant names one claim, and the lineage that it is made in.
func (w *Worker) claimant(worker int) string {
	return mark(*w.lineage.Load()) + w.claims + strconv.Itoa(worker) + "/" + strconv.FormatInt(w.counter.Add(1), 10)
}

// fetch reads the first events of the lanes, and the streams' epochs.
func (w *Worker) fetch(ctx context.Context, lanes []*lane) ([event.Streams]streamState, error) {
	var streams [event.Streams]streamState
	perLane := min(laneEvents, max(batchEvents/len(lanes), 1))
	byID := make(map[int64]*lane, len(lanes))
	for _, l := range lanes {
		byID[l.id] = l
	}
	err := w.roundTrip(ctx,
		statement{streamsSQL, nil, func(rows pgx.Rows) error { return scanStream(rows, &streams) }},
		statement{fetchSQL, fetchArguments(lanes, perLane), func(rows pgx.Rows) error {
			id, r, err := scanEvent(rows)
			if err != nil {
				return err
			}
			l := byID[id]
			if l.events == nil {
				l.events = make([]row, 0, min(int64(perLane), l.lastSeq-l.pubSeq))
			}
			l.events = append(l.events, r)
			return nil
		}})
	if err != nil {
		return streams, fmt.Errorf("fetch the events of %d lanes: %w", len(lanes), err)
	}
	events := 0
	for _, l := range lanes {
		events += len(l.events)
		if l.complete(perLane) {
			continue
		}
		if err := w.bridge(ctx, l, perLane); err != nil {
			return streams, err
		}
	}
	w.lanes.Store(nextLanes(len(lanes), events))
	return streams, nil
}

// nextLanes is how many lanes a batch may have after one of so many lanes with so
// many events.
func nextLanes(lanes, events int) int64 {
	if lanes < claimLanes || events == 0 {
		return claimLanes
	}
	return int64(min(max(batchEvents*lanes/events, claimLanes), mostLanes))
}

func scanStream(rows pgx.Rows, streams *[event.Streams]streamState) error {
	var no int
	var s streamState
	if err := rows.Scan(&no, &s.paused, &s.epoch, &s.current, &s.lineage); err != nil {
		return err
	}
	if no < 0 || no >= len(streams) {
		return fmt.Errorf("outbox_stream has stream %d; this program knows 0 to %d", no, len(streams)-1)
	}
	streams[no] = s
	return nil
}

func fetchArguments(lanes []*lane, perLane int) []any {
	n := len(lanes)
	ids, from, to, heads := make([]int64, n), make([]int64, n), make([]int64, n), make([]time.Time, n)
	first, last := lanes[0].headAt, lanes[0].lastAt
	for i, l := range lanes {
		ids[i], from[i], to[i], heads[i] = l.id, l.pubSeq, l.lastSeq, l.headAt
		if l.headAt.Before(first) {
			first = l.headAt
		}
		if l.lastAt.After(last) {
			last = l.lastAt
		}
	}
	return []any{ids, from, to, heads, first, last, perLane}
}

// complete tells whether the events follow on what is published without a hole.
func (l *lane) complete(perLane int) bool {
	next := l.pubSeq
	for _, e := range l.events {
		if e.after != next {
			return false
		}
		next = e.seq
	}
	return len(l.events) == int(min(int64(perLane), l.lastSeq-l.pubSeq))
}

const wholeLaneSQL = `
	SELECT lane_id, seq, created_at, event_id, kind, payload::text
	FROM registry.outbox_event
	WHERE lane_id = $1
	  AND seq > $2
	  AND seq <= $3
	ORDER BY seq
	LIMIT $4`

// bridge puts a resync marker for the lane where rows are gone: Redis lost
// events that had been cleaned up. It looks in every partition before it
// believes that.
func (w *Worker) bridge(ctx context.Context, l *lane, perLane int) error {
	var found []row
	err := w.transact(ctx, statement{wholeLaneSQL, []any{l.id, l.pubSeq, l.lastSeq, perLane}, func(rows pgx.Rows) error {
		_, r, err := scanEvent(rows)
		found = append(found, r)
		return err
	}})
	if err != nil {
		return fmt.Errorf("look for the events of lane %d in every partition: %w", l.id, err)
	}
	l.events = nil
	next := l.pubSeq
	for _, r := range found {
		if r.seq > next+1 {
			l.events = append(l.events, w.marker(l, next, r.seq-1))
		}
		r.after = r.seq - 1
		l.events = append(l.events, r)
		next = r.seq
	}
	if len(found) < perLane && next < l.lastSeq {
		l.events = append(l.events, w.marker(l, next, l.lastSeq))
	}
	return nil
}

// marker is a resync entry of one lane, in place of the events after … through.
func (w *Worker) marker(l *lane, after, through int64) row {
	w.metrics.resyncs.WithLabelValues("lane").Inc()
	w.log.Warn("events that Redis lost were cleaned up: consumers are told to fetch the resource again",
		"resource", l.resource, "after", after, "through", through)
	payload, _ := json.Marshal(map[string]any{"after": after}) // a number: no error
	return row{after: after, seq: through, createdAt: l.lastAt.UTC(), id: uuid.New(), kind: string(event.Resync), payload: string(payload)}
}

// publishUntil is when a batch that was claimed at a moment may no longer be
// published: the rest of the lease is for the answer on its way.
func (w *Worker) publishUntil(begun time.Time) time.Time {
	return begun.Add(time.Duration(math.Round(publishShare * float64(w.settings.Lease))))
}
