package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/app/e2e/mirror"
	"hubn/outbox"
	"hubn/outbox/event"
	"hubn/registry"
	"hubn/registry/client"
	"hubn/schema"
)

const (
	// consumed is how many events the consumer is given, each of a source of its
	// own: nothing is won by fetching one source for several events.
	consumed = 100_000
	// consumeLimit ends a run that hangs.
	consumeLimit = 5 * time.Minute
)

// consumerGroup measures how fast the example consumer takes events that wait
// in Redis: read, batch fetch over HTTP from the Registry, conditional write, and
// acknowledgement, with its reports going back to the same Registry meanwhile.
func consumerGroup(ctx context.Context, b *bench) error {
	s, err := startServers(ctx, b)
	if err != nil {
		return err
	}
	c, err := newConsumed(ctx, b, s)
	if err != nil {
		return err
	}
	progress("consumer: first scan of an empty Registry")
	// The groups are made and the first scan is done, so that what is measured
	// are events alone.
	if err := c.runMirror(ctx, func() error { return nil }); err != nil {
		return err
	}
	progress("consumer: %d prefixes", consumed)
	if err := c.fill(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := c.runMirror(ctx, func() error { return c.wait(ctx) }); err != nil {
		return err
	}
	b.figure("consumer_rate", consumed/c.done.Sub(begun).Seconds(), "events/s")
	return nil
}

// consumer is a Registry, an outbox and a mirror on servers of the benchmark's own.
type consumer struct {
	servers *servers
	pool    *pgxpool.Pool
	url     string
	api     *client.Client
	done    time.Time
}

func newConsumed(ctx context.Context, b *bench, s *servers) (*consumer, error) {
	const database = "consumer"
	if err := s.migrated(ctx, database); err != nil {
		return nil, err
	}
	c := &consumer{servers: s, url: s.url(database)}
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := schema.Migrate(ctx, conn, mirror.Set); err != nil {
		return nil, err
	}
	if c.pool, err = s.pool(ctx, database, 2); err != nil {
		return nil, err
	}
	b.atEnd(c.pool.Close)
	token := registry.StaticToken{Token: registry.NewSecret(), Name: mirror.Name, Roles: []string{"module"}, Module: mirror.Name}
	r := registry.New(registry.Options{
		Settings: registry.DefaultSettings(), DatabaseURL: c.url, Redis: s.redis, Names: benchNames, StaticTokens: []registry.StaticToken{token},
	})
	if err := start(ctx, b, "registry", r.Run); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.atEnd(func() { _ = server.Close() })
	w := outbox.New(outbox.Options{Settings: outbox.DefaultSettings(), DatabaseURL: c.url, Redis: s.redis, Names: benchNames})
	if err := start(ctx, b, "outbox", w.Run); err != nil {
		return nil, err
	}
	c.api, err = client.New(client.Options{URL: "http://" + listener.Addr().String(), Token: token.Token})
	return c, err
}

// start runs a module until the group ends, and waits until it is ready.
func start(ctx context.Context, b *bench, name string, run func(context.Context, func()) error) error {
	ctx, stop := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- run(ctx, func() { close(ready) }) }()
	b.atEnd(func() {
		stop()
		<-ended
	})
	select {
	case <-ready:
		return nil
	case err := <-ended:
		ended <- err
		return fmt.Errorf("%s did not start: %w", name, err)
	}
}

// fill makes the prefixes, in an order in which the index on siblings is quick,
// and waits until their events are in Redis.
func (c *consumer) fill(ctx context.Context) error {
	const insert = `
INSERT INTO registry.prefix (prefix, announced, origin_asn)
SELECT set_masklen(('10.0.0.0'::inet + i::bigint * 64)::cidr, 26), true, 64496 + i % 16
FROM generate_series(0, $1::integer - 1) i
ORDER BY hashint4(i)`
	if _, err := c.pool.Exec(ctx, insert, consumed); err != nil {
		return err
	}
	if err := c.until(ctx, "every event is published", `SELECT NOT EXISTS (SELECT FROM registry.outbox_lane WHERE pub_seq < last_seq)`); err != nil {
		return err
	}
	_, err := c.pool.Exec(ctx, `ANALYZE`)
	return err
}

// wait waits until everything is in the mirror and acknowledged.
func (c *consumer) wait(ctx context.Context) error {
	const all = `SELECT count(*) >= %d FROM mirror.source_version`
	if err := c.until(ctx, "every source is mirrored", fmt.Sprintf(all, consumed)); err != nil {
		return err
	}
	for {
		var waiting int64
		for no := range event.Streams {
			groups, err := c.servers.redis.XInfoGroups(ctx, benchNames.Stream(no)).Result()
			if err != nil {
				return err
			}
			for _, g := range groups {
				waiting += g.Pending + max(g.Lag, 0)
			}
		}
		if waiting == 0 {
			c.done = time.Now()
			return nil
		}
		if !breathe(ctx) {
			return ctx.Err()
		}
	}
}

func (c *consumer) until(ctx context.Context, what, sql string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, consumeLimit, errors.New("after "+consumeLimit.String()+" still not: "+what))
	defer cancel()
	for {
		var ok bool
		if err := c.pool.QueryRow(ctx, sql).Scan(&ok); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if ok {
			return nil
		}
		if !breathe(ctx) {
			return context.Cause(ctx)
		}
	}
}

// breathe is a moment in which the measured parts have the machine to themselves.
func breathe(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// runMirror runs a mirror until what is to happen has happened.
func (c *consumer) runMirror(ctx context.Context, happened func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := mirror.New(mirror.Options{
		DatabaseURL: c.url, Redis: c.servers.redis, Names: benchNames, Registry: c.api, Instance: "bench",
		Settings: event.Settings{ReconcileEvery: time.Hour},
	})
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- m.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		return fmt.Errorf("the mirror did not start: %w", err)
	}
	err := happened()
	stop()
	return errors.Join(err, <-ended)
}
