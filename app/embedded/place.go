package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// systemDataDir is where a service's data goes when its user cannot reach the
// data folder, as under /root (0700).
const systemDataDir = "/var/lib/hubn"

// place is where one service keeps its data.
type place struct {
	// dir is the folder that belongs to the service's user. It may not exist yet.
	dir string
	// pointer is the file in the data folder that says where dir is; empty
	// when dir is in the data folder itself.
	pointer string
	// elsewhere is set when dir is outside of the data folder.
	elsewhere bool
	// stale is set when dir was made for an earlier data folder of the same
	// path that is no more: what is in it is kept, but not used.
	stale bool
}

// findPlace decides where a service with a name keeps its data: in the data
// folder, or under /var/lib/hubn where its user cannot reach that. The first
// decision is kept, so that no second, empty place is ever made beside it.
func findPlace(dataDir, name, program string, credential *syscall.Credential) (place, error) {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return place{}, err
	}
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return place{}, err
	}
	pointer := filepath.Join(dataDir, name+".location")
	if recorded, err := os.ReadFile(pointer); err == nil {
		return recordedPlace(pointer, strings.TrimSpace(string(recorded)))
	}
	own := filepath.Join(dataDir, name)
	reachable := canReach(program, dataDir, credential)
	_, err = os.Lstat(own)
	switch {
	case err == nil && !reachable:
		return place{}, fmt.Errorf("%s exists, but %s cannot reach it any more: give that user the x permission on every folder above it (chmod o+x)",
			own, accountName(credential))
	case err == nil || reachable:
		return place{dir: own}, nil
	}
	p := place{dir: filepath.Join(systemDataDir, folderHash(dataDir), name), pointer: pointer, elsewhere: true}
	_, err = os.Lstat(p.dir)
	p.stale = err == nil
	return p, nil
}

func recordedPlace(pointer, dir string) (place, error) {
	if _, err := os.Stat(dir); err != nil {
		return place{}, fmt.Errorf("%s says that the data is in %s, which is not there (%w): bring that folder back, or delete %s to begin with an empty one",
			pointer, dir, err, pointer)
	}
	return place{dir: dir, pointer: pointer, elsewhere: true}, nil
}

// setAside moves a stale folder out of the way and says where it went; empty if
// there was none.
func (p place) setAside(now time.Time) (aside string, err error) {
	if !p.stale {
		return "", nil
	}
	aside = p.dir + "." + now.UTC().Format("20060102T150405.000Z")
	return aside, os.Rename(p.dir, aside)
}

// record writes the pointer once the folder is complete.
func (p place) record() error {
	if p.pointer == "" {
		return nil
	}
	return os.WriteFile(p.pointer, []byte(p.dir+"\n"), 0o644)
}

// canReach asks the kernel whether a user can enter a folder: it starts a
// program there as that user. The program itself must be one it can run.
func canReach(program, dir string, credential *syscall.Credential) bool {
	if credential == nil {
		return true
	}
	cmd := exec.Command(program, "--version")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	return cmd.Run() == nil
}

// makeOwnFolder makes a folder that only the service's user can enter.
func makeOwnFolder(dir string, credential *syscall.Credential) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	owner, self := os.Geteuid(), os.Geteuid()
	if credential != nil {
		owner = int(credential.Uid)
	}
	if !info.IsDir() || !ok || (int(stat.Uid) != owner && int(stat.Uid) != self) {
		return fmt.Errorf("%s is not a folder of %s: remove it, or set TMPDIR to a folder that others cannot write to", dir, accountName(credential))
	}
	if credential != nil {
		if err := os.Chown(dir, owner, int(credential.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// socketPathLimit is the longest path of a Unix socket that every system takes:
// sun_path has 104 bytes on the BSDs and macOS, 108 on Linux, with a final NUL.
const socketPathLimit = 103

// makeSocketFolder makes the folder for a server's socket: short, because the
// data folder's own path may be too long for a socket, and closed to others.
func makeSocketFolder(dataPath, socket, program string, credential *syscall.Credential) (string, error) {
	name := "hubn-" + folderHash(dataPath)
	parent := os.TempDir()
	if len(filepath.Join(parent, name, socket)) > socketPathLimit || !canReach(program, parent, credential) {
		parent = "/tmp"
	}
	dir := filepath.Join(parent, name)
	return dir, makeOwnFolder(dir, credential)
}
