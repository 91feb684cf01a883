package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
)

func TestMetricsHaveHelpAndUnits(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := newBed(t, func(w *Worker) { w.register = registry; w.pace.measure = 20 * time.Millisecond })
	b.organisations(t, 3)
	drained(t, b.pool)
	eventtest.Eventually(t, "the gauges are taken", func() bool { return gaugeValue(t, b.worker.metrics.daysAhead) > 0 })
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		found[f.GetName()] = true
		if !strings.HasPrefix(f.GetName(), "hubn_outbox_") || f.GetHelp() == "" {
			t.Errorf("metric %s has the help %q", f.GetName(), f.GetHelp())
		}
	}
	for _, name := range []string{
		"pending_events", "oldest_seconds", "deepest_lane_events", "lanes", "lane_lock_age_seconds", "xmin_age_seconds",
		"dead_tuples", "partitions", "partition_days_ahead", "stream_entries", "epoch_timestamp_seconds", "breaker_open",
		"published_events_total", "fenced_acknowledgements_total", "suppressed_duplicates_total", "lost_events_total",
		"failed_attempts_total", "wakeups_total", "commit_to_publish_seconds", "claim_seconds", "script_seconds", "acknowledge_seconds",
	} {
		if !found["hubn_outbox_"+name] {
			t.Errorf("there is no metric hubn_outbox_%s", name)
		}
	}
	b.worker.stop()
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("after the worker's end %d metrics are left: a restarted one could not register", len(families))
	}
}

func TestTrimmingSparesGroupsAndTellsWhatTheyMissed(t *testing.T) {
	b := newBed(t, func(w *Worker) {
		w.pace.measure, w.pace.tidy = 20*time.Millisecond, time.Hour
		w.settings.StreamAge, w.settings.StreamMaxAge = time.Nanosecond, time.Hour
	})
	b.organisations(t, 300)
	drained(t, b.pool)
	for no := range event.Streams {
		if err := b.client.XGroupCreate(t.Context(), names.Stream(no), "slow", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := len(read(t, b.client))
	if err := b.worker.trimStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(read(t, b.client)); got != before {
		t.Errorf("%d of %d entries are left although a group has read none", got, before)
	}
	for no := range event.Streams {
		acknowledge(t, b.client, names.Stream(no), 5)
	}
	if err := b.worker.trimStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Somebody else trims without looking at groups.
	for no := range event.Streams {
		if err := b.client.XTrimMaxLen(t.Context(), names.Stream(no), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want := float64(before - 5*event.Streams)
	eventtest.Eventually(t, "the metric says what the group has missed", func() bool {
		var missed float64
		for no := range event.Streams {
			missed += gaugeValue(t, b.worker.metrics.groupMissed.WithLabelValues(string(rune('0'+no)), "slow"))
		}
		return missed == want
	})
}

// acknowledge lets the group slow read and acknowledge some entries.
func acknowledge(t *testing.T, client *redis.Client, stream string, n int64) {
	t.Helper()
	got, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "slow", Consumer: "c", Streams: []string{stream, ">"}, Count: n}).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got[0].Messages {
		if err := client.XAck(t.Context(), stream, "slow", m.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
