package event

import (
	"context"
	"fmt"

	"hubn/registry/client"
)

// compareReports compares what the store has to say of its sources with what
// the Registry holds of it, both in order, and reports what differs: a report
// that a crash or a full queue lost.
func (c *Consumer) compareReports(ctx context.Context, lineage string) error {
	said := reportedSources{c: c, registry: c.registry.In(lineage), lineage: lineage}
	var after client.Resource
	for {
		items, err := c.store.Describe(ctx, after, client.MaxReport)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return nil
		}
		var differ []client.ReportItem
		for _, item := range items {
			after = item.Resource
			there, err := said.find(ctx, item.Resource)
			if err != nil {
				return fmt.Errorf("read the module's own reports: %w", err)
			}
			if there == nil || there.Lineage != lineage || there.Version < item.Version || there.Version == item.Version && there.State != item.State {
				differ = append(differ, item)
			}
		}
		if err := c.reports.send(ctx, lineage, differ); err != nil {
			return fmt.Errorf("report again: %w", err)
		}
	}
}

// reportedSources walks through the module's own reports.
type reportedSources struct {
	c        *Consumer
	registry *client.Client
	lineage  string
	page     []client.Reported
	next     string
	end      bool
}

// find answers the report on a resource, nil where there is none. Resources are
// asked for in order.
func (s *reportedSources) find(ctx context.Context, resource client.Resource) (*client.Reported, error) {
	for {
		for len(s.page) > 0 {
			switch n := compareResources(s.page[0].Resource, resource); {
			case n == 0:
				return &s.page[0], nil
			case n > 0:
				return nil, nil
			}
			s.page = s.page[1:]
		}
		if s.end {
			return nil, nil
		}
		page, err := s.registry.Reports(ctx, s.c.o.Module, "", s.next, client.MaxPage)
		if err != nil {
			return nil, err
		}
		s.page, s.next, s.end = page.Items, page.Next, page.Next == ""
	}
}
