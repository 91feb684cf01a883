package e2e

import (
	"context"
	"errors"
	"testing"

	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

// trouble is one thing that happens to Redis. begin breaks it and answers what
// makes it well again; changes are made before, in between and after.
type trouble struct {
	name string
	// early is what begin needs from before the changes that are lost.
	early func(redis *eventtest.Redis) any
	begin func(redis *eventtest.Redis, early any) (end func(redis *eventtest.Redis))
	// away says that Redis takes no events until end.
	away bool
	// loses says that Redis loses events which were published.
	loses bool
	// whole says that in the end the streams hold every event, each once.
	whole bool
}

func nothing(*eventtest.Redis) any  { return nil }
func isWell(*eventtest.Redis)       {}
func startAgain(r *eventtest.Redis) { r.Start() }

var troubles = []trouble{
	{name: "stopped for a while", early: nothing, away: true, whole: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) { r.Stop(); return startAgain }},
	{name: "killed", early: nothing, away: true, whole: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) { r.Kill(); return startAgain }},
	{name: "frozen with its connections open", early: nothing, away: true, whole: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) {
			r.Freeze()
			return func(r *eventtest.Redis) { r.Thaw() }
		}},
	{name: "out of memory", early: nothing, away: true, whole: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) {
			r.Set("maxmemory", "1")
			return func(r *eventtest.Redis) { r.Set("maxmemory", "0") }
		}},
	{name: "made a replica", early: nothing, away: true, whole: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) {
			r.CutOff() // follows nobody, and takes no writes
			return func(r *eventtest.Redis) { r.Promote() }
		}},
	{name: "scripts flushed", early: nothing, whole: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) { flushScripts(r); return isWell }},
	{name: "flushed", early: nothing, loses: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) { r.Flush(); return isWell }},
	{name: "restarted empty", early: nothing, loses: true,
		begin: func(r *eventtest.Redis, _ any) func(*eventtest.Redis) { r.RestartEmpty(); return isWell }},
	{name: "restored from an older file", loses: true, whole: true,
		early: func(r *eventtest.Redis) any { return r.Copy() },
		begin: func(r *eventtest.Redis, copied any) func(*eventtest.Redis) {
			r.Restore(copied.(eventtest.Copy))
			return isWell
		}},
	{name: "failed over to a replica that was cut off", loses: true, whole: true,
		early: cutOffReplica,
		begin: func(r *eventtest.Redis, replica any) func(*eventtest.Redis) { failOver(r, replica); return isWell }},
}

func flushScripts(r *eventtest.Redis) {
	if err := r.Client().ScriptFlush(context.Background()).Err(); err != nil {
		panic(err) // the server is well
	}
}

func cutOffReplica(r *eventtest.Redis) any {
	replica := r.Replica()
	replica.CutOff()
	return replica
}

// failOver promotes the replica while the primary is there, and then has it
// answer at the primary's address.
func failOver(primary *eventtest.Redis, replica any) {
	promoted := replica.(*eventtest.Redis)
	promoted.Promote()
	promoted.TakeOver(primary)
}

// TestRedisInTrouble makes changes around every trouble. They are all delivered,
// also where Redis loses what it was given and the mirror had not read it yet.
func TestRedisInTrouble(t *testing.T) {
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) { tr.test(t, false) })
		if tr.loses {
			t.Run(tr.name+" while the mirror is away", func(t *testing.T) { tr.test(t, true) })
		}
	}
}

func (tr trouble) test(t *testing.T, away bool) {
	t.Parallel()
	redis := eventtest.Server(t)
	s := newSite(t, schematest.New(t), redis.URL())
	workers := s.workers(2)
	m := s.mirror("one")
	ids := s.announce(0, 30, 64496)
	s.settled()
	epochs, lineage := s.epochs(), s.lineages().Lineage

	early := tr.early(redis)
	if away {
		m.end() // what is lost was published, and read by nobody
	}
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497 WHERE id = ANY ($1)`, ids[:20])
	s.exec(`DELETE FROM registry.prefix WHERE id = ANY ($1)`, ids[25:])
	s.published()
	end := tr.begin(redis, early)
	if tr.away {
		s.exec(`UPDATE registry.prefix SET origin_asn = 64498 WHERE id = ANY ($1)`, ids[:10])
		s.announce(1, 10, 64499)
		s.noticed(workers)
	}
	end(redis)
	if away {
		s.mirror("two")
	}
	s.exec(`UPDATE registry.prefix SET origin_asn = 64500 WHERE id = ANY ($1)`, ids[5:15])
	s.settled()
	s.waited()

	s.history().ordered(t)
	if tr.whole {
		s.complete()
	}
	if same := s.epochs() == epochs; same != tr.whole {
		t.Errorf("the epochs are the same as before: %v, want %v", same, tr.whole)
	}
	if got := s.lineages().Lineage; got != lineage {
		t.Errorf("the lineage is %s, want %s: Redis does not change the Registry's history", got, lineage)
	}
}

// TestRedisLosesEventsInTheMiddleOfABurst loses events that were just published
// while more are on their way to the same lanes.
func TestRedisLosesEventsInTheMiddleOfABurst(t *testing.T) {
	for _, tr := range troubles {
		if !tr.loses {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			redis := eventtest.Server(t)
			s := newSite(t, schematest.New(t), redis.URL())
			s.workers(2)
			s.mirror("one")
			s.mirror("two")
			b := newBurst(s)
			b.goesOn(3)
			early := tr.early(redis)
			b.goesOn(5)
			tr.begin(redis, early)(redis)
			b.goesOn(5)
			b.kept(t)
			s.settled()
			s.waited()
			s.history().ordered(t)
			if tr.whole {
				s.complete()
			}
			s.noVersionWentBack()
		})
	}
}

// epochs are the epochs of all streams.
func (s *site) epochs() string {
	s.t.Helper()
	return ask[string](s, `SELECT string_agg(epoch::text, ' ' ORDER BY stream_no) FROM registry.outbox_stream`)
}

// TestAuditFindsExactlyTheLostTail counts what a failover loses, with nothing
// written afterwards that would show it.
func TestAuditFindsExactlyTheLostTail(t *testing.T) {
	t.Parallel()
	primary := eventtest.Server(t)
	s := newSite(t, schematest.New(t), primary.URL())
	workers := s.workers(2)
	s.mirror("one")
	ids := s.announce(0, 30, 64496)
	s.settled()
	replica := cutOffReplica(primary)
	before := s.committed()
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497 WHERE id = ANY ($1)`, ids[:10])
	s.exec(`UPDATE registry.prefix SET origin_asn = 64498 WHERE id = ANY ($1)`, ids[:5])
	s.announce(1, 7, 64499)
	s.settled()
	lost := s.committed() - before
	failOver(primary, replica)

	s.eventually("the audit has found the loss", func() error {
		if ask[int](s, `SELECT count(*) FROM registry.outbox_audit WHERE action = 'audit'`) == 0 {
			return errors.New("no audit has found anything")
		}
		return nil
	})
	s.published()
	s.settled()
	s.complete()
	if got := int(s.counted(workers, "hubn_outbox_lost_events_total")); got != lost {
		t.Errorf("the workers found %d lost events, want the %d that were published after the cut", got, lost)
	}
	lanes := ask[int](s, `SELECT sum((detail->>'lanes_lost')::int)::int FROM registry.outbox_audit WHERE action = 'audit'`)
	events := ask[int](s, `SELECT sum((detail->>'lost')::int)::int FROM registry.outbox_audit WHERE action = 'audit'`)
	resynced := ask[int](s, `SELECT sum((detail->>'resynced')::int)::int FROM registry.outbox_audit WHERE action = 'audit'`)
	if lanes != 17 || events != lost || resynced != 0 {
		t.Errorf("the audits name %d lanes, %d events and %d markers; want 17, %d and none", lanes, events, resynced, lost)
	}
}
