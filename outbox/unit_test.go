package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

func TestBreakerLetsOneBatchTryAfterEachPause(t *testing.T) {
	now := time.Now()
	b := newBreaker(100*time.Millisecond, 400*time.Millisecond)
	fault := errors.New("refused")
	if p := b.permit(now); p != (permit{}) {
		t.Fatalf("a closed breaker answers %+v", p)
	}
	if !b.failed(now, 0, fault) {
		t.Error("the first fault does not open the breaker")
	}
	if b.failed(now, 0, fault) {
		t.Error("a batch that was under way opens it again")
	}
	for _, pause := range []time.Duration{100, 200, 400, 400} {
		pause *= time.Millisecond
		if p := b.permit(now.Add(pause/2 - time.Nanosecond)); p.wait <= 0 {
			t.Errorf("before half of %s it answers %+v, want a wait", pause, p)
		}
		now = now.Add(pause + time.Nanosecond)
		p := b.permit(now)
		if p.trial == 0 || p.wait != 0 {
			t.Fatalf("after %s it answers %+v, want a trial", pause, p)
		}
		if other := b.permit(now); other.wait <= 0 {
			t.Errorf("during a trial it answers another worker %+v, want a wait", other)
		}
		b.failed(now, p.trial, fault)
		b.ended(p.trial)
	}
	now = now.Add(time.Second)
	undecided := b.permit(now)
	b.ended(undecided.trial)
	p := b.permit(now)
	if p.trial == 0 {
		t.Fatalf("after a trial without a decision it answers %+v, want another trial", p)
	}
	if b.succeeded(0) {
		t.Error("a batch that began before the fault closes it")
	}
	if !b.succeeded(p.trial) {
		t.Error("a trial that succeeded does not close it")
	}
	if _, cause := b.fault(); cause != nil {
		t.Errorf("the closed breaker has the fault %v", cause)
	}
}

func TestStreamsAreTrimmedByAgeAndNeverPastAGroup(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	id := func(age time.Duration, n uint64) entryID {
		i := ageID(now.Add(-age))
		i.n = n
		return i
	}
	for name, c := range map[string]struct {
		unread []entryID
		want   entryID
	}{
		"no group":                       {nil, id(24*time.Hour, 0)},
		"a group that is up to date":     {[]entryID{id(time.Second, 5)}, id(24*time.Hour, 0)},
		"a group that is behind":         {[]entryID{id(time.Second, 0), id(48*time.Hour, 3)}, id(48*time.Hour, 3)},
		"a group that sleeps for ever":   {[]entryID{id(3000*time.Hour, 0)}, id(168*time.Hour, 0)},
		"a group that never read at all": {[]entryID{{}}, id(168*time.Hour, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := trimTo(now, 24*time.Hour, 168*time.Hour, c.unread); got != c.want {
				t.Errorf("entries are kept from %s, want %s", got, c.want)
			}
		})
	}
}

func TestChunksAreBoundedAndKeepLanesTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lanes []*lane
		for id := range rapid.IntRange(0, 150).Draw(t, "lanes") {
			l := &lane{id: int64(id), stream: rapid.IntRange(0, event.Streams-1).Draw(t, "stream")}
			size := rapid.SampledFrom([]int{10, 1000, 60_000}).Draw(t, "size")
			for range rapid.IntRange(1, laneEvents).Draw(t, "events") {
				l.events = append(l.events, row{payload: string(make([]byte, size))})
			}
			lanes = append(lanes, l)
		}
		seen := map[int64]bool{}
		for _, c := range cut(lanes) {
			events, bytes := 0, 0
			for _, l := range c.lanes {
				if l.stream != c.stream || seen[l.id] {
					t.Fatalf("lane %d of stream %d is in a chunk of stream %d, seen before: %t", l.id, l.stream, c.stream, seen[l.id])
				}
				seen[l.id] = true
				events += len(l.events)
				for _, e := range l.events {
					bytes += len(e.payload)
				}
			}
			if events > chunkEvents || bytes > chunkBytes && len(c.lanes) > 1 {
				t.Fatalf("a chunk of %d lanes has %d events and %d bytes", len(c.lanes), events, bytes)
			}
		}
		if len(seen) != len(lanes) {
			t.Fatalf("%d of %d lanes are in chunks", len(seen), len(lanes))
		}
	})
}

// scripted is a worker with a Redis and nothing else, and a stream in an epoch.
func scripted(t *testing.T, client *redis.Client) (*Worker, [event.Streams]streamState) {
	t.Helper()
	w := newWorker(t, "", client)
	var streams [event.Streams]streamState
	for no := range streams {
		streams[no] = streamState{epoch: "l/e", lineage: "l", current: true}
		client.Set(t.Context(), names.Epoch(no), "l/e", 0)
	}
	return w, streams
}

func laneOf(id int64, pubSeq int64, seqs ...int64) *lane {
	l := &lane{id: id, stream: 3, resource: client.Resource{Kind: client.KindPrefix, Key: fmt.Sprint(id)}, pubSeq: pubSeq, lastSeq: 100}
	for _, seq := range seqs {
		l.events = append(l.events, row{after: seq - 1, seq: seq, id: uuid.New(), kind: "changed", payload: `{"changed": []}`, createdAt: time.Unix(1, 5000).UTC()})
	}
	return l
}

func TestScriptFencesDuplicatesAndRefusesGaps(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		w, streams := scripted(t, rdb)
		send := func(lanes ...*lane) publication {
			return w.publish(t.Context(), lanes, streams, time.Now().Add(time.Minute))
		}
		expect := func(l *lane, want outcome) {
			t.Helper()
			if l.outcome != want {
				t.Errorf("lane %d: outcome %+v, want %+v", l.id, l.outcome, want)
			}
		}
		first, other, behind := laneOf(1, 0, 1, 2, 3), laneOf(2, 0, 1), laneOf(3, 4, 5)
		if p := send(first, other, behind); p.err != nil || p.epochs != nil {
			t.Fatalf("publish: %+v", p)
		}
		expect(first, outcome{verdict: sent, fence: 3})
		expect(other, outcome{verdict: sent, fence: 1})
		expect(behind, outcome{verdict: gap, fence: 0})
		stale, old := laneOf(1, 1, 2, 3, 4), laneOf(2, 0, 1)
		old.lastSeq = 0
		send(stale, old)
		expect(stale, outcome{verdict: sent, fence: 4})
		expect(old, outcome{verdict: beyond, fence: 1})
		marked := laneOf(4, 0, 1)
		marked.events = append(marked.events, row{after: 1, seq: 9, kind: "resync", id: uuid.New(), payload: "{}"}, row{after: 9, seq: 10, kind: "changed", id: uuid.New(), payload: "{}"})
		send(marked)
		expect(marked, outcome{verdict: sent, fence: 10})
		var got []string
		for _, e := range read(t, rdb) {
			got = append(got, fmt.Sprintf("%s@%d", e.Resource, e.Version))
		}
		want := "[prefix:1@1 prefix:1@2 prefix:1@3 prefix:2@1 prefix:1@4 prefix:4@1 prefix:4@9 prefix:4@10]"
		if fmt.Sprint(got) != want {
			t.Errorf("the stream has %v, want %s", got, want)
		}
		streams[3].epoch = "l/other"
		foreign := laneOf(5, 0, 1)
		if p := send(foreign); fmt.Sprint(p.epochs) != "[3]" || foreign.outcome != (outcome{}) {
			t.Errorf("in another epoch: %+v and %+v, want stream 3 and nothing sent", p, foreign.outcome)
		}
	})
}

func TestEntriesAreTheFieldsOfTheEvent(t *testing.T) {
	rdb := eventtest.Server(t).Client()
	w, streams := scripted(t, rdb)
	l := laneOf(7, 0, 1)
	w.publish(t.Context(), []*lane{l}, streams, time.Now().Add(time.Minute))
	entries, err := rdb.XRange(t.Context(), names.Stream(3), "-", "+").Result()
	if err != nil || len(entries) != 1 {
		t.Fatalf("the stream has %d entries: %v", len(entries), err)
	}
	want := event.Event{
		Lineage: "l", Epoch: "l/e", Stream: 3, Resource: l.resource, Version: 1, Kind: event.Changed,
		EventID: l.events[0].id.String(), CreatedAt: l.events[0].createdAt, Payload: json.RawMessage(l.events[0].payload),
	}
	fields := want.Fields()
	if len(entries[0].Values)*2 != len(fields) {
		t.Errorf("the entry has %d fields, want %d", len(entries[0].Values), len(fields)/2)
	}
	for i := 0; i < len(fields); i += 2 {
		if got := entries[0].Values[fields[i].(string)]; got != fmt.Sprint(fields[i+1]) {
			t.Errorf("field %s is %v, want %v", fields[i], got, fields[i+1])
		}
	}
}

func TestFaultsHaveShortClasses(t *testing.T) {
	for message, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                "oom",
		"READONLY You can't write against a read only replica.":                  "readonly",
		"LOADING Redis is loading the dataset in memory":                         "loading",
		"WRONGTYPE Operation against a key holding the wrong kind of value":      "wrongtype",
		"ERR something that nobody has seen before script: 5f1, on @user_script": "refused",
	} {
		if got := transportClass(redisError(message)); got != want {
			t.Errorf("%q is of class %s, want %s", message, got, want)
		}
		if eventSpecific(message) {
			t.Errorf("%q counts as a failure of the event", message)
		}
	}
	if !eventSpecific("ERR string exceeds maximum allowed size (proto-max-bulk-len)") {
		t.Error("a string that is too long does not count as a failure of the event")
	}
}

// redisError is an error as Redis answers it.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestSettingsNameWhatCannotBe(t *testing.T) {
	if err := DefaultSettings().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for name, change := range map[string]func(*Settings){
		"outbox.workers":         func(s *Settings) { s.Workers = 0 },
		"outbox.lease":           func(s *Settings) { s.Lease = 0 },
		"outbox.max_event_bytes": func(s *Settings) { s.MaxEventBytes = 10 },
		"outbox.retention":       func(s *Settings) { s.Retention = 0 },
		"outbox.stream_age":      func(s *Settings) { s.StreamAge = 0 },
		"outbox.stream_max_age":  func(s *Settings) { s.StreamMaxAge = time.Hour },
		"outbox.wait_replicas":   func(s *Settings) { s.WaitReplicas = -1 },
	} {
		s := DefaultSettings()
		change(&s)
		err := s.Validate()
		if err == nil || len(err.Error()) < len(name) || err.Error()[:len(name)] != name {
			t.Errorf("a wrong %s is answered with %v", name, err)
		}
	}
}
