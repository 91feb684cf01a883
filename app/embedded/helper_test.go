package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// helperEnv asks the test binary to be a hubn that runs both services on a data
// folder until it is killed.
const helperEnv = "HUBN_EMBEDDED_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		if err := runHelper(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// helperReport is what a helper says of the services that it started.
type helperReport struct {
	PostgresURL, RedisURL string
	PostgresPid, RedisPid int
	RedisPort             int
}

func runHelper(dir string) error {
	ctx := context.Background()
	p, err := StartPostgres(ctx, PostgresOptions{DataDir: dir})
	if err != nil {
		return err
	}
	r, err := StartRedis(ctx, RedisOptions{DataDir: dir})
	if err != nil {
		return err
	}
	report := helperReport{
		PostgresURL: p.URL(Owner, Database), PostgresPid: p.child.process.Pid,
		RedisURL: r.URL(), RedisPid: r.child.process.Pid, RedisPort: r.Port(),
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return err
	}
	<-p.Done()
	return fmt.Errorf("PostgreSQL ended: %w", p.Err())
}

// startHelper starts a helper and returns when its services are ready.
func startHelper(t *testing.T, dir string) (*exec.Cmd, helperReport) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the helper ended before its services were ready: %v", err)
	}
	var report helperReport
	if err := json.Unmarshal(line, &report); err != nil {
		t.Fatalf("the helper said %q: %v", line, err)
	}
	return cmd, report
}

// kill ends a helper as nothing can prepare for.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// waitGone waits until a process has ended by itself.
func waitGone(t *testing.T, what string, pid int) {
	t.Helper()
	for begun := time.Now(); running(pid); {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("%s (process %d) still runs 20 s after hubn was killed", what, pid)
		}
		<-time.After(pollEvery)
	}
}

// reachableDir is a data folder that every user can enter; t.TempDir's is not.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubn-embedded-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func startTestPostgres(t *testing.T, dir string) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), PostgresOptions{DataDir: dir, Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func startTestRedis(t *testing.T, o RedisOptions) *Redis {
	t.Helper()
	r, err := StartRedis(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func execSQL(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func queryText(t *testing.T, url, sql string) (got string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}
