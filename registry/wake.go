package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

const (
	// wakeInterval is the least time between two hints: a worker claims a batch
	// in less, so more of them would only be read and thrown away.
	wakeInterval = 20 * time.Millisecond
	// wakeTimeout bounds a hint to a Redis that does not answer; the workers
	// poll anyway.
	wakeTimeout = time.Second
)

// wake tells the outbox's workers that something was committed. A hint is worth
// nothing but time: it is never waited for, and a lost one is found by polling.
type wake struct {
	redis   redis.UniversalClient
	channel string
	log     *slog.Logger
	results *prometheus.CounterVec
	wanted  chan struct{}
}

func newWake(r redis.UniversalClient, channel string, log *slog.Logger, results *prometheus.CounterVec) *wake {
	return &wake{redis: r, channel: channel, log: log, results: results, wanted: make(chan struct{}, 1)}
}

// hint asks for a hint; it never blocks.
func (w *wake) hint() {
	select {
	case w.wanted <- struct{}{}:
	default: // one is wanted already, and will be sent after this commit
	}
}

// run sends the hints until ctx is done: the first at once, then one for all that
// were asked for in the interval.
func (w *wake) run(ctx context.Context) error {
	pause := time.NewTicker(wakeInterval)
	defer pause.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wanted:
		}
		err := w.publish(ctx)
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				w.log.Warn("Redis takes no hints; workers find changes by polling", "error", err)
			} else {
				w.log.Info("Redis takes hints again")
			}
		}
		pause.Reset(wakeInterval)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
	}
}

func (w *wake) publish(ctx context.Context) error {
	if w.redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	err := w.redis.Publish(ctx, w.channel, "").Err()
	result := "sent"
	if err != nil {
		result = "failed"
	}
	w.results.WithLabelValues(result).Inc()
	return err
}
