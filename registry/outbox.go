package registry

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// What operators do with the outbox: tables of the Registry's own schema, so
// none of it travels as an event.

func (s *service) outboxRoutes() {
	read := func(id, path, summary string, problems ...problem.Kind) operation {
		return operation{method: http.MethodGet, path: "/v1/outbox" + path, id: id, tag: "outbox", summary: summary, needs: readOutbox, problems: problems}
	}
	order := func(id, path, summary, description string) operation {
		return operation{method: http.MethodPost, path: "/v1/outbox" + path, id: id, tag: "outbox", summary: summary,
			description: description, needs: operateOutbox, problems: []problem.Kind{problem.NotFound, problem.Conflict}}
	}
	register(s, read("outbox-status", "/status", "Read how the outbox is"), s.outboxStatus)
	register(s, read("list-lanes", "/lanes", "List lanes"), s.listLanes)
	register(s, read("get-lane", "/lanes/{lane}", "Read one lane, its events and its fence", problem.NotFound), s.getLane)
	register(s, read("get-event", "/events/{id}", "Read one event", problem.NotFound), s.getEvent)
	register(s, order("retry", "/retry", "Make backing-off lanes ready now",
		"Only the time of the next attempt changes, so the order cannot."), s.retryLanes)
	register(s, order("pause", "/pause", "Stop the publication of a lane, a stream or all streams", ""), s.pauseLanes)
	register(s, order("resume", "/resume", "Let a lane, a stream or all streams go on",
		"Lanes that were paused one by one stay paused when streams are resumed."), s.resumeLanes)
	register(s, order("skip", "/skip", "Give up the unpublished events of a lane up to a sequence number",
		"A gap marker is published in the place of each, so consumers fetch what is true now."), s.skipEvents)
	register(s, order("replay", "/replay", "Publish one new event for each of the aggregates",
		"Nothing is rewound: each gets an event of kind replay with a new sequence number. An answer with a next is continued with it as after."), s.replay)
	audits := order("audit", "/audit", "Have the workers compare Redis with what was published", "Waits for the result as long as the request says.")
	register(s, audits, s.auditOutbox)
	register(s, order("cleanup", "/cleanup", "List the old partitions of the events, or drop those that are due", ""), s.cleanupOutbox)
	examine := order("outbox-doctor", "/doctor", "Examine what the outbox stands on", "")
	examine.needs = readOutbox
	register(s, examine, s.outboxDoctor)
}

const (
	laneRow = `
SELECT l.lane_id,
       l.agg_type,
       l.agg_key,
       l.stream_no,` + laneWord + `,
       l.last_seq,
       l.pub_seq,
       l.head_at,
       l.next_at,
       coalesce(l.claimed_by, ''),
       l.claim_token,
       l.attempts,
       coalesce(l.last_error, ''),
       l.last_error_at,
       l.last_event_at,
       l.published_at,
       s.paused`
	laneColumns = laneRow + `
FROM registry.outbox_lane l
JOIN registry.outbox_stream s USING (stream_no)`
	// unpublished is every lane that has something to publish, out of the two
	// partial indexes that hold them and little else.
	unpublished = `
  SELECT *
  FROM registry.outbox_lane
  WHERE ready_at IS NOT NULL
  UNION ALL
  SELECT *
  FROM registry.outbox_lane
  WHERE pub_seq < last_seq
    AND state = 'paused'`
	sqlOutboxStatus = `
SELECT coalesce(sum(l.last_seq - l.pub_seq), 0)::bigint,
       coalesce(extract(epoch FROM statement_timestamp() - min(l.head_at) FILTER (WHERE l.state = 'active')), 0)::float8,
       count(*) FILTER (WHERE l.word = 'ready' AND l.claimed_by IS NULL),
       count(*) FILTER (WHERE l.word = 'claimed'),
       count(*) FILTER (WHERE l.word = 'ready' AND l.claimed_by IS NOT NULL),
       count(*) FILTER (WHERE l.word = 'backing-off'),
       count(*) FILTER (WHERE l.word = 'failing'),
       count(*) FILTER (WHERE l.word = 'paused'),
       (array_agg(l.lane_id ORDER BY l.last_seq - l.pub_seq DESC))[1]
FROM (
  SELECT l.*,` + laneWord + ` AS word
  FROM (` + unpublished + `
  ) l
) l`
	unpublishedColumns = laneRow + `
FROM (` + unpublished + `
) l
JOIN registry.outbox_stream s USING (stream_no)`
	sqlStreams = `
SELECT s.stream_no, s.paused, coalesce(s.lineage || '/' || s.epoch, ''), s.epoch_at, coalesce(s.epoch_reason, ''),
       s.audited_at, s.audit_result::text
FROM registry.outbox_stream s
ORDER BY s.stream_no`
	sqlPartitionSpan = `
SELECT h.partitions,
       coalesce(to_char(to_date(right(h.oldest_partition, 8), 'YYYYMMDD'), 'YYYY-MM-DD'), ''),
       to_char(current_date + h.days_ahead, 'YYYY-MM-DD')
FROM registry.outbox_health() h`
)

// scanLane reads a row of laneColumns.
func scanLane(row pgx.CollectableRow) (l client.OutboxLane, err error) {
	var head, next, failed, published *time.Time
	err = row.Scan(&l.Lane, &l.Resource.Kind, &l.Resource.Key, &l.Stream, &l.State, &l.LastSeq, &l.PubSeq, &head, &next,
		&l.ClaimedBy, &l.ClaimToken, &l.Attempts, &l.LastError, &failed, &l.LastEventAt, &published, &l.StreamPaused)
	l.Pending = l.LastSeq - l.PubSeq
	l.LastErrorAt, l.PublishedAt = value(failed), value(published)
	if l.Pending > 0 {
		l.HeadAt, l.NextAt = value(head), value(next)
	}
	return l, err
}

type outboxStatusOutput struct {
	Body client.OutboxStatus
}

func (s *service) outboxStatus(ctx context.Context, _ *struct{}) (*outboxStatusOutput, error) {
	var out outboxStatusOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		o := &out.Body
		o.Lineage = tx.Lineage
		var deepest *int64
		err := tx.QueryRow(ctx, sqlOutboxStatus).Scan(&o.Pending, &o.OldestSeconds, &o.Ready, &o.Claimed, &o.Overdue,
			&o.BackingOff, &o.Failing, &o.Paused, &deepest)
		if err != nil {
			return err
		}
		if deepest != nil {
			lane, err := readLane(ctx, tx, *deepest)
			if err != nil {
				return err
			}
			o.Deepest = &lane
		}
		if err := tx.QueryRow(ctx, sqlPartitionSpan).Scan(&o.Partitions, &o.OldestDay, &o.LastDay); err != nil {
			return err
		}
		o.Streams, err = readStreams(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Redis is asked outside of the transaction: it may not answer for a while.
	out.Body.RedisError = s.measureStreams(ctx, out.Body.Streams)
	return &out, nil
}

func readStreams(ctx context.Context, q querier) ([]client.OutboxStream, error) {
	rows, err := q.Query(ctx, sqlStreams)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o client.OutboxStream, err error) {
		var begun, audited *time.Time
		var result *string
		err = row.Scan(&o.Stream, &o.Paused, &o.Epoch, &begun, &o.EpochReason, &audited, &result)
		o.EpochAt, o.AuditedAt = value(begun), value(audited)
		if result != nil {
			o.AuditResult = []byte(*result)
		}
		return o, err
	})
}

const sqlLaneByID = laneColumns + `
WHERE l.lane_id = $1`

func readLane(ctx context.Context, q querier, id int64) (client.OutboxLane, error) {
	rows, err := q.Query(ctx, sqlLaneByID, id)
	if err != nil {
		return client.OutboxLane{}, err
	}
	l, err := pgx.CollectExactlyOneRow(rows, scanLane)
	if errors.Is(err, pgx.ErrNoRows) {
		return l, problem.New(problem.NotFound, "there is no lane %d", id)
	}
	return l, err
}

const sqlLaneID = `
SELECT l.lane_id
FROM registry.outbox_lane l
WHERE l.agg_type = $1
  AND l.agg_key = $2`

// findLane is the number of the lane that "17" or "prefix:17" names.
func findLane(ctx context.Context, q querier, name string) (int64, error) {
	if id, err := strconv.ParseInt(name, 10, 64); err == nil {
		_, err := readLane(ctx, q, id)
		return id, err
	}
	r, err := client.ParseResource(name)
	if err == nil {
		r, err = parseReported(r)
	}
	if err != nil {
		return 0, problem.New(problem.Invalid, "%q names no lane: write its number, or kind:key such as prefix:17", name)
	}
	var id int64
	err = q.QueryRow(ctx, sqlLaneID, string(r.Kind), r.Key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, problem.New(problem.NotFound, "%s has no lane: it never existed, or was deleted long ago", r)
	}
	return id, err
}

type listLanesInput struct {
	PageParams
	State client.LaneState `query:"state" enum:"idle,ready,claimed,backing-off,failing,paused"`
	Kind  client.Kind      `query:"agg"`
	Older float64          `query:"older" minimum:"0" doc:"Seconds since the first unpublished event"`
}

type lanesOutput struct {
	Body client.OutboxLanePage
}

func (s *service) listLanes(ctx context.Context, in *listLanesInput) (*lanesOutput, error) {
	var after int64
	if _, err := in.decode("lanes", &after); err != nil {
		return nil, err
	}
	from := laneColumns
	if in.State != "" && in.State != client.LaneIdle || in.Older > 0 {
		from = unpublishedColumns
	}
	q := newQuery(from)
	q.and("l.lane_id > ?", after)
	if in.State != "" {
		q.and("("+laneWord+") = ?", string(in.State))
	}
	if in.Kind != "" {
		q.and("l.agg_type = ?", string(in.Kind))
	}
	if in.Older > 0 {
		q.and("l.head_at <= statement_timestamp() - make_interval(secs => ?)", in.Older)
	}
	q.page("l.lane_id", in.limit())
	var out lanesOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		rows, err := tx.Query(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		items, err := pgx.CollectRows(rows, scanLane)
		out.Body.Lineage = tx.Lineage
		out.Body.Items, out.Body.Next = paged(items, in.limit(), func(last client.OutboxLane) string {
			return cursor("lanes", last.Lane)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type laneInput struct {
	Lane string `path:"lane"`
}

type laneOutput struct {
	Body client.OutboxLaneDetail
}

func (s *service) getLane(ctx context.Context, in *laneInput) (*laneOutput, error) {
	var out laneOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		id, err := findLane(ctx, tx, in.Lane)
		if err != nil {
			return err
		}
		out.Body, err = readLaneDetail(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.readFence(ctx, &out.Body)
	return &out, nil
}

const sqlEpochOf = `
SELECT coalesce(s.lineage || '/' || s.epoch, '')
FROM registry.outbox_stream s
WHERE s.stream_no = $1`

func readLaneDetail(ctx context.Context, tx *reading, id int64) (d client.OutboxLaneDetail, err error) {
	d.Lineage = tx.Lineage
	if d.OutboxLane, err = readLane(ctx, tx, id); err != nil {
		return d, err
	}
	if err := tx.QueryRow(ctx, sqlEpochOf, d.Stream).Scan(&d.Epoch); err != nil {
		return d, err
	}
	rows, err := tx.Query(ctx, sqlLaneEvents, id, traced)
	if err != nil {
		return d, err
	}
	d.Events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (client.OutboxEvent, error) {
		e, payload, err := scanEvent(row)
		return client.OutboxEvent{TraceEvent: e, Lane: id, Resource: d.Resource, Payload: payload}, err
	})
	if d.Events == nil {
		d.Events = []client.OutboxEvent{}
	}
	return d, err
}

type eventInput struct {
	ID string `path:"id" format:"uuid"`
}

type eventOutput struct {
	Body client.OutboxEventDetail
}

// Events have no index by their id: this reads what is kept of them.
const sqlEvent = `
SELECT e.seq, e.event_id::text, e.kind, e.payload, e.created_at, e.published_at, e.state, e.lane_id, e.agg_type, e.agg_key
FROM registry.outbox_row_state e
WHERE e.event_id = $1::text::uuid
LIMIT 1`

func (s *service) getEvent(ctx context.Context, in *eventInput) (*eventOutput, error) {
	var out eventOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		rows, err := tx.Query(ctx, sqlEvent, in.ID)
		if err != nil {
			return err
		}
		e, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (e client.OutboxEvent, err error) {
			e.TraceEvent, e.Payload, err = scanEvent(row, &e.Lane, &e.Resource.Kind, &e.Resource.Key)
			return e, err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return problem.New(problem.NotFound, "there is no event %s: published events are kept for a week", in.ID)
		}
		if err != nil {
			return err
		}
		out.Body = client.OutboxEventDetail{Lineage: tx.Lineage, Event: e}
		out.Body.Lane, err = readLaneDetail(ctx, tx, e.Lane)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.readFence(ctx, &out.Body.Lane)
	return &out, nil
}
