package event

import (
	"context"
	"errors"
	"slices"

	"hubn/registry/client"
)

// Replace begins the adoption of a new lineage.
func (s *MemoryStore) Replace(_ context.Context, lineage string) (Replacement, error) {
	defer s.locked()()
	return &memoryReplacement{s: s, old: s.state.Lineage, lineage: lineage, staged: map[client.Resource]Change{}}, nil
}

type memoryReplacement struct {
	s            *MemoryStore
	old, lineage string
	staged       map[client.Resource]Change
}

// Stage notes sources as the new lineage states them.
func (r *memoryReplacement) Stage(_ context.Context, changes []Change) error {
	for _, c := range changes {
		r.staged[c.Resource] = c
	}
	return nil
}

// Discard drops what was staged.
func (r *memoryReplacement) Discard(context.Context) error {
	r.staged = nil
	return nil
}

// Commit replaces all stored versions by the staged ones.
func (r *memoryReplacement) Commit(ctx context.Context, reason string, hold []Row) error {
	s := r.s
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, row := range hold {
		delete(r.staged, row.Resource)
	}
	if err := r.begin(reason); err != nil {
		return err
	}
	order := make([]client.Resource, 0, len(r.staged))
	for resource := range r.staged {
		order = append(order, resource)
	}
	slices.SortFunc(order, compareResources)
	var failed []Retry
	for _, resource := range order {
		c := r.staged[resource]
		source := memorySource{version: c.Version, gone: c.Gone(), fetchedAt: c.FetchedAt}
		if err := safely(func() error { return s.o.Write(ctx, c) }); err != nil {
			failed = append(failed, Retry{Resource: resource, Version: c.Version, Attempts: 1, Reason: err.Error()})
			source.version = 0
		}
		s.note(c, source)
	}
	err := s.Defer(ctx, stageRetry, failed)
	if s.o.Replaced != nil {
		err = errors.Join(err, s.o.Replaced(ctx))
	}
	return err
}

// begin switches the lineage, and keeps and holds what the new one does not know.
func (r *memoryReplacement) begin(reason string) error {
	s := r.s
	defer s.locked()()
	if err := s.inLineage(r.old); err != nil {
		return err
	}
	kept := map[client.Resource]memorySource{}
	var rest []Row
	for resource, source := range s.sources {
		if _, staged := r.staged[resource]; !staged && !source.gone {
			rest = append(rest, Row{resource, source.version})
			source.version = 0
			kept[resource] = source
		}
	}
	s.sources, s.order, s.sets = kept, nil, nil
	s.retries = map[client.Resource]Retry{}
	s.state.Lineage, s.state.Allowed = r.lineage, ""
	if len(rest) > 0 {
		s.hold(r.lineage, reason, rest)
	}
	return nil
}
