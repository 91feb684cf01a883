package app

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	moduleReady = prometheus.NewDesc("hubn_module_ready",
		"Whether a module of this process does its work now (1) or not (0).", []string{"module"}, nil)
	moduleRestarts = prometheus.NewDesc("hubn_module_restarts_total",
		"How often a module of this process failed and was started again.", []string{"module"}, nil)
	buildInfo = prometheus.NewDesc("hubn_build_info",
		"The version of this process; the value is always 1.", []string{"version"}, nil)
)

// unitCollector measures the units at the moment of a scrape.
type unitCollector []*unit

// Describe lists the metrics.
func (c unitCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- moduleReady
	ch <- moduleRestarts
	ch <- buildInfo
}

// Collect measures every unit.
func (c unitCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, version())
	for _, u := range c {
		up := 0.0
		if u.status().Ready {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(moduleReady, prometheus.GaugeValue, up, u.name)
		ch <- prometheus.MustNewConstMetric(moduleRestarts, prometheus.CounterValue, float64(u.restarts.Load()), u.name)
	}
}
