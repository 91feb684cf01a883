package schematest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/embedded"
	"hubn/schema"
)

// shared is this process's way to the one server of the test run.
var shared struct {
	sync.Mutex
	server *server
	// users is locked until the process ends, however it ends.
	users *os.File
}

// sharedServer finds the server of the test run, or starts it.
func sharedServer(ctx context.Context) (server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		return *shared.server, nil
	}
	hash, err := schemaHash()
	if err != nil {
		return server{}, err
	}
	var s server
	if given := os.Getenv(URLEnv); given != "" {
		if _, err := url.Parse(given); err != nil || !strings.Contains(given, "://") {
			return server{}, fmt.Errorf("%s must be a URL such as postgresql://owner@localhost/postgres", URLEnv)
		}
		s = server{admin: given, suffix: "_" + hash}
		err = s.ensureTemplate(ctx)
	} else {
		s, err = joinServer(ctx, hash)
	}
	if err != nil {
		return server{}, err
	}
	shared.server = &s
	return s, nil
}

// joinServer becomes a user of the server of this repository, schema and
// PostgreSQL, and starts it where it does not run.
func joinServer(ctx context.Context, hash string) (server, error) {
	dir, err := serverDir(hash)
	if err != nil {
		return server{}, err
	}
	setup, err := lockFile(filepath.Join(dir, "setup.lock"), syscall.LOCK_EX)
	if err != nil {
		return server{}, err
	}
	defer func() { _ = setup.Close() }()
	// Waits for a guard that is stopping the server, and then holds off the next.
	if shared.users, err = lockFile(filepath.Join(dir, usersLock), syscall.LOCK_SH); err != nil {
		return server{}, err
	}
	admin, err := os.ReadFile(filepath.Join(dir, urlFile))
	if err != nil || !answers(ctx, string(admin)) {
		if admin, err = startGuard(dir, linger); err != nil {
			return server{}, err
		}
	}
	s := server{admin: string(admin), trusting: true}
	return s, s.ensureTemplate(ctx)
}

// serverDir is the folder of the server: one for each repository, schema and
// PostgreSQL version, so that what differs never meets.
func serverDir(hash string) (string, error) {
	bindir, err := embedded.FindPostgres()
	if err != nil {
		return "", err
	}
	version, err := exec.Command(filepath.Join(bindir, "postgres"), "--version").Output()
	if err != nil {
		return "", err
	}
	_, source, _, _ := runtime.Caller(0)
	sum := sha256.Sum256(fmt.Append(nil, filepath.Dir(source), "\x00", hash, "\x00", bindir, "\x00", string(version), "\x00", os.Geteuid()))
	dir := filepath.Join(os.TempDir(), "hubn-test-"+hex.EncodeToString(sum[:5]))
	// The database's user must be able to enter it.
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is not a folder of this user: remove it", dir)
	}
	return dir, nil
}

// schemaHash is the hash of all SQL that the template is made of.
func schemaHash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(schema.Registry.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(schema.Registry.Files, path)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(content), content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)[:5]), err
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func answers(ctx context.Context, url string) bool {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return false
	}
	return c.Close(ctx) == nil
}

// startGuard starts this program again as the guard, in a session of its own,
// and returns the server's URL when it takes connections.
func startGuard(dir string, linger time.Duration) ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "guard.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), guardEnv+"="+dir, lingerEnv+"="+linger.String())
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("the test server did not start: %s", said)
	}
	return []byte(strings.TrimSpace(url)), cmd.Process.Release()
}
