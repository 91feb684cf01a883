package event

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"hubn/registry/client"
)

const (
	// wishPoll is how often the store is asked whether another replica wants a
	// full reconciliation.
	wishPoll = 2 * time.Second
	// scanLease is how long a replica reconciles for all without renewing.
	scanLease = 30 * time.Second
)

// errBusy says that another replica reconciles now.
var errBusy = errors.New("another replica reconciles")

// reconcileLoop reconciles when it is wanted or time, until ctx is done.
func (c *Consumer) reconcileLoop(ctx context.Context) error {
	every := jittered(c.set.ReconcileEvery)
	open := false
	for attempt := 0; ; {
		state, err := c.refresh(ctx)
		if err == nil && !state.ReconciledAt.IsZero() && !open {
			open = true
			close(c.scanned)
		}
		if err == nil && (state.Wanted > state.Done || state.ReconciledAt.IsZero() || state.Now.Sub(state.ReconciledAt) >= every) {
			err = c.reconcile(ctx, state)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				attempt, every = 0, jittered(c.set.ReconcileEvery)
				continue
			case !errors.Is(err, errBusy):
				attempt++
			}
		}
		// A wish cuts the waiting short, unless the last run failed: then it waits
		// its turn.
		wish := c.wish
		delay := min(wishPoll, every)
		if attempt > 0 {
			wish, delay = nil, pause(attempt, c.set.FirstPause, c.set.LongestPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wish:
		case <-time.After(delay):
		}
	}
}

// jittered spreads the replicas and modules of an installation: a fifth around d.
func jittered(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}

// reconcile runs one full reconciliation under the module's lease.
func (c *Consumer) reconcile(ctx context.Context, state State) error {
	ctx, release, err := c.lease(ctx)
	if err != nil {
		return err
	}
	defer release()
	begun := time.Now()
	err = c.scan(ctx, state)
	c.metrics.scanTime.Observe(time.Since(begun).Seconds())
	word := "complete"
	if err != nil {
		word = "refused: " + err.Error()
		c.metrics.reconciled.WithLabelValues("refused").Inc()
		if ctx.Err() == nil {
			c.log.Warn("the full reconciliation was refused: everything is kept, and it starts over later", "reason", state.Reason, "error", err)
		}
	} else {
		c.metrics.reconciled.WithLabelValues("complete").Inc()
		c.log.Info("the full reconciliation is complete", "reason", state.Reason, "seconds", time.Since(begun).Seconds())
	}
	c.health.setReconciled(word)
	return err
}

// lease makes this replica the one that reconciles. It is a lease of the
// Registry, which a scan needs anyway: Redis need not be there. The context ends
// when the lease is lost.
func (c *Consumer) lease(ctx context.Context) (context.Context, func(), error) {
	if c.o.EveryInstance {
		return ctx, func() {}, nil
	}
	name := c.o.Module + ":reconcile"
	got, err := c.registry.AcquireLease(ctx, name, c.o.Instance, scanLease)
	c.health.set(partRegistry, err)
	if err != nil {
		return nil, nil, fmt.Errorf("take the lease %s: %w", name, err)
	}
	if !got.Held {
		return nil, nil, errBusy
	}
	inner, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait(inner, scanLease/3) {
			if again, err := c.registry.AcquireLease(inner, name, c.o.Instance, scanLease); err == nil && !again.Held {
				cancel(errBusy)
			}
		}
	}()
	return inner, func() {
		cancel(nil)
		<-done
		giveBack, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = c.registry.ReleaseLease(giveBack, name, c.o.Instance, got.Token)
	}, nil
}

// scan compares everything, in the lineage that the Registry serves.
func (c *Consumer) scan(ctx context.Context, state State) error {
	served, err := c.registry.Lineage(ctx)
	c.health.set(partRegistry, err)
	if err != nil {
		return fmt.Errorf("ask the Registry for its lineage: %w", err)
	}
	position := stand(state.Lineage, state.Allowed, served)
	if position == foreignLineage {
		c.setView(view{lineage: state.Lineage, ancestors: ancestors(served), foreign: served.Lineage})
		return fmt.Errorf("the Registry serves lineage %s, which does not come from %s: if that is right, adopt-lineage %s at this module",
			served.Lineage, state.Lineage, served.Lineage)
	}
	if position == firstLineage {
		if err := c.store.Begin(ctx, served.Lineage); err != nil {
			return err
		}
	}
	// What a barrier stood for was committed before it: when the versions of the
	// barriers are read first, the scan covers what they stood for, even where
	// their events were lost with Redis.
	barriers, err := c.barrierVersions(ctx, served.Lineage)
	if err != nil {
		return err
	}
	s := &scan{c: c, lineage: served.Lineage, registry: c.registry.In(served.Lineage), seen: listing{}, tokens: map[client.Kind]string{}}
	if position == newLineage {
		err = s.adopt(ctx)
	} else {
		c.setView(view{lineage: served.Lineage, ancestors: ancestors(served)})
		err = s.compare(ctx)
	}
	if err != nil {
		return err
	}
	c.setView(view{lineage: served.Lineage, ancestors: ancestors(served)})
	if err := c.afterScan(ctx, served.Lineage, barriers); err != nil {
		return err
	}
	return c.store.Reconciled(ctx, state.Wanted)
}

func (c *Consumer) setView(v view) {
	c.view.Store(&v)
	foreign := 0.0
	if v.foreign != "" {
		foreign = 1
	}
	c.metrics.foreign.Set(foreign)
}

// afterScan makes up for what may have been lost on the way: barriers, commands
// and reports.
func (c *Consumer) afterScan(ctx context.Context, lineage string, barriers []mark) error {
	c.barriers.put(slices.DeleteFunc(barriers, c.barriers.reported))
	open, err := c.registry.In(lineage).Commands(ctx, c.o.Module, true, "", 0)
	if err != nil {
		return fmt.Errorf("ask for open commands: %w", err)
	}
	var marks []mark
	for _, command := range open.Items {
		if command.Version > 0 {
			marks = append(marks, mark{
				resource: client.Resource{Kind: client.KindCommand, Key: strconv.FormatInt(command.ID, 10)},
				version:  command.Version, lineage: lineage, made: command.CreatedAt,
			})
		}
	}
	slices.Reverse(marks) // the list is newest first
	c.commands.put(marks)
	return c.compareReports(ctx, lineage)
}

// barrierVersions asks how far the barriers of the streams are.
func (c *Consumer) barrierVersions(ctx context.Context, lineage string) ([]mark, error) {
	answer, err := c.heartbeat(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the barriers: %w", err)
	}
	if answer.Lineage != lineage {
		return nil, fmt.Errorf("ask for the barriers: %w", &client.LineageError{Expected: lineage, Served: answer.Lineage})
	}
	out := make([]mark, len(answer.Barriers))
	for i, b := range answer.Barriers {
		out[i] = mark{
			resource: client.Resource{Kind: client.KindBarrier, Key: strconv.Itoa(b.Stream)},
			version:  b.Version, lineage: lineage, stream: b.Stream, made: b.RaisedAt,
		}
	}
	return out, nil
}
