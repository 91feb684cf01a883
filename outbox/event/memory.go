package event

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"hubn/registry/client"
)

// MemoryOptions describe a store for a module that keeps its state in memory.
// Write must be set.
type MemoryOptions struct {
	// Write makes one change in the module's own state; it is called only with
	// changes that are newer than what the store held, one call at a time. An
	// error leaves the change unmade.
	Write func(ctx context.Context, change Change) error
	// Prepare looks at changes before any of them is written; it may ask the
	// Registry. An error that is of an unavailable Registry makes them wait.
	Prepare func(ctx context.Context, lineage string, changes []Change) error
	// Replaced is called when a new lineage has replaced all that was held, after
	// Write has been called with every source of it; nil does nothing.
	Replaced func(ctx context.Context) error
	// Describe adds what the module itself has to say to the reports of sources.
	Describe func(ctx context.Context, items []client.ReportItem) error
}

// MemoryStore is a Store in memory: it begins empty, so that the first thing
// its consumer does is a complete scan. It is for modules in which every
// instance reads all events.
type MemoryStore struct {
	o MemoryOptions
	// writing is held by whoever changes sources, mu by whoever touches the fields.
	writing sync.Mutex
	mu      sync.Mutex
	state   State
	sources map[client.Resource]memorySource
	order   []client.Resource // of sources; nil when it has to be made
	retries map[client.Resource]Retry
	sets    []HeldSet
	lastSet int64
}

type memorySource struct {
	version   int64
	gone      bool
	absent    bool
	fetchedAt time.Time
}

var _ Store = (*MemoryStore)(nil)

// NewMemoryStore makes an empty store.
func NewMemoryStore(o MemoryOptions) *MemoryStore {
	return &MemoryStore{o: o, sources: map[client.Resource]memorySource{}, retries: map[client.Resource]Retry{}}
}

func (s *MemoryStore) locked() func() {
	s.mu.Lock()
	return s.mu.Unlock
}

// State reads the consumer's notes.
func (s *MemoryStore) State(context.Context) (State, error) {
	defer s.locked()()
	state := s.state
	state.Now = time.Now()
	return state, nil
}

// Begin makes lineage the store's, if it has none yet.
func (s *MemoryStore) Begin(_ context.Context, lineage string) error {
	defer s.locked()()
	if s.state.Lineage == "" {
		s.state.Lineage = lineage
	}
	return s.inLineage(lineage)
}

func (s *MemoryStore) inLineage(lineage string) error {
	if s.state.Lineage != lineage {
		return fmt.Errorf("%w: it is of %q, not %q", ErrLineage, s.state.Lineage, lineage)
	}
	return nil
}

// Held answers what is held of the resources.
func (s *MemoryStore) Held(_ context.Context, resources []client.Resource) (map[client.Resource]Held, error) {
	defer s.locked()()
	out := make(map[client.Resource]Held, len(resources))
	for _, r := range resources {
		if source, ok := s.sources[r]; ok {
			out[r] = Held{source.version, source.gone}
		}
	}
	return out, nil
}

// Apply applies each change whose version is newer than the one held.
func (s *MemoryStore) Apply(ctx context.Context, lineage string, changes []Change) ([]Outcome, error) {
	if s.o.Prepare != nil {
		if err := safely(func() error { return s.o.Prepare(ctx, lineage, changes) }); err != nil {
			return nil, err
		}
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	outcomes := make([]Outcome, len(changes))
	for i, c := range changes {
		newer, err := s.newer(lineage, c)
		if err != nil {
			return nil, err
		}
		if !newer {
			outcomes[i].Result = Stale
			continue
		}
		if err := safely(func() error { return s.o.Write(ctx, c) }); err != nil {
			if ctx.Err() != nil || client.ReasonOf(err) != "" {
				return nil, err
			}
			outcomes[i] = Outcome{Failed, err}
			continue
		}
		s.note(c, memorySource{version: c.Version, gone: c.Gone(), fetchedAt: c.FetchedAt})
		outcomes[i].Result = Applied
	}
	return outcomes, nil
}

func (s *MemoryStore) newer(lineage string, c Change) (bool, error) {
	defer s.locked()()
	if err := s.inLineage(lineage); err != nil {
		return false, err
	}
	h, ok := s.sources[c.Resource]
	return !ok || c.Version > h.version || c.Version == h.version && h.absent && !c.Gone(), nil
}

// note stores what is now held of a source.
func (s *MemoryStore) note(c Change, source memorySource) {
	defer s.locked()()
	if _, known := s.sources[c.Resource]; !known {
		s.order = nil
	}
	s.sources[c.Resource] = source
	if r, ok := s.retries[c.Resource]; ok && r.Version <= c.Version {
		delete(s.retries, c.Resource)
	}
	s.release([]client.Resource{c.Resource})
}

// Withdraw applies that sources are gone.
func (s *MemoryStore) Withdraw(ctx context.Context, lineage string, rows []Row) ([]Outcome, error) {
	changes := make([]Change, len(rows))
	for i, r := range rows {
		changes[i] = Change{Resource: r.Resource, Version: r.Version}
	}
	if s.o.Prepare != nil {
		if err := safely(func() error { return s.o.Prepare(ctx, lineage, changes) }); err != nil {
			return nil, err
		}
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	outcomes := make([]Outcome, len(rows))
	for i, c := range changes {
		there, fetchedAt, err := s.present(lineage, rows[i])
		if err != nil {
			return nil, err
		}
		if !there {
			outcomes[i].Result = Stale
			continue
		}
		if err := safely(func() error { return s.o.Write(ctx, c) }); err != nil {
			outcomes[i] = Outcome{Failed, err}
			continue
		}
		s.note(c, memorySource{version: c.Version, gone: true, absent: true, fetchedAt: fetchedAt})
		outcomes[i].Result = Applied
	}
	return outcomes, nil
}

func (s *MemoryStore) present(lineage string, row Row) (there bool, fetchedAt time.Time, err error) {
	defer s.locked()()
	if err := s.inLineage(lineage); err != nil {
		return false, time.Time{}, err
	}
	h, ok := s.sources[row.Resource]
	return ok && !h.gone && h.version == row.Version, h.fetchedAt, nil
}

// Published is how many sources the store holds as present.
func (s *MemoryStore) Published(context.Context) (int, error) {
	defer s.locked()()
	n := 0
	for _, source := range s.sources {
		if !source.gone {
			n++
		}
	}
	return n, nil
}

// after answers the sources after one, in order.
func (s *MemoryStore) after(r client.Resource) []client.Resource {
	if s.order == nil {
		for resource := range s.sources {
			s.order = append(s.order, resource)
		}
		slices.SortFunc(s.order, compareResources)
	}
	i, found := slices.BinarySearchFunc(s.order, r, compareResources)
	if found {
		i++
	}
	return s.order[i:]
}

// Inventory answers sources that the store holds as present.
func (s *MemoryStore) Inventory(_ context.Context, after client.Resource, limit int) ([]Row, error) {
	defer s.locked()()
	var out []Row
	for _, r := range s.after(after) {
		if source := s.sources[r]; !source.gone && len(out) < limit {
			out = append(out, Row{r, source.version})
		}
	}
	return out, nil
}

// Describe says what is to be reported of sources.
func (s *MemoryStore) Describe(ctx context.Context, after client.Resource, limit int, resources ...client.Resource) ([]client.ReportItem, error) {
	items := s.describe(after, limit, resources)
	if s.o.Describe == nil || len(items) == 0 {
		return items, nil
	}
	return items, s.o.Describe(ctx, items)
}

func (s *MemoryStore) describe(after client.Resource, limit int, resources []client.Resource) []client.ReportItem {
	defer s.locked()()
	if len(resources) == 0 {
		resources = s.after(after)
		resources = resources[:min(len(resources), limit)]
	}
	held := map[client.Resource]int64{}
	for _, set := range s.sets {
		for _, r := range set.Resources {
			held[r] = set.ID
		}
	}
	var items []client.ReportItem
	for _, r := range resources {
		source, ok := s.sources[r]
		if !ok {
			continue
		}
		item := client.ReportItem{Resource: r, Version: max(source.version, 1), State: client.ReportApplied, FetchedAt: source.fetchedAt}
		switch set := held[r]; {
		case source.gone:
			item.State = client.ReportWithdrawn
		case set != 0:
			item.State, item.Reason = client.ReportHeld, fmt.Sprintf("its withdrawal is held: approve or reject %d", set)
		}
		items = append(items, item)
	}
	return items
}
