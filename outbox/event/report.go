package event

import (
	"context"
	"errors"
	"sync"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

// reporter sends what the module has to say of its sources, in batches. It
// queues resources, not reports: what is said is read from the store when it is
// sent, so it is never older than that. A report that is lost, with a crash or
// because the queue was full, is found by comparing with what the Registry
// stored, after every full reconciliation.
type reporter struct {
	c *Consumer

	mu sync.Mutex
	// failing are reports of failures, which the store knows nothing of.
	failing map[client.Resource]failure
	queued  map[client.Resource]bool
	order   []queuedReport
	// in counts what was ever queued.
	in    uint64
	moved chan struct{} // closed and replaced whenever the front of order moves
	wake  chan struct{}
	lost  bool
}

type queuedReport struct {
	resource client.Resource
	number   uint64
}

type failure struct {
	lineage string
	item    client.ReportItem
}

func newReporter(c *Consumer) *reporter {
	return &reporter{
		c: c, failing: map[client.Resource]failure{}, queued: map[client.Resource]bool{},
		moved: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// put queues a resource whose report is to be read from the store.
func (r *reporter) put(resource client.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failing, resource)
	r.enqueue(resource)
}

// fail queues the report that a source could not be handled. known is when it
// was fetched or, where it was not, when its event was made: by the database's
// clock in either case, since the Registry compares it with that of the report
// which follows.
func (r *reporter) fail(resource client.Resource, version int64, known time.Time, reason string, retryAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.enqueue(resource) {
		r.failing[resource] = failure{r.c.Lineage(), client.ReportItem{
			Resource: resource, Version: version, State: client.ReportFailed, Reason: reason, RetryAt: retryAt, FetchedAt: known,
		}}
	}
}

func (r *reporter) enqueue(resource client.Resource) bool {
	if r.queued[resource] {
		return true
	}
	if len(r.order) >= r.c.set.ReportQueue {
		r.lost = true
		r.c.metrics.reports.WithLabelValues("dropped").Inc()
		return false
	}
	r.queued[resource] = true
	r.in++
	r.order = append(r.order, queuedReport{resource, r.in})
	r.c.metrics.queue.Set(float64(len(r.order)))
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return true
}

// waiting is how many resources are queued.
func (r *reporter) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order)
}

// takeLost tells whether reports were dropped since it was last asked.
func (r *reporter) takeLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.lost
	r.lost = false
	return lost
}

// flushed waits until everything that is queued now is sent.
func (r *reporter) flushed(ctx context.Context) error {
	r.mu.Lock()
	until := r.in
	r.mu.Unlock()
	for {
		r.mu.Lock()
		moved, done := r.moved, len(r.order) == 0 || r.order[0].number > until
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// run sends until ctx is done, and then what is left, as long as hand lives.
func (r *reporter) run(ctx, hand context.Context) error {
	for attempt := 0; ; {
		if r.waiting() == 0 {
			if r.takeLost() {
				r.c.want(hand, "reports were dropped because the queue was full")
			}
			if ctx.Err() != nil {
				return nil
			}
			select {
			case <-ctx.Done():
				continue
			case <-r.wake:
			}
			wait(ctx, r.c.set.ReportEvery)
			continue
		}
		if err := r.flush(hand); err != nil {
			attempt++
			if attempt == 1 {
				r.c.log.Warn("reports wait", "resources", r.waiting(), "error", err)
			}
			if ctx.Err() != nil || !wait(hand, pause(attempt, r.c.set.FirstPause, r.c.set.LongestPause)) {
				return nil // at a shutdown it is tried once; the comparison finds the rest
			}
			continue
		}
		attempt = 0
	}
}

// flush sends one batch from the front of the queue.
func (r *reporter) flush(ctx context.Context) error {
	lineage := r.c.Lineage()
	r.mu.Lock()
	batch := make([]client.Resource, min(len(r.order), client.MaxReport))
	var items []client.ReportItem
	var ask []client.Resource
	for i := range batch {
		resource := r.order[i].resource
		batch[i] = resource
		// From now on a change of it is queued anew.
		delete(r.queued, resource)
		switch f, failing := r.failing[resource]; {
		case !failing:
			ask = append(ask, resource)
		case f.lineage == lineage:
			items = append(items, f.item)
		}
	}
	r.mu.Unlock()
	err := func() error {
		if len(ask) > 0 {
			said, err := r.c.store.Describe(ctx, client.Resource{}, len(ask), ask...)
			r.c.health.set(partStore, err)
			if err != nil {
				return err
			}
			items = append(items, said...)
		}
		return r.send(ctx, lineage, items)
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		for _, resource := range batch {
			r.queued[resource] = true
		}
		r.order = unique(r.order)
		return err
	}
	r.order = r.order[len(batch):]
	for _, resource := range batch {
		if !r.queued[resource] {
			delete(r.failing, resource)
		}
	}
	close(r.moved)
	r.moved = make(chan struct{})
	r.c.metrics.queue.Set(float64(len(r.order)))
	return nil
}

// unique drops the later ones of equal resources.
func unique(reports []queuedReport) []queuedReport {
	seen := make(map[client.Resource]bool, len(reports))
	out := reports[:0]
	for _, x := range reports {
		if !seen[x.resource] {
			seen[x.resource] = true
			out = append(out, x)
		}
	}
	return out
}

// send sends items now. Items that the Registry itself refuses are dropped and
// said so; an error is that of not reaching it.
func (r *reporter) send(ctx context.Context, lineage string, items []client.ReportItem) error {
	if len(items) == 0 {
		return nil
	}
	result, err := r.c.registry.Report(ctx, client.Report{
		Module: r.c.o.Module, Instance: r.c.o.Instance, Lineage: lineage, Items: items,
	})
	var refused *problem.Error
	if client.ReasonOf(err) == "" && errors.As(err, &refused) && (refused.Kind == problem.Invalid || refused.Kind == problem.TooLarge) {
		if len(items) > 1 {
			half := len(items) / 2
			return errors.Join(r.send(ctx, lineage, items[:half]), r.send(ctx, lineage, items[half:]))
		}
		r.c.metrics.reports.WithLabelValues("refused").Inc()
		r.c.log.Error("the Registry refuses a report", "resource", items[0].Resource, "version", items[0].Version, "error", err)
		return nil
	}
	if client.ReasonOf(err) != "" {
		r.c.health.set(partRegistry, err)
	}
	if err != nil {
		return err
	}
	r.c.metrics.reports.WithLabelValues("stored").Add(float64(result.Stored))
	r.c.metrics.reports.WithLabelValues("ignored").Add(float64(result.Ignored))
	return nil
}
