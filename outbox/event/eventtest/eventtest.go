// Package eventtest gives tests a Redis of their own: a real redis-server that
// a test can stop, kill, freeze, empty, copy, restore and replicate, or the
// server inside of the process (miniredis). It is used by tests only.
package eventtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// deadline bounds every wait of this package: a server that takes longer on a
// busy machine is not going to come.
const deadline = 30 * time.Second

// pollEvery is the pace at which a condition is looked at again.
const pollEvery = 5 * time.Millisecond

// program finds the Redis server, or skips the test; where the peers are
// required it fails.
func program(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "no redis-server or valkey-server in PATH: install one (Debian: apt-get install redis-server)"
	if os.Getenv("HUBN_PEERS") == "required" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Eventually waits until ok answers true, and fails the test with what after
// the deadline.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	EventuallyWithin(t, deadline, what, ok)
}

// EventuallyWithin is Eventually with a deadline of its own.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for begun := time.Now(); !ok(); <-ticker.C {
		if time.Since(begun) > limit {
			t.Fatalf("after %s still not: %s", limit, what)
		}
	}
}

// client makes a client that the test's end closes.
func client(t testing.TB, options *redis.Options) *redis.Client {
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// InProcess starts the Redis inside of the process and answers it with a
// client of it. Expiry follows the clock.
func InProcess(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		t.Fatalf("start miniredis: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * pollEvery)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				server.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		server.Close()
	})
	return server, client(t, &redis.Options{Addr: server.Addr()})
}

// Both runs a test on the Redis inside of the process and on a real server:
// the contract of the event path holds on either.
func Both(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		_, c := InProcess(t)
		test(t, c)
	})
	t.Run("redis-server", func(t *testing.T) {
		test(t, Server(t).Client())
	})
}
