package outbox

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"hubn/outbox/event/eventtest"
)

func value(t *testing.T, m prometheus.Metric) *dto.Metric {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func counterValue(t *testing.T, m prometheus.Metric) float64 {
	return value(t, m).GetCounter().GetValue()
}
func gaugeValue(t *testing.T, m prometheus.Metric) float64 { return value(t, m).GetGauge().GetValue() }

func TestBurstCrossesAPartitionBoundary(t *testing.T) {
	b := newBed(t, nil)
	// Today's partition ends in a moment, and another takes the rest of the day.
	b.db.Exec(t, `
		DO $$
		DECLARE
		  today text := 'outbox_event_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD');
		  midnight timestamptz := date_trunc('day', now(), 'UTC');
		  boundary timestamptz := clock_timestamp() + interval '1 second';
		BEGIN
		  EXECUTE format('DROP TABLE registry.%I', today);
		  EXECUTE format('CREATE TABLE registry.%I PARTITION OF registry.outbox_event FOR VALUES FROM (%L) TO (%L)', today, midnight, boundary);
		  EXECUTE format('CREATE TABLE registry.%I PARTITION OF registry.outbox_event FOR VALUES FROM (%L) TO (%L)', today || '_rest', boundary, midnight + interval '1 day');
		END $$`)
	load := startWriters(t, b.db, 4, 20, 5)
	eventtest.Eventually(t, "events are in both partitions", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), `SELECT count(DISTINCT tableoid) FROM registry.outbox_event`).Scan(&n)
		return err == nil && n == 2
	})
	load.stop()
	b.check(t)
}

func TestCleanupKeepsWhatIsNotPublished(t *testing.T) {
	b := newBed(t, func(w *Worker) { w.settings.MaxEventBytes = 1024 })
	b.organisations(t, 5)
	poison(t, b, 1)
	eventtest.Eventually(t, "all but the poisoned lane is published", func() bool { return b.count(t, `pub_seq < last_seq`) == 1 })
	events := func() (n int) {
		if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM registry.outbox_event`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	dropEverything(t, b)
	if got := events(); got != 7 {
		t.Errorf("%d events are left, want all 7: two are not published", got)
	}
	b.db.Exec(t, `SELECT registry.outbox_skip(lane_id, last_seq, 'tester', 'give up') FROM registry.outbox_lane WHERE agg_key = '77'`)
	drained(t, b.pool)
	if err := b.worker.dropPartitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := events(); got != 7 {
		t.Errorf("%d events are left after a clean-up, want all 7: none is a week old", got)
	}
	dropEverything(t, b)
	if got := events(); got != 0 {
		t.Errorf("%d events are left, want none: all are published and past the retention", got)
	}
	b.touch(t, 5)
	drained(t, b.pool)
}

func TestPartitionsAreMadeAheadAndAlarmedFor(t *testing.T) {
	b := newBed(t, nil)
	b.worker.stop()
	w := newWorker(t, b.db.URL(""), b.client)
	w.pace.measure = 20 * time.Millisecond
	w.pace.tidy = time.Hour
	b.db.Exec(t, `
		DO $$
		DECLARE part text;
		BEGIN
		  FOR part IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'registry.outbox_event'::regclass
		              AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') > current_date + 3 LOOP
		    EXECUTE 'DROP TABLE ' || part;
		  END LOOP;
		END $$`)
	b.worker = start(t, w)
	eventtest.Eventually(t, "the metric says that three days are left", func() bool { return gaugeValue(t, w.metrics.daysAhead) == 3 })
	b.organisations(t, 3) // a writer does not depend on the worker's partitions
	if err := w.ensurePartitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventtest.Eventually(t, "the metric says that two months are left", func() bool { return gaugeValue(t, w.metrics.daysAhead) == partitionDays })
	b.check(t)
}

func TestPartitionInUseIsDroppedLater(t *testing.T) {
	b := newBed(t, nil)
	b.organisations(t, 3)
	drained(t, b.pool)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM registry.outbox_event`); err != nil {
		t.Fatal(err)
	}
	b.worker.settings.Retention = -48 * time.Hour // today's partition is old then
	begun := time.Now()
	if err := b.worker.dropPartitions(t.Context()); err != nil {
		t.Errorf("a partition in use is an error: %v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the lock was waited for %s", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.worker.dropPartitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := counterValue(t, b.worker.metrics.partitionsDropped); got < 1 {
		t.Errorf("%v partitions were dropped once nobody used the table, want some", got)
	}
}
