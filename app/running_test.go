package app

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hubn/app/cli"
)

// programEnv asks the test binary to be hubn, so that a test can kill it.
const programEnv = "HUBN_APP_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		Main()
	}
	os.Exit(m.Run())
}

// startTimeout is how long a process may take to be ready: seconds at most,
// unless the machine does ten other things.
const startTimeout = 2 * time.Minute

// dataFolder is a data folder that the database's user can enter; t.TempDir's is not.
func dataFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubn-app-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lockedBuffer is a buffer that a running process writes and a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running is a hubn inside of the test.
type running struct {
	dir    string
	log    *lockedBuffer
	cancel context.CancelFunc
	done   chan int
	cli.Endpoints
}

// startRunning runs a server command until it is ready.
func startRunning(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{dir: dir, log: &lockedBuffer{}, cancel: cancel, done: make(chan int, 1)}
	go func() {
		r.done <- Run(ctx, append(args, "--data-dir", dir), strings.NewReader(""), io.Discard, r.log)
	}()
	t.Cleanup(func() { r.stop(t) })
	r.Endpoints = waitEndpoints(t, dir, func() bool { return len(r.done) == 0 }, r.log.String)
	return r
}

// waitEndpoints waits until a process says where it is.
func waitEndpoints(t *testing.T, dir string, alive func() bool, log func() string) cli.Endpoints {
	t.Helper()
	for begun := time.Now(); ; {
		if e, err := cli.ReadEndpoints(dir); err == nil {
			return e
		}
		if !alive() || time.Since(begun) > startTimeout {
			t.Fatalf("the process is not ready; its log:\n%s", log())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// stop stops it as a signal does, and answers its exit status.
func (r *running) stop(t *testing.T) int {
	t.Helper()
	r.cancel()
	select {
	case status := <-r.done:
		r.done <- status
		return status
	case <-time.After(startTimeout):
		t.Fatalf("the process does not stop; its log:\n%s", r.log)
		return -1
	}
}

// hubn runs a client command against a data folder.
func hubn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := Run(t.Context(), append(args, "--data-dir", dir), strings.NewReader(""), &stdout, &stderr); status != exitDone {
		t.Fatalf("hubn %s: exit status %d\n%s%s", strings.Join(args, " "), status, &stdout, &stderr)
	}
	return stdout.String()
}

// startProgram starts hubn as a process of its own.
func startProgram(t *testing.T, dir string, args ...string) (*program, cli.Endpoints) {
	t.Helper()
	log := &lockedBuffer{}
	cmd := exec.Command(os.Args[0], append(args, "--data-dir", dir)...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{process: cmd.Process, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		p.state = cmd.ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.process.Kill()
		<-p.ended
	})
	return p, waitEndpoints(t, dir, p.alive, log.String)
}

// program is a hubn in a process of its own. state is how it ended, after ended.
type program struct {
	process *os.Process
	ended   chan struct{}
	state   *os.ProcessState
}

func (p *program) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *program) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// waitLong waits until something holds that takes seconds on a busy machine.
func waitLong(t *testing.T, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); {
		if time.Since(begun) > startTimeout {
			t.Fatal("the condition does not hold")
		}
		<-time.After(10 * time.Millisecond)
	}
}
