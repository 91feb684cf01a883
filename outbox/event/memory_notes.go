package event

import (
	"context"
	"slices"
	"time"

	"hubn/registry/client"
)

// Want notes that a full reconciliation is needed.
func (s *MemoryStore) Want(_ context.Context, reason string) error {
	defer s.locked()()
	s.state.Wanted++
	s.state.Reason = reason
	return nil
}

// Reconciled notes that a full reconciliation is complete.
func (s *MemoryStore) Reconciled(_ context.Context, wanted int64) error {
	defer s.locked()()
	s.state.Done = max(s.state.Done, wanted)
	s.state.ReconciledAt = time.Now()
	return nil
}

// Allow notes that a foreign lineage may be adopted.
func (s *MemoryStore) Allow(_ context.Context, lineage string) error {
	defer s.locked()()
	s.state.Allowed = lineage
	return nil
}

// Defer puts sources on the retry list.
func (s *MemoryStore) Defer(_ context.Context, pause time.Duration, retries []Retry) error {
	defer s.locked()()
	now := time.Now()
	for _, r := range retries {
		old, ok := s.retries[r.Resource]
		if !ok {
			old = Retry{Resource: r.Resource, Since: now}
		}
		old.Version, old.Attempts = max(old.Version, r.Version), max(old.Attempts, r.Attempts)
		old.Reason, old.Next = r.Reason, now.Add(pause)
		s.retries[r.Resource] = old
	}
	return nil
}

// Due claims sources of the retry list whose time has come.
func (s *MemoryStore) Due(_ context.Context, pause time.Duration, limit int) ([]Retry, error) {
	defer s.locked()()
	now := time.Now()
	var out []Retry
	for resource, r := range s.retries {
		if !r.Next.After(now) && len(out) < limit {
			r.Attempts++
			r.Next = now.Add(pause)
			s.retries[resource] = r
			out = append(out, r)
		}
	}
	return out, nil
}

// Settle takes sources off the retry list.
func (s *MemoryStore) Settle(_ context.Context, resources []client.Resource) error {
	defer s.locked()()
	for _, r := range resources {
		delete(s.retries, r)
	}
	return nil
}

// Retries answers the retry list's length and some of it.
func (s *MemoryStore) Retries(_ context.Context, limit int) (int, []Retry, error) {
	defer s.locked()()
	var out []Retry
	for _, r := range s.retries {
		if len(out) < limit {
			out = append(out, r)
		}
	}
	return len(s.retries), out, nil
}

// Hold notes a held withdrawal.
func (s *MemoryStore) Hold(_ context.Context, lineage, reason string, rows []Row) (int64, error) {
	defer s.locked()()
	if err := s.inLineage(lineage); err != nil {
		return 0, err
	}
	return s.hold(lineage, reason, rows), nil
}

func (s *MemoryStore) hold(lineage, reason string, rows []Row) int64 {
	s.lastSet++
	set := HeldSet{ID: s.lastSet, Lineage: lineage, Reason: reason, Decision: Waiting, HeldAt: time.Now()}
	for _, r := range rows {
		set.Resources = append(set.Resources, r.Resource)
	}
	slices.SortFunc(set.Resources, compareResources)
	s.sets = append(s.sets, set)
	return set.ID
}

// Release takes sources out of held withdrawals.
func (s *MemoryStore) Release(_ context.Context, resources []client.Resource) error {
	defer s.locked()()
	s.release(resources)
	return nil
}

func (s *MemoryStore) release(resources []client.Resource) {
	if len(s.sets) == 0 {
		return
	}
	for i := range s.sets {
		kept := slices.DeleteFunc(slices.Clone(s.sets[i].Resources), func(r client.Resource) bool { return slices.Contains(resources, r) })
		s.sets[i].Resources = kept
	}
	s.sets = slices.DeleteFunc(s.sets, func(set HeldSet) bool { return len(set.Resources) == 0 })
}

// Holds answers the held withdrawals.
func (s *MemoryStore) Holds(context.Context) ([]HeldSet, error) {
	defer s.locked()()
	return slices.Clone(s.sets), nil
}

// Decide notes an operator's decision on a held withdrawal.
func (s *MemoryStore) Decide(_ context.Context, id int64, decision Decision, by string) (bool, error) {
	defer s.locked()()
	for i := range s.sets {
		if s.sets[i].ID == id {
			s.sets[i].Decision, s.sets[i].DecidedBy, s.sets[i].DecidedAt = decision, by, time.Now()
			return true, nil
		}
	}
	return false, nil
}
