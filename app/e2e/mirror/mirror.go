// Package mirror is a complete consumer module: a mirror of all route origins of
// the Registry in a table of its own, fed by events, reconciled, and reported.
// The end-to-end tests run it in several replicas; it shows a reader what a
// module has to write, and what package event does for it. It publishes nothing.
package mirror

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"hubn/app/module"
	"hubn/outbox/event"
	"hubn/registry/client"
	"hubn/schema"
)

// Name is the module's name.
const Name = "mirror"

// role is what the module's connections act as.
const role = "hubn_mirror"

// Kinds are the sources that state route origins.
var Kinds = []client.Kind{client.KindPrefix, client.KindAnycast}

//go:embed schema/*.sql
var files embed.FS

// Set is the module's schema.
var Set = schema.Set{Schema: "mirror", Roles: []string{role}, Files: sub()}

func sub() fs.FS {
	f, err := fs.Sub(files, "schema")
	if err != nil {
		panic(err)
	}
	return f
}

// Options are what a Mirror is made of.
type Options struct {
	// DatabaseURL is of the database that holds the schema "mirror".
	DatabaseURL string
	// MaxConnections bounds the pool; 0 means 12: one for each stream, and some
	// for the scan, the retry list and the reports.
	MaxConnections int
	Redis          redis.UniversalClient
	Names          event.Names
	Registry       *client.Client
	Instance       string
	// Address is the base URL of an HTTP address of the module's own, if it has one.
	Address  string
	Settings event.Settings
	Log      *slog.Logger
	Metrics  prometheus.Registerer
	Hooks    event.Hooks
	// Effective holds barriers back, for tests; nil: applied is effective.
	Effective func(ctx context.Context) error
}

// Mirror is one run of the module.
type Mirror struct {
	o        Options
	db       *pgxpool.Pool
	store    *event.PostgresStore
	consumer atomic.Pointer[event.Consumer]
}

var _ module.Module = (*Mirror)(nil)

// New makes a Mirror; Run starts it.
func New(o Options) *Mirror {
	if o.MaxConnections == 0 {
		o.MaxConnections = 12
	}
	return &Mirror{o: o}
}

// Name implements module.Module.
func (m *Mirror) Name() string { return Name }

// Run implements module.Module.
func (m *Mirror) Run(ctx context.Context, ready func()) error {
	pool, err := open(ctx, m.o.DatabaseURL, m.o.MaxConnections)
	if err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	defer pool.Close()
	m.db = pool
	m.store = event.NewPostgresStore(event.PostgresOptions{
		Pool: pool, Schema: Set.Schema, Prepare: m.prepare, Write: m.write, Describe: describe,
	})
	consumer, err := event.New(event.Options{
		Module: Name, Instance: m.o.Instance, Kinds: Kinds, Redis: m.o.Redis, Names: m.o.Names, Registry: m.o.Registry,
		Store: m.store, Effective: m.o.Effective, Address: m.o.Address,
		Settings: m.o.Settings, Log: m.o.Log, Metrics: m.o.Metrics, Hooks: m.o.Hooks,
	})
	if err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	m.consumer.Store(consumer)
	return consumer.Run(ctx, ready)
}

// Status implements module.Module.
func (m *Mirror) Status() module.Status {
	if c := m.consumer.Load(); c != nil {
		return c.Status()
	}
	return module.Status{Reason: "not started"}
}

// AdoptLineage lets the mirror follow a foreign lineage: an operator's decision.
func (m *Mirror) AdoptLineage(ctx context.Context, lineage string) error {
	c := m.consumer.Load()
	if c == nil {
		return fmt.Errorf("mirror: not started")
	}
	return c.AdoptLineage(ctx, lineage)
}

// Consumer is the running consumer; nil before Run.
func (m *Mirror) Consumer() *event.Consumer { return m.consumer.Load() }

func open(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the database's URL cannot be read: write postgresql://user@host/database")
	}
	config.MaxConns = int32(connections)
	config.ConnConfig.RuntimeParams["application_name"] = "hubn-mirror"
	config.ConnConfig.RuntimeParams["jit"] = "off"
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE `+role)
		return err
	}
	return pgxpool.NewWithConfig(ctx, config)
}
