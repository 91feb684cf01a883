package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/outbox"
	"hubn/outbox/event"
)

const (
	backlog        = 100_000
	drainWorkers   = 4
	drainRounds    = 5
	drainLimit     = 2 * time.Minute
	naiveStuckTime = 10 * time.Second
	// stuckBytes is above what the measured worker is told to publish.
	stuckBytes   = 4000
	largestEvent = 2000
)

var benchNames = event.Names{Prefix: "bench"}

// fills make the same backlog for both outboxes: HubN's through the function that
// its triggers call.
var fills = map[string]string{
	"plain": `
		DO $$
		BEGIN
		  FOR round IN 1..10 LOOP
		    PERFORM registry.outbox_append('prefix', array_agg(i::text), array_agg('changed'::text),
		                                   array_agg('{"changed": ["origin"]}'::jsonb))
		    FROM generate_series(1, 10000) i;
		    INSERT INTO naive.event (agg_type, agg_key, kind, payload)
		    SELECT 'prefix', i::text, 'changed', '{"changed": ["origin"]}'
		    FROM generate_series(1, 10000) i;
		    COMMIT;
		  END LOOP;
		END $$`,
	"single": `
		DO $$
		BEGIN
		  FOR round IN 0..9 LOOP
		    PERFORM registry.outbox_append('prefix', array_agg(i::text), array_agg('changed'::text),
		                                   array_agg('{"changed": ["origin"]}'::jsonb))
		    FROM generate_series(round * 10000 + 1, round * 10000 + 10000) i;
		    INSERT INTO naive.event (agg_type, agg_key, kind, payload)
		    SELECT 'prefix', i::text, 'changed', '{"changed": ["origin"]}'
		    FROM generate_series(round * 10000 + 1, round * 10000 + 10000) i;
		    COMMIT;
		  END LOOP;
		END $$`,
}

// stuckSQL puts 100,000 events of one aggregate in front, the first of which
// cannot be published.
const stuckSQL = `
	DO $$
	BEGIN
	  PERFORM registry.outbox_append('prefix', ARRAY['0'], ARRAY['changed'],
	                                 ARRAY[jsonb_build_object('changed', repeat('x', %d))]);
	  INSERT INTO naive.event (agg_type, agg_key, kind, payload, next_at)
	  VALUES ('prefix', '0', 'changed', '{"changed": ["origin"]}', 'infinity');
	  FOR i IN 2..%d LOOP
	    PERFORM registry.outbox_append('prefix', ARRAY['0'], ARRAY['changed'], ARRAY['{"changed": ["origin"]}'::jsonb]);
	    IF i %% 100 = 0 THEN COMMIT; END IF;
	  END LOOP;
	  INSERT INTO naive.event (agg_type, agg_key, kind, payload)
	  SELECT 'prefix', '0', 'changed', '{"changed": ["origin"]}'
	  FROM generate_series(2, %[2]d);
	END $$`

// scenario is one way to drain.
type scenario struct {
	name, template string
	// snapshot holds an old snapshot open meanwhile.
	snapshot bool
	// naiveLimit bounds the reference where it would take hours.
	naiveLimit time.Duration
	rounds     int
	// plain measures the plain scenario beside it.
	plain bool
}

// rates are what the rounds of a scenario gave, in rows per second. What is
// compared was measured one right after the other, so that a machine that is
// busy for a while favours neither.
type rates struct{ own, naive, plain []float64 }

// ratio is the median of the rounds' ratios.
func ratio(own, reference []float64) float64 {
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = own[i] / reference[i]
	}
	return median(ratios)
}

func measureDrains(ctx context.Context, b *bench, s *servers) error {
	if err := makeTemplates(ctx, s); err != nil {
		return err
	}
	for _, sc := range []scenario{
		{name: "plain", template: "plain", naiveLimit: drainLimit, rounds: drainRounds},
		{name: "stuck", template: "stuck", naiveLimit: naiveStuckTime, rounds: 3, plain: true},
		{name: "snapshot", template: "plain", snapshot: true, naiveLimit: drainLimit, rounds: 3},
		{name: "single", template: "single", naiveLimit: drainLimit, rounds: drainRounds},
		// The same once PostgreSQL has looked at the backlog, as it does by itself
		// after a minute: the naive claim has a better plan then.
		{name: "plain_analyzed", template: "plain_analyzed", naiveLimit: drainLimit, rounds: 3},
		{name: "single_analyzed", template: "single_analyzed", naiveLimit: drainLimit, rounds: 3},
	} {
		r := &rates{}
		for round := range sc.rounds {
			if err := r.measure(ctx, s, sc, round%2 == 1); err != nil {
				return fmt.Errorf("%s: %w", sc.name, err)
			}
		}
		b.compared("outbox_drain_"+sc.name, median(r.own), "rows/s", ratio(r.own, r.naive), "naive")
		if sc.plain {
			b.compared("outbox_drain_"+sc.name+"_own", median(r.own), "rows/s", ratio(r.own, r.plain), "own_plain")
		}
	}
	return nil
}

func makeTemplates(ctx context.Context, s *servers) error {
	if err := s.migrated(ctx, "empty"); err != nil {
		return err
	}
	if err := execute(ctx, s, "empty", naiveSchema); err != nil {
		return err
	}
	stuck := fmt.Sprintf(stuckSQL, stuckBytes, backlog)
	for name, sql := range map[string][]string{
		"plain":  {fills["plain"]},
		"single": {fills["single"]},
		"stuck":  {stuck, fills["plain"]},

		"plain_analyzed":  {fills["plain"], `ANALYZE`},
		"single_analyzed": {fills["single"], `ANALYZE`},
	} {
		progress("making the backlog %s", name)
		if err := s.admin(ctx, `CREATE DATABASE `+name+` TEMPLATE empty`); err != nil {
			return err
		}
		for _, statement := range sql {
			if err := execute(ctx, s, name, statement); err != nil {
				return fmt.Errorf("make the backlog %s: %w", name, err)
			}
		}
	}
	return nil
}

func execute(ctx context.Context, s *servers, database, sql string) error {
	conn, err := pgx.Connect(ctx, s.url(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// measure runs both outboxes once, in an order that alternates.
func (r *rates) measure(ctx context.Context, s *servers, sc scenario, ownFirst bool) error {
	measureNaive := func() error {
		rate, err := drainOnce(ctx, s, sc, func(pool *pgxpool.Pool, _ string) (int64, time.Duration, error) {
			return naiveDrain(ctx, pool, s.redis, drainWorkers, backlog, sc.naiveLimit)
		})
		r.naive = append(r.naive, rate)
		progress("%s: naive %.0f rows/s", sc.name, rate)
		return err
	}
	own := func(sc scenario) (float64, error) {
		rate, err := drainOnce(ctx, s, sc, func(_ *pgxpool.Pool, url string) (int64, time.Duration, error) {
			took, err := ownDrain(ctx, s, url)
			return backlog, took, err
		})
		progress("%s: own %.0f rows/s", sc.name, rate)
		return rate, err
	}
	measureOwn := func() error {
		rate, err := own(sc)
		r.own = append(r.own, rate)
		if err != nil || !sc.plain {
			return err
		}
		rate, err = own(scenario{name: "plain beside it", template: "plain"})
		r.plain = append(r.plain, rate)
		return err
	}
	if ownFirst {
		return errors.Join(measureOwn(), measureNaive())
	}
	return errors.Join(measureNaive(), measureOwn())
}

// drainOnce prepares a copy of the scenario's database and an empty Redis.
func drainOnce(ctx context.Context, s *servers, sc scenario, drain func(*pgxpool.Pool, string) (int64, time.Duration, error)) (float64, error) {
	name, err := s.copied(ctx, sc.template)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.drop(context.WithoutCancel(ctx), name) }()
	if err := s.redis.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	pool, err := s.pool(ctx, name, drainWorkers+1)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	if err := execute(ctx, s, name, `CHECKPOINT`); err != nil {
		return 0, err
	}
	if sc.snapshot {
		tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, `SELECT count(*) FROM registry.outbox_stream`); err != nil {
			return 0, err
		}
	}
	rows, took, err := drain(pool, s.url(name))
	return float64(rows) / took.Seconds(), err
}

// ownDrain runs the worker, and measures from when it is ready until the backlog
// is in Redis and acknowledged.
func ownDrain(ctx context.Context, s *servers, url string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	begun, stop, err := startWorker(ctx, s, url, drainWorkers)
	if err != nil {
		return 0, err
	}
	defer stop()
	for published(ctx, s) < backlog+event.Streams {
		if !pause(ctx, 5*time.Millisecond) {
			return 0, fmt.Errorf("only %d of %d events are published after %s", published(context.WithoutCancel(ctx), s), backlog, drainLimit)
		}
	}
	const sql = `SELECT count(*) FROM registry.outbox_lane WHERE ready_at IS NOT NULL AND agg_key <> '0'`
	for left := 1; left > 0; {
		if err := conn.QueryRow(ctx, sql).Scan(&left); err != nil {
			return 0, err
		}
		pause(ctx, time.Millisecond)
	}
	return time.Since(begun), nil
}

// pause waits and answers whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// startWorker runs the outbox module as hubn does, and answers when it was ready.
func startWorker(ctx context.Context, s *servers, url string, workers int) (begun time.Time, stop func(), err error) {
	settings := outbox.DefaultSettings()
	settings.Workers = workers
	settings.MaxEventBytes = largestEvent
	w := outbox.New(outbox.Options{Settings: settings, DatabaseURL: url, Redis: s.redis, Names: benchNames})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	ready := make(chan time.Time, 1)
	go func() { done <- w.Run(ctx, func() { ready <- time.Now() }) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			progress("the worker ended with %v", err)
		}
	}
	select {
	case begun = <-ready:
		return begun, stop, nil
	case err := <-done:
		cancel()
		return begun, nil, fmt.Errorf("the worker ended before it was ready: %w", err)
	}
}

// published counts the entries of all streams; those that begin an epoch are among them.
func published(ctx context.Context, s *servers) (n int64) {
	lengths, err := s.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for no := range event.Streams {
			pipe.XLen(ctx, benchNames.Stream(no))
		}
		return nil
	})
	if err != nil {
		return 0
	}
	for _, length := range lengths {
		n += length.(*redis.IntCmd).Val()
	}
	return n
}
