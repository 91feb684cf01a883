package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// socketName is the file of the server's socket in its folder.
const socketName = ".s.PGSQL.5432"

// initialise makes the cluster if there is none, and returns the folder of the
// programs that fit it: those given, or others of the cluster's own version.
func (p *Postgres) initialise(ctx context.Context, o PostgresOptions, bindir string, credential *syscall.Credential) (string, error) {
	recorded, err := os.ReadFile(filepath.Join(p.cluster, "PG_VERSION"))
	if err == nil {
		return fittingPrograms(o.BinDir, bindir, p.cluster, strings.TrimSpace(string(recorded)))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if entries, _ := os.ReadDir(p.cluster); len(entries) > 0 {
		return "", fmt.Errorf("%s holds files, but no PG_VERSION: it is no cluster; move it away to begin with an empty one", p.cluster)
	}
	return bindir, initCluster(ctx, o, bindir, p.cluster, credential)
}

// fittingPrograms are the programs of the cluster's major version: another
// version can neither read nor convert it.
func fittingPrograms(setting, bindir, cluster, version string) (string, error) {
	have, err := programVersions(bindir)
	if err != nil {
		return "", err
	}
	if strconv.Itoa(have) == version {
		return bindir, nil
	}
	if setting == "" && os.Getenv(BinDirEnv) == "" {
		for _, dir := range candidateBinDirs() {
			if major, err := programVersions(dir); err == nil && strconv.Itoa(major) == version {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("%s is a cluster of PostgreSQL %s, but %s holds version %d: install PostgreSQL %s again, or convert the cluster with pg_upgrade; nothing was changed",
		cluster, version, bindir, have, version)
}

// initCluster makes a cluster under another name and renames it when it is
// complete: an interrupted initdb leaves nothing that looks like a cluster.
func initCluster(ctx context.Context, o PostgresOptions, bindir, cluster string, credential *syscall.Credential) error {
	unfinished := cluster + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := makeOwnFolder(unfinished, credential); err != nil {
		return err
	}
	args := []string{"-D", unfinished, "-U", Owner, "-E", "UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"}
	if o.Settings["fsync"] == "off" {
		args = append(args, "--no-sync")
	}
	o.Log.Info("making a PostgreSQL cluster", "cluster", cluster)
	initdb, err := startChild(command{
		program:     filepath.Join(bindir, "initdb"),
		args:        args,
		credential:  credential,
		deathSignal: syscall.SIGTERM,
		level:       func(string) slog.Level { return slog.LevelDebug },
		log:         o.Log.With("service", "initdb"),
	})
	if err != nil {
		return err
	}
	select {
	case <-initdb.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), initdb.stop(syscall.SIGTERM))
	}
	if initdb.err != nil {
		return fmt.Errorf("initdb: %w", initdb.exited())
	}
	_ = os.Remove(cluster) // an empty folder that somebody made
	return os.Rename(unfinished, cluster)
}

// stopLeftoverPostgres stops the server that a killed hubn left on the cluster,
// and what a killed server left of itself.
func stopLeftoverPostgres(ctx context.Context, cluster, socketDir string, log *slog.Logger) error {
	if err := stopLeftoverPostmaster(ctx, cluster, socketDir, log); err != nil {
		return err
	}
	return stopOrphans(ctx, cluster, log)
}

// stopLeftoverPostmaster stops a server, and removes a pid file whose number now
// belongs to another process, because postgres would refuse to start beside it.
func stopLeftoverPostmaster(ctx context.Context, cluster, socketDir string, log *slog.Logger) error {
	pidFile := filepath.Join(cluster, "postmaster.pid")
	pid := readPid(pidFile)
	if pid == 0 || !exists(pid) {
		return nil // postgres sees that by itself
	}
	if !running(pid) {
		return removeStale(pidFile)
	}
	owner := worksIn(pid, cluster)
	if owner == unknown && listening(filepath.Join(socketDir, socketName)) {
		owner = ours // only this cluster's server listens in that folder
	}
	switch owner {
	case foreign:
		return removeStale(pidFile)
	case unknown:
		return nil // postgres looks at its shared memory and says what it finds
	}
	log.Info("stopping the PostgreSQL that an earlier hubn left behind", "pid", pid)
	return stopAndWait(ctx, pid, syscall.SIGINT)
}

// stopOrphans ends the backends of a server that was killed: one that computes
// does not notice, and while it is there no other server may start. Nobody waits
// for its answer, and the recovery after the kill undoes what it did.
func stopOrphans(ctx context.Context, cluster string, log *slog.Logger) error {
	for _, pid := range processesIn(cluster, "postgres") {
		log.Info("ending a process of a PostgreSQL that was killed", "pid", pid)
		if err := stopAndWait(ctx, pid, syscall.SIGQUIT); err != nil {
			return err
		}
	}
	return nil
}

// stopAndWait sends a process of a server a signal and waits until it is gone.
func stopAndWait(ctx context.Context, pid int, signal syscall.Signal) error {
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the leftover process %d: %w", pid, err)
	}
	for begun := time.Now(); running(pid); {
		if time.Since(begun) > stopTimeout {
			return fmt.Errorf("process %d of an earlier PostgreSQL has not stopped %s after %s: stop it with `kill -QUIT %d`", pid, stopTimeout, signal, pid)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	return nil
}

func removeStale(pidFile string) error {
	if err := os.Remove(pidFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// readPid is the number in the first line of a pid file; 0 where there is none.
func readPid(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}

// listening tells whether a server answers on a Unix socket.
func listening(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
