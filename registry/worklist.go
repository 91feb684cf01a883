package registry

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

const (
	// examined is how many resources one round of a work list looks at, and
	// rounds how many it takes before it answers with what it has.
	examined = 1000
	rounds   = 5
)

// Candidates for a word, after a place in the order of kind and key. For the
// words that need attention an index holds nothing but them; the others are
// found among all lanes.
const (
	// sqlAttention: reports of failure or holding, and lanes that keep failing.
	sqlAttention = `
SELECT c.agg_type, c.agg_key
FROM (
  (SELECT s.agg_type, s.agg_key
   FROM registry.applied_state s
   WHERE s.state = $1
     AND s.state IN ('failed', 'held')
     AND (s.agg_type, s.agg_key) > ($2, $3)
   ORDER BY s.agg_type, s.agg_key
   LIMIT $4)
  UNION
  (SELECT l.agg_type, l.agg_key
   FROM (` + unpublished + `
   ) l
   WHERE $1 = 'failed'
     AND l.attempts >= 20
     AND (l.agg_type, l.agg_key) > ($2, $3)
   ORDER BY l.agg_type, l.agg_key
   LIMIT $4)
) c
ORDER BY c.agg_type, c.agg_key
LIMIT $4`
	sqlDiverged = `
SELECT DISTINCT o.agg_type, o.agg_key
FROM registry.observation o
WHERE o.state = $1
  AND o.state = 'diverged'
  AND (o.agg_type, o.agg_key) > ($2, $3)
ORDER BY o.agg_type, o.agg_key
LIMIT $4`
	sqlAllLanes = `
SELECT l.agg_type, l.agg_key
FROM registry.outbox_lane l
WHERE $1 <> ''
  AND (l.agg_type, l.agg_key) > ($2, $3)
ORDER BY l.agg_type, l.agg_key
LIMIT $4`
)

var candidates = map[client.Overall]string{
	client.OverallFailed:   sqlAttention,
	client.OverallHeld:     sqlAttention,
	client.OverallDiverged: sqlDiverged,
	client.OverallStale:    sqlAllLanes,
	client.OverallPending:  sqlAllLanes,
	client.OverallApplied:  sqlAllLanes,
}

type workInput struct {
	PageParams
	Overall client.Overall `query:"overall" required:"true" enum:"applied,pending,stale,held,diverged,failed"`
	Module  string         `query:"module" doc:"Only where this module makes it so, or is waited for"`
}

type workOutput struct {
	Body client.WorkPage
}

func (s *service) listState(ctx context.Context, in *workInput) (*workOutput, error) {
	var from client.Resource
	if _, err := in.decode("state", &from.Kind, &from.Key); err != nil {
		return nil, err
	}
	var out workOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body = client.WorkPage{Lineage: tx.Lineage, Overall: in.Overall, Items: []client.WorkItem{}}
		page, place := &out.Body, from
		for range rounds {
			resources, err := nextCandidates(ctx, tx, in.Overall, place)
			if err != nil {
				return err
			}
			items, err := judged(ctx, tx, resources, in)
			if err != nil {
				return err
			}
			for _, item := range items {
				if len(page.Items) == in.limit() {
					page.Next = workCursor(page.Items[in.limit()-1].Resource)
					return labelled(ctx, tx, page.Items)
				}
				page.Items = append(page.Items, item)
			}
			if len(resources) < examined {
				return labelled(ctx, tx, page.Items)
			}
			place = resources[len(resources)-1]
		}
		page.Next = workCursor(place)
		return labelled(ctx, tx, page.Items)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func workCursor(r client.Resource) string { return cursor("state", r.Kind, r.Key) }

func nextCandidates(ctx context.Context, tx *reading, word client.Overall, after client.Resource) ([]client.Resource, error) {
	rows, err := tx.Query(ctx, candidates[word], string(word), string(after.Kind), after.Key, examined)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r client.Resource, err error) {
		return r, row.Scan(&r.Kind, &r.Key)
	})
}

// judged is those of the resources that have the word, in their order. Commands
// and barriers are not resources.
func judged(ctx context.Context, tx *reading, resources []client.Resource, in *workInput) ([]client.WorkItem, error) {
	resources = slices.DeleteFunc(slices.Clone(resources), func(r client.Resource) bool {
		return !slices.Contains(client.SourceKinds, r.Kind)
	})
	if len(resources) == 0 {
		return nil, nil
	}
	all, err := readEvidence(ctx, tx, resources)
	if err != nil {
		return nil, err
	}
	var items []client.WorkItem
	for _, e := range all {
		v := judge(e)
		if v.word != in.Overall || in.Module != "" && v.module != in.Module && !slices.Contains(v.waiting, in.Module) {
			continue
		}
		items = append(items, client.WorkItem{Resource: e.lane.resource, Version: e.lane.lastSeq, Overall: v.word,
			Module: v.module, Reason: v.reason, Since: v.since})
	}
	return items, nil
}

func labelled(ctx context.Context, tx *reading, items []client.WorkItem) error {
	resources := make([]client.Resource, len(items))
	for i, item := range items {
		resources[i] = item.Resource
	}
	labels, err := readLabels(ctx, tx, resources)
	for i := range items {
		items[i].Label = labels[items[i].Resource]
	}
	return err
}
