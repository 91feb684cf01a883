package client

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// LaneState says what a lane does now.
type LaneState string

// The states of a lane.
const (
	LaneIdle    LaneState = "idle"        // all published
	LaneReady   LaneState = "ready"       // waits for a worker
	LaneClaimed LaneState = "claimed"     // a worker has it
	LaneBackoff LaneState = "backing-off" // waits after a failure
	LaneFailing LaneState = "failing"     // failed 20 times or more; tried every 15 minutes
	LanePaused  LaneState = "paused"      // an operator stopped it
)

// OutboxLane is the outbox row of an aggregate.
type OutboxLane struct {
	Lane        int64     `json:"lane"`
	Resource    Resource  `json:"resource"`
	Stream      int       `json:"stream"`
	State       LaneState `json:"state"`
	LastSeq     int64     `json:"last_seq"`
	PubSeq      int64     `json:"pub_seq"`
	Pending     int64     `json:"pending"`
	HeadAt      time.Time `json:"head_at,omitzero"` // of the first unpublished event; absent when idle
	NextAt      time.Time `json:"next_at,omitzero"` // when it may be claimed next; absent when idle
	ClaimedBy   string    `json:"claimed_by,omitempty"`
	ClaimToken  int64     `json:"claim_token"`
	Attempts    int       `json:"attempts"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	LastEventAt time.Time `json:"last_event_at"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	// StreamPaused says that its whole stream is paused.
	StreamPaused bool `json:"stream_paused,omitempty"`
}

// OutboxLanePage answers GET /v1/outbox/lanes.
type OutboxLanePage struct {
	Lineage string       `json:"lineage"`
	Items   []OutboxLane `json:"items"`
	Next    string       `json:"next,omitempty"`
}

// OutboxEvent is one event row.
type OutboxEvent struct {
	TraceEvent
	Lane     int64           `json:"lane"`
	Resource Resource        `json:"resource"`
	Payload  json.RawMessage `json:"payload"`
}

// OutboxLaneDetail answers GET /v1/outbox/lanes/{lane}.
type OutboxLaneDetail struct {
	Lineage string `json:"lineage"`
	OutboxLane
	Epoch string `json:"epoch,omitempty"` // of its stream, "<lineage>/<uuid>"
	// Fence is the lane's last published seq as Redis holds it; nil when Redis
	// holds none, or could not be asked (FenceError).
	Fence      *int64        `json:"fence,omitempty"`
	FenceError string        `json:"fence_error,omitempty"`
	Events     []OutboxEvent `json:"events"` // newest first, bounded
}

// OutboxEventDetail answers GET /v1/outbox/events/{event_id}.
type OutboxEventDetail struct {
	Lineage string           `json:"lineage"`
	Event   OutboxEvent      `json:"event"`
	Lane    OutboxLaneDetail `json:"lane"`
}

// OutboxStream is one stream as the database and Redis see it.
type OutboxStream struct {
	Stream      int             `json:"stream"`
	Paused      bool            `json:"paused"`
	Epoch       string          `json:"epoch,omitempty"`
	EpochAt     time.Time       `json:"epoch_at,omitzero"`
	EpochReason string          `json:"epoch_reason,omitempty"`
	AuditedAt   time.Time       `json:"audited_at,omitzero"`
	AuditResult json.RawMessage `json:"audit_result,omitempty"`
	// Length is the number of entries in Redis; nil when Redis could not be asked.
	Length *int64        `json:"length,omitempty"`
	Groups []OutboxGroup `json:"groups,omitempty"`
}

// OutboxGroup is a consumer group of a stream.
type OutboxGroup struct {
	Group   string `json:"group"`
	Pending int64  `json:"pending"` // delivered and not acknowledged
	Lag     *int64 `json:"lag,omitempty"`
	// LastDelivered is the id of the last delivered entry.
	LastDelivered string `json:"last_delivered"`
	// Trimmed says that entries after LastDelivered are gone from the stream.
	Trimmed bool `json:"trimmed,omitempty"`
}

// OutboxStatus answers GET /v1/outbox/status.
type OutboxStatus struct {
	Lineage       string         `json:"lineage"`
	Pending       int64          `json:"pending"` // unpublished events
	OldestSeconds float64        `json:"oldest_seconds"`
	Ready         int64          `json:"ready"`
	Claimed       int64          `json:"claimed"`
	Overdue       int64          `json:"overdue"` // claimed, and the claim has expired
	BackingOff    int64          `json:"backing_off"`
	Failing       int64          `json:"failing"`
	Paused        int64          `json:"paused"`
	Deepest       *OutboxLane    `json:"deepest,omitempty"`
	Streams       []OutboxStream `json:"streams"`
	Partitions    int            `json:"partitions"`
	OldestDay     string         `json:"oldest_day,omitempty"`
	LastDay       string         `json:"last_day,omitempty"`
	RedisError    string         `json:"redis_error,omitempty"`
}

// OutboxTarget names lanes: exactly one of Lane, Stream and All, or, where the
// order allows it, filters.
type OutboxTarget struct {
	// Lane is a lane's number or a resource, "17" or "prefix:17".
	Lane   string `json:"lane,omitempty"`
	Stream *int   `json:"stream,omitempty" minimum:"0" maximum:"7"`
	All    bool   `json:"all,omitempty"`
}

// OutboxOrder is the body of POST /v1/outbox/retry, pause and resume.
type OutboxOrder struct {
	OutboxTarget
	Reason string `json:"reason,omitempty" maxLength:"1000"`
	// DryRun only counts.
	DryRun bool `json:"dry_run,omitempty"`
}

// OutboxSkip is the body of POST /v1/outbox/skip: the events of one lane up to
// Through are given up, and a gap marker says so to the consumers.
type OutboxSkip struct {
	Lane    string `json:"lane" minLength:"1"`
	Through int64  `json:"through" minimum:"1"`
	Reason  string `json:"reason" minLength:"1" maxLength:"1000"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

// OutboxReplay is the body of POST /v1/outbox/replay: every aggregate named gets
// one new replay event. Kind and Since narrow a stream or all; Since takes the
// aggregates with an event since that moment.
type OutboxReplay struct {
	OutboxTarget
	Kind   Kind      `json:"kind,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty" maxLength:"1000"`
	DryRun bool      `json:"dry_run,omitempty"`
	// After is the Next of the answer before, to go on with a replay.
	After string `json:"after,omitempty"`
}

// OutboxAudit is the body of POST /v1/outbox/audit: the workers compare the
// fences in Redis with what was published, and with Fix publish again what was lost.
type OutboxAudit struct {
	Stream      *int   `json:"stream,omitempty" minimum:"0" maximum:"7"` // nil: all
	Fix         bool   `json:"fix,omitempty"`
	WaitSeconds int    `json:"wait_seconds,omitempty" minimum:"0" maximum:"50"`
	Reason      string `json:"reason,omitempty" maxLength:"1000"`
}

// OutboxAuditAnswer says how far the audits that were asked for are.
type OutboxAuditAnswer struct {
	Lineage string `json:"lineage"`
	// Done says that every stream asked for was audited after the question.
	Done    bool           `json:"done"`
	Streams []OutboxStream `json:"streams"`
}

// OutboxCleanup is the body of POST /v1/outbox/cleanup. The workers clean up by
// themselves; this is for who wants to look, or not to wait.
type OutboxCleanup struct {
	DryRun bool `json:"dry_run"`
}

// OutboxPartition is one daily partition of the events.
type OutboxPartition struct {
	Day         string `json:"day"` // UTC
	Rows        int64  `json:"rows"`
	Unpublished int64  `json:"unpublished"`
	Bytes       int64  `json:"bytes"`
	Due         bool   `json:"due"`
	Reason      string `json:"reason"` // why it is due, or why it is kept
}

// OutboxCleanupAnswer lists the partitions that are past.
type OutboxCleanupAnswer struct {
	Lineage    string            `json:"lineage"`
	DryRun     bool              `json:"dry_run"`
	Partitions []OutboxPartition `json:"partitions"`
	Dropped    []string          `json:"dropped,omitempty"`
}

// OutboxResult says what an order found and did.
type OutboxResult struct {
	Lineage string `json:"lineage"`
	DryRun  bool   `json:"dry_run"`
	// Matched is how many lanes (streams, for a pause of streams) it is about;
	// Changed how many it changed.
	Matched int64 `json:"matched"`
	Changed int64 `json:"changed"`
	// Events is how many events it appended or gave up.
	Events int64 `json:"events"`
	// Next says that the order is not done, and where to go on.
	Next string `json:"next,omitempty"`
}

// Finding is one result of an examination.
type Finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warning, error, unknown
	Detail string `json:"detail"`
	// Advice is what to do; empty when the level is ok.
	Advice string `json:"advice,omitempty"`
}

// OutboxDoctor answers POST /v1/outbox/doctor.
type OutboxDoctor struct {
	Lineage  string    `json:"lineage"`
	Findings []Finding `json:"findings"`
}

// LaneFilter narrows a list of lanes; the zero value takes all.
type LaneFilter struct {
	State LaneState
	Kind  Kind
	// Older takes lanes whose first unpublished event is at least this old.
	Older time.Duration
	Limit int
	After string
}

// OutboxStatus answers how the outbox is.
func (c *Client) OutboxStatus(ctx context.Context) (out OutboxStatus, err error) {
	return out, c.get(ctx, "/v1/outbox/status", nil, &out)
}

// OutboxLanes lists lanes.
func (c *Client) OutboxLanes(ctx context.Context, f LaneFilter) (out OutboxLanePage, err error) {
	query := url.Values{}
	if f.State != "" {
		query.Set("state", string(f.State))
	}
	if f.Kind != "" {
		query.Set("agg", string(f.Kind))
	}
	if f.Older > 0 {
		query.Set("older", strconv.FormatFloat(f.Older.Seconds(), 'f', -1, 64))
	}
	setPage(query, f.After, f.Limit)
	return out, c.get(ctx, "/v1/outbox/lanes", query, &out)
}

// OutboxLane answers one lane by its number or its resource.
func (c *Client) OutboxLane(ctx context.Context, lane string) (out OutboxLaneDetail, err error) {
	return out, c.get(ctx, "/v1/outbox/lanes/"+url.PathEscape(lane), nil, &out)
}

// OutboxEvent answers one event by its id.
func (c *Client) OutboxEvent(ctx context.Context, id string) (out OutboxEventDetail, err error) {
	return out, c.get(ctx, "/v1/outbox/events/"+url.PathEscape(id), nil, &out)
}

// OutboxRetry makes backing-off lanes ready now; their order is untouched.
func (c *Client) OutboxRetry(ctx context.Context, o OutboxOrder) (out OutboxResult, err error) {
	return out, c.post(ctx, "/v1/outbox/retry", o, &out)
}

// OutboxPause stops the publication of lanes.
func (c *Client) OutboxPause(ctx context.Context, o OutboxOrder) (out OutboxResult, err error) {
	return out, c.post(ctx, "/v1/outbox/pause", o, &out)
}

// OutboxResume lets paused lanes go on.
func (c *Client) OutboxResume(ctx context.Context, o OutboxOrder) (out OutboxResult, err error) {
	return out, c.post(ctx, "/v1/outbox/resume", o, &out)
}

// OutboxSkip gives up events of a lane.
func (c *Client) OutboxSkip(ctx context.Context, o OutboxSkip) (out OutboxResult, err error) {
	return out, c.post(ctx, "/v1/outbox/skip", o, &out)
}

// OutboxReplay appends replay events, in as many requests as it takes. Where it
// fails, the result counts what was done before.
func (c *Client) OutboxReplay(ctx context.Context, o OutboxReplay) (sum OutboxResult, err error) {
	for {
		var one OutboxResult
		if err := c.post(ctx, "/v1/outbox/replay", o, &one); err != nil {
			return sum, err
		}
		sum.Lineage, sum.DryRun = one.Lineage, one.DryRun
		sum.Matched += one.Matched
		sum.Changed += one.Changed
		sum.Events += one.Events
		if o.After = one.Next; o.After == "" {
			return sum, nil
		}
	}
}

// OutboxAudit asks the workers for an audit and waits for it as long as o says.
func (c *Client) OutboxAudit(ctx context.Context, o OutboxAudit) (out OutboxAuditAnswer, err error) {
	return out, c.post(ctx, "/v1/outbox/audit", o, &out)
}

// OutboxCleanup lists the partitions of the events and which are due.
func (c *Client) OutboxCleanup(ctx context.Context, o OutboxCleanup) (out OutboxCleanupAnswer, err error) {
	return out, c.post(ctx, "/v1/outbox/cleanup", o, &out)
}

// OutboxDoctor examines what the outbox stands on.
func (c *Client) OutboxDoctor(ctx context.Context) (out OutboxDoctor, err error) {
	return out, c.post(ctx, "/v1/outbox/doctor", nil, &out)
}
