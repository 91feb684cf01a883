package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"hubn/app/module"
	"hubn/outbox/event"
)

// metrics are everything that the worker counts and measures; as a collector it
// is registered and removed with the worker. Gauges are of the whole outbox,
// whichever process takes them; counters and histograms are of this process.
//
// Alerts: oldest_seconds > 60; lanes{state="failing"} > 0; xmin_age_seconds > 600;
// partition_days_ahead < 14; group_missed_entries > 0; redis_evicts > 0.
type metrics struct {
	all []prometheus.Collector

	pending, oldest, deepest                   prometheus.Gauge
	lanes                                      *prometheus.GaugeVec
	laneLock, xminAge, deadTuples              prometheus.Gauge
	partitions, oldestPartition, daysAhead     prometheus.Gauge
	streamLength                               *prometheus.GaugeVec
	groupLag, groupPending, groupMissed, epoch *prometheus.GaugeVec
	breakerOpen, evicts, late                  prometheus.Gauge
	claimedLanes, fenced, duplicates, lost     prometheus.Counter
	attempts, overrun, lateDropped             prometheus.Counter
	databaseErrors, trimmed, partitionsDropped prometheus.Counter
	published, transportErrors, wakes, resyncs *prometheus.CounterVec
	commitToPublish, claim, script, ack        prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{}
	m.gauges()
	m.counters()
	m.histograms()
	return m
}

func (m *metrics) gauges() {
	m.pending = m.gauge("pending_events", "Events that are committed and not published.")
	m.oldest = m.gauge("oldest_seconds", "Age of the oldest unpublished event of a lane that is not paused, in seconds.")
	m.deepest = m.gauge("deepest_lane_events", "Unpublished events of the lane that has most.")
	m.lanes = m.gaugeVec("lanes", "Lanes with unpublished events, by state: ready, claimed, overdue (the claim has expired), backing-off, failing (20 failures or more), paused.", "state")
	m.laneLock = m.gauge("lane_lock_age_seconds", "Age of the oldest transaction that holds locks on lanes, in seconds.")
	m.xminAge = m.gauge("xmin_age_seconds", "Age of the oldest snapshot in the database, which keeps dead rows from being removed, in seconds.")
	m.deadTuples = m.gauge("dead_tuples", "Dead rows of the outbox tables.")
	m.partitions = m.gauge("partitions", "Daily partitions of the events.")
	m.oldestPartition = m.gauge("oldest_partition_timestamp_seconds", "Day of the oldest partition, in seconds since 1970.")
	m.daysAhead = m.gauge("partition_days_ahead", "Days for which partitions exist from today on; writers fail when there is none for today.")
	m.streamLength = m.gaugeVec("stream_entries", "Entries in a stream.", "stream")
	m.groupLag = m.gaugeVec("group_lag_entries", "Entries of a stream that a consumer group has not been given.", "stream", "group")
	m.groupPending = m.gaugeVec("group_pending_entries", "Entries that a consumer group was given and has not acknowledged.", "stream", "group")
	m.groupMissed = m.gaugeVec("group_missed_entries", "Entries that were removed from a stream before a consumer group had read them.", "stream", "group")
	m.epoch = m.gaugeVec("epoch_timestamp_seconds", "When the epoch of a stream began, in seconds since 1970.", "stream")
	m.breakerOpen = m.gauge("breaker_open", "1 while this process does not publish because Redis takes nothing.")
	m.evicts = m.gauge("redis_evicts", "1 when Redis was seen to evict keys instead of refusing writes.")
	m.late = m.gauge("late_settlements", "Claims that this process cannot settle yet, mostly since writers hold their lanes.")
}

func (m *metrics) counters() {
	m.published = m.counterVec("published_events_total", "Entries added to a stream.", "stream")
	m.claimedLanes = m.counter("claimed_lanes_total", "Lanes claimed.")
	m.fenced = m.counter("fenced_acknowledgements_total", "Acknowledgements that came after the claim had passed to another.")
	m.duplicates = m.counter("suppressed_duplicates_total", "Events that the fence in Redis left out because they were there.")
	m.lost = m.counter("lost_events_total", "Published events that Redis was found to have lost.")
	m.attempts = m.counter("failed_attempts_total", "Failures of single lanes.")
	m.overrun = m.counter("overrun_batches_total", "Batches broken off since their lease was running out.")
	m.lateDropped = m.counter("dropped_settlements_total", "Claims left to expire since too many were waiting to be settled.")
	m.databaseErrors = m.counter("database_errors_total", "Statements that failed.")
	m.trimmed = m.counter("trimmed_entries_total", "Entries removed from streams for their age.")
	m.partitionsDropped = m.counter("dropped_partitions_total", "Partitions of published events dropped for their age.")
	m.transportErrors = m.counterVec("transport_errors_total", "Faults of Redis or of the way to it, by class.", "class")
	m.wakes = m.counterVec("wakeups_total", "What made a worker look for lanes: hint, poll, full, again, subscribed.", "source")
	m.resyncs = m.counterVec("resync_entries_total", "Entries that ask consumers to reconcile: a whole stream, or one lane.", "scope")
}

func (m *metrics) histograms() {
	m.commitToPublish = m.histogram("commit_to_publish_seconds", "From an event's creation in its transaction to its acknowledged publication, in seconds.", prometheus.ExponentialBuckets(0.001, 2, 20))
	m.claim = m.histogram("claim_seconds", "Duration of a claim, in seconds.", prometheus.ExponentialBuckets(0.0005, 2, 14))
	m.script = m.histogram("script_seconds", "Duration of one round trip of publishing scripts, in seconds.", prometheus.ExponentialBuckets(0.0005, 2, 14))
	m.ack = m.histogram("acknowledge_seconds", "Duration of an acknowledgement, in seconds.", prometheus.ExponentialBuckets(0.0005, 2, 14))
}

const namespace, subsystem = "hubn", "outbox"

func (m *metrics) gauge(name, help string) prometheus.Gauge {
	return add(m, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}))
}

func (m *metrics) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels))
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	return add(m, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}))
}

func (m *metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return add(m, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels))
}

func (m *metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(m, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}))
}

func add[C prometheus.Collector](m *metrics, c C) C {
	m.all = append(m.all, c)
	return c
}

// Describe hands on every description.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
}

// Collect hands on every value.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(to)
	}
}

// transportClass is a short word for a fault, for a metric's label: the word
// that Redis begins its errors with, or what happened to the connection.
func transportClass(err error) string {
	var refused redis.Error
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &refused):
		word, _, _ := strings.Cut(err.Error(), " ")
		for _, known := range []string{"LOADING", "READONLY", "OOM", "NOSCRIPT", "NOPERM", "NOAUTH", "WRONGPASS", "MISCONF", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "WRONGTYPE"} {
			if word == known {
				return strings.ToLower(known)
			}
		}
		return "refused"
	}
	return "connection"
}

const measureSQL = `
	SELECT coalesce(sum(last_seq - pub_seq) FILTER (WHERE state = 'active'), 0)::bigint,
	       coalesce(extract(epoch FROM now() - min(head_at) FILTER (WHERE state = 'active')), 0)::float8,
	       coalesce(max(last_seq - pub_seq), 0)::bigint,
	       count(*) FILTER (WHERE state = 'active' AND claimed_by IS NULL AND next_at <= now()),
	       count(*) FILTER (WHERE state = 'active' AND claimed_by IS NOT NULL AND next_at > now()),
	       count(*) FILTER (WHERE state = 'active' AND claimed_by IS NOT NULL AND next_at <= now()),
	       count(*) FILTER (WHERE state = 'active' AND claimed_by IS NULL AND next_at > now() AND attempts < 20),
	       count(*) FILTER (WHERE state = 'active' AND attempts >= 20),
	       count(*) FILTER (WHERE state = 'paused')
	FROM (
	  SELECT last_seq, pub_seq, head_at, claimed_by, next_at, attempts, state
	  FROM registry.outbox_lane
	  WHERE ready_at IS NOT NULL
	  UNION ALL
	  SELECT last_seq, pub_seq, head_at, claimed_by, next_at, attempts, state
	  FROM registry.outbox_lane
	  WHERE state = 'paused'
	) l`

const healthSQL = `
	SELECT lane_lock_seconds, xmin_seconds, dead_tuples, partitions,
	       coalesce(extract(epoch FROM to_date(right(oldest_partition, 8), 'YYYYMMDD')), 0)::float8, days_ahead
	FROM registry.outbox_health()`

const epochAgesSQL = `
	SELECT stream_no, coalesce(extract(epoch FROM epoch_at), 0)::float8
	FROM registry.outbox_stream`

// measure takes the gauges.
func (w *Worker) measure(ctx context.Context) {
	if err := w.measureDatabase(ctx); err != nil {
		w.log.Debug("the outbox could not be measured", "error", err)
	}
	if err := w.measureStreams(ctx); err != nil {
		w.log.Debug("the streams could not be measured", "error", err)
	}
	w.reportStatus()
}

func (w *Worker) measureDatabase(ctx context.Context) error {
	m := w.metrics
	return w.transact(ctx,
		statement{measureSQL, nil, func(rows pgx.Rows) error {
			var oldest float64
			var pending, deepest, ready, held, overdue, backing, failing, paused int64
			if err := rows.Scan(&pending, &oldest, &deepest, &ready, &held, &overdue, &backing, &failing, &paused); err != nil {
				return err
			}
			m.pending.Set(float64(pending))
			m.oldest.Set(oldest)
			m.deepest.Set(float64(deepest))
			for state, n := range map[string]int64{"ready": ready, "claimed": held, "overdue": overdue, "backing-off": backing, "failing": failing, "paused": paused} {
				m.lanes.WithLabelValues(state).Set(float64(n))
			}
			w.measured.Store(&measured{pending: pending, oldest: oldest, failing: failing})
			return nil
		}},
		statement{healthSQL, nil, func(rows pgx.Rows) error {
			var laneLock, xmin, oldest float64
			var dead, partitions, ahead int64
			if err := rows.Scan(&laneLock, &xmin, &dead, &partitions, &oldest, &ahead); err != nil {
				return err
			}
			m.laneLock.Set(laneLock)
			m.xminAge.Set(xmin)
			m.deadTuples.Set(float64(dead))
			m.partitions.Set(float64(partitions))
			m.oldestPartition.Set(oldest)
			m.daysAhead.Set(float64(ahead))
			if ahead < partitionAlarmDays {
				w.log.Error("partitions of the outbox's events are running out: writers fail when there is none for today; run `hubn migrate`", "days_ahead", ahead)
			}
			return nil
		}},
		statement{epochAgesSQL, nil, func(rows pgx.Rows) error {
			var no int
			var at float64
			err := rows.Scan(&no, &at)
			m.epoch.WithLabelValues(strconv.Itoa(no)).Set(at)
			return err
		}})
}

func (w *Worker) measureStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	m := w.metrics
	m.groupLag.Reset()
	m.groupPending.Reset()
	m.groupMissed.Reset()
	for no := range event.Streams {
		name := w.names.Stream(no)
		label := strconv.Itoa(no)
		length, err := w.redis.XLen(ctx, name).Result()
		if err != nil {
			return err
		}
		m.streamLength.WithLabelValues(label).Set(float64(length))
		groups, err := w.redis.XInfoGroups(ctx, name).Result()
		if noSuchKey(err) || err == nil && len(groups) == 0 {
			continue
		}
		if err != nil {
			return err
		}
		stream, err := w.redis.XInfoStream(ctx, name).Result()
		if err != nil {
			return err
		}
		for _, g := range groups {
			m.groupLag.WithLabelValues(label, g.Name).Set(float64(g.Lag))
			m.groupPending.WithLabelValues(label, g.Name).Set(float64(g.Pending))
			m.groupMissed.WithLabelValues(label, g.Name).Set(float64(missed(g, stream)))
		}
	}
	return nil
}

// measured is what the status shows of the last measurement.
type measured struct {
	pending, failing int64
	oldest           float64
}

// reportStatus makes the module's status of what is known.
func (w *Worker) reportStatus() {
	s := module.Status{Ready: true, Detail: map[string]any{}}
	if m := w.measured.Load(); m != nil {
		s.Detail["pending"], s.Detail["oldest_seconds"], s.Detail["failing_lanes"] = m.pending, m.oldest, m.failing
		switch {
		case m.failing > 0:
			s.Reason = fmt.Sprintf("%d lanes keep failing: see `hubn outbox list --state failing`", m.failing)
		case m.oldest > behindAfter.Seconds():
			s.Reason = fmt.Sprintf("%d events behind", m.pending)
		}
	}
	w.metrics.breakerOpen.Set(0)
	if since, cause := w.breaker.fault(); cause != nil {
		w.metrics.breakerOpen.Set(1)
		s.Ready = false
		s.Reason = "Redis has taken no events since " + since.UTC().Format(time.RFC3339)
		s.Detail["redis_error"] = cause.Error()
	}
	if o := w.database.Load(); o != nil {
		s.Ready = false
		s.Reason = "PostgreSQL has not answered since " + o.since.UTC().Format(time.RFC3339)
		s.Detail["database_error"] = o.cause.Error()
	}
	w.say(s)
}

// behindAfter is the age of an unpublished event from which the status says so:
// a healthy outbox takes milliseconds, and the alert is at a minute.
const behindAfter = 10 * time.Second
