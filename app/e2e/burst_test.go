package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hubn/registry/client"
)

const (
	// burstWriters write at once: half of them over the API, half by plain SQL.
	burstWriters = 16
	// burstPrefixes are each writer's own.
	burstPrefixes = 4
	// burstPause keeps the writers from taking the machine from everybody else.
	burstPause = 4 * time.Millisecond
	// burstArea is the second octet of the first writer's prefixes.
	burstArea = 100
)

// burst are writers that go on through every fault. Each raises the origins of
// its own prefixes, one after the other, and remembers what was answered.
type burst struct {
	site    *site
	writers []*writer
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// writer is one of them. A change that failed may have been made all the same:
// an origin is never below the last one that was answered.
type writer struct {
	ids      []int64
	answered []atomic.Int64 // the origin of each prefix that was answered
	count    atomic.Int64   // answered changes
	failed   atomic.Int64
	change   func(ctx context.Context, id, origin int64) error
}

// newBurst registers the prefixes and starts the writers.
func newBurst(s *site) *burst {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	b := &burst{site: s, stop: stop}
	for i := range burstWriters {
		w := &writer{ids: s.announce(burstArea+i, burstPrefixes, 64496), answered: make([]atomic.Int64, burstPrefixes), change: s.changeBySQL}
		if i%2 == 0 {
			w.change = s.changeByAPI
		}
		b.writers = append(b.writers, w)
	}
	for _, w := range b.writers {
		b.done.Go(func() { w.run(ctx) })
	}
	s.t.Cleanup(b.end)
	return b
}

func (s *site) changeBySQL(ctx context.Context, id, origin int64) error {
	_, err := s.owner.Exec(ctx, `UPDATE registry.prefix SET origin_asn = $2 WHERE id = $1`, id, origin)
	return err
}

func (s *site) changeByAPI(ctx context.Context, id, origin int64) error {
	path := fmt.Sprintf("/v1/prefixes/%d", id)
	var found client.Prefix
	etag, err := s.admin.Get(ctx, path, &found)
	if err != nil {
		return err
	}
	patch := map[string]any{"routing": map[string]any{"origin": origin}}
	_, err = s.admin.Patch(ctx, path, client.Write{IfMatch: etag}, patch, &found)
	return err
}

func (w *writer) run(ctx context.Context) {
	const firstPrivate = 4_200_000_000 // RFC 6996
	for n := int64(0); ctx.Err() == nil; n++ {
		i := int(n % burstPrefixes)
		origin := firstPrivate + n
		// Bounded, and not by the burst's end: a change in hand gets its answer.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		err := w.change(call, w.ids[i], origin)
		cancel()
		if err != nil {
			w.failed.Add(1)
		} else {
			w.answered[i].Store(origin)
			w.count.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(burstPause):
		}
	}
}

// goesOn waits until every writer has had some more changes answered.
func (b *burst) goesOn(changes int64) {
	b.site.t.Helper()
	before := make([]int64, len(b.writers))
	for i, w := range b.writers {
		before[i] = w.count.Load()
	}
	b.site.eventually("every writer goes on", func() error {
		for i, w := range b.writers {
			if got := w.count.Load() - before[i]; got < changes {
				return fmt.Errorf("writer %d has had %d changes answered, want %d", i, got, changes)
			}
		}
		return nil
	})
}

// end stops the writers.
func (b *burst) end() {
	b.stop()
	b.done.Wait()
}

// kept ends the burst and checks that everything which was answered is there.
func (b *burst) kept(t testing.TB) {
	t.Helper()
	b.end()
	var failed int64
	for _, w := range b.writers {
		failed += w.failed.Load()
		for i, id := range w.ids {
			got := ask[int64](b.site, `SELECT origin_asn FROM registry.prefix WHERE id = $1`, id)
			if want := w.answered[i].Load(); got < want {
				t.Errorf("prefix %d has origin %d, and %d was answered as done", id, got, want)
			}
		}
	}
	t.Logf("%d changes failed and were made again", failed)
}
