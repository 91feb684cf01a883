package eventtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a real redis-server of one test, on a loopback port that it keeps
// over restarts. Its methods fail the test when they cannot do what they say;
// they are for the test's goroutine.
type Redis struct {
	t       testing.TB
	program string
	dir     string
	port    int
	config  []string
	process *process
}

// process is one run of the program.
type process struct {
	cmd  *exec.Cmd
	log  *bytes.Buffer // to be read after done
	done chan struct{}
}

// Server starts a redis-server with an append-only file that is written
// through at every command, so that Stop and Kill lose nothing that was
// answered. Lines of config override: "appendonly no", "maxmemory 8mb".
func Server(t testing.TB, config ...string) *Redis {
	t.Helper()
	s := &Redis{t: t, program: program(t), dir: t.TempDir(), port: freePort(t), config: config}
	t.Cleanup(s.Kill)
	s.Start()
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Addr is host:port.
func (s *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is redis://host:port/0.
func (s *Redis) URL() string { return "redis://" + s.Addr() + "/0" }

// Client is a new client with short timeouts, closed at the test's end.
func (s *Redis) Client() *redis.Client {
	return client(s.t, &redis.Options{
		Addr: s.Addr(), DialTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
	})
}

// Start starts a stopped or killed server on its data and waits until it answers.
func (s *Redis) Start() {
	s.t.Helper()
	if s.process != nil {
		s.t.Fatal("the redis-server is already running")
	}
	lines := append([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port),
		"dir " + strconv.Quote(s.dir),
		`save ""`,
		"appendonly yes",
		"appendfsync always",
		"repl-diskless-sync-delay 0",
	}, s.config...)
	cmd := exec.Command(s.program, "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	s.process = &process{cmd: cmd, log: &bytes.Buffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.process.log, s.process.log
	if err := s.process.start(); err != nil {
		s.t.Fatalf("start %s: %v", s.program, err)
	}
	s.waitAnswer()
}

// start runs the program in a thread of its own: the kernel ties the death
// signal to the thread that forked.
func (p *process) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.done)
		}
	}()
	return <-started
}

func (s *Redis) waitAnswer() {
	s.t.Helper()
	probe := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second})
	defer func() { _ = probe.Close() }()
	Eventually(s.t, "redis-server answers on "+s.Addr(), func() bool {
		select {
		case <-s.process.done:
			s.t.Fatalf("redis-server ended: %s", s.process.log)
		default:
		}
		return probe.Ping(context.Background()).Err() == nil
	})
}

// Stop ends the server in good order; its data stay.
func (s *Redis) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server as a power cut would; what its append-only file holds
// stays. Killing a server that does not run does nothing.
func (s *Redis) Kill() { s.end(syscall.SIGKILL) }

func (s *Redis) end(signal syscall.Signal) {
	s.t.Helper()
	if s.process == nil {
		return
	}
	_ = s.process.cmd.Process.Signal(signal)
	_ = s.process.cmd.Process.Signal(syscall.SIGCONT) // a frozen one would never see the other
	select {
	case <-s.process.done:
	case <-time.After(deadline):
		s.t.Fatalf("redis-server has not ended after %s", deadline)
	}
	s.process = nil
}

// Freeze stops the server without ending it: connections stay open and nothing
// answers, until Thaw.
func (s *Redis) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Redis) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Redis) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.process.cmd.Process.Signal(signal); err != nil {
		s.t.Fatalf("signal redis-server: %v", err)
	}
}

// Flush removes all keys (FLUSHALL).
func (s *Redis) Flush() { s.do("FLUSHALL") }

// RestartEmpty kills the server and starts it without any of its data.
func (s *Redis) RestartEmpty() {
	s.t.Helper()
	s.Kill()
	s.replaceData("")
	s.Start()
}

// Restart stops the server and starts it again on its data.
func (s *Redis) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

// Copy is a copy of the server's data as they are now, for Restore.
type Copy string

// Copy copies the append-only file while the server runs.
func (s *Redis) Copy() Copy {
	s.t.Helper()
	to := s.t.TempDir()
	copyTree(s.t, s.dir, to)
	return Copy(to)
}

// Restore kills the server and starts it on an earlier copy of its data.
func (s *Redis) Restore(from Copy) {
	s.t.Helper()
	s.Kill()
	s.replaceData(string(from))
	s.Start()
}

func (s *Redis) replaceData(from string) {
	s.t.Helper()
	s.dir = s.t.TempDir()
	if from != "" {
		copyTree(s.t, from, s.dir)
	}
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		return copyFile(path, target)
	})
	if err != nil {
		t.Fatalf("copy the data of redis-server: %v", err)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// Replica starts another server that replicates this one, and waits until it
// has everything.
func (s *Redis) Replica() *Redis {
	s.t.Helper()
	r := Server(s.t, s.config...)
	r.do("REPLICAOF", "127.0.0.1", strconv.Itoa(s.port))
	r.WaitReplica(s)
	return r
}

// WaitReplica waits until this replica has everything that the primary wrote,
// and its first append-only file besides: before that it refuses to end.
func (s *Redis) WaitReplica(primary *Redis) {
	s.t.Helper()
	Eventually(s.t, "the replica has caught up", func() bool {
		mine, theirs := s.info("replication"), primary.info("replication")
		file := s.info("persistence")
		return mine["master_link_status"] == "up" && mine["slave_repl_offset"] == theirs["master_repl_offset"] &&
			file["aof_rewrite_in_progress"] == "0" && file["aof_rewrite_scheduled"] == "0"
	})
}

// CutOff makes a replica follow nobody reachable while it stays a replica: what
// the primary writes from now on does not reach it.
func (s *Redis) CutOff() {
	s.t.Helper()
	s.do("REPLICAOF", "127.0.0.1", strconv.Itoa(freePort(s.t)))
}

// Promote makes a replica a primary.
func (s *Redis) Promote() {
	s.t.Helper()
	s.do("REPLICAOF", "NO", "ONE")
}

// TakeOver makes this server answer on the other's port, as a failover behind
// one address does: the other is killed, this one starts again on that port
// with its own data.
func (s *Redis) TakeOver(other *Redis) {
	s.t.Helper()
	other.Kill()
	s.Stop()
	s.port = other.port
	s.Start()
}

// Set changes a setting of the running server (CONFIG SET).
func (s *Redis) Set(name, value string) { s.do("CONFIG", "SET", name, value) }

func (s *Redis) do(args ...any) {
	s.t.Helper()
	if err := s.command(args...).Err(); err != nil {
		s.t.Fatalf("redis-server: %v: %v", args, err)
	}
}

func (s *Redis) command(args ...any) *redis.Cmd {
	one := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: deadline})
	defer func() { _ = one.Close() }()
	return one.Do(context.Background(), args...)
}

func (s *Redis) info(section string) map[string]string {
	s.t.Helper()
	text, err := s.command("INFO", section).Text()
	if err != nil {
		s.t.Fatalf("redis-server: INFO %s: %v", section, err)
	}
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values
}

// Proxy is a TCP relay in front of a server that a test can cut, to lose
// replies and to hold connections half open.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	target   string

	mu    sync.Mutex
	mute  bool
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// Proxy starts a relay to the server.
func (s *Redis) Proxy() *Proxy {
	s.t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		s.t.Fatalf("start a relay: %v", err)
	}
	p := &Proxy{t: s.t, listener: l, target: s.Addr(), conns: map[net.Conn]struct{}{}}
	p.wg.Add(1)
	go p.accept()
	s.t.Cleanup(p.close)
	return p
}

// Addr is the relay's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes every connection that runs through the relay.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Mute makes the relay swallow what the server answers, while connections stay
// open; or pass it on again for new connections.
func (p *Proxy) Mute(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

func (p *Proxy) muted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mute
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp4", p.target)
		if err != nil {
			_ = down.Close()
			continue
		}
		p.mu.Lock()
		p.conns[down], p.conns[up] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Add(2)
		go p.relay(up, down, func() bool { return false })
		go p.relay(down, up, p.muted)
	}
}

func (p *Proxy) relay(to, from net.Conn, swallow func() bool) {
	defer p.wg.Done()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !swallow() {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	p.mu.Lock()
	delete(p.conns, to)
	delete(p.conns, from)
	p.mu.Unlock()
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

// String names the server in failures.
func (s *Redis) String() string { return fmt.Sprintf("redis-server on %s", s.Addr()) }
