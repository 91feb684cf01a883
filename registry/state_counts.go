package registry

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

const (
	// countingShare is how many times as long as it took a count is answered again:
	// counting reads every lane and report, and takes no more than this part of one
	// connection's time however often it is asked for.
	countingShare = 20
	// countingLong is how long a count is kept at most: who looks after a minute
	// wants to see what became of it.
	countingLong = time.Minute
	// countedConsumers is how many modules fit into the bits of a bigint.
	countedConsumers = 62
)

func (s *service) countRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/state/counts", id: "count-state", tag: "state",
		summary: "Count the resources by their overall word", needs: readState,
		description: "Of all, of each kind, and who keeps them from being applied. A count of many resources is kept for a while: counted_at says of when it is.",
	}, s.countState)
}

// stateCounter keeps the last count.
type stateCounter struct {
	counting sync.Mutex // held by who counts

	mu    sync.Mutex
	last  client.StateCounts
	until time.Time
}

// kept is the last count of a lineage, and whether it is still good; nil of none.
func (c *stateCounter) kept(lineage string) (*client.StateCounts, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.Lineage == "" || c.last.Lineage != lineage {
		return nil, false
	}
	last := c.last
	return &last, time.Now().Before(c.until)
}

func (c *stateCounter) keep(counts client.StateCounts, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.until = counts, time.Now().Add(min(countingShare*took, countingLong))
}

type countOutput struct {
	Body client.StateCounts
}

func (s *service) countState(ctx context.Context, _ *struct{}) (*countOutput, error) {
	last, good := s.counter.kept(s.lineage.get())
	if good {
		return &countOutput{*last}, nil
	}
	if !s.counter.counting.TryLock() {
		if last != nil { // another one counts: what it counted before is here at once
			return &countOutput{*last}, nil
		}
		s.counter.counting.Lock()
	}
	defer s.counter.counting.Unlock()
	if last, good = s.counter.kept(s.lineage.get()); good {
		return &countOutput{*last}, nil
	}
	began := time.Now()
	counts, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	s.counter.keep(counts, time.Since(began))
	return &countOutput{counts}, nil
}

// Lanes are grouped by all that their overall word follows from: what the outbox
// has of them, and what each module made of the requested version, one bit for
// each. There are few groups, and judge finds their words.
const sqlStateGroups = `
SELECT g.agg_type,
       g.unpublished,
       g.failing,
       g.diverged,
       g.current,
       g.failed,
       g.held,
       count(*)
FROM (
  SELECT l.agg_type,
         bool_or(l.pub_seq < l.last_seq) AS unpublished,
         bool_or(l.pub_seq < l.last_seq AND l.attempts >= 20) AS failing,
         bool_or(o.agg_key IS NOT NULL) AS diverged,
         coalesce(bit_or(c.bit), 0) AS current,
         coalesce(bit_or(c.bit) FILTER (WHERE s.state = 'failed'), 0) AS failed,
         coalesce(bit_or(c.bit) FILTER (WHERE s.state = 'held'), 0) AS held
  FROM registry.outbox_lane l
  LEFT JOIN registry.applied_state s
    ON s.agg_type = l.agg_type
    AND s.agg_key = l.agg_key
    AND s.version >= l.last_seq
    AND s.lineage = $1::text::uuid
  LEFT JOIN unnest($2::text[], $3::text[], $4::bigint[]) AS c (name, kind, bit)
    ON c.name = s.module
    AND c.kind = s.agg_type
  LEFT JOIN (
    SELECT DISTINCT agg_type, agg_key
    FROM registry.observation
    WHERE state = 'diverged'
  ) o ON o.agg_type = l.agg_type AND o.agg_key = l.agg_key
  WHERE l.agg_type = ANY ($5)
  GROUP BY l.agg_type, l.agg_key
) g
GROUP BY g.agg_type, g.unpublished, g.failing, g.diverged, g.current, g.failed, g.held`

// stateGroup is a number of resources of which the same is known.
type stateGroup struct {
	kind                          client.Kind
	unpublished, failing          bool
	diverged                      bool
	current, reportFailed, isHeld int64
	n                             int64
}

func (s *service) count(ctx context.Context) (client.StateCounts, error) {
	counts := client.StateCounts{Overall: map[client.Overall]int64{}, Kinds: map[client.Kind]map[client.Overall]int64{}, Modules: []client.ModuleCounts{}}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		counts.Lineage, counts.CountedAt = tx.Lineage, tx.At.UTC()
		consumers, err := readConsumers(ctx, tx)
		if err != nil {
			return err
		}
		if len(consumers) > countedConsumers {
			return fmt.Errorf("%d modules are registered, and %d can be counted", len(consumers), countedConsumers)
		}
		groups, err := readStateGroups(ctx, tx, consumers)
		if err != nil {
			return err
		}
		tally(&counts, consumers, groups)
		return nil
	})
	return counts, err
}

func readStateGroups(ctx context.Context, tx *reading, consumers []consumer) ([]stateGroup, error) {
	names, kinds, bits := []string{}, []string{}, []int64{}
	for i, c := range consumers {
		for _, kind := range c.kinds {
			names, kinds, bits = append(names, c.name), append(kinds, kind), append(bits, 1<<i)
		}
	}
	rows, err := tx.Query(ctx, sqlStateGroups, tx.Lineage, names, kinds, bits, client.SourceKinds)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (g stateGroup, err error) {
		return g, row.Scan(&g.kind, &g.unpublished, &g.failing, &g.diverged, &g.current, &g.reportFailed, &g.isHeld, &g.n)
	})
}

// evidence is what is known of each resource of the group.
func (g stateGroup) evidence(consumers []consumer) evidence {
	e := evidence{diverged: g.diverged, reports: map[string]client.Reported{}}
	e.lane.lastSeq, e.lane.pubSeq = 1, 1
	if g.unpublished {
		e.lane.pubSeq = 0
	}
	if g.failing {
		e.lane.attempts = failingAttempts
	}
	for i, c := range consumers {
		if !c.of(g.kind) {
			continue
		}
		e.consumers = append(e.consumers, c)
		if g.current&(1<<i) == 0 {
			continue
		}
		r := client.Reported{AppliedState: client.AppliedState{Module: c.name, Version: 1, State: client.ReportApplied}}
		switch {
		case g.reportFailed&(1<<i) != 0:
			r.State = client.ReportFailed
		case g.isHeld&(1<<i) != 0:
			r.State = client.ReportHeld
		}
		e.reports[c.name] = r
	}
	return e
}

// tally judges each group and adds up.
func tally(counts *client.StateCounts, consumers []consumer, groups []stateGroup) {
	for _, word := range severity {
		counts.Overall[word] = 0
	}
	for _, c := range consumers {
		counts.Modules = append(counts.Modules, client.ModuleCounts{Module: c.name, Stale: c.stale})
	}
	for _, g := range groups {
		e := g.evidence(consumers)
		word := judge(e).word
		counts.Total += g.n
		counts.Overall[word] += g.n
		if counts.Kinds[g.kind] == nil {
			counts.Kinds[g.kind] = map[client.Overall]int64{}
		}
		counts.Kinds[g.kind][word] += g.n
		for i := range counts.Modules {
			m := &counts.Modules[i]
			report, reported := e.reports[m.Module]
			switch {
			case !slices.ContainsFunc(e.consumers, func(c consumer) bool { return c.name == m.Module }):
			case !reported:
				m.Waiting += g.n
			case report.State == client.ReportFailed:
				m.Failed += g.n
			case report.State == client.ReportHeld:
				m.Held += g.n
			}
		}
	}
}
