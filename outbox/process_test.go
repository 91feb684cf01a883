package outbox

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
)

// processEnv asks the test binary to be a worker on a database and a Redis until
// it is told to stop or killed.
const processEnv = "HUBN_OUTBOX_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(processEnv) == "" {
		os.Exit(m.Run())
	}
	if err := runProcess(os.Getenv("HUBN_OUTBOX_TEST_DATABASE"), os.Getenv("HUBN_OUTBOX_TEST_REDIS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// processLease is the lease of workers in processes of their own.
const processLease = 200 * time.Millisecond

func runProcess(database, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	settings := DefaultSettings()
	settings.Lease = processLease
	w := New(Options{
		Settings: settings, DatabaseURL: database, Names: names,
		Redis: redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 2 * time.Second}),
	})
	return w.Run(ctx, func() { fmt.Println("ready") })
}

// startProcess is a worker in a process of its own, which ends with the test.
func startProcess(t *testing.T, database, address string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"=1", "HUBN_OUTBOX_TEST_DATABASE="+database, "HUBN_OUTBOX_TEST_REDIS="+address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed already
		_ = cmd.Wait()
	})
	ready := make(chan bool, 1)
	go func() { ready <- bufio.NewScanner(out).Scan() }()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatal("the worker's process ended before it was ready")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the worker's process is not ready after 30 s")
	}
	return cmd.Process
}

func TestProcessesThatAreKilledAndStopped(t *testing.T) {
	b := newBed(t, func(w *Worker) { w.settings.Lease = processLease })
	load := startWriters(t, b.db, 8, 40, 11)
	for round := range 4 {
		killed := startProcess(t, b.db.URL(""), b.server.Addr())
		frozen := startProcess(t, b.db.URL(""), b.server.Addr())
		before := load.committed.Load()
		eventtest.Eventually(t, "the burst goes on", func() bool { return load.committed.Load() > before+100 })
		if err := killed.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := frozen.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		wait(3 * processLease / 2) // what it had claimed passes to others
		if err := frozen.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 {
			if err := frozen.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	load.stop()
	b.check(t)
}
