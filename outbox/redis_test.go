package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

// bed is a database, a Redis and one worker on them.
type bed struct {
	db     *schematest.DB
	pool   *pgxpool.Pool
	server *eventtest.Redis
	client *redis.Client
	worker running
	h      history
}

func newBed(t *testing.T, change func(*Worker)) *bed {
	t.Helper()
	b := &bed{db: schematest.New(t), server: eventtest.Server(t)}
	b.pool, b.client, b.h = b.db.Pool(t, ""), b.server.Client(), watchLanes(t, b.db)
	w := newWorker(t, b.db.URL(""), b.client)
	if change != nil {
		change(w)
	}
	b.worker = start(t, w)
	return b
}

// organisations makes some, each with a version to publish.
func (b *bed) organisations(t *testing.T, n int) {
	t.Helper()
	b.db.Exec(t, `INSERT INTO registry.organisation (handle) SELECT 'ORG-' || i FROM generate_series(1, $1::integer) i`, n)
}

// touch changes some of them, so that each has another version.
func (b *bed) touch(t *testing.T, n int) {
	t.Helper()
	b.db.Exec(t, `UPDATE registry.organisation SET name = name || '.' WHERE id IN (SELECT id FROM registry.organisation ORDER BY id LIMIT $1)`, n)
}

// check drains, stops the worker and checks every invariant.
func (b *bed) check(t *testing.T) {
	t.Helper()
	drained(t, b.pool)
	eventtest.Eventually(t, "no lane is claimed", func() bool { return b.count(t, `claimed_by IS NOT NULL`) == 0 })
	b.worker.stop()
	b.h.checkLanes(t)
	b.h.checkAttempts(t)
	b.h.checkStreams(t, b.client)
	b.h.checkFences(t, b.client)
}

// count is the number of lanes of which something holds.
func (b *bed) count(t *testing.T, where string) (n int64) {
	t.Helper()
	if err := b.pool.QueryRow(context.Background(), `SELECT count(*) FROM registry.outbox_lane WHERE `+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// resyncs counts the entries that ask for a full reconciliation.
func (b *bed) resyncs(t *testing.T) (streams, lanes int) {
	t.Helper()
	for _, e := range read(t, b.client) {
		switch {
		case e.Kind != event.Resync:
		case e.Version == 0:
			streams++
		default:
			lanes++
		}
	}
	return streams, lanes
}

// broken waits until the worker has given up on Redis for now, and everything is released.
func (b *bed) broken(t *testing.T) {
	t.Helper()
	eventtest.Eventually(t, "the breaker is open", func() bool { return !b.worker.Status().Ready })
	if reason := b.worker.Status().Reason; !strings.Contains(reason, "Redis") {
		t.Errorf("the status gives as reason %q, want one that names Redis", reason)
	}
	eventtest.Eventually(t, "the claims are given back", func() bool { return b.count(t, `claimed_by IS NOT NULL`) == 0 })
}

func TestRedisThatTakesNothingIsWaitedOut(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*eventtest.Redis) }{
		"stopped":   {(*eventtest.Redis).Stop, (*eventtest.Redis).Start},
		"killed":    {(*eventtest.Redis).Kill, (*eventtest.Redis).Start},
		"frozen":    {(*eventtest.Redis).Freeze, (*eventtest.Redis).Thaw},
		"no memory": {func(s *eventtest.Redis) { s.Set("maxmemory", "1") }, func(s *eventtest.Redis) { s.Set("maxmemory", "0") }},
		"read only": {(*eventtest.Redis).CutOff, (*eventtest.Redis).Promote},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(w *Worker) { w.pace.redis = 200 * time.Millisecond })
			b.organisations(t, 20)
			drained(t, b.pool)
			fault.begin(b.server)
			b.touch(t, 20)
			b.touch(t, 20)
			b.broken(t)
			if got := pending(t, b.pool); got != 40 {
				t.Errorf("%d events are pending during the outage, want 40", got)
			}
			fault.end(b.server)
			b.check(t)
			if streams, lanes := b.resyncs(t); streams != event.Streams || lanes != 0 {
				t.Errorf("%d streams and %d lanes were resynchronised, want the first %d only: nothing was lost", streams, lanes, event.Streams)
			}
			eventtest.Eventually(t, "the status is ready again or stopped", func() bool { return b.worker.Status().Reason == "stopped" })
		})
	}
}

func TestRedisThatLostEverythingGetsANewEpoch(t *testing.T) {
	for name, fault := range map[string]func(*eventtest.Redis){
		"flushed":         (*eventtest.Redis).Flush,
		"restarted empty": (*eventtest.Redis).RestartEmpty,
	} {
		for _, busy := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, busy %t", name, busy), func(t *testing.T) {
				b := newBed(t, nil)
				b.organisations(t, 30)
				drained(t, b.pool)
				before := b.epochs(t)
				fault(b.server)
				if busy {
					b.touch(t, 30)
				}
				eventtest.Eventually(t, "every stream has a new epoch", func() bool {
					streams, _ := b.resyncs(t)
					return streams == event.Streams
				})
				b.check(t)
				b.checkEpochs(t, before)
				entries := len(read(t, b.client))
				if want := map[bool]int{true: 30 + event.Streams, false: event.Streams}[busy]; entries != want {
					t.Errorf("the streams have %d entries, want %d", entries, want)
				}
			})
		}
	}
}

func TestNewEpochsOfAllStreamsAreToldInOneLine(t *testing.T) {
	log := &lines{}
	b := newBed(t, func(w *Worker) { w.log = slog.New(slog.NewTextHandler(log, nil)) })
	b.organisations(t, 1)
	drained(t, b.pool)
	b.server.Flush()
	eventtest.Eventually(t, "every stream has a new epoch", func() bool {
		streams, _ := b.resyncs(t)
		return streams == event.Streams
	})
	b.worker.stop()
	told := log.with("new epochs begin")
	if len(told) != 2 || !strings.Contains(told[0], "level=INFO") || !strings.Contains(told[1], "level=WARN") {
		t.Fatalf("the log says of epochs %q, want a line of the first ones and a warning of the next", told)
	}
	for _, line := range told {
		if !strings.Contains(line, `streams="[0 1 2 3 4 5 6 7]"`) {
			t.Errorf("the line names not all streams: %s", line)
		}
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with is the lines that have a part.
func (l *lines) with(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

func (b *bed) epochs(t *testing.T) map[string]bool {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `SELECT lineage || '/' || epoch FROM registry.outbox_stream`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	epochs := map[string]bool{}
	for rows.Next() {
		var epoch string
		if err := rows.Scan(&epoch); err != nil {
			t.Fatal(err)
		}
		epochs[epoch] = true
	}
	return epochs
}

// checkEpochs checks that Redis is in the database's epochs, all of them new,
// and holds no other fences.
func (b *bed) checkEpochs(t *testing.T, before map[string]bool) {
	t.Helper()
	now := b.epochs(t)
	if len(now) != event.Streams {
		t.Errorf("there are %d epochs, want one for each of %d streams", len(now), event.Streams)
	}
	for no := range event.Streams {
		epoch := b.client.Get(t.Context(), names.Epoch(no)).Val()
		if !now[epoch] || before[epoch] {
			t.Errorf("stream %d is in epoch %q in Redis; the database has %v, before it had %v", no, epoch, now, before)
		}
		for _, key := range b.client.Keys(t.Context(), names.Fence(no, "*")).Val() {
			if key != names.Fence(no, epoch) {
				t.Errorf("the fence %s of another epoch is left", key)
			}
		}
	}
}

func TestFlushedScriptCacheLosesNothing(t *testing.T) {
	b := newBed(t, nil)
	b.organisations(t, 20)
	drained(t, b.pool)
	if err := b.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.touch(t, 20)
	b.check(t)
	if streams, _ := b.resyncs(t); streams != event.Streams {
		t.Errorf("%d streams were resynchronised, want the first %d only", streams, event.Streams)
	}
	if !b.worker.Status().Ready && b.worker.Status().Reason != "stopped" {
		t.Errorf("the worker is not ready: %s", b.worker.Status().Reason)
	}
}

// found is what all audits since the test began found.
func (b *bed) found(t *testing.T) (lost, ahead int64) {
	t.Helper()
	const sql = `
		SELECT coalesce(sum((detail->>'lost')::bigint), 0)::bigint, coalesce(sum((detail->>'ahead')::bigint), 0)::bigint
		FROM registry.outbox_audit
		WHERE action = 'audit'`
	if err := b.pool.QueryRow(t.Context(), sql).Scan(&lost, &ahead); err != nil {
		t.Fatal(err)
	}
	return lost, ahead
}

func TestAuditFindsExactlyTheTailThatWasLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *eventtest.Redis, publish func()){
		"promoted replica": func(t *testing.T, s *eventtest.Redis, publish func()) {
			replica := s.Replica()
			replica.CutOff()
			publish()
			replica.Promote()
			replica.TakeOver(s)
		},
		"restored from an older file": func(t *testing.T, s *eventtest.Redis, publish func()) {
			before := s.Copy()
			publish()
			s.Restore(before)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			b.organisations(t, 30)
			drained(t, b.pool)
			lose(t, b.server, func() {
				b.touch(t, 10)
				b.touch(t, 4)
				drained(t, b.pool)
			})
			eventtest.Eventually(t, "the audit has found something", func() bool {
				lost, _ := b.found(t)
				return lost > 0
			})
			b.check(t)
			if lost, ahead := b.found(t); lost != 14 || ahead != 0 {
				t.Errorf("the audits found %d lost events and %d ahead, want 14 and 0", lost, ahead)
			}
			if streams, lanes := b.resyncs(t); streams != event.Streams || lanes != 0 {
				t.Errorf("%d streams and %d lanes were resynchronised, want the first %d only: all that was lost was there to publish", streams, lanes, event.Streams)
			}
			if got := len(read(t, b.client)); got != 44+event.Streams {
				t.Errorf("the streams have %d entries, want %d", got, 44+event.Streams)
			}
		})
	}
}

func TestLostTailIsPublishedAgainBeforeWhatCameAfter(t *testing.T) {
	b := newBed(t, func(w *Worker) { w.pace.watch = time.Hour }) // no audit: the script must notice
	b.organisations(t, 30)
	drained(t, b.pool)
	before := b.server.Copy()
	b.touch(t, 30)
	drained(t, b.pool)
	b.server.Restore(before)
	b.touch(t, 30)
	b.check(t)
	if got := len(read(t, b.client)); got != 90+event.Streams {
		t.Errorf("the streams have %d entries, want %d", got, 90+event.Streams)
	}
}

func TestLostTailThatWasCleanedUpBecomesALaneResync(t *testing.T) {
	b := newBed(t, nil)
	b.organisations(t, 3)
	drained(t, b.pool)
	before := b.server.Copy()
	b.touch(t, 3)
	drained(t, b.pool)
	b.worker.stop()
	dropEverything(t, b)
	b.server.Restore(before)
	b.worker = start(t, newWorker(t, b.db.URL(""), b.client))
	if _, err := b.pool.Exec(t.Context(), `UPDATE registry.outbox_stream SET audit_wanted_at = now(), audit_wanted_fix = true`); err != nil {
		t.Fatal(err)
	}
	eventtest.Eventually(t, "three lanes are resynchronised", func() bool {
		_, lanes := b.resyncs(t)
		return lanes == 3
	})
	b.touch(t, 3)
	drained(t, b.pool)
	versions := map[string][]int64{}
	for _, e := range read(t, b.client) {
		if e.Version > 0 {
			versions[e.Resource.String()] = append(versions[e.Resource.String()], e.Version)
		}
	}
	for resource, got := range versions {
		if fmt.Sprint(got) != "[1 2 3]" {
			t.Errorf("%s has versions %v in the stream, want [1 2 3]", resource, got)
		}
	}
	b.worker.stop()
	b.h.checkFences(t, b.client)
}

// dropEverything drops every partition in which all is published, as if their
// time had come, and makes those that writers need.
func dropEverything(t *testing.T, b *bed) {
	t.Helper()
	for dropped := new(string); dropped != nil; {
		if err := b.pool.QueryRow(t.Context(), `SELECT registry.outbox_partition_drop('-2 days')`).Scan(&dropped); err != nil {
			t.Fatal(err)
		}
	}
	b.db.Exec(t, `SELECT registry.outbox_partitions_ensure(60)`)
}

func TestAuditOfAnOperatorCountsAndRepairsWhenTold(t *testing.T) {
	b := newBed(t, nil)
	b.organisations(t, 5)
	drained(t, b.pool)
	for _, fix := range []bool{false, true} {
		if _, err := b.pool.Exec(t.Context(), `UPDATE registry.outbox_stream SET audit_wanted_at = now(), audit_wanted_fix = $1`, fix); err != nil {
			t.Fatal(err)
		}
		eventtest.Eventually(t, "the audit is carried out", func() bool {
			var open int
			err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM registry.outbox_stream WHERE audit_wanted_at IS NOT NULL`).Scan(&open)
			return err == nil && open == 0
		})
		var checked, lost int
		const sql = `SELECT sum((audit_result->>'checked')::int), sum((audit_result->>'lost')::int) FROM registry.outbox_stream`
		if err := b.pool.QueryRow(t.Context(), sql).Scan(&checked, &lost); err != nil {
			t.Fatal(err)
		}
		if checked != 5 || lost != 0 {
			t.Errorf("the audit compared %d lanes and found %d lost events, want 5 and 0", checked, lost)
		}
	}
	b.check(t)
}
