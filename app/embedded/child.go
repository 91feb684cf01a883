package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tailLines is how much of a child's output an error repeats: the reason that a
// server gives for not starting is in its last few lines.
const tailLines = 20

// command describes a child to be started.
type command struct {
	program    string
	args       []string
	stdin      string
	credential *syscall.Credential
	// deathSignal is what the kernel sends when hubn is gone.
	deathSignal syscall.Signal
	// level is how serious one line of the child's output is.
	level func(line string) slog.Level
	log   *slog.Logger
}

// child is a running program. done closes when it has exited; err says how
// after that.
type child struct {
	process *os.Process
	output  *output
	done    chan struct{}
	err     error
}

// startChild starts a program in a process group and a thread of its own.
func startChild(c command) (*child, error) {
	cmd := exec.Command(c.program, c.args...)
	cmd.Dir = "/" // hubn's own folder may be closed to the child's user
	cmd.Env = childEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.credential}
	setDeathSignal(cmd.SysProcAttr, c.deathSignal)
	if c.stdin != "" {
		cmd.Stdin = strings.NewReader(c.stdin)
	}
	out := &output{level: c.level, log: c.log}
	cmd.Stdout, cmd.Stderr = out, out
	// A grandchild may hold the pipe open after the child is gone.
	cmd.WaitDelay = 5 * time.Second

	ch := &child{output: out, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that forked ends,
		// not the process: keep that thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		ch.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		ch.err = cmd.Wait()
		close(ch.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.program, err)
	}
	return ch, nil
}

// childEnvironment leaves out what would configure PostgreSQL or Redis behind
// HubN's back (PGPORT, PGDATA) and secrets of hubn's own.
func childEnvironment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "TMPDIR", "LD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// stop asks the child to end with a signal and waits until it has.
func (c *child) stop(signal syscall.Signal) error {
	if err := c.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", c.process.Pid, err)
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("process %d has not stopped %s after %s; it is left to finish, because killing it would cost a recovery",
			c.process.Pid, stopTimeout, signal)
	}
}

// exited describes the end of a child that should have gone on.
func (c *child) exited() error {
	how := "ended"
	if c.err != nil {
		how = c.err.Error()
	}
	if tail := c.output.tail(); tail != "" {
		return fmt.Errorf("%s; its last words:\n%s", how, tail)
	}
	return errors.New(how)
}

// output passes a child's lines to the log and keeps the last ones.
type output struct {
	level func(line string) slog.Level
	log   *slog.Logger

	mu      sync.Mutex
	partial []byte
	last    []string
}

var _ io.Writer = (*output)(nil)

// maxLine bounds a line that never ends.
const maxLine = 8 << 10

// Write takes a piece of output; os/exec calls it from one goroutine.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, rest, ended := bytes.Cut(o.partial, []byte{'\n'})
		if !ended {
			if len(o.partial) < maxLine {
				return len(p), nil
			}
			line, rest = o.partial[:maxLine], o.partial[maxLine:]
		}
		o.line(strings.TrimRight(string(line), "\r"))
		o.partial = rest
	}
}

func (o *output) line(line string) {
	if line == "" {
		return
	}
	if o.last = append(o.last, line); len(o.last) > tailLines {
		o.last = o.last[1:]
	}
	o.log.Log(context.Background(), o.level(line), line)
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(append(o.last[:len(o.last):len(o.last)], string(o.partial)), "\n")
}
