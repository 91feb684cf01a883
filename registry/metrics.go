package registry

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Registry's figures.
type metrics struct {
	requests  *prometheus.HistogramVec
	retried   prometheus.Counter
	refused   *prometheus.CounterVec
	hints     *prometheus.CounterVec
	purged    *prometheus.CounterVec
	partition prometheus.Counter
}

// newMetrics registers the figures, or takes those that an earlier instance of the
// module registered; r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{
		requests: registered(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hubn_registry_request_seconds", Help: "Time to answer a request, by operation and status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"operation", "status"})),
		retried: registered(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hubn_registry_transaction_retries_total", Help: "Transactions that ran again after a deadlock, a serialization failure or an overlap.",
		})),
		refused: registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hubn_registry_refused_logins_total", Help: "Requests without a valid token, by why.",
		}, []string{"reason"})),
		hints: registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hubn_registry_wake_hints_total", Help: "Hints to the outbox's workers after commits, by result.",
		}, []string{"result"})),
		purged: registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hubn_registry_purged_rows_total", Help: "Rows removed because their retention was over, by table.",
		}, []string{"table"})),
		partition: registered(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hubn_registry_partitions_made_total", Help: "Partitions of the outbox and the change log that were made.",
		})),
	}
}

func registered[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	var there prometheus.AlreadyRegisteredError
	if err := r.Register(c); errors.As(err, &there) {
		return there.ExistingCollector.(C)
	} else if err != nil {
		panic(err) // a name or label that Prometheus refuses
	}
	return c
}

func (m *metrics) request(operation string, status int, took time.Duration) {
	if operation == "" {
		operation = "none"
	}
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Observe(took.Seconds())
}
