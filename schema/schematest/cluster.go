package schematest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/app/embedded"
)

// clusterSettings leave fsync off but keep what replication and recovery need.
var clusterSettings = map[string]string{
	"fsync":           "off",
	"max_connections": "200",
	"wal_level":       "replica",
	// A standby must find what the primary wrote before it connected.
	"wal_keep_size": "256MB",
}

// Cluster is a PostgreSQL server of one test, which it may stop, restart, copy
// and promote. Its database is migrated. It is stopped and removed when the
// test ends.
type Cluster struct {
	dir     string
	run     *embedded.Postgres // nil while it is stopped
	data    string             // the cluster's own folder, once it was started
	url     func(role, database string) string
	bindir  string
	account *syscall.Credential
}

// StartCluster is a new server with a migrated database.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := newCluster(t)
	c.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	if err := migrate(ctx, c.URL("")); err != nil {
		t.Fatalf("schematest: %v", err)
	}
	return c
}

// newCluster is a server without a data folder yet.
func newCluster(t testing.TB) *Cluster {
	t.Helper()
	bindir, err := embedded.FindPostgres()
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	account, err := embedded.Credential()
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	c := &Cluster{dir: reachableDir(t), bindir: bindir, account: account}
	t.Cleanup(func() { c.Stop(t) })
	return c
}

// reachableDir is a folder that the database's user can enter; t.TempDir is not.
func reachableDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubn-cluster-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Start starts a stopped server; it is at the same URL as before.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	run, err := embedded.StartPostgres(context.Background(), embedded.PostgresOptions{DataDir: c.dir, Settings: clusterSettings})
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	c.run, c.url, c.data = run, run.URL, run.Dir()
}

// Stop is a fast shutdown: sessions are cut off, what they committed stays.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	if c.run == nil {
		return
	}
	if err := c.run.Stop(); err != nil {
		t.Errorf("schematest: %v", err)
	}
	c.run = nil
}

// Crash is an immediate shutdown, as after a loss of power: the next start recovers.
func (c *Cluster) Crash(t testing.TB) {
	t.Helper()
	pidFile, err := os.ReadFile(filepath.Join(c.run.Dir(), "postmaster.pid"))
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	first, _, _ := strings.Cut(string(pidFile), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		t.Fatalf("schematest: %v", err)
	}
	<-c.run.Done()
	c.Stop(t)
}

// Restart stops and starts the server.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	c.Stop(t)
	c.Start(t)
}

// URL is the database's URL for a role; empty is the owner.
func (c *Cluster) URL(role string) string {
	if role == "" {
		role = embedded.Owner
	}
	return c.url(role, embedded.Database)
}

// Pool is a pool of connections as a role, closed when the test ends.
func (c *Cluster) Pool(t testing.TB, role string) *pgxpool.Pool {
	t.Helper()
	return pool(t, c.URL(role))
}

// Conn is one connection as a role, closed when the test ends.
func (c *Cluster) Conn(t testing.TB, role string) *pgx.Conn {
	t.Helper()
	return conn(t, c.URL(role))
}

// Exec runs SQL as the owner.
func (c *Cluster) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	execute(t, c.URL(""), sql, args...)
}

// Standby is a new server that follows this one by streaming replication.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	s := newCluster(t)
	// pg_basebackup runs as the database's user, which owns a folder of its own.
	target := filepath.Join(s.dir, "postgres")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if c.account != nil {
		if err := os.Chown(target, int(c.account.Uid), int(c.account.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	c.program(t, "pg_basebackup", "--dbname="+c.url(embedded.Owner, "postgres"), "--pgdata="+target,
		"--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	s.Start(t)
	return s
}

// WaitCaughtUp waits until the standby has replayed all that the primary has
// written so far.
func (c *Cluster) WaitCaughtUp(t testing.TB, primary *Cluster) {
	t.Helper()
	var lsn string
	if err := primary.Conn(t, "").QueryRow(t.Context(), `SELECT pg_current_wal_flush_lsn()`).Scan(&lsn); err != nil {
		t.Fatalf("schematest: %v", err)
	}
	standby := c.Conn(t, "")
	waitFor(t, "the standby to replay "+lsn, func() bool {
		var done bool
		err := standby.QueryRow(t.Context(), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, lsn).Scan(&done)
		return err == nil && done
	})
}

// CutOff separates a standby from its primary: what the primary writes from now
// on does not reach it.
func (c *Cluster) CutOff(t testing.TB) {
	t.Helper()
	c.Exec(t, `ALTER SYSTEM SET primary_conninfo = ''`)
	c.Exec(t, `SELECT pg_reload_conf()`)
	standby := c.Conn(t, "")
	waitFor(t, "the standby to stop receiving", func() bool {
		var receiving bool
		err := standby.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)`).Scan(&receiving)
		return err == nil && !receiving
	})
}

// Promote makes a standby a primary, on a timeline of its own.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.Exec(t, `SELECT pg_promote(true, 60)`)
}

// Dump writes the database with pg_dump and returns the file.
func (c *Cluster) Dump(t testing.TB) string {
	t.Helper()
	file := filepath.Join(c.scratch(t), "dump")
	c.program(t, "pg_dump", "--format=custom", "--file="+file, "--dbname="+c.URL(""))
	return file
}

// Restore replaces the database by a dump's content, as an operator does it:
// dropdb, createdb, pg_restore. Sessions on the old database are cut off.
func (c *Cluster) Restore(t testing.TB, dump string) {
	t.Helper()
	maintenance := "--maintenance-db=" + c.url(embedded.Owner, "postgres")
	c.program(t, "dropdb", maintenance, "--force", "--if-exists", embedded.Database)
	c.program(t, "createdb", maintenance, embedded.Database)
	c.program(t, "pg_restore", "--exit-on-error", "--dbname="+c.URL(""), dump)
}

// RestoreElsewhere restores a dump on a new server, where the roles exist but
// nothing else does.
func RestoreElsewhere(t testing.TB, dump string) *Cluster {
	t.Helper()
	c := StartCluster(t)
	c.Restore(t, dump)
	return c
}

// Copy copies the data folder of a stopped server, as a snapshot of its volume does.
func (c *Cluster) Copy(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(reachableDir(t), "data")
	copyFolder(t, c.data, dir)
	return dir
}

// Rewind puts an earlier copy of the data folder in the place of the stopped
// server's. Nothing about the cluster tells that this happened.
func (c *Cluster) Rewind(t testing.TB, from string) {
	t.Helper()
	if err := os.RemoveAll(c.data); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, from, c.data)
}

// copyFolder copies a folder with its owners and modes.
func copyFolder(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-Rp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("schematest: copy %s: %v: %s", from, err, out)
	}
}

// scratch is a folder that the database's user may write to.
func (c *Cluster) scratch(t testing.TB) string {
	t.Helper()
	dir := reachableDir(t)
	if c.account != nil {
		if err := os.Chown(dir, int(c.account.Uid), int(c.account.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// program runs a program of PostgreSQL as the database's user.
func (c *Cluster) program(t testing.TB, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bindir, name), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.account}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("schematest: %s: %v", name, errors.Join(err, fmt.Errorf("%s", out)))
	}
}

// waitFor waits for a condition that another process brings about.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("schematest: waited 30 s for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
