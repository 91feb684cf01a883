package embedded

import (
	"context"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func redisDo(t *testing.T, url string, args ...any) any {
	t.Helper()
	got, err := redisTry(t.Context(), url, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return got
}

func redisTry(ctx context.Context, url string, args ...any) (any, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	return client.Do(ctx, args...).Result()
}

// redisPrograms are the two kinds of embedded Redis. Where no server program is
// installed, the first is the second.
var redisPrograms = map[string]string{"server": "", "in process": InProcess}

func TestRedisTakesNobodyWithoutThePassword(t *testing.T) {
	for name, program := range redisPrograms {
		t.Run(name, func(t *testing.T) {
			r := startTestRedis(t, RedisOptions{DataDir: reachableDir(t), Program: program})
			redisDo(t, r.URL(), "SET", "k", "v")
			_, err := redisTry(t.Context(), "redis://127.0.0.1:"+strconv.Itoa(r.Port())+"/0", "GET", "k")
			if err == nil || !strings.Contains(err.Error(), "NOAUTH") {
				t.Errorf("without the password: got %v, want NOAUTH", err)
			}
		})
	}
}

func TestRedisKeysExpire(t *testing.T) {
	for name, program := range redisPrograms {
		t.Run(name, func(t *testing.T) {
			r := startTestRedis(t, RedisOptions{DataDir: reachableDir(t), Program: program})
			redisDo(t, r.URL(), "SET", "k", "v", "PX", 50)
			for begun := time.Now(); redisDo(t, r.URL(), "EXISTS", "k") != int64(0); {
				if time.Since(begun) > 10*time.Second {
					t.Fatal("a key of 50 ms is there after 10 s")
				}
				<-time.After(pollEvery)
			}
		})
	}
}

func TestRedisTakesAnotherPortWhenItsOwnIsInUse(t *testing.T) {
	for name, program := range redisPrograms {
		t.Run(name, func(t *testing.T) {
			other, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Close() }()
			taken := other.Addr().(*net.TCPAddr).Port
			r := startTestRedis(t, RedisOptions{DataDir: reachableDir(t), Program: program, Port: taken})
			if r.Port() == taken || r.Port() == 0 {
				t.Errorf("port: got %d, want another than %d", r.Port(), taken)
			}
		})
	}
}

func TestRedisServerKeepsStreamsAndNeverEvicts(t *testing.T) {
	dir := reachableDir(t)
	first := startTestRedis(t, RedisOptions{DataDir: dir})
	if !first.Durable() {
		return // no server program here: TestRedisInProcessForgets holds instead
	}
	redisDo(t, first.URL(), "XADD", "stream", "1-1", "k", "v")
	for name, want := range map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"} {
		if got := redisDo(t, first.URL(), "CONFIG", "GET", name).(map[any]any)[name]; got != want {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
	for range 2 { // stopping twice is safe
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	second := startTestRedis(t, RedisOptions{DataDir: dir, Port: first.Port()})
	if second.URL() != first.URL() {
		t.Errorf("the URL changed from start to start: got %s, want %s", second.URL(), first.URL())
	}
	if got := redisDo(t, second.URL(), "XLEN", "stream"); got != int64(1) {
		t.Errorf("stream length after a restart: got %v, want 1", got)
	}
}

func TestRedisInProcessForgets(t *testing.T) {
	first := startTestRedis(t, RedisOptions{Program: InProcess})
	redisDo(t, first.URL(), "SET", "k", "v")
	if first.Durable() {
		t.Error("a Redis inside of the process calls itself durable")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	second := startTestRedis(t, RedisOptions{Program: InProcess, Port: first.Port()})
	if got := redisDo(t, second.URL(), "EXISTS", "k"); got != int64(0) {
		t.Errorf("the key is there after a restart")
	}
	if second.Port() != first.Port() {
		t.Errorf("port: got %d, want %d again", second.Port(), first.Port())
	}
}

func TestLeftoverRedisIsStoppedAndReplaced(t *testing.T) {
	dir := reachableDir(t)
	leftover := startTestRedis(t, RedisOptions{DataDir: dir})
	if !leftover.Durable() {
		return // a server in the process ends with it
	}
	redisDo(t, leftover.URL(), "SET", "k", "v")
	leftover.lock.Unlock()
	r := startTestRedis(t, RedisOptions{DataDir: dir, Port: leftover.Port()})
	<-leftover.Done()
	if r.Port() != leftover.Port() {
		t.Errorf("port: got %d, want %d again", r.Port(), leftover.Port())
	}
	if got := redisDo(t, r.URL(), "GET", "k"); got != "v" {
		t.Errorf("the leftover's data: got %v, want v", got)
	}
}

func TestDeadRedisSaysSo(t *testing.T) {
	r := startTestRedis(t, RedisOptions{DataDir: reachableDir(t)})
	if !r.Durable() {
		return // a server in the process cannot die alone
	}
	if err := syscall.Kill(r.child.process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Err: got %v, want one that says killed", err)
	}
}
