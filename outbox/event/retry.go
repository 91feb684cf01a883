package event

import (
	"context"
	"errors"
	"fmt"

	"hubn/registry/client"
)

// retryLoop tries the sources of the durable retry list when their time comes,
// until ctx is done.
func (c *Consumer) retryLoop(ctx, hand context.Context) error {
	for wait(ctx, c.set.RetryPoll) {
		if c.Lineage() == "" {
			continue
		}
		for ctx.Err() == nil {
			more, err := c.retryDue(hand)
			if err != nil {
				c.log.Warn("the retry list cannot be worked on now", "error", err)
			}
			if err != nil || !more {
				break
			}
		}
		c.countRetries(ctx)
	}
	return nil
}

// countRetries notes how long the retry list is.
func (c *Consumer) countRetries(ctx context.Context) {
	n, _, err := c.store.Retries(ctx, 0)
	if err != nil {
		return
	}
	c.metrics.retryList.Set(float64(n))
	c.health.setRetries(n)
}

// retryDue tries one batch of what is due, and tells whether there may be more.
// What it takes is due again only after the long pause, whatever becomes of it:
// a source that kills whoever handles it does so at that pace.
func (c *Consumer) retryDue(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.set.MaxHandling)
	defer cancel()
	retries, err := c.store.Due(ctx, c.set.RetryEvery, client.MaxBatch)
	if err != nil || len(retries) == 0 {
		return false, err
	}
	lineage := c.Lineage()
	resources := make([]client.Resource, len(retries))
	for i, r := range retries {
		resources[i] = r.Resource
	}
	held, err := c.store.Held(ctx, resources)
	if err != nil {
		return false, err
	}
	var changes []Change
	var tried []Retry
	var settled []client.Resource
	for i, f := range c.fetch(ctx, lineage, resources) {
		switch judge(0, held[f.Resource()], f) {
		case toApply:
			change, _ := changeOf(f)
			changes, tried = append(changes, change), append(tried, retries[i])
		case toLeave:
			settled = append(settled, f.Resource())
		case toReport:
			c.regression(ctx, f.Resource(), held[f.Resource()].Version)
		}
	}
	failed, done, err := c.retryApply(ctx, lineage, changes, tried)
	if err != nil {
		return false, err
	}
	if err := c.store.Settle(ctx, append(settled, done...)); err != nil {
		return false, err
	}
	if err := c.store.Defer(ctx, c.set.RetryEvery, failed); err != nil {
		return false, err
	}
	return len(retries) == client.MaxBatch, nil
}

// retryApply applies changes, and answers what failed again and what is done.
func (c *Consumer) retryApply(ctx context.Context, lineage string, changes []Change, tried []Retry) (failed []Retry, done []client.Resource, err error) {
	if len(changes) == 0 {
		return nil, nil, nil
	}
	outcomes, err := c.apply(ctx, lineage, changes)
	if errors.Is(err, ErrLineage) {
		_, err = c.refresh(ctx)
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, err
	}
	for i, o := range outcomes {
		r := tried[i]
		switch {
		case o.Result == Failed:
			r.Reason = o.Err.Error()
			failed = append(failed, r)
			c.reports.fail(r.Resource, changes[i].Version, changes[i].FetchedAt, r.Reason, r.Next)
		case changes[i].Version < r.Version:
			r.Reason = fmt.Sprintf("the Registry serves version %d, an event spoke of %d", changes[i].Version, r.Version)
			failed = append(failed, r)
		default:
			done = append(done, r.Resource)
			c.reports.put(r.Resource)
		}
	}
	return failed, done, nil
}
