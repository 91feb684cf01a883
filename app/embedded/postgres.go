package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// Owner is the role that owns everything in an embedded cluster, and its
	// superuser: migrations make the modules' roles with it.
	Owner = "hubn"
	// Database is the one database of an embedded cluster.
	Database = "hubn"

	// postgresPort only names the socket's file: there is no TCP.
	postgresPort = 5432

	// answerTimeout is how long a starting server may give no answer at all;
	// it was ready after 65-90 ms wherever it was measured.
	answerTimeout = 30 * time.Second
	// recoveryTimeout is how long a server may go on answering "starting up":
	// it recovers from a crash, and stopping it would make it begin again.
	recoveryTimeout = 10 * time.Minute

	// cannotConnectNow is the SQLSTATE of a server that starts or stops.
	cannotConnectNow = "57P03"
	// duplicateDatabase is the SQLSTATE of a database that exists.
	duplicateDatabase = "42P04"
)

// postgresSettings make a cluster small and quiet. They are given on the
// command line, so that a cluster of an older HubN has them too.
var postgresSettings = map[string]string{
	"listen_addresses":        "",
	"port":                    strconv.Itoa(postgresPort),
	"unix_socket_permissions": "0700",
	// One machine's registry of a million prefixes has a working set well
	// below; the rest is the kernel's cache.
	"shared_buffers": "64MB",
	// Modules of one process need about thirty; the rest is for psql and a
	// second process.
	"max_connections": "100",
	// So that a backup or a standby can be taken from it without a restart.
	"wal_level": "replica",
	// Statements are short: compiling and parallel workers cost more than they
	// save, and the latter need more /dev/shm than a container has.
	"jit":                             "off",
	"max_parallel_workers_per_gather": "0",
	"timezone":                        "UTC",
	"log_timezone":                    "UTC",
	// ERROR sorts below LOG here: a refused statement is the client's to
	// report, and its text may hold secrets.
	"log_min_messages":        "log",
	"log_min_error_statement": "panic",
	"log_checkpoints":         "off",
	"cluster_name":            "hubn",
}

// PostgresOptions say where and how a cluster runs. Only DataDir must be set.
type PostgresOptions struct {
	// DataDir is hubn's data folder. The cluster is its subfolder postgres, or
	// lies under /var/lib/hubn where its user cannot reach that.
	DataDir string
	// BinDir holds postgres and initdb; empty: FindPostgres.
	BinDir string
	// User is whom the cluster runs as when hubn is root; empty: Credential.
	User string
	// Settings are further parameters of postgres, which win over those of HubN.
	Settings map[string]string
	// Log takes the server's own lines at debug level, its fatal ones as
	// warnings, and what a person should know.
	Log *slog.Logger
}

// Postgres is one run of an embedded cluster.
type Postgres struct {
	cluster   string
	socketDir string
	lock      *FolderLock
	child     *child
}

// StartPostgres starts the cluster of a data folder, which it makes if there is
// none, and returns when it takes connections. A cluster of another major
// version, or a folder that another process uses, is an error; data is never
// deleted.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	p, err := startPostgres(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("embedded PostgreSQL: %w", err)
	}
	return p, nil
}

func startPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	credential, err := CredentialOf(o.User)
	if err != nil {
		return nil, err
	}
	bindir, err := FindPostgresIn(o.BinDir)
	if err != nil {
		return nil, err
	}
	if _, err := programVersion(filepath.Join(bindir, "postgres"), credential); err != nil {
		return nil, err
	}
	where, err := findPlace(o.DataDir, "postgres", filepath.Join(bindir, "postgres"), credential)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(where.dir), 0o755); err != nil {
		return nil, err
	}
	p := &Postgres{cluster: where.dir}
	if p.lock, err = LockFolder(where.dir + ".lock"); err != nil {
		return nil, err
	}
	if err := p.start(ctx, o, bindir, where, credential); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// start does what needs the folder's lock.
func (p *Postgres) start(ctx context.Context, o PostgresOptions, bindir string, where place, credential *syscall.Credential) error {
	var err error
	if p.socketDir, err = makeSocketFolder(p.cluster, socketName, filepath.Join(bindir, "postgres"), credential); err != nil {
		return err
	}
	if err := stopLeftoverPostgres(ctx, p.cluster, p.socketDir, o.Log); err != nil {
		return err
	}
	aside, err := where.setAside(time.Now())
	if err != nil {
		return err
	}
	if aside != "" {
		o.Log.Warn("the data folder is new: the cluster of an earlier folder of the same path is kept aside", "kept", aside)
	}
	if bindir, err = p.initialise(ctx, o, bindir, credential); err != nil {
		return err
	}
	if err := where.record(); err != nil {
		return err
	}
	if where.elsewhere {
		o.Log.Warn("the data folder cannot be reached by the database's user: the cluster is elsewhere",
			"data_dir", o.DataDir, "user", accountName(credential), "cluster", p.cluster)
	}
	p.child, err = startChild(command{
		program:     filepath.Join(bindir, "postgres"),
		args:        p.arguments(o.Settings),
		credential:  credential,
		deathSignal: syscall.SIGINT, // fast shutdown
		level:       postgresLevel,
		log:         o.Log.With("service", "postgres"),
	})
	if err != nil {
		return err
	}
	if err := p.waitReady(ctx); err != nil {
		return errors.Join(err, p.Stop())
	}
	return nil
}

// arguments are postgres's own: the folder and every setting.
func (p *Postgres) arguments(more map[string]string) []string {
	settings := maps.Clone(postgresSettings)
	settings["unix_socket_directories"] = p.socketDir
	maps.Copy(settings, more)
	args := []string{"-D", p.cluster}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// postgresLevel is how serious a line of the server's log is. That it refuses a
// connection while it starts or stops is no trouble.
func postgresLevel(line string) slog.Level {
	serious := strings.Contains(line, "FATAL: ") || strings.Contains(line, "PANIC: ")
	if serious && !strings.Contains(line, "the database system is ") {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// waitReady waits until the server takes connections and makes the database.
func (p *Postgres) waitReady(ctx context.Context) error {
	begun, lastAnswer := time.Now(), time.Now()
	for {
		err := p.makeDatabase(ctx)
		if err == nil {
			return nil
		}
		var refused *pgconn.PgError
		switch {
		case errors.As(err, &refused) && refused.Code == cannotConnectNow:
			lastAnswer = time.Now()
		case refused != nil:
			return err
		}
		if time.Since(lastAnswer) > answerTimeout || time.Since(begun) > recoveryTimeout {
			return fmt.Errorf("no connection after %s: %w", time.Since(begun).Round(time.Second), err)
		}
		select {
		case <-p.child.done:
			return p.child.exited()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// makeDatabase makes the database if there is none yet.
func (p *Postgres) makeDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, p.URL(Owner, "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	found := conn.ExecParams(ctx, `SELECT FROM pg_database WHERE datname = $1`, [][]byte{[]byte(Database)}, nil, nil, nil).Read()
	if found.Err != nil || len(found.Rows) == 1 {
		return found.Err
	}
	_, err = conn.Exec(ctx, `CREATE DATABASE `+Database).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == duplicateDatabase {
		return nil
	}
	return err
}

// URL is the libpq URI of a role on a database, over the cluster's socket.
func (p *Postgres) URL(role, database string) string {
	return postgresURL(p.socketDir, role, database)
}

func postgresURL(socketDir, role, database string) string {
	query := url.Values{"host": {socketDir}, "port": {strconv.Itoa(postgresPort)}, "user": {role}}
	return (&url.URL{Scheme: "postgresql", Path: "/" + database, RawQuery: query.Encode()}).String()
}

// Dir is the cluster's folder.
func (p *Postgres) Dir() string { return p.cluster }

// Done closes when the server has ended, asked or not.
func (p *Postgres) Done() <-chan struct{} { return p.child.done }

// Err says how the server ended; only after Done.
func (p *Postgres) Err() error { return p.child.exited() }

// Stop ends the server with a fast shutdown, never by killing it, and frees the
// folder. It may be called more than once.
func (p *Postgres) Stop() error {
	if p.child != nil {
		if err := p.child.stop(syscall.SIGINT); err != nil {
			return fmt.Errorf("embedded PostgreSQL: %w", err)
		}
	}
	p.release()
	return nil
}

func (p *Postgres) release() {
	if p.socketDir != "" {
		_ = os.Remove(p.socketDir) // refused while a socket is in it
	}
	p.lock.Unlock()
}
