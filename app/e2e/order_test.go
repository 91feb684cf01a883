package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

// wentBack are the versions in the mirror that were ever replaced by older ones.
func (s *stack) wentBack() []string {
	s.t.Helper()
	return s.texts(`SELECT kind || ':' || key || ' from ' || old || ' to ' || new FROM public.version_history WHERE new < old`)
}

// held is the version that the mirror holds of a resource, 0 for none.
func (s *stack) held(r client.Resource) int64 {
	s.t.Helper()
	return one[int64](s, `SELECT coalesce((SELECT version FROM mirror.source_version WHERE kind = $1 AND key = $2), 0)`, string(r.Kind), r.Key)
}

// pending is how many entries the mirror's group was given and has not acknowledged.
func (s *stack) pending() (n int64) {
	s.t.Helper()
	for no := range 8 {
		p, err := s.redis.XPending(s.t.Context(), s.names.Stream(no), mirror.Name).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		n += p.Count
	}
	return n
}

// quiet waits until every event is handled and no reconciliation is wanted: what
// comes next comes by its event.
func (s *stack) quiet() {
	s.t.Helper()
	s.waited()
	eventtest.Eventually(s.t, "no reconciliation is wanted", func() bool {
		return one[bool](s, `SELECT wanted = done FROM mirror.consumer`)
	})
}

// Two replicas, one of them slow: it fetched an old version before the other
// fetched and wrote the new one, and comes to write long after it lost its lease.
func TestSlowReplicaNeverTakesTheTableBack(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	var source client.Resource
	fetched, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var armed atomic.Bool
	slow := s.mirror("slow", func(o *mirror.Options) {
		o.Hooks.Fetched = func(_ context.Context, all []client.Fetched) {
			if armed.Load() && slices.ContainsFunc(all, func(f client.Fetched) bool { return f.Resource() == source }) {
				once.Do(func() {
					close(fetched)
					<-goOn
				})
			}
		}
	})
	source = s.announced("192.0.2.0/24", 64496)
	s.quiet()
	armed.Store(true)
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
	<-fetched
	s.exec(`UPDATE registry.prefix SET origin_asn = 64498`)

	// The lease goes, as it does when a process is stopped for longer than it lasts.
	for no := range 8 {
		if err := s.redis.Del(t.Context(), s.names.Lease(no, mirror.Name)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.mirror("fast")
	s.converges()
	newest := s.version(source)
	if got := s.held(source); got != newest {
		t.Fatalf("the fast replica holds version %d, want %d", got, newest)
	}
	close(goOn)
	slow.end()
	if got := s.held(source); got != newest {
		t.Errorf("after the slow one wrote, version %d is held, want %d", got, newest)
	}
	if back := s.wentBack(); len(back) > 0 {
		t.Errorf("versions went back: %v", back)
	}
	if got, want := s.mirrored(), []string{"AS64498,192.0.2.0/24,24"}; !slices.Equal(got, want) {
		t.Errorf("the mirror has %v, want %v", got, want)
	}
}

// Writers change the same sources all the time while replicas come and go.
func TestManyReplicasNeverTakeTheTableBack(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	for i := range 8 {
		s.announced(fmt.Sprintf("192.0.2.%d/27", 32*i), 64496)
	}
	one, two := s.mirror("one"), s.mirror("two")
	eventtest.Eventually(t, "the streams are shared", func() bool {
		return one.mirror.Status().Detail["streams"] == int64(4) && two.mirror.Status().Detail["streams"] == int64(4)
	})
	for round := range 40 {
		s.exec(`UPDATE registry.prefix SET origin_asn = 64496 + (id + $1::bigint) % 10 WHERE id % 3 = $1::bigint % 3`, round)
		switch round {
		case 10:
			one.end()
		case 20:
			one = s.mirror("three")
		case 30:
			two.end()
		}
	}
	s.waited()
	if got, want := s.mirrored(), s.wanted(); !slices.Equal(got, want) {
		t.Errorf("the mirror has %v, want %v", got, want)
	}
	if back := s.wentBack(); len(back) > 0 {
		t.Errorf("versions went back: %v", back)
	}
	eventtest.Eventually(t, "everything is acknowledged", func() bool { return s.pending() == 0 })
	eventtest.Eventually(t, "the last replica has all streams", func() bool { return one.mirror.Status().Detail["streams"] == int64(8) })
}

// A tuple that moves between a prefix and an anycast allocation arrives as two
// events on two lanes. Whichever comes first, it never goes.
func TestMovingTupleNeverBlinks(t *testing.T) {
	for _, order := range []string{"as they come", "the loss first", "the gain first"} {
		t.Run(order, func(t *testing.T) {
			s := newStack(t, eventtest.Server(t).Client())
			s.worker()
			prefix := s.announced("192.0.2.0/24", 64496)
			s.exec(`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/24', 'dns')`)
			anycast := client.Resource{Kind: client.KindAnycast, Key: "1"}
			// first is the source whose change is to be written before the other's is.
			var first atomic.Pointer[client.Resource]
			var version atomic.Int64
			s.mirror("one", func(o *mirror.Options) {
				o.Hooks.Fetched = func(_ context.Context, all []client.Fetched) {
					f := first.Load()
					if f == nil || slices.ContainsFunc(all, func(x client.Fetched) bool { return x.Resource() == *f }) {
						return
					}
					eventtest.Eventually(t, f.String()+" is written first", func() bool { return s.held(*f) >= version.Load() })
				}
			})
			s.quiet()
			for round := range 3 {
				for _, toAnycast := range []bool{true, false} {
					loser, winner := prefix, anycast
					if !toAnycast {
						loser, winner = anycast, prefix
					}
					switch order {
					case "the loss first":
						version.Store(s.version(loser) + 1)
						first.Store(&loser)
					case "the gain first":
						version.Store(s.version(winner) + 1)
						first.Store(&winner)
					}
					s.move(toAnycast)
					s.waited()
					first.Store(nil)
					if got, want := s.mirrored(), []string{"AS64496,192.0.2.0/24,24"}; !slices.Equal(got, want) {
						t.Fatalf("round %d, to anycast %v: the mirror has %v, want %v", round, toAnycast, got, want)
					}
					if got, want := s.texts(`SELECT kind || ':' || key FROM mirror.route_origin_source`), []string{winner.String()}; !slices.Equal(got, want) {
						t.Fatalf("round %d, to anycast %v: needed by %v, want %v", round, toAnycast, got, want)
					}
				}
			}
			if gone := s.withdrawn(); len(gone) > 0 {
				t.Errorf("withdrawn were %v", gone)
			}
			s.exec(`UPDATE registry.prefix SET announced = false`)
			s.waited()
			if got := s.mirrored(); len(got) > 0 {
				t.Errorf("when nobody wants the tuple any longer the mirror has %v", got)
			}
		})
	}
}

// move moves the tuple in one transaction.
func (s *stack) move(toAnycast bool) {
	s.t.Helper()
	if toAnycast {
		s.exec(`WITH lost AS (UPDATE registry.prefix SET announced = false)
			INSERT INTO registry.anycast_route_origin (allocation_id, asn) VALUES (1, 64496)`)
		return
	}
	s.exec(`WITH lost AS (DELETE FROM registry.anycast_route_origin)
		UPDATE registry.prefix SET announced = true`)
}

// The consumer dies between its write and the acknowledgement: the entry comes
// again, is recognised, and is acknowledged.
func TestCrashBetweenWriteAndAcknowledgement(t *testing.T) {
	server := eventtest.Server(t)
	s := newStack(t, server.Client())
	s.worker()
	own := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = own.Close() })
	written := make(chan struct{})
	var once sync.Once
	var armed atomic.Bool
	victim := s.mirror("one", func(o *mirror.Options) {
		o.Redis = own
		o.Hooks.Applied = func(ctx context.Context, _ []event.Change) {
			if armed.Load() {
				once.Do(func() {
					_ = own.Close() // nothing reaches Redis from here on
					close(written)
				})
			}
		}
	})
	source := s.announced("192.0.2.0/24", 64496)
	s.quiet()
	eventtest.Eventually(t, "everything is acknowledged", func() bool { return s.pending() == 0 })
	armed.Store(true)
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
	<-written
	victim.end()
	if got := s.pending(); got == 0 {
		t.Fatal("nothing is pending: the crash came too late to prove anything")
	}
	held := s.held(source)

	heir := s.mirror("one")
	eventtest.Eventually(t, "everything is acknowledged", func() bool { return s.pending() == 0 })
	if got := s.held(source); got != held || got != s.version(source) {
		t.Errorf("version %d is held, want %d still", got, held)
	}
	if n := s.metric(heir, "hubn_consumer_sources_total", "duplicate"); n == 0 {
		t.Error("the entry was not recognised as one that had been written")
	}
	s.waited()
}
