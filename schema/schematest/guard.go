package schematest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hubn/app/embedded"
)

const (
	// guardEnv asks a test binary to be the guard of a server's folder.
	guardEnv = "HUBN_SCHEMATEST_GUARD"
	// lingerEnv is how long it waits for another user.
	lingerEnv = "HUBN_SCHEMATEST_LINGER"
	// usersLock is held, shared, by every process that uses the server; the kernel
	// frees it when the process is gone, also when it was killed.
	usersLock = "users.lock"
	urlFile   = "url"
	// linger keeps the server between two packages of a run, while the next
	// one is still being linked.
	linger = 15 * time.Second
	// readyDescriptor is the pipe on which the guard says where the server is:
	// the first of exec.Cmd's ExtraFiles.
	readyDescriptor = 3
)

// testSettings trade what a crash would cost for speed: the data is thrown away.
var testSettings = map[string]string{
	"fsync":            "off",
	"full_page_writes": "off",
	// Several packages at once, with several modules' pools each.
	"max_connections": "400",
	// Clones are written to the log: no checkpoint in the middle of a test.
	"max_wal_size":       "4GB",
	"checkpoint_timeout": "1h",
}

// A test binary is also the guard: nothing else is sure to be installed. init,
// because TestMain belongs to the packages that use this one.
func init() {
	dir := os.Getenv(guardEnv)
	if dir == "" {
		return
	}
	pause, err := time.ParseDuration(os.Getenv(lingerEnv))
	if err == nil {
		err = guard(dir, pause)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// guard runs the server until no process uses it any more.
func guard(dir string, linger time.Duration) error {
	ctx := context.Background()
	data := filepath.Join(dir, "data")
	// What a killed guard left: embedded stops a server on it before it reuses
	// the folder, but a cluster that was cut off with fsync off is not to be trusted.
	if err := removeCluster(ctx, data); err != nil {
		return err
	}
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{
		DataDir:  data,
		Settings: testSettings,
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	url := postgres.URL(embedded.Owner, "postgres")
	if err := os.WriteFile(filepath.Join(dir, urlFile), []byte(url), 0o600); err != nil {
		return err
	}
	ready := os.NewFile(readyDescriptor, "ready")
	if _, err := fmt.Fprintln(ready, url); err != nil {
		return err
	}
	if err := ready.Close(); err != nil {
		return err
	}
	users, err := waitUnused(filepath.Join(dir, usersLock), linger, postgres.Done())
	if err != nil {
		return err
	}
	defer func() { _ = users.Close() }()
	if err := os.Remove(filepath.Join(dir, urlFile)); err != nil {
		return err
	}
	if err := postgres.Stop(); err != nil {
		return err
	}
	return os.RemoveAll(data)
}

// removeCluster stops a server that may still run in the folder and removes it.
func removeCluster(ctx context.Context, data string) error {
	if _, err := os.Stat(filepath.Join(data, "postgres", "PG_VERSION")); err == nil {
		leftover, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{DataDir: data, Settings: testSettings})
		if err == nil {
			err = leftover.Stop()
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(data)
}

// waitUnused returns with the exclusive lock once nobody used the server for a
// while. A server that ends by itself is an error, after which the folder
// belongs to the next guard.
func waitUnused(path string, linger time.Duration, ended <-chan struct{}) (*os.File, error) {
	type result struct {
		users *os.File
		err   error
	}
	unused := make(chan result, 1)
	go func() {
		users, err := lockUnused(path, linger)
		unused <- result{users, err}
	}()
	select {
	case <-ended:
		return nil, errors.New("the test server ended by itself")
	case r := <-unused:
		return r.users, r.err
	}
}

func lockUnused(path string, linger time.Duration) (*os.File, error) {
	for {
		free, err := lockFile(path, syscall.LOCK_EX)
		if err != nil {
			return nil, err
		}
		// Users may come while it lingers.
		if err := free.Close(); err != nil {
			return nil, err
		}
		time.Sleep(linger)
		users, err := lockFile(path, syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return users, err
		}
	}
}
