package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hubn/app"
	"hubn/app/cli"
	"hubn/registry/client"
)

// programEnv asks the test binary to be hubn: the program under test, in a
// process that a test can kill.
const programEnv = "HUBN_E2E_PROGRAM"

func init() {
	if os.Getenv(programEnv) == "" {
		return
	}
	// Standard input ends with the test's process, however that ends.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	app.Main()
}

// log is what processes and modules write, for a test to read meanwhile.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// program is a running `hubn serve`.
type program struct {
	t    testing.TB
	cmd  *exec.Cmd
	life io.Closer // its standard input
	log  *log
	done chan struct{}
	err  error // after done
	// folder is its data folder.
	folder string
}

// hubn is a command of hubn that can be started; nothing of the test's own
// environment tells it what to do.
func hubn(ctx context.Context, out, log io.Writer, args ...string) (*exec.Cmd, io.Closer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HUBN_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, programEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, log
	life, err := cmd.StdinPipe()
	return cmd, life, err
}

// serve starts `hubn serve` with some modules and a configuration file.
func serve(t testing.TB, log *log, modules, config string) *program {
	t.Helper()
	return serveOn(t, log, filepath.Join(t.TempDir(), "data"), modules, config)
}

// serveOn is serve on a data folder that is there already.
func serveOn(t testing.TB, log *log, folder, modules, config string) *program {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hubn.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, log: log, done: make(chan struct{}), folder: folder}
	var err error
	p.cmd, p.life, err = hubn(context.Background(), log, log, "serve", "--config", file, "--data-dir", p.folder, "--modules", modules)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// endpoints waits until it is ready and answers what it wrote down.
func (p *program) endpoints() (e cli.Endpoints) {
	p.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for begun := time.Now(); time.Since(begun) < recovery; <-ticker.C {
		select {
		case <-p.done:
			p.t.Fatalf("hubn serve ended before it was ready: %v\n%s", p.err, p.log)
		default:
		}
		content, err := os.ReadFile(filepath.Join(p.folder, "endpoints.json"))
		if err != nil {
			continue
		}
		if err := json.Unmarshal(content, &e); err != nil {
			p.t.Fatal(err)
		}
		return e
	}
	p.t.Fatalf("hubn serve was not ready within %s:\n%s", recovery, p.log)
	return e
}

// kill ends it as a power cut would, and waits until it is gone.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.life.Close()
}

// freeze stops it without ending it; what it holds stays open.
func (p *program) freeze() { p.signal(syscall.SIGSTOP) }

// thaw lets it go on where it was.
func (p *program) thaw() { p.signal(syscall.SIGCONT) }

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stop asks it to end, and wants it to do so in good order.
func (p *program) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("hubn serve ended with %v", p.err)
		}
	case <-time.After(recovery):
		p.t.Fatalf("hubn serve has not ended %s after it was told to", recovery)
	}
}

// run runs a command of hubn to its end and answers what it printed.
func run(t testing.TB, log *log, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recovery)
	defer cancel()
	var out bytes.Buffer
	cmd, life, err := hubn(ctx, &out, log, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = life.Close() }()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), err
}

// newToken is a token that the Registry of a process makes.
func (p *program) newToken(args ...string) string {
	p.t.Helper()
	out, err := run(p.t, p.log, append([]string{"token", "create", "--data-dir", p.folder, "--output", "json"}, args...)...)
	var made client.NewToken
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err != nil {
		p.t.Fatalf("hubn token create: %v\n%s%s", err, out, p.log)
	}
	return made.Secret
}

// workerConfig is the configuration of a process with an outbox worker alone.
func workerConfig(databaseURL, redisURL string) string {
	return fmt.Sprintf(`
listen: 127.0.0.1:0
log: {level: debug, format: text}
redis: {url: %q}
outbox:
  database_url: %q
  lease: 2s
`, redisURL, databaseURL)
}
