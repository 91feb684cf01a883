package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// InProcess as RedisOptions.Program asks for the server inside of hubn.
const InProcess = "in-process"

// loopback is where an embedded Redis listens: on TCP, since not every client
// takes a Unix socket, and with a password, since TCP is open to every user of
// the machine.
const loopback = "127.0.0.1"

// RedisOptions say where and how Redis runs. Only DataDir must be set.
type RedisOptions struct {
	// DataDir is hubn's data folder. The append-only file is in its subfolder
	// redis, or under /var/lib/hubn where its user cannot reach that.
	DataDir string
	// Program is redis-server or valkey-server; empty: the first one found,
	// else the server inside of hubn, which InProcess asks for.
	Program string
	// User is whom it runs as when hubn is root; empty: Credential.
	User string
	// Port is the TCP port that it had before; when it is 0 or in use, a free
	// one is taken.
	Port int
	// Log takes the server's own lines at debug level, its warnings as such,
	// and what a person should know.
	Log *slog.Logger
}

// Redis is one run of an embedded Redis.
type Redis struct {
	url     string
	port    int
	lock    *FolderLock
	child   *child
	process *inProcess
}

// StartRedis starts Redis on the data folder and returns when it answers.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	r, err := startRedis(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	return r, nil
}

func startRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Program == "" {
		o.Program = findRedis()
	}
	if o.Program == "" {
		o.Log.Info("no redis-server or valkey-server in PATH: Redis runs inside of hubn and forgets its streams when hubn ends; consumers then scan again")
	}
	if o.Program == "" || o.Program == InProcess {
		return startInProcess(o.Port)
	}
	credential, err := CredentialOf(o.User)
	if err != nil {
		return nil, err
	}
	if !canReach(o.Program, "/", credential) {
		return nil, fmt.Errorf("%s cannot be run by %s", o.Program, accountName(credential))
	}
	where, err := findPlace(o.DataDir, "redis", o.Program, credential)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(where.dir), 0o755); err != nil {
		return nil, err
	}
	r := &Redis{}
	if r.lock, err = LockFolder(where.dir + ".lock"); err != nil {
		return nil, err
	}
	if err := r.start(ctx, o, where, credential); err != nil {
		r.lock.Unlock()
		return nil, err
	}
	return r, nil
}

// start does what needs the folder's lock.
func (r *Redis) start(ctx context.Context, o RedisOptions, where place, credential *syscall.Credential) error {
	aside, err := where.setAside(time.Now())
	if err != nil {
		return err
	}
	if aside != "" {
		o.Log.Warn("the data folder is new: the Redis data of an earlier folder of the same path is kept aside", "kept", aside)
	}
	if err := makeOwnFolder(where.dir, credential); err != nil {
		return err
	}
	if err := where.record(); err != nil {
		return err
	}
	password, err := keptPassword(where.dir + ".password")
	if err != nil {
		return err
	}
	if err := stopLeftoverRedis(ctx, o.Port, password, o.Log); err != nil {
		return err
	}
	if r.port, err = FreePort(o.Port); err != nil {
		return err
	}
	r.url = redisURL(r.port, password)
	r.child, err = startChild(command{
		program:     o.Program,
		args:        []string{"-"}, // the configuration comes on standard input: the password is in no file or argument
		stdin:       redisConfig(where.dir, r.port, password),
		credential:  credential,
		deathSignal: syscall.SIGTERM,
		level:       redisLevel,
		log:         o.Log.With("service", "redis"),
	})
	if err != nil {
		return err
	}
	if err := r.waitReady(ctx); err != nil {
		return errors.Join(err, r.Stop())
	}
	return nil
}

// redisConfig is the server's configuration.
func redisConfig(dir string, port int, password string) string {
	lines := []string{
		"bind " + loopback,
		"port " + strconv.Itoa(port),
		"requirepass " + password,
		"dir " + strconv.Quote(dir),
		"daemonize no",
		// One second of events may be lost with the machine; the outbox's audit
		// finds and publishes them again.
		"appendonly yes",
		"appendfsync everysec",
		`save ""`,
		// A stream or a fence that is evicted would be a lost event: refuse
		// writes instead, which the outbox waits out.
		"maxmemory-policy noeviction",
	}
	return strings.Join(lines, "\n") + "\n"
}

// redisLevel is how serious a line of the server's log is: Redis marks warnings
// with "#", and says several ordinary things so while it starts and stops.
func redisLevel(line string) slog.Level {
	if strings.Contains(line, " # ") && (strings.Contains(line, "rror") || strings.Contains(line, "ailed") || strings.Contains(line, "atal")) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// keptPassword reads the password of an earlier start, or makes one: with it
// the next start recognises a leftover server as its own.
func keptPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	if password := strings.TrimSpace(string(content)); err == nil && password != "" {
		return password, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	password := rand.Text()
	return password, os.WriteFile(path, []byte(password+"\n"), 0o600)
}

// stopLeftoverRedis stops the server that a killed hubn left on its port; that
// it takes the folder's password proves that it is ours.
func stopLeftoverRedis(ctx context.Context, port int, password string, log *slog.Logger) error {
	if port == 0 {
		return nil
	}
	for begun := time.Now(); ; {
		err := redisCommand(ctx, redisURL(port, password), "PING")
		if err != nil && !isLoading(err) {
			return nil // gone, or somebody else's
		}
		if time.Since(begun) > stopTimeout {
			return fmt.Errorf("the server that an earlier hubn left on port %d has not stopped after %s", port, stopTimeout)
		}
		log.Debug("stopping the Redis that an earlier hubn left behind", "port", port)
		_ = redisCommand(ctx, redisURL(port, password), "SHUTDOWN") // the connection ends without a reply
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// waitReady waits until the server answers; while it loads its file it answers
// LOADING, which is as good as a sign of life.
func (r *Redis) waitReady(ctx context.Context) error {
	begun, lastAnswer := time.Now(), time.Now()
	for {
		err := redisCommand(ctx, r.url, "PING")
		if err == nil {
			return nil
		}
		if isLoading(err) {
			lastAnswer = time.Now()
		}
		if time.Since(lastAnswer) > answerTimeout || time.Since(begun) > recoveryTimeout {
			return fmt.Errorf("no answer after %s: %w", time.Since(begun).Round(time.Second), err)
		}
		select {
		case <-r.child.done:
			return r.child.exited()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

func isLoading(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "LOADING") }

// redisCommand sends one command over a connection of its own.
func redisCommand(ctx context.Context, redisURL string, args ...any) error {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	options.DialTimeout, options.ReadTimeout = time.Second, 2*time.Second
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	return client.Do(ctx, args...).Err()
}

// redisURL names the user "default", since some clients refuse an empty one.
func redisURL(port int, password string) string {
	return (&url.URL{
		Scheme: "redis",
		User:   url.UserPassword("default", password),
		Host:   net.JoinHostPort(loopback, strconv.Itoa(port)),
		Path:   "/0",
	}).String()
}

// URL is where clients reach it: redis://default:PASSWORD@127.0.0.1:PORT/0.
func (r *Redis) URL() string { return r.url }

// Port is the TCP port, to be given to the next start.
func (r *Redis) Port() int { return r.port }

// Durable tells whether its data outlives hubn.
func (r *Redis) Durable() bool { return r.child != nil }

// Done closes when the server has ended, asked or not.
func (r *Redis) Done() <-chan struct{} {
	if r.process != nil {
		return r.process.done
	}
	return r.child.done
}

// Err says how the server ended; only after Done.
func (r *Redis) Err() error {
	if r.process != nil {
		return nil
	}
	return r.child.exited()
}

// Stop ends the server after it has written its file, and frees the folder. It
// may be called more than once.
func (r *Redis) Stop() error {
	if r.process != nil {
		r.process.stop()
	}
	if r.child != nil {
		if err := r.child.stop(syscall.SIGTERM); err != nil {
			return fmt.Errorf("embedded Redis: %w", err)
		}
	}
	r.lock.Unlock()
	return nil
}
