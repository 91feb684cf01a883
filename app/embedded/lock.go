package embedded

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// FolderLock keeps a folder to one process. The kernel frees it when the
// process is gone, however it went.
type FolderLock struct{ file *os.File }

// LockFolder takes the lock that a file stands for, and fails at once, naming
// the holder, when another process has it.
func LockFolder(path string) (*FolderLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path) // only for the message
		_ = file.Close()
		return nil, fmt.Errorf("%s is held by process %s: stop that hubn, or use another data folder", path, strings.TrimSpace(string(holder)))
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return &FolderLock{file: file}, nil
}

// Unlock gives the folder free. The file stays: removing it would let two
// processes hold locks on two files of one name.
func (l *FolderLock) Unlock() {
	if l != nil && l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
