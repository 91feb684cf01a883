package eventtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func get(t *testing.T, s *Redis, key string) string {
	t.Helper()
	value, err := s.Client().Get(context.Background(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	return value
}

func set(t *testing.T, s *Redis, key, value string) {
	t.Helper()
	if err := s.Client().Set(context.Background(), key, value, 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

func TestServerKeepsDataOverRestartAndKill(t *testing.T) {
	s := Server(t)
	set(t, s, "a", "1")
	s.Restart()
	if got := get(t, s, "a"); got != "1" {
		t.Errorf("after a restart: got %q, want 1", got)
	}
	set(t, s, "a", "2")
	s.Kill()
	s.Start()
	if got := get(t, s, "a"); got != "2" {
		t.Errorf("after a kill: got %q, want 2", got)
	}
}

func TestServerForgetsAndGoesBack(t *testing.T) {
	s := Server(t)
	set(t, s, "a", "old")
	before := s.Copy()
	set(t, s, "a", "new")
	s.Restore(before)
	if got := get(t, s, "a"); got != "old" {
		t.Errorf("after a restore: got %q, want old", got)
	}
	s.Flush()
	if got := get(t, s, "a"); got != "" {
		t.Errorf("after a flush: got %q, want nothing", got)
	}
	set(t, s, "a", "again")
	s.RestartEmpty()
	if got := get(t, s, "a"); got != "" {
		t.Errorf("after an empty restart: got %q, want nothing", got)
	}
}

func TestReplicaThatWasCutOffLacksTheTail(t *testing.T) {
	primary := Server(t)
	set(t, primary, "a", "1")
	replica := primary.Replica()
	replica.CutOff()
	set(t, primary, "a", "2")
	replica.Promote()
	replica.TakeOver(primary)
	if got := get(t, replica, "a"); got != "1" {
		t.Errorf("promoted replica: got %q, want 1", got)
	}
	set(t, replica, "a", "3")
}

func TestFrozenServerDoesNotAnswer(t *testing.T) {
	s := Server(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 50 * time.Millisecond})
	defer func() { _ = c.Close() }()
	if err := c.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Freeze()
	if err := c.Ping(context.Background()).Err(); err == nil {
		t.Error("a frozen server answered")
	}
	s.Thaw()
	Eventually(t, "the thawed server answers", func() bool { return c.Ping(context.Background()).Err() == nil })
}

func TestProxyCutsAndSwallows(t *testing.T) {
	s := Server(t)
	p := s.Proxy()
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: 50 * time.Millisecond})
	defer func() { _ = c.Close() }()
	if err := c.Set(context.Background(), "a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.Mute(true)
	if err := c.Set(context.Background(), "a", "2", 0).Err(); err == nil {
		t.Error("an answer came through a muted relay")
	}
	if got := get(t, s, "a"); got != "2" {
		t.Errorf("the command did not reach the server: got %q, want 2", got)
	}
	p.Mute(false)
	p.Cut()
	Eventually(t, "new connections pass", func() bool { return c.Ping(context.Background()).Err() == nil })
}

func TestInProcessKeysExpire(t *testing.T) {
	_, c := InProcess(t)
	if err := c.Set(context.Background(), "a", "1", 60*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the key has expired", func() bool {
		return errors.Is(c.Get(context.Background(), "a").Err(), redis.Nil)
	})
}
