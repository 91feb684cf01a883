package outbox

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
)

// poison appends an event that the worker may not publish, and some behind it.
func poison(t *testing.T, b *bed, behind int) {
	t.Helper()
	b.db.Exec(t, `SELECT registry.outbox_append('prefix', ARRAY['77'], ARRAY['changed'], ARRAY[jsonb_build_object('changed', repeat('x', 4000))])`)
	for range behind {
		b.db.Exec(t, `SELECT registry.outbox_append('prefix', ARRAY['77'], ARRAY['changed'], ARRAY['{"changed": []}'::jsonb])`)
	}
}

func smallEvents(w *Worker) { w.settings.MaxEventBytes = 1024 }

func TestPoisonedLaneDelaysNoOther(t *testing.T) {
	b := newBed(t, smallEvents)
	poison(t, b, 5)
	b.organisations(t, 20)
	eventtest.Eventually(t, "the poisoned lane has failed twice", func() bool { return b.count(t, `agg_key = '77' AND attempts >= 2`) == 1 })
	begun := time.Now()
	for range 10 {
		b.touch(t, 20)
		eventtest.Eventually(t, "the other lanes are published", func() bool { return b.count(t, `pub_seq < last_seq`) == 1 })
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("ten rounds of twenty changes took %s beside a poisoned lane", took)
	}
	var failure string
	var backing bool
	const sql = `SELECT last_error, next_at <= now() + interval '5 minutes' AND claimed_by IS NULL FROM registry.outbox_lane WHERE agg_key = '77'`
	if err := b.pool.QueryRow(t.Context(), sql).Scan(&failure, &backing); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(failure, "max_event_bytes") || !backing {
		t.Errorf("the lane says %q, backing off %t; want an error that names the setting, and a bounded pause", failure, backing)
	}
}

func TestSkippedEventsBecomeGapMarkersInOrder(t *testing.T) {
	b := newBed(t, smallEvents)
	poison(t, b, 2)
	eventtest.Eventually(t, "the lane has failed", func() bool { return b.count(t, `agg_key = '77' AND attempts > 0`) == 1 })
	b.db.Exec(t, `SELECT registry.outbox_skip(lane_id, 1, 'tester', 'too large to be true') FROM registry.outbox_lane WHERE agg_key = '77'`)
	drained(t, b.pool)
	b.worker.stop()
	var got []string
	for _, e := range read(t, b.client) {
		if e.Version > 0 {
			got = append(got, fmt.Sprintf("%d %s", e.Version, e.Kind))
		}
	}
	if want := "[1 gap 2 changed 3 changed]"; fmt.Sprint(got) != want {
		t.Errorf("the stream has %v, want %s", got, want)
	}
	if n := b.count(t, `attempts > 0`); n != 0 {
		t.Errorf("%d lanes count failures after they were published", n)
	}
	b.h.checkFences(t, b.client)
}

func TestReplayIsANewVersionForEveryLane(t *testing.T) {
	b := newBed(t, nil)
	b.organisations(t, 5)
	drained(t, b.pool)
	b.db.Exec(t, `SELECT registry.outbox_replay(array_agg(lane_id)) FROM registry.outbox_lane`)
	drained(t, b.pool)
	replays := 0
	for _, e := range read(t, b.client) {
		if e.Kind == event.Replay {
			replays++
			if e.Version != 2 {
				t.Errorf("the replay of %s has version %d, want 2", e.Resource, e.Version)
			}
		}
	}
	if replays != 5 {
		t.Errorf("%d replays are published, want 5", replays)
	}
	b.worker.stop()
	b.h.checkFences(t, b.client)
}

func TestPausedStreamsAndLanesWait(t *testing.T) {
	b := newBed(t, nil)
	b.organisations(t, 20)
	drained(t, b.pool)
	b.db.Exec(t, `UPDATE registry.outbox_stream SET paused = true WHERE stream_no < 4`)
	b.db.Exec(t, `UPDATE registry.outbox_lane SET state = 'paused' WHERE lane_id = (SELECT max(lane_id) FROM registry.outbox_lane WHERE stream_no >= 4)`)
	var running int64
	if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM registry.outbox_lane WHERE stream_no >= 4 AND state = 'active'`).Scan(&running); err != nil {
		t.Fatal(err)
	}
	if running == 0 || running == 20 {
		t.Fatalf("%d of 20 lanes are on running streams: the test needs some of both", running)
	}
	for range 3 {
		b.touch(t, 20)
		eventtest.Eventually(t, "the running lanes are published", func() bool {
			return b.count(t, `pub_seq = last_seq`) == running
		})
	}
	if waiting := b.count(t, `last_seq - pub_seq = 3 AND claimed_by IS NULL`); waiting != 20-running {
		t.Errorf("%d lanes hold their three versions back, want %d", waiting, 20-running)
	}
	b.db.Exec(t, `UPDATE registry.outbox_stream SET paused = false`)
	b.db.Exec(t, `UPDATE registry.outbox_lane SET state = 'active'`)
	b.check(t)
}

func TestBackoffDoublesToFiveMinutesAndThenStaysAtAQuarterHour(t *testing.T) {
	b := newBed(t, nil)
	const bounds = `
		SELECT h.attempts, max(extract(epoch FROM ` + backoffSQL + `))::float8, min(extract(epoch FROM ` + backoffSQL + `))::float8
		FROM (SELECT a AS attempts, false AS advanced FROM generate_series(0, 40) a, generate_series(1, 200)) h
		GROUP BY h.attempts
		ORDER BY h.attempts`
	rows, err := b.pool.Query(t.Context(), bounds)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var attempts int
		var most, least float64
		if err := rows.Scan(&attempts, &most, &least); err != nil {
			t.Fatal(err)
		}
		bound := min(float64(int64(1)<<min(attempts, 20)), 300)
		low, high := 0.0, bound
		if attempts+1 >= slowAttempts {
			low, high = 810, 900
		}
		if least < low || most > high || most < 0.8*high {
			t.Errorf("after %d failures a lane waits from %.1f to %.1f s, want all of %.1f to %.1f", attempts, least, most, low, high)
		}
	}
}

func TestClaimsAreGivenBackWhenTheWorkerIsToldToStop(t *testing.T) {
	b := newBed(t, nil)
	b.worker.stop()
	w := newWorker(t, b.db.URL(""), b.client)
	w.settings.Lease = time.Hour
	reached, held := make(chan struct{}), atomic.Bool{}
	w.signals.reach = func(ctx context.Context, p point) error {
		if p == fetched && held.CompareAndSwap(false, true) {
			close(reached)
			sleep(ctx, 300*time.Millisecond)
		}
		return nil
	}
	b.worker = start(t, w)
	b.organisations(t, 5)
	<-reached
	b.worker.stop()
	if n := b.count(t, `claimed_by IS NOT NULL`); n != 0 {
		t.Errorf("%d lanes are still claimed for an hour", n)
	}
	if n := b.count(t, `pub_seq = last_seq`); n != 5 {
		t.Errorf("%d lanes are published, want the 5 that were under way", n)
	}
}

func TestBatchThatOutlivesItsLeaseIsNotPublished(t *testing.T) {
	b := newBed(t, nil)
	b.worker.stop()
	w := newWorker(t, b.db.URL(""), b.client)
	w.settings.Lease = 100 * time.Millisecond
	held := atomic.Bool{}
	w.signals.reach = func(ctx context.Context, p point) error {
		if p == fetched && held.CompareAndSwap(false, true) {
			sleep(ctx, 70*time.Millisecond) // past 60 % of the lease
		}
		return nil
	}
	b.worker = start(t, w)
	b.organisations(t, 5)
	b.check(t)
	if got := counterValue(t, w.metrics.overrun); got != 1 {
		t.Errorf("%v batches were broken off for their lease, want 1", got)
	}
}
