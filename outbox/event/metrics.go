package event

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a consumer's figures, labelled with its module.
type metrics struct {
	entries    *prometheus.CounterVec
	sources    *prometheus.CounterVec
	gaps       prometheus.Counter
	regressed  prometheus.Counter
	age        prometheus.Histogram
	applyTime  prometheus.Histogram
	lag        *prometheus.GaugeVec
	pending    *prometheus.GaugeVec
	shards     prometheus.Gauge
	retryList  prometheus.Gauge
	held       prometheus.Gauge
	published  prometheus.Gauge
	wanted     prometheus.Counter
	reconciled *prometheus.CounterVec
	scanTime   prometheus.Histogram
	withdrawn  *prometheus.CounterVec
	foreign    prometheus.Gauge
	reports    *prometheus.CounterVec
	queue      prometheus.Gauge
	barriers   prometheus.Counter
	commands   *prometheus.CounterVec
}

func newMetrics(module string, to prometheus.Registerer) *metrics {
	labels := prometheus.Labels{"module": module}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "hubn", Subsystem: "consumer", Name: name, Help: help, ConstLabels: labels}
	}
	counter := func(name, help string) prometheus.Counter {
		return registered(to, prometheus.NewCounter(prometheus.CounterOpts(opts(name, help))))
	}
	counters := func(name, help string, by ...string) *prometheus.CounterVec {
		return registered(to, prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), by))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return registered(to, prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help))))
	}
	gauges := func(name, help string, by ...string) *prometheus.GaugeVec {
		return registered(to, prometheus.NewGaugeVec(prometheus.GaugeOpts(opts(name, help)), by))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return registered(to, prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "hubn", Subsystem: "consumer", Name: name, Help: help, ConstLabels: labels, Buckets: buckets,
		}))
	}
	return &metrics{
		entries:    counters("entries_total", "Stream entries read, by what became of them.", "outcome"),
		sources:    counters("sources_total", "Sources handled, by what came of it.", "outcome"),
		gaps:       counter("gaps_total", "Events that spoke of a version more than one above the one held; the fetch healed them."),
		regressed:  counter("regressions_total", "Fetches that were served an older version than the one held."),
		age:        histogram("event_age_seconds", "Time from an event's creation to its application.", prometheus.ExponentialBuckets(0.005, 2, 16)),
		applyTime:  histogram("apply_seconds", "Time that one application to the store took.", prometheus.ExponentialBuckets(0.001, 2, 14)),
		lag:        gauges("lag_events", "Entries of a stream that the group was not given yet.", "stream"),
		pending:    gauges("pending_events", "Entries of a stream that the group was given and has not acknowledged.", "stream"),
		shards:     gauge("active_streams", "Streams that this replica reads."),
		retryList:  gauge("retry_list_sources", "Sources that keep failing; alert when it is not 0."),
		held:       gauge("held_sources", "Sources whose withdrawal waits for an operator; alert when it is not 0."),
		published:  gauge("present_sources", "Sources that the module's store holds as present."),
		wanted:     counter("reconciliations_wanted_total", "Wishes for a full reconciliation."),
		reconciled: counters("reconciliations_total", "Full reconciliations, by how they ended.", "result"),
		scanTime:   histogram("reconciliation_seconds", "Time that one full reconciliation took.", prometheus.ExponentialBuckets(0.05, 2, 16)),
		withdrawn:  counters("withdrawn_total", "Sources withdrawn by a reconciliation, by the proof for it.", "proof"),
		foreign:    gauge("foreign_lineage", "1 while the Registry serves a lineage that the module may not adopt; alert when it is not 0."),
		reports:    counters("reports_total", "Report items, by what became of them.", "outcome"),
		queue:      gauge("report_queue_resources", "Resources that wait to be reported."),
		barriers:   counter("barriers_total", "Barriers reported."),
		commands:   counters("commands_total", "Commands handled, by how they ended.", "result"),
	}
}

// registered registers a collector, or answers the one that an earlier run of
// the module registered.
func registered[C prometheus.Collector](to prometheus.Registerer, c C) C {
	if to == nil {
		return c
	}
	if err := to.Register(c); err != nil {
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) {
			if old, ok := there.ExistingCollector.(C); ok {
				return old
			}
		}
		panic(err) // two different metrics of one name: a fault of this file
	}
	return c
}
