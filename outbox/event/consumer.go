package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"hubn/app/module"
	"hubn/registry/client"
)

// Options describe a consumer. Module, Instance, Kinds, Redis, Names, Registry
// and Store must be set.
type Options struct {
	// Module is the module's name: that of its consumer group and its reports.
	Module string
	// Instance names this replica, the same after a restart: entries that it
	// was given and did not acknowledge are given to it again.
	Instance string
	// Kinds are the sources that the module derives something from.
	Kinds []client.Kind
	// EveryInstance gives every replica all events (a group of its own), for
	// modules that keep their state in memory. Otherwise the replicas share one
	// group, and each stream has one active consumer among them.
	EveryInstance bool

	Redis    redis.UniversalClient
	Names    Names
	Registry *client.Client
	Store    Store

	// Effective returns when everything that was applied before the call is
	// durably effective in the world that the module serves; nil: applied is
	// effective. An error is reported, and it is called again.
	Effective func(ctx context.Context) error
	// Commands are the module's own commands; approve, reject and reconcile are
	// the library's.
	Commands map[string]CommandHandler
	// Address is the base URL of the module's own HTTP, for its heartbeat.
	Address string
	// Status is the module's own part of its heartbeat; nil has none.
	Status func() any

	Settings Settings
	Log      *slog.Logger
	Metrics  prometheus.Registerer
	Hooks    Hooks
}

// Hooks are moments that a test can hold; all are nil in production.
type Hooks struct {
	// Fetched is called between a fetch and its application.
	Fetched func(context.Context, []client.Fetched)
	// Applied is called between the application of changes and their
	// acknowledgement.
	Applied func(context.Context, []Change)
	// Scanned is called when a pass over the sources is complete: 1 for the
	// pages, 2 and more for the lists of ids.
	Scanned func(ctx context.Context, pass int)
}

// Consumer receives the events of a module's sources, fetches what they speak
// of, applies it to the module's store, reconciles, and reports.
//
// Its states: it loads its store's notes, registers the module, scans everything
// when the store is new, and is then ready; from there on it follows the events
// and scans again now and then. Neither Redis nor the Registry nor the store
// being away ends it: it says so in Status and goes on when they are back.
type Consumer struct {
	o        Options
	set      Settings
	registry *client.Client
	store    Store
	streams  [Streams]stream
	log      *slog.Logger
	metrics  *metrics
	health   *health

	view     atomic.Pointer[view]
	shards   atomic.Int64
	behind   atomic.Int64
	reports  *reporter
	barriers *barrierKeeper
	commands *commandRunner
	// wish wakes the reconciler.
	wish chan struct{}
	// scanned closes when the store holds the result of a complete scan.
	scanned chan struct{}
	started time.Time
	running atomic.Bool
}

// view is what the consumer knows of lineages; it is replaced, never changed.
type view struct {
	lineage   string
	ancestors []string
	// foreign is a lineage that the Registry serves and the store may not adopt.
	foreign string
}

// New makes a consumer; Run starts it.
func New(o Options) (*Consumer, error) {
	for name, missing := range map[string]bool{
		"Module": o.Module == "", "Instance": o.Instance == "", "Kinds": len(o.Kinds) == 0, "Redis": o.Redis == nil,
		"Names": o.Names.Prefix == "", "Registry": o.Registry == nil, "Store": o.Store == nil,
	} {
		if missing {
			return nil, fmt.Errorf("consumer %q: option %s is not set", o.Module, name)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Consumer{
		o: o, set: o.Settings.filled(), registry: o.Registry, store: o.Store,
		log:     o.Log.With("module", o.Module, "instance", o.Instance),
		metrics: newMetrics(o.Module, o.Metrics),
		health:  &health{},
		wish:    make(chan struct{}, 1),
		scanned: make(chan struct{}),
	}
	for no := range c.streams {
		c.streams[no] = stream{redis: o.Redis, no: no, key: o.Names.Stream(no), group: groupName(o), consumer: o.Instance}
	}
	c.view.Store(&view{})
	c.reports = newReporter(c)
	c.barriers = newBarrierKeeper(c)
	c.commands = newCommandRunner(c)
	return c, nil
}

func groupName(o Options) string {
	if o.EveryInstance {
		return o.Module + "/" + o.Instance
	}
	return o.Module
}

// Run works until ctx is done, and then finishes what is in hand within
// Settings.Drain. It calls ready once the module is registered and its store
// holds a complete scan. It returns nil only after ctx is done; any other return
// is a fault such as a panic in a handler. A Consumer runs once.
func (c *Consumer) Run(ctx context.Context, ready func()) error {
	if c.running.Swap(true) {
		return errors.New("this consumer was run already: make a new one")
	}
	c.started = time.Now()
	// What is in hand when ctx ends is finished under hand.
	hand, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(c.set.Drain, drop) })
	defer stop()

	if !c.load(ctx) {
		return nil
	}
	c.createGroups(ctx)
	c.housekeep(ctx, forgottenAfter)
	if !c.register(ctx) {
		return nil
	}
	inner, halt := context.WithCancel(ctx)
	defer halt()
	var tail errgroup.Group
	reporting, endReports := context.WithCancel(hand)
	defer endReports()
	tail.Go(guard("reports", func() error { return c.reports.run(reporting, hand) }))

	g, gctx := errgroup.WithContext(inner)
	g.Go(guard("heartbeats", func() error { return c.beat(gctx) }))
	g.Go(guard("reconciliation", func() error { return c.reconcileLoop(gctx) }))
	g.Go(guard("retry list", func() error { return c.retryLoop(gctx, hand) }))
	g.Go(guard("barriers", func() error { return c.barriers.run(gctx) }))
	g.Go(guard("commands", func() error { return c.commands.run(gctx) }))
	g.Go(guard("shards", func() error { return c.runShards(gctx, hand) }))
	g.Go(func() error {
		select {
		case <-c.scanned:
			c.health.ready()
			ready()
		case <-gctx.Done():
		}
		return nil
	})
	err := g.Wait()
	endReports()
	return errors.Join(err, tail.Wait())
}

// guard turns a panic of a goroutine into its error.
func guard(what string, run func() error) func() error {
	return func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%s: panic: %v\n%s", what, p, debug.Stack())
			}
		}()
		return run()
	}
}

// safely runs what a module gave, and turns a panic into an error of the change,
// command or barrier that it was about: it must not take the module down again
// and again.
func safely(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := debug.Stack()
			err = fmt.Errorf("panic: %v\n%s", p, stack[:min(len(stack), stackShown)])
		}
	}()
	return run()
}

// stackShown is how much of a stack goes into an error that is reported.
const stackShown = 1500

// load reads the store's notes, waiting for the store; false when ctx ended.
func (c *Consumer) load(ctx context.Context) bool {
	for attempt := 1; ; attempt++ {
		_, err := c.refresh(ctx)
		if err == nil {
			return true
		}
		c.log.Warn("the module's store cannot be read", "error", err)
		if !wait(ctx, pause(attempt, c.set.FirstPause, c.set.LongestPause)) {
			return false
		}
	}
}

// refresh reads the store's notes again.
func (c *Consumer) refresh(ctx context.Context) (State, error) {
	state, err := c.store.State(ctx)
	c.health.set(partStore, err)
	if err != nil {
		return state, err
	}
	old := c.view.Load()
	if old.lineage != state.Lineage {
		c.view.CompareAndSwap(old, &view{lineage: state.Lineage, ancestors: append(slices.Clone(old.ancestors), nonEmpty(old.lineage)...)})
	}
	return state, nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// createGroups makes the groups that are missing before the first scan, so that
// what is published from now on is delivered. Redis may be away: the shards
// make them then.
func (c *Consumer) createGroups(ctx context.Context) {
	for _, s := range c.streams {
		from := "0"
		if c.o.EveryInstance {
			from = "$" // the scan that follows covers what is there
		}
		made, err := s.create(ctx, from)
		c.health.set(partRedis, err)
		if err != nil {
			c.log.Warn("the consumer group cannot be made now", "stream", s.key, "error", err)
			return
		}
		if made {
			c.want(ctx, "a new consumer group")
		}
	}
}

// want notes durably that a full reconciliation is needed, and tells whether
// it could.
func (c *Consumer) want(ctx context.Context, reason string) bool {
	err := c.store.Want(ctx, reason)
	c.health.set(partStore, err)
	if err != nil {
		c.log.Warn("a wish for a full reconciliation cannot be noted now", "reason", reason, "error", err)
		return false
	}
	c.metrics.wanted.Inc()
	c.wakeReconciler()
	return true
}

func (c *Consumer) wakeReconciler() {
	select {
	case c.wish <- struct{}{}:
	default:
	}
}

// Reconcile asks for a full reconciliation.
func (c *Consumer) Reconcile(ctx context.Context, reason string) error {
	if err := c.store.Want(ctx, reason); err != nil {
		return err
	}
	c.wakeReconciler()
	return nil
}

// AdoptLineage lets the module adopt a lineage that its own is no ancestor of:
// every stored version is replaced by what a complete scan of it states, and
// sources that it lacks are withdrawn or held as always. It is an operator's
// decision, made at the module itself.
func (c *Consumer) AdoptLineage(ctx context.Context, lineage string) error {
	if lineage == "" {
		return errors.New("name the lineage to adopt, as the status shows it")
	}
	if err := c.store.Allow(ctx, lineage); err != nil {
		return err
	}
	return c.Reconcile(ctx, "an operator lets lineage "+lineage+" be adopted")
}

// Holds answers the held withdrawals.
func (c *Consumer) Holds(ctx context.Context) ([]HeldSet, error) { return c.store.Holds(ctx) }

// Report says that what is to be reported of the resources changed, such as
// when something derived from them was published. The store's Describe is asked
// when the report is sent.
func (c *Consumer) Report(resources ...client.Resource) {
	for _, r := range resources {
		c.reports.put(r)
	}
}

// Lineage is the lineage of the module's store; empty before its first scan.
func (c *Consumer) Lineage() string { return c.view.Load().lineage }

// Status says how the consumer is.
func (c *Consumer) Status() module.Status { return c.health.status(c) }

// wait sleeps, and tells whether ctx still lives.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
