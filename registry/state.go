package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// failingAttempts is how many failures make a lane "failing": from then on it is
// tried every 15 minutes, and an alert says so.
const failingAttempts = 20

func (s *service) stateRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/state/{kind}/{key}", id: "get-state", tag: "state",
		summary: "Read what was requested, published and observed of a resource", needs: readState, unlogged: true,
		problems: []problem.Kind{problem.NotFound},
	}, s.getState)
	register(s, operation{
		method: http.MethodGet, path: "/v1/state", id: "list-state", tag: "state",
		summary: "List the resources with one overall word", needs: readState,
		description: "The operator's work list. A page examines a bounded number of resources, so it may be empty and still have a next.",
	}, s.listState)
}

// laneState is the lane of an aggregate as far as its state depends on it.
type laneState struct {
	laneID      int64
	resource    client.Resource
	lastSeq     int64
	pubSeq      int64
	attempts    int
	requestedAt time.Time
	publishedAt *time.Time
	lastError   *string
	lastErrorAt *time.Time
	word        client.LaneState
}

// evidence is everything that the overall word of one resource follows from.
type evidence struct {
	lineage   string
	lane      laneState
	consumers []consumer // those of the resource's kind
	reports   map[string]client.Reported
	diverged  bool
}

// severity orders the overall words, worst last.
var severity = []client.Overall{client.OverallApplied, client.OverallPending, client.OverallStale,
	client.OverallHeld, client.OverallDiverged, client.OverallFailed}

// verdict is the overall word, who made it so, and whom it waits for.
type verdict struct {
	word    client.Overall
	module  string // empty where the outbox, or nobody, made it so
	reason  string
	since   time.Time
	waiting []string
}

// judge is the one definition of the overall word. A report counts only for the
// requested version of the current lineage: a failure of an earlier version says
// nothing of this one, and a module that is not heard of is never fine.
func judge(e evidence) verdict {
	v := verdict{word: client.OverallApplied, since: e.lane.requestedAt}
	raise := func(word client.Overall, module, reason string, since time.Time) {
		if slices.Index(severity, word) > slices.Index(severity, v.word) {
			v.word, v.module, v.reason, v.since = word, module, reason, since
		}
	}
	if e.lane.pubSeq < e.lane.lastSeq {
		raise(client.OverallPending, "", "not published yet: its lane is "+string(e.lane.word), e.lane.requestedAt)
		if e.lane.attempts >= failingAttempts {
			raise(client.OverallFailed, "", value(e.lane.lastError), value(e.lane.lastErrorAt))
		}
	}
	if e.diverged {
		raise(client.OverallDiverged, "", "the world is not as requested", e.lane.requestedAt)
	}
	for _, c := range e.consumers {
		if c.stale {
			raise(client.OverallStale, c.name, "the module is not heard of", e.lane.requestedAt)
		}
		r, ok := e.reports[c.name]
		if !ok || r.Lineage != e.lineage || r.Version < e.lane.lastSeq {
			v.waiting = append(v.waiting, c.name)
			raise(client.OverallPending, c.name, "the module has not reported this version", e.lane.requestedAt)
			continue
		}
		switch r.State {
		case client.ReportFailed:
			raise(client.OverallFailed, c.name, r.Reason, r.ReportedAt)
		case client.ReportHeld:
			raise(client.OverallHeld, c.name, r.Reason, r.ReportedAt)
		}
	}
	return v
}

// value is what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

const (
	// laneWord is the word for what a lane does now.
	laneWord = `
       CASE WHEN l.pub_seq = l.last_seq THEN 'idle'
            WHEN l.state = 'paused' THEN 'paused'
            WHEN l.claimed_by IS NOT NULL AND l.next_at > statement_timestamp() THEN 'claimed'
            WHEN l.attempts >= 20 THEN 'failing'
            WHEN l.attempts > 0 AND l.next_at > statement_timestamp() THEN 'backing-off'
            ELSE 'ready' END`
	sqlLaneStates = `
SELECT l.lane_id,
       l.agg_type,
       l.agg_key,
       l.last_seq,
       l.pub_seq,
       l.attempts,
       l.last_event_at,
       l.published_at,
       l.last_error,
       l.last_error_at,` + laneWord + `
FROM unnest($1::text[], $2::text[]) AS w (agg_type, agg_key)
JOIN registry.outbox_lane l ON l.agg_type = w.agg_type COLLATE "C" AND l.agg_key = w.agg_key COLLATE "C"
ORDER BY l.agg_type, l.agg_key`
	sqlReportsOf = sqlReportColumns + `
JOIN unnest($1::text[], $2::text[]) AS w (agg_type, agg_key)
  ON s.agg_type = w.agg_type COLLATE "C" AND s.agg_key = w.agg_key COLLATE "C"
ORDER BY s.module`
	sqlDivergedOf = `
SELECT DISTINCT o.agg_type, o.agg_key
FROM registry.observation o
JOIN unnest($1::text[], $2::text[]) AS w (agg_type, agg_key)
  ON o.agg_type = w.agg_type COLLATE "C" AND o.agg_key = w.agg_key COLLATE "C"
WHERE o.state = 'diverged'`
)

// readEvidence reads the evidence on resources; those without a lane are left out.
func readEvidence(ctx context.Context, tx *reading, resources []client.Resource) ([]evidence, error) {
	kinds, keys := split(resources)
	consumers, err := readConsumers(ctx, tx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sqlLaneStates, kinds, keys)
	if err != nil {
		return nil, err
	}
	lanes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l laneState, err error) {
		return l, row.Scan(&l.laneID, &l.resource.Kind, &l.resource.Key, &l.lastSeq, &l.pubSeq, &l.attempts,
			&l.requestedAt, &l.publishedAt, &l.lastError, &l.lastErrorAt, &l.word)
	})
	if err != nil {
		return nil, err
	}
	if rows, err = tx.Query(ctx, sqlReportsOf, kinds, keys); err != nil {
		return nil, err
	}
	reported, err := pgx.CollectRows(rows, scanReported)
	if err != nil {
		return nil, err
	}
	if rows, err = tx.Query(ctx, sqlDivergedOf, kinds, keys); err != nil {
		return nil, err
	}
	diverged := map[client.Resource]bool{}
	var r client.Resource
	if _, err := pgx.ForEachRow(rows, []any{&r.Kind, &r.Key}, func() error { diverged[r] = true; return nil }); err != nil {
		return nil, err
	}
	reports := map[client.Resource]map[string]client.Reported{}
	for _, r := range reported {
		if reports[r.Resource] == nil {
			reports[r.Resource] = map[string]client.Reported{}
		}
		reports[r.Resource][r.Module] = r
	}
	out := make([]evidence, len(lanes))
	for i, l := range lanes {
		out[i] = evidence{lineage: tx.Lineage, lane: l, reports: reports[l.resource], diverged: diverged[l.resource]}
		for _, c := range consumers {
			if c.of(l.resource.Kind) {
				out[i].consumers = append(out[i].consumers, c)
			}
		}
	}
	return out, nil
}

// split is resources as two columns.
func split(resources []client.Resource) (kinds, keys []string) {
	kinds, keys = []string{}, []string{}
	for _, r := range resources {
		kinds, keys = append(kinds, string(r.Kind)), append(keys, r.Key)
	}
	return kinds, keys
}

type resourceInput struct {
	Kind client.Kind `path:"kind"`
	Key  string      `path:"key"`
}

// resource is the resource that the path names, its key as lanes write it.
func (in resourceInput) resource() (client.Resource, error) {
	src, err := sourceOf(in.Kind)
	if err != nil {
		return client.Resource{}, err
	}
	key, err := src.parse(in.Key)
	return client.Resource{Kind: in.Kind, Key: key}, err
}

type stateOutput struct {
	Body client.State
}

func (s *service) getState(ctx context.Context, in *resourceInput) (*stateOutput, error) {
	r, err := in.resource()
	if err != nil {
		return nil, err
	}
	var out stateOutput
	err = s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, _, err = readResourceState(ctx, tx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// readResourceState reads the state of one resource, and its lane's number.
func readResourceState(ctx context.Context, tx *reading, r client.Resource) (client.State, int64, error) {
	all, err := readEvidence(ctx, tx, []client.Resource{r})
	if err != nil {
		return client.State{}, 0, err
	}
	if len(all) == 0 {
		return client.State{}, 0, problem.New(problem.NotFound, "the Registry does not know %s (any more)", r).
			With("resource", r).With("lineage", tx.Lineage)
	}
	e := all[0]
	v := judge(e)
	state := client.State{
		Lineage: tx.Lineage, Resource: e.lane.resource, Version: e.lane.lastSeq, Requested: e.lane.requestedAt,
		Published: e.lane.pubSeq, PublishedAt: value(e.lane.publishedAt), Attempts: e.lane.attempts,
		LastError: value(e.lane.lastError), LaneState: string(e.lane.word), Overall: v.word, Reason: v.reason,
		Waiting: v.waiting, Consumers: []client.AppliedState{},
	}
	labels, err := readLabels(ctx, tx, []client.Resource{e.lane.resource})
	if err != nil {
		return state, 0, err
	}
	label, exists := labels[e.lane.resource]
	state.Label, state.Deleted = label, !exists
	if !exists {
		if state.Label, err = formerLabel(ctx, tx, e.lane.resource); err != nil {
			return state, 0, err
		}
	}
	state.Consumers = appliedStates(e)
	state.Observations, err = readObservations(ctx, tx, e.lane.resource)
	return state, e.lane.laneID, err
}

// appliedStates is what modules reported, in order of their names.
func appliedStates(e evidence) []client.AppliedState {
	out := []client.AppliedState{}
	for _, r := range e.reports {
		a := r.AppliedState
		a.OfLineage = ""
		if r.Lineage != e.lineage {
			a.OfLineage = r.Lineage
		}
		a.Stale = slices.ContainsFunc(e.consumers, func(c consumer) bool { return c.name == a.Module && c.stale })
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b client.AppliedState) int { return strings.Compare(a.Module, b.Module) })
	return out
}

const sqlObservations = `
SELECT o.module, o.subject, o.state, o.detail::text, o.observed_at
FROM registry.observation o
WHERE o.agg_type = $1
  AND o.agg_key = $2
ORDER BY o.module, o.subject
LIMIT 1000`

func readObservations(ctx context.Context, q querier, r client.Resource) ([]client.Observation, error) {
	rows, err := q.Query(ctx, sqlObservations, string(r.Kind), r.Key)
	if err != nil {
		return nil, err
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o client.Observation, err error) {
		var detail string
		err = row.Scan(&o.Module, &o.Subject, &o.State, &detail, &o.ObservedAt)
		o.Detail = json.RawMessage(detail)
		return o, err
	})
	if out == nil {
		out = []client.Observation{}
	}
	return out, err
}
