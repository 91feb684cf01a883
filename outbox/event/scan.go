package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hubn/registry/client"
)

// scan is one full reconciliation: it reads all sources twice, and believes that
// one is absent only if both passes agree, every page was answered, all of it in
// one lineage, and the source's own fetch does not say otherwise.
type scan struct {
	c        *Consumer
	lineage  string
	registry *client.Client // takes answers of the lineage only
	// stage is where sources go when the scan adopts a lineage; else they are
	// applied at once, since adding is always safe.
	stage  Replacement
	seen   listing
	tokens map[client.Kind]string
	// readAt is when the Registry read the last pass.
	readAt time.Time
}

// compare reconciles in the store's own lineage.
func (s *scan) compare(ctx context.Context) error {
	absent, err := s.prove(ctx)
	if err != nil {
		return err
	}
	return s.conclude(ctx, absent)
}

// adopt reconciles in a lineage that the store is to adopt: nothing changes
// before the scan is complete, and then everything in one transaction. What the
// lineage knows nothing of is withdrawn or held by the same rule as always.
func (s *scan) adopt(ctx context.Context) error {
	stage, err := s.c.store.Replace(ctx, s.lineage)
	if err != nil {
		return err
	}
	defer func() { _ = stage.Discard(context.WithoutCancel(ctx)) }()
	s.stage = stage
	absent, err := s.prove(ctx)
	if err != nil {
		return err
	}
	held, err := s.stageWithdrawals(ctx, absent)
	if err != nil {
		return err
	}
	old := s.c.Lineage()
	reason := fmt.Sprintf("lineage %s, adopted after %s, knows nothing of them", s.lineage, old)
	if err := stage.Commit(ctx, reason, held); err != nil {
		return err
	}
	s.c.metrics.withdrawn.WithLabelValues("scan").Add(float64(len(absent) - len(held)))
	s.c.log.Warn("a new lineage was adopted", "old", old, "new", s.lineage, "sources", len(s.seen),
		"withdrawn", len(absent)-len(held), "held", len(held))
	_, err = s.c.refresh(ctx)
	return errors.Join(err, s.c.countHeld(ctx))
}

// prove reads everything twice, again and again until it stands still, and
// answers the sources that the store has and that are absent without a
// tombstone.
func (s *scan) prove(ctx context.Context) ([]Row, error) {
	for _, kind := range s.c.o.Kinds {
		if err := s.pages(ctx, kind); err != nil {
			return nil, err
		}
	}
	s.scanned(ctx, 1)
	for round := 1; ; round++ {
		second, changed, cut, err := s.lists(ctx)
		if err != nil {
			return nil, err
		}
		s.scanned(ctx, round+1)
		differ := disagreement(s.seen, second, changed)
		if len(differ) == 0 && !cut {
			absent, again, err := s.absent(ctx)
			if err != nil || len(again) == 0 {
				return absent, err
			}
			differ = again
		}
		if round > maxRounds {
			return nil, fmt.Errorf("the sources did not stand still over %d rounds; the last one differs in %d, such as %s",
				maxRounds, len(differ), some(differ))
		}
		if err := s.again(ctx, differ); err != nil {
			return nil, err
		}
	}
}

func some(resources []client.Resource) string {
	if len(resources) == 0 {
		return "more than the Registry lists"
	}
	return resources[0].String()
}

func (s *scan) scanned(ctx context.Context, pass int) {
	if s.c.o.Hooks.Scanned != nil {
		s.c.o.Hooks.Scanned(ctx, pass)
	}
}

// pages is the first pass over one kind.
func (s *scan) pages(ctx context.Context, kind client.Kind) error {
	for after := ""; ; {
		page, err := s.registry.ScanPage(ctx, kind, client.PageRequest{Limit: s.c.set.ScanPage, After: after})
		if err != nil {
			return fmt.Errorf("scan %s after %q: %w", kind, after, err)
		}
		if s.tokens[kind] == "" {
			s.tokens[kind] = page.Token
		}
		for _, item := range page.Items {
			if _, twice := s.seen[item.Resource]; twice {
				return fmt.Errorf("scan %s after %q: %s came twice", kind, after, item.Resource)
			}
			s.seen[item.Resource] = item.Version
		}
		if err := s.take(ctx, page.Fetched()); err != nil {
			return err
		}
		if page.Complete {
			return nil
		}
		if page.Next == after {
			return fmt.Errorf("scan %s after %q: the next page is the same", kind, after)
		}
		after = page.Next
	}
}

// lists is a further pass over the keys and versions of all kinds. cut says that
// more changed since the pass before than the Registry lists.
func (s *scan) lists(ctx context.Context) (seen listing, changed []client.Resource, cut bool, err error) {
	seen = make(listing, len(s.seen))
	for _, kind := range s.c.o.Kinds {
		head, _, err := s.registry.ScanIDs(ctx, kind, s.tokens[kind], func(id client.SourceID) error {
			seen[client.Resource{Kind: kind, Key: id.Key}] = id.Version
			return nil
		})
		if err != nil {
			return nil, nil, false, fmt.Errorf("list %s: %w", kind, err)
		}
		s.tokens[kind], s.readAt = head.Token, head.ReadAt
		cut = cut || head.TooMany
		for _, key := range head.Changed {
			changed = append(changed, client.Resource{Kind: kind, Key: key})
		}
	}
	return seen, changed, cut, nil
}

// again fetches sources that the passes do not agree on, and takes what it finds.
func (s *scan) again(ctx context.Context, resources []client.Resource) error {
	for len(resources) > 0 {
		n := min(len(resources), client.MaxBatch)
		fetched := s.c.fetch(ctx, s.lineage, resources[:n])
		resources = resources[n:]
		for _, f := range fetched {
			switch f.Outcome() {
			case client.Present:
				s.seen[f.Resource()] = f.Version()
			case client.Deleted, client.Forgotten:
				delete(s.seen, f.Resource())
			default:
				return fmt.Errorf("fetch %s again: %w", f.Resource(), f.Err())
			}
		}
		if err := s.take(ctx, fetched); err != nil {
			return err
		}
	}
	return nil
}

// absent answers the sources that the store holds as present and that are in no
// pass, after it has fetched each: a tombstone is proof of its own and is
// applied. again are those that are there after all.
func (s *scan) absent(ctx context.Context) (absent []Row, again []client.Resource, err error) {
	var after client.Resource
	for {
		rows, err := s.c.store.Inventory(ctx, after, client.MaxBatch)
		if err != nil {
			return nil, nil, err
		}
		if len(rows) == 0 {
			return absent, again, nil
		}
		after = rows[len(rows)-1].Resource
		held := map[client.Resource]Row{}
		var missing []client.Resource
		for _, row := range rows {
			if _, ok := s.seen[row.Resource]; !ok {
				held[row.Resource] = row
				missing = append(missing, row.Resource)
			}
		}
		fetched := s.c.fetch(ctx, s.lineage, missing)
		var deleted []client.Fetched
		for _, f := range fetched {
			switch f.Outcome() {
			case client.Forgotten:
				absent = append(absent, held[f.Resource()])
			case client.Deleted:
				deleted = append(deleted, f)
			case client.Present:
				again = append(again, f.Resource())
			default:
				return nil, nil, fmt.Errorf("fetch %s, which the scan did not find: %w", f.Resource(), f.Err())
			}
		}
		if err := s.take(ctx, deleted); err != nil {
			return nil, nil, err
		}
		s.c.metrics.withdrawn.WithLabelValues("tombstone").Add(float64(len(deleted)))
	}
}

// take stages or applies what fetches found.
func (s *scan) take(ctx context.Context, fetched []client.Fetched) error {
	var changes []Change
	for _, f := range fetched {
		if change, ok := changeOf(f); ok {
			changes = append(changes, change)
		} else if s.stage != nil && f.Outcome() == client.Forgotten {
			changes = append(changes, Change{Resource: f.Resource(), FetchedAt: f.ReadAt()})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if s.stage != nil {
		return s.stage.Stage(ctx, changes)
	}
	return s.apply(ctx, changes)
}

// apply applies the changes that are news. One that is older than what the store
// holds is either overtaken by an event, which its own fetch shows, or a sign
// that the Registry went back.
func (s *scan) apply(ctx context.Context, changes []Change) error {
	resources := make([]client.Resource, len(changes))
	for i, change := range changes {
		resources[i] = change.Resource
	}
	held, err := s.c.store.Held(ctx, resources)
	if err != nil {
		return err
	}
	var news []Change
	var older []client.Resource
	for _, change := range changes {
		h, known := held[change.Resource]
		switch {
		case !known, change.Version > h.Version, change.Version == h.Version && h.Gone && !change.Gone():
			news = append(news, change)
		case change.Version < h.Version:
			older = append(older, change.Resource)
		}
	}
	if err := s.regressed(ctx, older, held); err != nil {
		return err
	}
	if len(news) == 0 {
		return nil
	}
	outcomes, err := s.c.apply(ctx, s.lineage, news)
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		if o.Result != Failed {
			continue
		}
		w := &work{resource: news[i].Resource, highest: news[i].Version, known: news[i].FetchedAt, attempts: 1}
		if !s.c.giveUp(ctx, []*work{w}, o.Err.Error()) {
			return fmt.Errorf("%s could not be applied (%w), nor put on the retry list", w.resource, o.Err)
		}
	}
	return nil
}

// regressed fetches sources that were served older than the store holds them. A
// scan of a Registry that went back proves nothing.
func (s *scan) regressed(ctx context.Context, resources []client.Resource, held map[client.Resource]Held) error {
	if len(resources) == 0 {
		return nil
	}
	for _, f := range s.c.fetch(ctx, s.lineage, resources) {
		h := held[f.Resource()].Version
		if (f.Outcome() == client.Present || f.Outcome() == client.Deleted) && f.Version() < h {
			s.c.regression(ctx, f.Resource(), h)
			return fmt.Errorf("the Registry serves version %d of %s, and the store holds %d", f.Version(), f.Resource(), h)
		}
	}
	return nil
}
