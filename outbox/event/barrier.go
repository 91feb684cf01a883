package event

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hubn/registry/client"
)

// effectiveTimeout bounds one call of Options.Effective: a secondary name
// server or a publication may take minutes, and the barriers wait anew after it.
const effectiveTimeout = 5 * time.Minute

// barrierKeeper waits until what stood before barriers is effective, reports
// the barriers and acknowledges them. They stay unacknowledged until then, so
// that a crash forgets none.
type barrierKeeper struct {
	c *Consumer

	mu      sync.Mutex
	waiting map[client.Resource]mark
	done    map[client.Resource]mark
	wake    chan struct{}
}

func newBarrierKeeper(c *Consumer) *barrierKeeper {
	return &barrierKeeper{c: c, waiting: map[client.Resource]mark{}, done: map[client.Resource]mark{}, wake: make(chan struct{}, 1)}
}

// put hands over barriers that nothing in their stream stands before.
func (k *barrierKeeper) put(marks []mark) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range marks {
		k.waiting[m.resource] = merged(k.waiting[m.resource], m)
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// merged is the newer of two barriers of a stream with the entries of both: who
// reports it has reported the older one too.
func merged(a, b mark) mark {
	if a.version > b.version && a.lineage == b.lineage {
		a, b = b, a
	}
	if len(b.ids) == 0 {
		b.stream = a.stream // one without entries may not know its stream
	}
	for _, id := range a.ids {
		if !slices.Contains(b.ids, id) {
			b.ids = append(b.ids, id)
		}
	}
	return b
}

// take answers the barriers that wait.
func (k *barrierKeeper) take() []mark {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]mark, 0, len(k.waiting))
	for _, m := range k.waiting {
		m.ids = slices.Clone(m.ids)
		out = append(out, m)
	}
	return out
}

// finish removes barriers, unless newer ones came meanwhile.
func (k *barrierKeeper) finish(marks []mark) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range marks {
		k.done[m.resource] = mark{version: m.version, lineage: m.lineage}
		now := k.waiting[m.resource]
		now.ids = slices.DeleteFunc(now.ids, func(id string) bool { return slices.Contains(m.ids, id) })
		if now.version == m.version && now.lineage == m.lineage && len(now.ids) == 0 {
			delete(k.waiting, m.resource)
		} else {
			k.waiting[m.resource] = now
		}
	}
}

// reported tells whether this run has reported a barrier or a newer one.
func (k *barrierKeeper) reported(m mark) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, ok := k.done[m.resource]
	return ok && d.lineage == m.lineage && d.version >= m.version
}

func (k *barrierKeeper) run(ctx context.Context) error {
	for attempt := 0; ; {
		marks := k.take()
		if len(marks) == 0 {
			attempt = 0
			select {
			case <-ctx.Done():
				return nil
			case <-k.wake:
			}
			continue
		}
		if err := k.pass(ctx, marks); err != nil {
			attempt++
			if attempt == 1 {
				k.c.log.Warn("a barrier waits", "barriers", len(marks), "error", err)
			}
			if !wait(ctx, pause(attempt, k.c.set.FirstPause/4, k.c.set.LongestPause)) {
				return nil
			}
			continue
		}
		attempt = 0
	}
}

// pass waits until what stands before the barriers is effective and says so.
func (k *barrierKeeper) pass(ctx context.Context, marks []mark) error {
	if err := k.effective(ctx); err != nil {
		if ctx.Err() == nil {
			_ = k.report(ctx, marks, client.ReportFailed, err.Error())
		}
		return err
	}
	// Whoever waits for the barrier finds the reports of what stood before it.
	if err := k.c.reports.flushed(ctx); err != nil {
		return err
	}
	if err := k.report(ctx, marks, client.ReportApplied, ""); err != nil {
		return err
	}
	for _, m := range marks {
		if len(m.ids) == 0 {
			continue
		}
		if err := k.c.streams[m.stream].ack(ctx, m.ids); err != nil && !isNoGroup(err) {
			return fmt.Errorf("acknowledge %s: %w", m.resource, err)
		}
	}
	k.c.metrics.barriers.Add(float64(len(marks)))
	k.finish(marks)
	return nil
}

// effective is nil when everything applied so far is effective, and nothing
// that should have been applied keeps failing.
func (k *barrierKeeper) effective(ctx context.Context) error {
	n, some, err := k.c.store.Retries(ctx, 3)
	if err != nil {
		return err
	}
	if n > 0 {
		names := make([]string, len(some))
		for i, r := range some {
			names[i] = r.Resource.String() + " (" + r.Reason + ")"
		}
		return fmt.Errorf("%d sources keep failing: %s", n, strings.Join(names, ", "))
	}
	if k.c.o.Effective == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, effectiveTimeout, errors.New("what was applied is not effective yet"))
	defer cancel()
	if err := safely(func() error { return k.c.o.Effective(ctx) }); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// report says how the barriers of the current lineage are.
func (k *barrierKeeper) report(ctx context.Context, marks []mark, state client.ReportState, reason string) error {
	lineage := k.c.Lineage()
	var items []client.ReportItem
	for _, m := range marks {
		if m.lineage == lineage {
			items = append(items, client.ReportItem{
				Resource: m.resource, Version: m.version, State: state, Reason: reason, FetchedAt: m.made,
			})
		}
	}
	return k.c.reports.send(ctx, lineage, items)
}
