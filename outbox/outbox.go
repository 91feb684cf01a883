// Package outbox is the worker that publishes the Registry's events to Redis
// Streams: at least once, in order per aggregate, for as long as it takes. It
// claims lanes, publishes their events through a script that fences and refuses
// gaps, and acknowledges by token. It never writes an event of its own, and
// never drops one.
//
// Every step may be the last of its process: what it leaves behind is a lane
// whose claim expires, and an event that the fence suppresses the second time.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"hubn/app/module"
	"hubn/outbox/event"
)

// Name is the module's name.
const Name = "outbox"

// Options are what a Worker needs.
type Options struct {
	Settings    Settings
	DatabaseURL string
	// Redis needs a read timeout of a few seconds: it bounds how long a call
	// hangs on a connection that the other side has forgotten.
	Redis redis.UniversalClient
	Names event.Names
	// Instance names the process in claims; empty: host and process.
	Instance string
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// Worker is the outbox module: some goroutines that publish, and those that
// wake, watch and tidy up for them.
type Worker struct {
	settings Settings
	pace     pace
	url      string
	redis    redis.UniversalClient
	names    event.Names
	instance string
	// claims is in the names of this run's claims, and in no other's.
	claims   string
	log      *slog.Logger
	register prometheus.Registerer
	metrics  *metrics

	pool    *pgxpool.Pool
	breaker *breaker
	wakes   chan source
	sweeps  chan struct{}
	// late takes what could not be settled with its batch.
	late chan lateWork
	// audits takes the reason for an audit of everything.
	audits  chan string
	counter atomic.Int64 // of claims
	active  batches
	// lineage is the one that the worker last saw.
	lineage atomic.Pointer[string]
	// taken counts claimed lanes, for the poll's pace.
	taken atomic.Int64
	// lanes is how many lanes the next batch may have.
	lanes    atomic.Int64
	signals  signals
	status   atomic.Pointer[module.Status]
	measured atomic.Pointer[measured]
	database atomic.Pointer[outage] // nil while it answers
}

// New is a worker that Run starts.
func New(o Options) *Worker {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unnamed"
		}
		o.Instance = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	w := &Worker{
		settings: o.Settings,
		pace:     defaultPace(),
		url:      o.DatabaseURL,
		redis:    o.Redis,
		names:    o.Names,
		instance: o.Instance,
		claims:   fmt.Sprintf("%s/%08x/", o.Instance, rand.Uint32()),
		active:   batches{name: map[string]struct{}{}},
		sweeps:   make(chan struct{}, 1),
		log:      o.Log,
		register: o.Metrics,
		metrics:  newMetrics(),
		wakes:    make(chan source, 1),
		late:     make(chan lateWork, lateQueue),
		audits:   make(chan string, 1),
	}
	w.lineage.Store(new(string))
	w.lanes.Store(claimLanes)
	w.say(module.Status{Reason: "not started yet"})
	return w
}

var _ module.Module = (*Worker)(nil)

// Name is "outbox".
func (w *Worker) Name() string { return Name }

// Status says whether events can be published now, and how far behind they are.
func (w *Worker) Status() module.Status { return *w.status.Load() }

// Run publishes until ctx is done, and then gives back what it has claimed.
func (w *Worker) Run(ctx context.Context, ready func()) error {
	if err := w.settings.Validate(); err != nil {
		return err
	}
	if w.register != nil {
		if err := w.register.Register(w.metrics); err != nil {
			return fmt.Errorf("register the outbox's metrics: %w", err)
		}
		defer w.register.Unregister(w.metrics)
	}
	w.breaker = newBreaker(w.pace.breakerMin, w.pace.breakerMax)
	pool, err := openPool(ctx, w.url, w.settings.Workers)
	if err != nil {
		return err
	}
	defer pool.Close()
	w.pool = pool
	if err := w.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ready()
	w.log.Info("outbox publishes", "instance", w.instance, "workers", w.settings.Workers)
	w.run(ctx)
	return nil
}

// begin waits until database and Redis answer and every stream has its epoch.
func (w *Worker) begin(ctx context.Context) error {
	pause := w.pace.breakerMin
	for {
		err := w.renewEpochs(ctx, "the outbox starts")
		if err == nil {
			w.adviseRedis(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, errEpochBusy) {
			w.say(module.Status{Reason: fmt.Sprintf("cannot begin: %v", err)})
			w.log.Warn("outbox cannot begin yet", "error", err, "again_in", pause)
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, w.pace.databaseRetryMax)
	}
}

// run starts every goroutine and returns when all have ended. What settles late
// work ends last: the others hand it theirs.
func (w *Worker) run(ctx context.Context) {
	var group, last sync.WaitGroup
	settle, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	last.Go(func() { w.settleLate(settle) })
	for n := range w.settings.Workers {
		group.Go(func() { w.work(ctx, n) })
	}
	group.Go(func() { w.poll(ctx) })
	group.Go(func() { w.listen(ctx) })
	group.Go(func() { w.watch(ctx) })
	group.Go(func() { w.housekeep(ctx) })
	w.reportStatus()
	group.Wait()
	stopSettling()
	last.Wait()
	w.say(module.Status{Reason: "stopped"})
}

// say publishes a status, and keeps since when it has been so.
func (w *Worker) say(s module.Status) {
	before := w.status.Load()
	s.Since = time.Now()
	if before != nil && before.Ready == s.Ready && before.Reason == s.Reason {
		s.Since = before.Since
	}
	w.status.Store(&s)
}

// sleep waits and answers whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// jitter is between half and all of a duration, so that processes that were
// started together do not act together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
