package app

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"hubn/app/cli"
	"hubn/app/embedded"
)

// The files that a process keeps in its data folder.
const (
	lockFile       = "hubn.lock"
	portsFile      = "ports.json"
	adminTokenFile = "admin.token"
	sealKeyFile    = "seal.key"
)

// folder is a process's data folder, which no other process uses meanwhile.
type folder struct {
	dir  string
	lock *embedded.FolderLock

	mu    sync.Mutex
	ports map[string]int
}

// openFolder makes the data folder where there is none, and takes it.
func openFolder(dir string) (*folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	lock, err := embedded.LockFolder(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	f := &folder{dir: dir, lock: lock}
	if err := f.load(); err != nil {
		lock.Unlock()
		return nil, err
	}
	return f, nil
}

// load reads the ports of earlier starts, and removes what a killed process
// left: the endpoints of services that no longer run.
func (f *folder) load() error {
	f.removeEndpoints()
	content, err := os.ReadFile(f.path(portsFile))
	if errors.Is(err, os.ErrNotExist) {
		f.ports = map[string]int{}
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &f.ports); err != nil {
		return fmt.Errorf("%s: %w: delete the file to have new ports chosen", f.path(portsFile), err)
	}
	if f.ports == nil {
		f.ports = map[string]int{}
	}
	return nil
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// close gives the folder free.
func (f *folder) close() {
	f.removeEndpoints()
	f.lock.Unlock()
}

// port is the port of a service that was given none: the one it had before,
// else a free one. URIs inside certificates hold ports, so the choice is kept.
func (f *folder) port(service string) (int, error) {
	if kept := f.keptPort(service); kept != 0 {
		return kept, nil
	}
	port, err := embedded.FreePort(0)
	if err != nil {
		return 0, err
	}
	return port, f.keepPort(service, port)
}

// keptPort is the port that a service had before, or 0.
func (f *folder) keptPort(service string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ports[service]
}

// keepPort remembers a service's port for the next start.
func (f *folder) keepPort(service string, port int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ports[service] == port {
		return nil
	}
	ports := maps.Clone(f.ports)
	ports[service] = port
	if err := writeJSON(f.path(portsFile), ports, 0o644); err != nil {
		return err
	}
	f.ports = ports
	return nil
}

// readOrMakeToken reads the token in a file, which is made once.
func readOrMakeToken(path string, generate func() string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		token := generate()
		return token, writeWhole(path, []byte(token+"\n"), 0o600)
	}
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("%s is empty: delete it to have a new token made", path)
	}
	return token, nil
}

// writeEndpoints writes the file; it may hold passwords, so nobody else reads it.
func (f *folder) writeEndpoints(e cli.Endpoints) error {
	return writeJSON(f.path(cli.EndpointsFile), e, 0o600)
}

func (f *folder) removeEndpoints() { _ = os.Remove(f.path(cli.EndpointsFile)) }

func writeJSON(path string, v any, mode os.FileMode) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // a URL's & is to be read by people and shells
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return err
	}
	return writeWhole(path, b.Bytes(), mode)
}

// writeWhole replaces a file in one step: a reader sees the old one or the new
// one, and after a crash one of the two is there.
func writeWhole(path string, content []byte, mode os.FileMode) error {
	temporary := path + "." + rand.Text()[:8]
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}
