package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// goingBack is a way in which the Registry's history goes back. back prepares
// it and answers what does it; there is no other difference between the tests.
type goingBack struct {
	name string
	back func(t *testing.T, s *site, cluster *schematest.Cluster, redis *eventtest.Redis) func()
	// reason is part of the new lineage's.
	reason string
}

var waysBack = []goingBack{
	{"restored on the same server", func(t *testing.T, _ *site, cluster *schematest.Cluster, _ *eventtest.Redis) func() {
		dump := cluster.Dump(t)
		return func() { cluster.Restore(t, dump) }
	}, "a restored dump"},
	{"restored on a new server", func(t *testing.T, s *site, cluster *schematest.Cluster, _ *eventtest.Redis) func() {
		dump := cluster.Dump(t)
		return func() {
			cluster.Stop(t)
			s.moveTo(schematest.RestoreElsewhere(t, dump))
		}
	}, "another PostgreSQL cluster"},
	{"restored together with Redis", func(t *testing.T, _ *site, cluster *schematest.Cluster, redis *eventtest.Redis) func() {
		dump, copied := cluster.Dump(t), redis.Copy()
		return func() {
			redis.Restore(copied)
			cluster.Restore(t, dump)
		}
	}, "a restored dump"},
	{"failed over to a standby that was cut off", func(t *testing.T, s *site, cluster *schematest.Cluster, _ *eventtest.Redis) func() {
		standby := cluster.Standby(t)
		standby.WaitCaughtUp(t, cluster)
		standby.CutOff(t)
		return func() {
			cluster.Crash(t)
			s.moveTo(standby)
			s.refused() // as long as it is a standby
			standby.Promote(t)
		}
	}, "timeline 2 after 1"},
}

// refused waits until the Registry says that it cannot write.
func (s *site) refused() {
	s.t.Helper()
	s.eventually("the Registry refuses writes on a standby", func() error {
		_, err := s.admin.Create(s.t.Context(), "/v1/organisations", client.Write{}, map[string]any{"handle": "ON-A-STANDBY"}, nil)
		var unavailable *client.UnavailableError
		if !errors.As(err, &unavailable) {
			return fmt.Errorf("it answers %v", err)
		}
		return nil
	})
}

// TestHistoryGoesBack has changes published and consumed which the Registry then
// knows nothing of any more, and goes on writing there.
func TestHistoryGoesBack(t *testing.T) {
	for _, way := range waysBack {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			cluster, redis := schematest.StartCluster(t), eventtest.Server(t)
			s := newSite(t, cluster, redis.URL())
			s.workers(2)
			s.mirror("one")
			s.mirror("two")
			kept := s.announce(0, 100, 64496)
			s.settled()
			before := s.lineages()

			goBack := way.back(t, s, cluster, redis)
			lost := s.announce(1, 20, 64497)
			for _, origin := range []int64{64498, 64499} { // versions that the new history has again, with other contents
				s.exec(`UPDATE registry.prefix SET origin_asn = $1 WHERE id = ANY ($2)`, origin, kept[:10])
			}
			s.exec(`DELETE FROM registry.prefix WHERE id = ANY ($1)`, kept[10:15])
			s.settled()
			goBack()

			s.exec(`UPDATE registry.prefix SET origin_asn = 64500 WHERE id = ANY ($1)`, kept[5:20])
			again := s.announce(2, 4, 64501)
			if !slices.Equal(again, lost[:4]) {
				t.Errorf("the new prefixes have the ids %v, want those that the lost ones had, %v", again, lost[:4])
			}
			s.settled(origins(1, 4, 20, 64497)...)
			s.newLineage(before, way.reason)
			s.waited()
			s.history().ordered(t)
			s.applied(kept[7])
			s.applied(again[0])
			s.noVersionWentBack()

			s.approved(lost[4:])
			s.settled()
		})
	}
}

// TestHistoryGoesBackInTheMiddleOfABurst has everybody at work when it happens:
// writers, a batch in the workers' hands, consumers that fetch and apply. What
// the lost history had is gone; what is there is what the mirror has.
func TestHistoryGoesBackInTheMiddleOfABurst(t *testing.T) {
	for _, way := range waysBack {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			cluster, redis := schematest.StartCluster(t), eventtest.Server(t)
			s := newSite(t, cluster, redis.URL())
			s.workers(2)
			s.mirror("one")
			s.mirror("two")
			b := newBurst(s)
			b.goesOn(3)
			before := s.lineages()
			goBack := way.back(t, s, cluster, redis)
			b.goesOn(5)
			goBack()
			b.goesOn(5)
			b.end()
			s.settled()
			s.newLineage(before, way.reason)
			s.waited()
			s.history().ordered(t)
			s.noVersionWentBack()
		})
	}
}

// newLineage checks that there is exactly one new lineage, with the old one as
// its parent, and that the mirror has adopted it.
func (s *site) newLineage(before client.Lineages, reason string) {
	s.t.Helper()
	now := s.lineages()
	if len(now.Ancestry) != len(before.Ancestry)+1 || now.Ancestry[0].Parent != before.Lineage {
		s.t.Fatalf("the lineages are %+v, want one more than %+v, which comes from it", now, before)
	}
	if got := now.Ancestry[0].Reason; !strings.Contains(got, reason) {
		s.t.Errorf("the reason of the new lineage is %q, want %q in it", got, reason)
	}
	if got := askMirror[string](s, `SELECT lineage FROM mirror.consumer`); got != now.Lineage {
		s.t.Errorf("the mirror is in lineage %s, want %s", got, now.Lineage)
	}
	s.eventually("every stream has an epoch of the new lineage", func() error {
		if n := ask[int](s, `SELECT count(*) FROM registry.outbox_stream WHERE lineage = registry.lineage_current()`); n != event.Streams {
			return fmt.Errorf("%d of %d have one", n, event.Streams)
		}
		return nil
	})
}

// applied checks what the Registry says of a prefix: what was requested is what
// the mirror has, and what it had of it in the lost history does not count.
func (s *site) applied(prefix int64) {
	s.t.Helper()
	r := client.Resource{Kind: client.KindPrefix, Key: fmt.Sprint(prefix)}
	s.eventually("the state of "+r.String()+" is applied", func() error {
		state, err := s.admin.State(s.t.Context(), r)
		if err != nil {
			return err
		}
		if state.Overall != client.OverallApplied || len(state.Consumers) != 1 || state.Consumers[0].Version != state.Version {
			return fmt.Errorf("overall %s, version %d, consumers %+v", state.Overall, state.Version, state.Consumers)
		}
		return nil
	})
}

// approved lets the operator approve the one held withdrawal, which is of
// exactly these prefixes.
func (s *site) approved(prefixes []int64) {
	s.t.Helper()
	var keys []string
	for _, id := range prefixes {
		keys = append(keys, fmt.Sprint(id))
	}
	slices.Sort(keys)
	held, err := list(s.t.Context(), s.mirrors, `SELECT key FROM mirror.held_source WHERE kind = 'prefix' ORDER BY key COLLATE "C"`)
	if err != nil {
		s.t.Fatal(err)
	}
	if !slices.Equal(held, keys) {
		s.t.Errorf("held are the prefixes %v, want %v", held, keys)
	}
	set := askMirror[int64](s, `SELECT id FROM mirror.held_set`)
	arguments, err := json.Marshal(map[string]any{"held": set})
	if err != nil {
		s.t.Fatal(err)
	}
	order, err := s.admin.Order(s.t.Context(), mirror.Name, client.CommandOrder{Name: "approve", Arguments: arguments})
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the mirror answers the command", func() error {
		c, err := s.admin.Command(s.t.Context(), order.ID)
		if err == nil && (c.Answer == nil || c.Answer.State != client.ReportApplied) {
			err = fmt.Errorf("the answer is %+v", c.Answer)
		}
		return err
	})
}

// noVersionWentBack checks that no version of the mirror did. The adoption of a
// lineage makes rows anew; what it holds has no version, 0.
func (s *site) noVersionWentBack() {
	s.t.Helper()
	back, err := list(s.t.Context(), s.mirrors, `
		SELECT format('%s:%s from %s to %s', kind, key, old, new)
		FROM public.version_history
		WHERE new < old AND new > 0`)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(back) > 0 {
		s.t.Errorf("versions of the mirror went back: %v", back)
	}
}

func TestFewLostSourcesAreWithdrawnWithoutAnOperator(t *testing.T) {
	t.Parallel()
	cluster, redis := schematest.StartCluster(t), eventtest.Server(t)
	s := newSite(t, cluster, redis.URL())
	s.workers(1)
	s.mirror("one")
	s.announce(0, 40, 64496)
	s.settled()
	before := s.lineages()
	dump := cluster.Dump(t)
	s.announce(1, 5, 64497) // max(5, 5 %)
	s.settled()
	cluster.Restore(t, dump)
	s.settled()
	s.newLineage(before, "a restored dump")
	if held := askMirror[int](s, `SELECT count(*) FROM mirror.held_source`); held != 0 {
		t.Errorf("%d sources are held, want none", held)
	}
}

// TestOldCopyOfTheDataFolder goes back where no fingerprint shows it: the same
// cluster, timeline and tables. The fences in Redis show it, as long as the new
// history has made fewer versions than were lost; after that the events do.
func TestOldCopyOfTheDataFolder(t *testing.T) {
	t.Run("with fewer changes than were lost", func(t *testing.T) { testOldCopy(t, 1) })
	t.Run("with as many changes as were lost", func(t *testing.T) { testOldCopy(t, 2) })
	t.Run("with more changes than were lost", func(t *testing.T) { testOldCopy(t, 3) })
}

func testOldCopy(t *testing.T, changes int64) {
	t.Parallel()
	cluster, redis := schematest.StartCluster(t), eventtest.Server(t)
	s := newSite(t, cluster, redis.URL())
	s.workers(1)
	s.mirror("one")
	kept := s.announce(0, 40, 64496)
	s.settled()
	before := s.lineages()
	cluster.Stop(t)
	snapshot := cluster.Copy(t)
	cluster.Start(t)
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497 WHERE id = ANY ($1)`, kept[:5])
	s.exec(`UPDATE registry.prefix SET origin_asn = 64498 WHERE id = ANY ($1)`, kept[:5])
	s.settled()
	cluster.Stop(t)
	cluster.Rewind(t, snapshot)
	cluster.Start(t)
	for n := range changes {
		s.exec(`UPDATE registry.prefix SET origin_asn = 64499 + $1::int WHERE id = ANY ($2)`, n, kept[:10])
	}
	s.settled()
	now := s.lineages()
	if len(now.Ancestry) != len(before.Ancestry)+1 || now.Ancestry[0].Parent != before.Lineage {
		t.Errorf("the lineages are %+v, want one more than %+v, which comes from it", now, before)
	}
	s.waited()
	s.history().ordered(t)
}

// TestRegistryAndMirrorGoBackTogether restores a database that holds both: what
// the mirror was before it is as old as the Registry.
func TestRegistryAndMirrorGoBackTogether(t *testing.T) {
	t.Parallel()
	cluster, redis := schematest.StartCluster(t), eventtest.Server(t)
	s := newSite(t, cluster, redis.URL(), func(s *site) { s.shareDatabase(cluster) })
	s.workers(1)
	s.mirror("one")
	kept := s.announce(0, 40, 64496)
	s.settled()
	before := s.lineages()
	dump := cluster.Dump(t)
	s.announce(1, 20, 64497)
	s.exec(`UPDATE registry.prefix SET origin_asn = 64498 WHERE id = ANY ($1)`, kept[:20])
	s.settled()
	cluster.Restore(t, dump)
	s.exec(`UPDATE registry.prefix SET origin_asn = 64499 WHERE id = ANY ($1)`, kept[10:30])
	s.settled()
	s.newLineage(before, "a restored dump")
	if held := askMirror[int](s, `SELECT count(*) FROM mirror.held_source`); held != 0 {
		t.Errorf("%d sources are held, want none: the mirror never had them in this history", held)
	}
}
