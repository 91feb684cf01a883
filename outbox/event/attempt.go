package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hubn/registry/client"
)

// attempt tries to settle works: those that the store holds already, and those
// whose fetch could be applied.
func (s *shard) attempt(ctx context.Context, works []*work) {
	c := s.c
	lineage := c.Lineage()
	held, err := c.store.Held(ctx, resourcesOf(works))
	c.health.set(partStore, err)
	if err != nil {
		c.log.Warn("the module's store cannot be read", "error", err)
		s.postpone(works...)
		return
	}
	fresh := s.skipKnown(works, held)
	if len(fresh) == 0 {
		return
	}
	fetched := c.fetch(ctx, lineage, resourcesOf(fresh))
	if c.o.Hooks.Fetched != nil {
		c.o.Hooks.Fetched(ctx, fetched)
	}
	apply, changes := s.sift(ctx, fresh, held, fetched)
	if len(apply) == 0 {
		return
	}
	s.apply(ctx, lineage, apply, changes)
}

// skipKnown settles the works whose events speak of nothing new, and counts the
// gaps of the others.
func (s *shard) skipKnown(works []*work, held map[client.Resource]Held) (fresh []*work) {
	for _, w := range works {
		h := held[w.resource]
		switch {
		case h.Version >= w.highest:
			s.c.metrics.sources.WithLabelValues("duplicate").Inc()
			s.settle(w)
			continue
		case w.lowest > h.Version+1 && w.attempts == 0:
			s.c.metrics.gaps.Inc()
		}
		fresh = append(fresh, w)
	}
	return fresh
}

// fetch asks the Registry for sources, one batch for each kind.
func (c *Consumer) fetch(ctx context.Context, lineage string, resources []client.Resource) []client.Fetched {
	keys := map[client.Kind][]string{}
	at := map[client.Kind][]int{}
	for i, r := range resources {
		keys[r.Kind] = append(keys[r.Kind], r.Key)
		at[r.Kind] = append(at[r.Kind], i)
	}
	out := make([]client.Fetched, len(resources))
	registry := c.registry.In(lineage)
	var failure error
	answered := false
	for kind, k := range keys {
		for i, f := range registry.FetchBatch(ctx, kind, k) {
			out[at[kind][i]] = f
			if f.Outcome() == client.Unavailable {
				failure = f.Err()
			} else {
				answered = true
			}
		}
	}
	if answered {
		failure = nil
	}
	c.health.set(partRegistry, failure)
	return out
}

// sift settles or postpones the works whose fetch is not to be applied, and
// answers the others with their changes.
func (s *shard) sift(ctx context.Context, works []*work, held map[client.Resource]Held, fetched []client.Fetched) (apply []*work, changes []Change) {
	c := s.c
	verdicts := make([]verdict, len(works))
	answered := false
	for i, w := range works {
		verdicts[i] = judge(w.highest, held[w.resource], fetched[i])
		if verdicts[i] != toRetry {
			answered = true
			w.known = fetched[i].ReadAt()
		}
	}
	scan := false
	for i, w := range works {
		switch verdicts[i] {
		case toApply:
			change, _ := changeOf(fetched[i])
			apply, changes = append(apply, w), append(changes, change)
		case toLeave:
			c.metrics.sources.WithLabelValues("forgotten").Inc()
			s.settle(w)
		case toScan:
			scan = true
		case toWait:
			s.tooOld(ctx, w, w.highest, fmt.Errorf("the Registry serves version %d, an event spoke of %d", fetched[i].Version(), w.highest))
		case toReport:
			s.tooOld(ctx, w, held[w.resource].Version, fmt.Errorf("the Registry serves version %d, the store holds %d", fetched[i].Version(), held[w.resource].Version))
		default:
			c.metrics.sources.WithLabelValues("unavailable").Inc()
			if answered {
				// The others were answered: it is this source that cannot be had.
				s.failed(ctx, w, fetched[i].Err())
				continue
			}
			s.postpone(w)
		}
	}
	if scan {
		s.otherLineage(ctx, works, verdicts)
	}
	return apply, changes
}

// otherLineage ends the works that the Registry answered in another lineage: a
// scan covers them.
func (s *shard) otherLineage(ctx context.Context, works []*work, verdicts []verdict) {
	noted := s.c.want(ctx, "the Registry serves another lineage")
	for i, w := range works {
		if verdicts[i] != toScan {
			continue
		}
		s.c.metrics.sources.WithLabelValues("other_lineage").Inc()
		if noted {
			s.settle(w)
		} else {
			s.postpone(w)
		}
	}
}

// tooOld deals with a fetch that was older than what was seen before: a lag of
// what serves it, or, when it stays so, a Registry whose history went back.
func (s *shard) tooOld(ctx context.Context, w *work, seen int64, why error) {
	s.c.metrics.sources.WithLabelValues("too_old").Inc()
	if w.attempts >= 1 {
		s.c.regression(ctx, w.resource, seen)
	}
	s.failed(ctx, w, why)
}

// regression tells the Registry that it went back; it looks into it.
func (c *Consumer) regression(ctx context.Context, r client.Resource, version int64) {
	c.metrics.regressed.Inc()
	c.log.Warn("the Registry serves an older version than was seen in its lineage", "resource", r, "version", version)
	answer, err := c.registry.Regression(ctx, client.Regression{Module: c.o.Module, Lineage: c.Lineage(), Resource: r, Version: version})
	if err != nil {
		c.log.Warn("the Registry could not be told that it went back", "resource", r, "error", err)
		return
	}
	if answer.Begun || answer.Lineage != c.Lineage() {
		c.want(ctx, lineageWish(answer.Lineage))
	}
}

// apply writes changes, and settles the works that are durable.
func (s *shard) apply(ctx context.Context, lineage string, works []*work, changes []Change) {
	c := s.c
	outcomes, err := c.apply(ctx, lineage, changes)
	if errors.Is(err, ErrLineage) {
		s.follow(ctx)
		return
	}
	if err != nil {
		s.postpone(works...)
		return
	}
	for i, w := range works {
		if outcomes[i].Result == Failed {
			s.failed(ctx, w, outcomes[i].Err)
			continue
		}
		if outcomes[i].Result == Applied {
			c.metrics.age.Observe(time.Since(w.oldest).Seconds())
		}
		s.settle(w)
	}
}

// apply writes changes to the store and queues their reports; its errors are
// those of the store.
func (c *Consumer) apply(ctx context.Context, lineage string, changes []Change) ([]Outcome, error) {
	begun := time.Now()
	outcomes, err := c.store.Apply(ctx, lineage, changes)
	if errors.Is(err, ErrLineage) {
		return nil, err
	}
	if client.ReasonOf(err) != "" {
		c.health.set(partRegistry, err) // the handler asked it, and got no answer
	} else {
		c.health.set(partStore, err)
	}
	if err != nil {
		c.log.Warn("the changes cannot be applied now", "changes", len(changes), "error", err)
		return nil, err
	}
	c.metrics.applyTime.Observe(time.Since(begun).Seconds())
	if c.o.Hooks.Applied != nil {
		c.o.Hooks.Applied(ctx, changes)
	}
	for i, o := range outcomes {
		c.metrics.sources.WithLabelValues(o.Result.String()).Inc()
		if o.Result == Applied {
			c.reports.put(changes[i].Resource)
		}
	}
	return outcomes, nil
}

// failed counts an attempt at a work; after the last one it goes to the retry list.
func (s *shard) failed(ctx context.Context, w *work, why error) {
	w.attempts++
	if w.attempts <= s.c.set.Attempts {
		s.c.log.Warn("a source could not be handled; it is tried again", "resource", w.resource, "version", w.highest, "attempt", w.attempts, "error", why)
		s.postpone(w)
		s.c.reports.fail(w.resource, w.highest, w.at(), why.Error(), w.due)
		return
	}
	if s.c.giveUp(ctx, []*work{w}, why.Error()) {
		s.settle(w)
	} else {
		s.postpone(w)
	}
}

// giveUp puts works on the durable retry list, and tells whether it could: then
// their entries may be acknowledged.
func (c *Consumer) giveUp(ctx context.Context, works []*work, why string) bool {
	retries := make([]Retry, len(works))
	for i, w := range works {
		retries[i] = Retry{Resource: w.resource, Version: w.highest, Attempts: w.attempts, Reason: why}
	}
	err := c.store.Defer(ctx, c.set.RetryEvery, retries)
	c.health.set(partStore, err)
	if err != nil {
		c.log.Warn("the retry list cannot be written now", "error", err)
		return false
	}
	for _, w := range works {
		c.log.Error("a source keeps failing; it goes to the retry list", "resource", w.resource, "version", w.highest, "error", why)
		c.reports.fail(w.resource, w.highest, w.at(), why, time.Now().Add(c.set.RetryEvery))
	}
	c.countRetries(ctx)
	return true
}
