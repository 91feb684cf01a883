package schematest

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/embedded"
)

// poolerConnections are those to the server for each role: fewer than a Registry
// or a worker has to the pooler, so that their transactions share them.
const poolerConnections = 2

// Pooler starts a PgBouncer in transaction mode before the database's server, and
// answers the database's URL through it for a role, as DB.URL does. Every role may
// log in. Without PgBouncer the test is skipped, or fails where HUBN_PEERS is required.
func (db *DB) Pooler(t testing.TB) (through func(role string) string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // often not in PATH
	}
	switch {
	case err != nil && os.Getenv("HUBN_PEERS") == "required":
		t.Fatal("HUBN_PEERS=required, but there is no pgbouncer: install the package pgbouncer")
	case err != nil:
		t.Skip("no pgbouncer to test with: install the package pgbouncer")
	case !db.server.trusting:
		t.Skipf("the server of %s does not let every role log in, which the pooler needs", URLEnv)
	}
	dir := poolerFolder(t)
	server, err := pgx.ParseConfig(db.URL(""))
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	const port = "6432" // the name of a socket in the folder, not a port of the machine
	files := map[string]string{
		"users.txt": `"` + server.User + "\" \"\"\n\"hubn_registry\" \"\"\n\"hubn_outbox\" \"\"\n",
		"pgbouncer.ini": strings.Join([]string{
			"[databases]", fmt.Sprintf("* = host=%s port=%d", server.Host, server.Port),
			"[pgbouncer]", "unix_socket_dir = " + dir, "listen_port = " + port, "listen_addr =",
			"auth_type = trust", "auth_file = " + filepath.Join(dir, "users.txt"),
			"pool_mode = transaction", fmt.Sprint("default_pool_size = ", poolerConnections), "max_client_conn = 200", "",
		}, "\n"),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatalf("schematest: %v", err)
		}
	}
	through = func(role string) string {
		if role == "" {
			role = server.User
		}
		q := url.Values{"host": {dir}, "port": {port}, "user": {role}}
		return (&url.URL{Scheme: "postgresql", Path: "/" + db.Name, RawQuery: q.Encode()}).String()
	}
	startPooler(t, program, filepath.Join(dir, "pgbouncer.ini"), through(""))
	return through
}

// poolerFolder is a folder that PgBouncer's user may write to, with a path that
// is short enough for a socket's.
func poolerFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubn-pooler-")
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatalf("schematest: %v", err)
	}
	return dir
}

// startPooler runs PgBouncer until the test ends, and waits until it answers.
func startPooler(t testing.TB, program, config, answering string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if os.Geteuid() == 0 { // PgBouncer refuses root
		credential, err := embedded.CredentialOf("")
		if err != nil {
			t.Fatalf("schematest: %v", err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("schematest: start PgBouncer: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !answers(ctx, answering) {
		select {
		case <-ctx.Done():
			t.Fatalf("schematest: PgBouncer does not answer: %v", ctx.Err())
		case err := <-ended:
			ended <- err
			t.Fatalf("schematest: PgBouncer ended (%v): %s", err, log.String())
		case <-tick.C:
		}
	}
}
