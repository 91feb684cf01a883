// Package registry is the Registry: the one place where a network's allocations,
// and what ought to be true of them, are kept. It answers the HTTP API and keeps
// the schema "registry" in PostgreSQL; the schema's triggers write the change log
// and the outbox. It publishes no event and knows nothing of what consumers do,
// beyond what they report.
package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"hubn/app/module"
	"hubn/app/problem"
	"hubn/app/seal"
	"hubn/outbox/event"
)

// Name is the module's name.
const Name = "registry"

// Options are what the Registry is made of.
type Options struct {
	Settings    Settings
	DatabaseURL string
	// Redis carries hints that something was committed, and holds the fences
	// that an audit compares. It may be away at any time, and nil.
	Redis redis.UniversalClient
	Names event.Names
	// StaticTokens are those that the process made at its start: they are never stored.
	StaticTokens []StaticToken
	// Seal holds the keys of the secrets that the database holds; nil takes none.
	Seal *seal.Keyring
	// OwnNameservers are patterns of the name servers that HubN itself runs.
	OwnNameservers []string
	// OutboxRetention is how long the outbox's workers keep published events;
	// zero is their default, a week.
	OutboxRetention time.Duration
	Log             *slog.Logger
	Metrics         prometheus.Registerer
	// Version is HubN's, for the OpenAPI document.
	Version string
	// Clock is the process's clock; nil is time.Now. Durations that the
	// database holds are computed by its own clock.
	Clock func() time.Time
}

// StaticToken is a token that lives as long as the process.
type StaticToken struct {
	Token string
	// Name is the actor in the change log.
	Name  string
	Roles []string
	// Module is set with the role module: the one module that it reports as.
	Module string
}

// Registry is one run of the Registry.
type Registry struct {
	service *service
	started atomic.Bool
	status  atomic.Pointer[module.Status]
}

var _ module.Server = (*Registry)(nil)

// New makes a Registry that is not running yet; until it is, it answers 503.
func New(o Options) *Registry {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.OutboxRetention == 0 {
		o.OutboxRetention = 7 * 24 * time.Hour
	}
	r := &Registry{service: newService(o)}
	r.say(false, "not started")
	return r
}

// Name implements module.Module.
func (r *Registry) Name() string { return Name }

// Run opens the database and serves until ctx is done.
func (r *Registry) Run(ctx context.Context, ready func()) error {
	if r.started.Swap(true) {
		return fmt.Errorf("registry: Run was called twice")
	}
	r.say(false, "connecting to PostgreSQL")
	s := r.service
	db, err := openDatabase(ctx, s.databaseURL, s.settings, s.lineage.set)
	if err != nil {
		r.say(false, "no database: "+err.Error())
		return fmt.Errorf("registry: %w", err)
	}
	defer db.close()
	whois, err := s.listenWhois(ctx)
	if err != nil {
		r.say(false, err.Error())
		return fmt.Errorf("registry: %w", err)
	}
	s.db.Store(db)
	defer s.db.Store(nil)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return s.wake.run(ctx) })
	work.Go(func() error { return s.maintain(ctx) })
	work.Go(func() error { return s.jobs.run(ctx) })
	if whois != nil {
		work.Go(func() error { return s.serveWhois(ctx, whois) })
	}
	r.say(true, "")
	ready()
	err = work.Wait()
	r.say(false, "stopped")
	if ctx.Err() != nil && err == ctx.Err() {
		return nil
	}
	return err
}

// Status implements module.Module.
func (r *Registry) Status() module.Status {
	status := *r.status.Load()
	status.Detail = map[string]any{"lineage": r.service.lineage.get()}
	if address := r.service.whoisAddress.get(); address != "" {
		status.Detail["whois_address"] = address
	}
	if trouble := r.service.trouble.get(); status.Ready && trouble != "" {
		status.Reason = trouble
	}
	return status
}

func (r *Registry) say(ready bool, reason string) {
	r.status.Store(&module.Status{Ready: ready, Reason: reason, Since: r.service.clock()})
}

// Routes implements module.Server.
func (r *Registry) Routes() []string {
	return []string{"/v1/", "/openapi.json", "/docs", "/rdap", "/rdap/"}
}

// ServeHTTP implements module.Server.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.service.ServeHTTP(w, req) }

// starting is what requests are told before Run has opened the database.
func starting() *problem.Error {
	return problem.New(problem.Unavailable, "the Registry is starting or stopping: try again in a moment")
}
