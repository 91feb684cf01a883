package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

// published waits until the outbox has nothing left to publish.
func (s *stack) published() {
	s.t.Helper()
	eventtest.Eventually(s.t, "everything is published", func() bool {
		return one[bool](s, `SELECT NOT EXISTS (SELECT FROM registry.outbox_lane WHERE pub_seq < last_seq)`)
	})
}

func TestTrimmedStreamIsFoundAndScanned(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	s.announced("192.0.2.0/24", 64496)
	gone := s.announced("198.51.100.0/24", 64496)
	m := s.mirror("one")
	s.quiet()
	m.end()
	s.announced("203.0.113.0/24", 64497)
	s.exec(`DELETE FROM registry.prefix WHERE id = $1::text::bigint`, gone.Key)
	s.published()
	for no := range 8 {
		if err := s.redis.XTrimMaxLen(t.Context(), s.names.Stream(no), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	again := s.mirror("one")
	s.converges()
	if n := s.metric(again, "hubn_consumer_entries_total", "trimmed"); n == 0 {
		t.Error("the mirror has everything, but did not see that entries were trimmed")
	}
	s.waited()
}

func TestPendingEntriesThatAreTrimmedAreScanned(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	source := s.announced("192.0.2.0/24", 64496)
	m := s.mirror("one")
	s.quiet()
	m.end()
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
	s.published()
	// Entries that were given to the replica just before it died, and that are
	// trimmed before it is back.
	for no := range 8 {
		read := &redis.XReadGroupArgs{Group: mirror.Name, Consumer: "one", Streams: []string{s.names.Stream(no), ">"}, Block: -1}
		if err := s.redis.XReadGroup(t.Context(), read).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if err := s.redis.XTrimMaxLen(t.Context(), s.names.Stream(no), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.mirror("one")
	s.converges()
	if got, want := s.held(source), s.version(source); got != want {
		t.Errorf("version %d is held, want %d", got, want)
	}
	eventtest.Eventually(t, "nothing is pending", func() bool { return s.pending() == 0 })
}

func TestGroupThatIsGoneIsMadeAgain(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		s := newStack(t, rdb)
		s.worker()
		s.announced("192.0.2.0/24", 64496)
		s.mirror("one")
		s.quiet()
		for no := range 8 {
			if err := rdb.XGroupDestroy(t.Context(), s.names.Stream(no), mirror.Name).Err(); err != nil {
				t.Fatal(err)
			}
		}
		s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
		s.converges()
		s.waited()
	})
}

func TestRedisThatIsFlushedLosesNothing(t *testing.T) {
	server := eventtest.Server(t)
	s := newStack(t, server.Client())
	s.worker()
	s.announced("192.0.2.0/24", 64496)
	s.mirror("one")
	s.quiet()
	for _, lose := range []struct {
		name string
		how  func()
	}{{"flushed", server.Flush}, {"restarted empty", server.RestartEmpty}} {
		s.announced("198.51.100.0/24", 64497)
		s.exec(`UPDATE registry.prefix SET origin_asn = origin_asn + 1`)
		lose.how()
		s.exec(`DELETE FROM registry.prefix WHERE prefix = '198.51.100.0/24'`)
		s.converges()
		s.waited()
		t.Logf("Redis %s: nothing lost", lose.name)
	}
}

func TestRedisOutageIsWaitedOut(t *testing.T) {
	server := eventtest.Server(t)
	s := newStack(t, server.Client())
	s.worker()
	s.announced("192.0.2.0/24", 64496)
	m := s.mirror("one")
	s.quiet()
	server.Stop()
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
	eventtest.Eventually(t, "the status says so", func() bool {
		return strings.Contains(m.mirror.Status().Reason, "redis unreachable")
	})
	// The Registry is there: a reconciliation needs no Redis.
	s.reconciled(m)
	s.converges()
	s.exec(`UPDATE registry.prefix SET origin_asn = 64498`)
	server.Start()
	s.converges()
	s.waited()
	eventtest.Eventually(t, "the status is well again", func() bool {
		status := m.mirror.Status()
		return status.Ready && status.Reason == ""
	})
}

func TestBarrierWaitsForWhatIsNotEffective(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	effective := make(chan struct{})
	s.mirror("one", func(o *mirror.Options) {
		o.Effective = func(ctx context.Context) error {
			select {
			case <-effective:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	s.announced("192.0.2.0/24", 64496)
	s.converges()
	barrier, err := s.admin.CreateBarrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	get := func() client.Barrier {
		b, err := s.admin.Barrier(t.Context(), barrier.ID)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	eventtest.Eventually(t, "the barrier's events are with the mirror", func() bool { return get().Raised && s.pending() == 8 })
	if b := get(); b.Done || len(b.Modules) != 1 || b.Modules[0].Missing != 8 {
		t.Errorf("before anything is effective the barrier is %+v, want 8 streams missing", b)
	}
	close(effective)
	eventtest.Eventually(t, "the barrier is done", func() bool { return get().Done })
	eventtest.Eventually(t, "the barrier's events are acknowledged", func() bool { return s.pending() == 0 })
}

// A source that cannot be written goes to the retry list: others pass it by, a
// barrier names it, and it heals by itself.
func TestFailingSourceIsRetriedSlowlyAndNamed(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	m := s.mirror("one", func(o *mirror.Options) { o.Settings.Attempts = 2 })
	s.exec(`ALTER TABLE mirror.route_origin ADD CONSTRAINT not_this_one CHECK (asn <> 64666)`)
	bad := s.announced("192.0.2.0/24", 64666)
	s.announced("198.51.100.0/24", 64497)
	barrier, err := s.admin.CreateBarrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	get := func() client.Barrier {
		b, err := s.admin.Barrier(t.Context(), barrier.ID)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	eventtest.Eventually(t, "the other source is mirrored", func() bool { return len(s.mirrored()) == 1 })
	eventtest.Eventually(t, "the barrier names what it waits for", func() bool {
		b := get()
		return !b.Done && len(b.Modules) == 1 && strings.Contains(b.Modules[0].Reason, bad.String())
	})
	eventtest.Eventually(t, "the Registry shows the source as failed", func() bool {
		state, err := s.admin.State(t.Context(), bad)
		return err == nil && state.Overall == client.OverallFailed && !state.Consumers[0].RetryAt.IsZero()
	})
	if n := s.metric(m, "hubn_consumer_retry_list_sources"); n != 1 {
		t.Errorf("the metric says %v sources are on the retry list, want 1", n)
	}
	s.exec(`ALTER TABLE mirror.route_origin DROP CONSTRAINT not_this_one`)
	s.converges()
	eventtest.Eventually(t, "the barrier is done", func() bool { return get().Done })
	eventtest.Eventually(t, "the Registry shows the source as applied", func() bool {
		state, err := s.admin.State(t.Context(), bad)
		return err == nil && state.Overall == client.OverallApplied
	})
}

func TestCommandsAreAnsweredOnce(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	s.mirror("one")
	if answer := s.order("reconcile", `{}`); answer.State != client.ReportApplied {
		t.Errorf("the answer to reconcile is %+v", answer)
	}
	if answer := s.order("dance", `{}`); answer.State != client.ReportFailed || !strings.Contains(answer.Reason, `no command "dance"`) {
		t.Errorf("the answer to a command that nobody knows is %+v", answer)
	}
	if answer := s.order("approve", `{}`); answer.State != client.ReportFailed || !strings.Contains(answer.Reason, "no held withdrawal") {
		t.Errorf("the answer to approve with nothing held is %+v", answer)
	}
	eventtest.Eventually(t, "the commands are acknowledged", func() bool { return s.pending() == 0 })
}

// A command whose event was lost with Redis is found by the next reconciliation.
func TestLostCommandIsFound(t *testing.T) {
	server := eventtest.Server(t)
	s := newStack(t, server.Client())
	w := s.worker()
	m := s.mirror("one")
	s.quiet()
	w.end()
	command, err := s.admin.Order(t.Context(), mirror.Name, client.CommandOrder{Name: "reconcile"})
	if err != nil {
		t.Fatal(err)
	}
	s.reconciled(m)
	eventtest.Eventually(t, "the command is answered without its event", func() bool {
		c, err := s.admin.Command(t.Context(), command.ID)
		return err == nil && c.Answer != nil && c.Answer.State == client.ReportApplied
	})
}

// A report that never arrived is found by comparing.
func TestLostReportIsMadeAgain(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	m := s.mirror("one")
	source := s.announced("192.0.2.0/24", 64496)
	s.waited()
	s.exec(`DELETE FROM registry.applied_state WHERE agg_type = 'prefix'`)
	s.reconciled(m)
	eventtest.Eventually(t, "the source is reported again", func() bool {
		state, err := s.admin.State(t.Context(), source)
		return err == nil && state.Overall == client.OverallApplied
	})
}
