package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// exists tells whether a process has this number.
func exists(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// running tells whether a process exists and still executes: a zombie, which
// waits for a parent that does not collect it, has ended.
func running(pid int) bool {
	if !exists(pid) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !hasProc() || !errors.Is(err, os.ErrNotExist)
	}
	// "pid (name) state …"; the name may hold anything, also parentheses.
	end := bytes.LastIndexByte(stat, ')')
	return end < 0 || len(stat) < end+3 || stat[end+2] != 'Z'
}

// hasProc tells whether this system shows its processes under /proc.
func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// verdict is what is known of a process that a pid file names.
type verdict int

const (
	unknown verdict = iota // cannot be told on this system
	ours                   // it works in the folder
	foreign                // it is another process that got the same number
)

// worksIn tells whether a process has a folder as its working directory, as a
// postmaster has its cluster's.
func worksIn(pid int, dir string) verdict {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return unknown
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	if cwd == dir {
		return ours
	}
	return foreign
}
