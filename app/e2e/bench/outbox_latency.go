package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
)

const (
	latencyRate     = 50 // changes per second
	latencySamples  = 1000
	latencyWarmUp   = 50
	latencyPrefixes = 1000
	latencyLimit    = time.Minute
)

// makePrefixes puts /24s in 10.0.0.0/8, each with an origin.
const makePrefixes = `
	INSERT INTO registry.prefix (prefix, origin_asn, announced)
	SELECT set_masklen(('10.0.0.0'::inet + i * 256)::cidr, 24), 64496, true
	FROM generate_series(0, $1::integer - 1) i`

// change is one committed version and when its COMMIT was sent.
type change struct {
	resource string
	version  int64
	at       time.Time
}

func (c change) key() string { return c.resource + "@" + strconv.FormatInt(c.version, 10) }

func measureLatency(ctx context.Context, b *bench, s *servers) error {
	together, err := latencies(ctx, s, func(ctx context.Context, url string, tell func(change)) error {
		// The API's way: a hint after each commit, the first at once, at most one in 20 ms.
		var last time.Time
		return writeChanges(ctx, url, func(c change) error {
			tell(c)
			if time.Since(last) < 20*time.Millisecond {
				return nil
			}
			last = time.Now()
			return s.redis.Publish(ctx, benchNames.Wake(), "").Err()
		})
	})
	if err != nil {
		return err
	}
	b.figure("outbox_latency_p50", percentile(together, 0.50), "ms")
	b.figure("outbox_latency_p99", percentile(together, 0.99), "ms")
	// Another process, by plain SQL and without hints: the poll has to find it.
	apart, err := latencies(ctx, s, writeInOtherProcess)
	if err != nil {
		return err
	}
	b.figure("outbox_latency_p99_split", percentile(apart, 0.99), "ms")
	return nil
}

// latencies measures, in milliseconds, from sending COMMIT until a reader of the
// streams has the event, while write makes changes and tells of each.
func latencies(ctx context.Context, s *servers, write func(context.Context, string, func(change)) error) ([]float64, error) {
	name, err := s.copied(ctx, "empty")
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.drop(context.WithoutCancel(ctx), name) }()
	if err := s.redis.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, makePrefixes, latencyPrefixes); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, latencyLimit)
	defer cancel()
	_, stop, err := startWorker(ctx, s, s.url(name), 2)
	if err != nil {
		return nil, err
	}
	defer stop()
	for published(ctx, s) < latencyPrefixes+event.Streams {
		if ctx.Err() != nil {
			return nil, errors.New("the worker did not publish the first versions")
		}
		pause(ctx, 10*time.Millisecond)
	}
	m := &matcher{sent: map[string]time.Time{}, got: map[string]time.Time{}, all: make(chan struct{})}
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	reader := make(chan error, 1)
	go func() { reader <- m.read(reading, s) }()
	if err := write(ctx, s.url(name), m.tell); err != nil {
		return nil, err
	}
	select {
	case <-m.all:
	case err := <-reader:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("only %d of %d changes were read after %s", len(m.latencies), latencySamples, latencyLimit)
	}
	return m.latencies[latencyWarmUp:], nil
}

// matcher pairs commits with what a reader got, in whatever order it learns of them.
type matcher struct {
	mu        sync.Mutex
	sent, got map[string]time.Time
	latencies []float64
	all       chan struct{}
}

func (m *matcher) tell(c change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[c.key()] = c.at
	m.match(c.key())
}

func (m *matcher) received(key string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got[key] = at
	m.match(key)
}

func (m *matcher) match(key string) {
	sent, wasSent := m.sent[key]
	got, wasGot := m.got[key]
	if !wasSent || !wasGot {
		return
	}
	m.latencies = append(m.latencies, float64(got.Sub(sent))/float64(time.Millisecond))
	if len(m.latencies) == latencySamples {
		close(m.all)
	}
}

// read follows every stream from its end.
func (m *matcher) read(ctx context.Context, s *servers) error {
	options := *s.redis.Options()
	client := redis.NewClient(&options)
	defer func() { _ = client.Close() }()
	positions := make([]string, 0, 2*event.Streams)
	for no := range event.Streams {
		positions = append(positions, benchNames.Stream(no))
	}
	for range event.Streams {
		positions = append(positions, "0")
	}
	for ctx.Err() == nil {
		streams, err := client.XRead(ctx, &redis.XReadArgs{Streams: positions, Block: 500 * time.Millisecond}).Result()
		at := time.Now()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		for _, stream := range streams {
			no := indexOf(positions, stream.Stream)
			for _, entry := range stream.Messages {
				positions[event.Streams+no] = entry.ID
				if e, err := event.Parse(no, entry.Values); err == nil && e.Version > 1 {
					m.received(change{resource: e.Resource.String(), version: e.Version}.key(), at)
				}
			}
		}
	}
	return ctx.Err()
}

func indexOf(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return 0
}

// writeChanges changes one prefix after the other, by single transactions at the
// rate, and tells of each once it is committed.
func writeChanges(ctx context.Context, url string, tell func(change) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `SELECT id FROM registry.prefix ORDER BY id`)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / latencyRate)
	defer tick.Stop()
	for i := range latencySamples {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		id := ids[i%len(ids)]
		if _, err := tx.Exec(ctx, `UPDATE registry.prefix SET origin_asn = origin_asn + 1 WHERE id = $1`, id); err != nil {
			return err
		}
		c := change{resource: "prefix:" + strconv.FormatInt(id, 10), version: int64(2 + i/len(ids)), at: time.Now()}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		if err := tell(c); err != nil {
			return err
		}
	}
	return nil
}

// writeInOtherProcess runs writeFromElsewhere and passes on what it tells.
func writeInOtherProcess(ctx context.Context, url string, tell func(change)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "outbox-writer", url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := hear(out, tell); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	return cmd.Wait()
}

// hear reads "resource version nanoseconds" lines.
func hear(from io.Reader, tell func(change)) error {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return fmt.Errorf("the writer says %q", lines.Text())
		}
		version, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return err
		}
		at, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return err
		}
		tell(change{resource: fields[0], version: version, at: time.Unix(0, at)})
	}
	return lines.Err()
}

// writeFromElsewhere is the writer's process; both are on one machine, so that
// their clocks are one.
func writeFromElsewhere(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("outbox-writer takes the database's URL")
	}
	return writeChanges(ctx, args[0], func(c change) error {
		_, err := fmt.Printf("%s %d %d\n", c.resource, c.version, c.at.UnixNano())
		return err
	})
}
