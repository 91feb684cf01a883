package event

import (
	"context"
	"slices"

	"hubn/registry/client"
)

// conclude withdraws or holds the sources that are absent.
func (s *scan) conclude(ctx context.Context, absent []Row) error {
	c := s.c
	sets, err := c.store.Holds(ctx)
	if err != nil {
		return err
	}
	published, err := c.store.Published(ctx)
	if err != nil {
		return err
	}
	c.metrics.published.Set(float64(published))
	r := rule(absent, sets, published)
	if len(r.hold) > 0 {
		id, err := c.store.Hold(ctx, s.lineage, r.reason, r.hold)
		if err != nil {
			return err
		}
		c.log.Error("withdrawals are held until an operator approves or rejects them", "held", id, "sources", len(r.hold), "reason", r.reason)
		for _, row := range r.hold {
			c.reports.put(row.Resource)
		}
	}
	if err := s.withdraw(ctx, r.withdraw); err != nil {
		return err
	}
	if len(r.release) > 0 {
		if err := c.store.Release(ctx, r.release); err != nil {
			return err
		}
		for _, resource := range r.release {
			c.reports.put(resource)
		}
	}
	return c.countHeld(ctx)
}

// withdraw withdraws sources in batches, as far as they are still what the scan saw.
func (s *scan) withdraw(ctx context.Context, rows []Row) error {
	for len(rows) > 0 {
		n := min(len(rows), client.MaxBatch)
		outcomes, err := s.c.store.Withdraw(ctx, s.lineage, rows[:n])
		if err != nil {
			return err
		}
		for i, o := range outcomes {
			row := rows[i]
			switch o.Result {
			case Applied:
				s.c.metrics.withdrawn.WithLabelValues("scan").Inc()
				s.c.log.Warn("a source was withdrawn: the Registry does not know it", "resource", row.Resource, "version", row.Version)
				s.c.reports.put(row.Resource)
			case Failed:
				s.c.log.Error("a source could not be withdrawn; the next reconciliation tries again", "resource", row.Resource, "error", o.Err)
			}
		}
		rows = rows[n:]
	}
	return nil
}

// holdsShown bounds the held withdrawals that the status lists.
const holdsShown = 20

// countHeld notes what waits for an operator.
func (c *Consumer) countHeld(ctx context.Context) error {
	sets, err := c.store.Holds(ctx)
	if err != nil {
		return err
	}
	holds := make([]heldSummary, len(sets))
	for i, set := range sets {
		holds[i] = heldSummary{ID: set.ID, Sources: len(set.Resources), Reason: set.Reason, Decision: set.Decision, HeldAt: set.HeldAt}
	}
	c.metrics.held.Set(float64(waitingSources(holds)))
	c.health.setHolds(holds[:min(len(holds), holdsShown)])
	return nil
}

// stageWithdrawals stages that absent sources are gone, as far as the rule lets
// them go, and answers the others.
func (s *scan) stageWithdrawals(ctx context.Context, absent []Row) (held []Row, err error) {
	sets, err := s.c.store.Holds(ctx)
	if err != nil {
		return nil, err
	}
	published, err := s.c.store.Published(ctx)
	if err != nil {
		return nil, err
	}
	goes := map[client.Resource]bool{}
	var gone []Change
	for _, row := range rule(absent, sets, published).withdraw {
		goes[row.Resource] = true
		gone = append(gone, Change{Resource: row.Resource, FetchedAt: s.readAt})
	}
	if len(gone) > 0 {
		err = s.stage.Stage(ctx, gone)
	}
	return slices.DeleteFunc(absent, func(row Row) bool { return goes[row.Resource] }), err
}
