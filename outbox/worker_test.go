package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

var names = event.Names{Prefix: "test"}

// database is what a test's worker and writers connect to.
type database interface {
	URL(role string) string
	Pool(t testing.TB, role string) *pgxpool.Pool
	Exec(t testing.TB, sql string, args ...any)
}

// running is a worker under test.
type running struct {
	*Worker
	stop func()
}

// newWorker is a worker with the paces of a test, which it may change before start.
func newWorker(t *testing.T, databaseURL string, client redis.UniversalClient) *Worker {
	t.Helper()
	level := slog.LevelError
	if os.Getenv("HUBN_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	w := New(Options{
		Settings:    DefaultSettings(),
		DatabaseURL: databaseURL,
		Redis:       client,
		Names:       names,
		Log:         slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
	w.pace.breakerMin, w.pace.breakerMax = 10*time.Millisecond, 100*time.Millisecond
	w.pace.databaseRetryMax = 100 * time.Millisecond
	w.pace.watch = 50 * time.Millisecond
	w.pace.redis = 2 * time.Second
	w.pace.idle = 200 * time.Millisecond
	return w
}

// start runs a worker until the test ends or stop is called.
func start(t *testing.T, w *Worker) running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ready := make(chan struct{})
	go func() { done <- w.Run(ctx, func() { close(ready) }) }()
	stopped := false
	stop := func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the worker ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("the worker has not ended 30 s after it was told to")
		}
	}
	t.Cleanup(stop)
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatalf("the worker is not ready after 30 s: %s", w.Status().Reason)
	}
	return running{w, stop}
}

// read is every entry of every stream, each stream in its order.
func read(t *testing.T, client redis.UniversalClient) []event.Event {
	t.Helper()
	var all []event.Event
	for no := range event.Streams {
		entries, err := client.XRange(context.Background(), names.Stream(no), "-", "+").Result()
		if err != nil {
			t.Fatalf("read stream %d: %v", no, err)
		}
		for _, entry := range entries {
			e, err := event.Parse(no, entry.Values)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	return all
}

// drained waits until nothing is left to publish.
func drained(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	eventtest.EventuallyWithin(t, 30*time.Second, "the outbox is drained", func() bool { return pending(t, pool) == 0 })
}

func pending(t *testing.T, pool *pgxpool.Pool) (n int64) {
	t.Helper()
	const sql = `SELECT coalesce(sum(last_seq - pub_seq), 0)::bigint FROM registry.outbox_lane`
	if err := pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		return -1
	}
	return n
}

func TestEveryChangeIsPublishedOnceInOrder(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, client *redis.Client) {
		db := schematest.New(t)
		pool := db.Pool(t, "")
		for i := range 30 {
			db.Exec(t, `INSERT INTO registry.organisation (handle) VALUES ($1)`, fmt.Sprintf("ORG-%d", i))
		}
		w := start(t, newWorker(t, db.URL(""), client))
		for i := range 12 {
			db.Exec(t, `UPDATE registry.organisation SET name = $1`, fmt.Sprint(i))
		}
		drained(t, pool)
		w.stop()
		next := map[string]int64{}
		events, resyncs := 0, 0
		for _, e := range read(t, client) {
			if e.Kind == event.Resync {
				resyncs++
				continue
			}
			events++
			next[e.Resource.String()]++
			if e.Version != next[e.Resource.String()] {
				t.Errorf("%s: version %d came where %d was due", e.Resource, e.Version, next[e.Resource.String()])
			}
		}
		if events != 30*13 || len(next) != 30 || resyncs != event.Streams {
			t.Errorf("got %d events of %d resources and %d resyncs, want %d, 30 and %d", events, len(next), resyncs, 30*13, event.Streams)
		}
		var unmarked, claims int
		const sql = `
			SELECT (SELECT count(*) FROM registry.outbox_event WHERE published_at IS NULL),
			       (SELECT count(*) FROM registry.outbox_lane WHERE claimed_by IS NOT NULL)`
		if err := pool.QueryRow(t.Context(), sql).Scan(&unmarked, &claims); err != nil {
			t.Fatal(err)
		}
		if unmarked != 0 || claims != 0 {
			t.Errorf("%d events are not marked as published, %d lanes are still claimed; want none", unmarked, claims)
		}
	})
}
