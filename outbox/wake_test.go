package outbox

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
)

// deaf is a worker that does not poll within a test.
func deaf(w *Worker) { w.pace.busy, w.pace.idle = time.Hour, time.Hour }

func TestHintIsActedOnAtOnce(t *testing.T) {
	b := newBed(t, func(w *Worker) { deaf(w); w.pace.watch = time.Hour })
	eventtest.Eventually(t, "the worker hears hints", func() bool {
		return b.client.PubSubNumSub(t.Context(), names.Wake()).Val()[names.Wake()] == 1
	})
	for range 20 {
		b.db.Exec(t, `INSERT INTO registry.asn (number) SELECT coalesce(max(number), 64495) + 1 FROM registry.asn`)
		if err := b.client.Publish(t.Context(), names.Wake(), "").Err(); err != nil {
			t.Fatal(err)
		}
		drained(t, b.pool)
	}
	if got := counterValue(t, b.worker.metrics.wakes.WithLabelValues(string(hint))); got < 10 {
		t.Errorf("hints woke a worker %v times, want about 20", got)
	}
	b.check(t)
}

func TestOneOfSeveralProcessesActsOnAHint(t *testing.T) {
	client := eventtest.Server(t).Client()
	first, second := newWorker(t, "", client), newWorker(t, "", client)
	first.instance, second.instance = "first", "second"
	for range 3 {
		if !first.takeTurn(t.Context()) {
			t.Error("the process that has the turn does not act on the next hint")
		}
		if second.takeTurn(t.Context()) {
			t.Error("a second process acts on the hint as well")
		}
	}
	eventtest.Eventually(t, "the turn passes on", func() bool { return second.takeTurn(t.Context()) })
}

func TestReconnectedSubscriberClaimsAtOnce(t *testing.T) {
	b := newBed(t, func(w *Worker) { w.pace.watch = time.Hour })
	b.worker.stop()
	relay := b.server.Proxy()
	through := redis.NewClient(&redis.Options{Addr: relay.Addr(), ReadTimeout: 2 * time.Second})
	t.Cleanup(func() { _ = through.Close() })
	w := newWorker(t, b.db.URL(""), through)
	deaf(w)
	w.pace.idle = 50 * time.Millisecond // how soon it subscribes again; the poll begins with an hour
	b.worker = start(t, w)
	for range 3 {
		eventtest.Eventually(t, "the worker hears hints", func() bool {
			return b.client.PubSubNumSub(t.Context(), names.Wake()).Val()[names.Wake()] == 1
		})
		b.db.Exec(t, `INSERT INTO registry.asn (number) SELECT coalesce(max(number), 64495) + 1 FROM registry.asn`)
		relay.Cut()
		drained(t, b.pool)
	}
	b.check(t)
}
