package event

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"hubn/registry/client"
)

// work is what the entries of one source that are read and not yet acknowledged
// ask for: one fetch, whatever their number.
type work struct {
	resource client.Resource
	// lowest and highest are the versions that the entries speak of.
	lowest, highest int64
	ids             []string
	// order is the place of the first entry among all entries of the queue.
	order uint64
	// oldest is when the first of the events was made.
	oldest time.Time
	// known is when the source was last fetched, zero before.
	known time.Time
	// attempts counts those that failed through the source, tries all of them.
	attempts, tries int
	due             time.Time
}

// at is the moment of the Registry's clock that a report on the work carries.
func (w *work) at() time.Time {
	if w.known.IsZero() {
		return w.oldest
	}
	return w.known
}

// mark is an entry that is not about a source: a command or a barrier.
type mark struct {
	resource client.Resource
	version  int64
	lineage  string
	stream   int
	ids      []string
	order    uint64
	// made is when the event was made.
	made time.Time
}

// queue holds what one shard has read and not yet acknowledged, one work for
// each source, so that a source is handled by one fetch at a time. It belongs
// to the shard's goroutine.
type queue struct {
	works    map[client.Resource]*work
	known    map[string]struct{}
	barriers []mark
	order    uint64
}

func newQueue() *queue {
	return &queue{works: map[client.Resource]*work{}, known: map[string]struct{}{}}
}

// has tells whether an entry is in the queue already.
func (q *queue) has(id string) bool {
	_, ok := q.known[id]
	return ok
}

// entries is how many entries are in the queue.
func (q *queue) entries() int { return len(q.known) }

// add puts a source's event into the queue.
func (q *queue) add(id string, e Event, now time.Time) {
	q.order++
	q.known[id] = struct{}{}
	w := q.works[e.Resource]
	if w == nil {
		w = &work{resource: e.Resource, lowest: e.Version, order: q.order, oldest: e.CreatedAt, due: now}
		q.works[e.Resource] = w
	}
	w.lowest, w.highest = min(w.lowest, e.Version), max(w.highest, e.Version)
	w.ids = append(w.ids, id)
}

// addBarrier puts a barrier into the queue, behind what is there.
func (q *queue) addBarrier(id string, e Event) {
	q.order++
	q.known[id] = struct{}{}
	q.barriers = append(q.barriers, mark{
		resource: e.Resource, version: e.Version, lineage: e.Lineage, stream: e.Stream, ids: []string{id}, order: q.order, made: e.CreatedAt,
	})
}

// due answers up to limit works whose time has come, oldest first.
func (q *queue) due(now time.Time, limit int) []*work {
	var out []*work
	for _, w := range q.works {
		if !w.due.After(now) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *work) int { return cmp.Compare(a.order, b.order) })
	return out[:min(len(out), limit)]
}

// nextDue is when the next work is due; ok is false for an empty queue.
func (q *queue) nextDue() (next time.Time, ok bool) {
	for _, w := range q.works {
		if !ok || w.due.Before(next) {
			next, ok = w.due, true
		}
	}
	return next, ok
}

// done removes a work and answers the entries that it stood for.
func (q *queue) done(w *work) []string {
	delete(q.works, w.resource)
	for _, id := range w.ids {
		delete(q.known, id)
	}
	return w.ids
}

// passed removes the barriers that no work stands before, and answers them.
func (q *queue) passed() []mark {
	if len(q.barriers) == 0 {
		return nil
	}
	first := q.order + 1
	for _, w := range q.works {
		first = min(first, w.order)
	}
	n := 0
	for n < len(q.barriers) && q.barriers[n].order < first {
		for _, id := range q.barriers[n].ids {
			delete(q.known, id)
		}
		n++
	}
	out := slices.Clone(q.barriers[:n])
	q.barriers = q.barriers[n:]
	return out
}

// drop empties the queue and answers all entries: a complete scan in another
// lineage has covered them.
func (q *queue) drop() []string {
	var ids []string
	for id := range q.known {
		ids = append(ids, id)
	}
	*q = *newQueue()
	return ids
}

// pause is the wait before the next attempt: it doubles from first to longest,
// with full jitter above a half, so that replicas do not come back together.
func pause(attempt int, first, longest time.Duration) time.Duration {
	d := longest
	if attempt < 30 {
		d = min(first<<max(attempt-1, 0), longest)
	}
	return d/2 + rand.N(d/2+1)
}
