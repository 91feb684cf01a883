package event

import (
	"context"
	"encoding/json"
	"time"

	"hubn/registry/client"
)

// register sends the first heartbeat, waiting for the Registry; false when ctx ended.
func (c *Consumer) register(ctx context.Context) bool {
	for attempt := 1; ; attempt++ {
		_, err := c.heartbeat(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		c.log.Warn("the module cannot be registered now", "error", err)
		if !wait(ctx, pause(attempt, c.set.FirstPause/2, c.set.LongestPause)) {
			return false
		}
	}
}

// beat sends heartbeats until ctx is done.
func (c *Consumer) beat(ctx context.Context) error {
	for wait(ctx, c.set.HeartbeatEvery) {
		if _, err := c.heartbeat(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("the heartbeat did not reach the Registry", "error", err)
		}
	}
	return nil
}

func (c *Consumer) heartbeat(ctx context.Context) (client.HeartbeatAnswer, error) {
	c.measure(ctx)
	status, err := json.Marshal(c.status())
	if err != nil {
		return client.HeartbeatAnswer{}, err
	}
	answer, err := c.registry.Heartbeat(ctx, c.o.Module, c.o.Instance, client.Heartbeat{
		Kinds: c.o.Kinds, Address: c.o.Address, Lineage: c.Lineage(), Behind: c.behind.Load(), StartedAt: c.started,
		IntervalSeconds: int(max((c.set.HeartbeatEvery+time.Second-1)/time.Second, 1)), Status: status,
	})
	c.health.set(partRegistry, err)
	if err != nil {
		return answer, err
	}
	if own := c.Lineage(); own != "" && answer.Lineage != own && answer.Lineage != c.view.Load().foreign {
		c.want(ctx, lineageWish(answer.Lineage))
	}
	return answer, nil
}

// status is what the heartbeat carries for others to read.
func (c *Consumer) status() map[string]any {
	s := c.Status()
	out := map[string]any{"ready": s.Ready, "reason": s.Reason, "consumer": s.Detail}
	if c.o.Status != nil {
		out["module"] = c.o.Status()
	}
	return out
}

// measure counts how many events the module's group is behind, over all streams.
func (c *Consumer) measure(ctx context.Context) {
	var behind int64
	for _, s := range c.streams {
		at, err := s.position(ctx)
		if isNoGroup(err) {
			continue
		}
		if err != nil {
			c.health.set(partRedis, err)
			return // what was measured last stands
		}
		behind += at.lag + at.pending
	}
	c.behind.Store(behind)
}
