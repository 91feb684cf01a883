package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// processesIn are the processes with a name that work in a folder, where the
// system shows them. Somebody's shell may stand in the same folder.
func processesIn(dir, name string) []int {
	var found []int
	entries, _ := os.ReadDir("/proc") // absent: nothing is shown
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || worksIn(pid, dir) != ours {
			continue
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && string(bytes.TrimSpace(comm)) == name {
			found = append(found, pid)
		}
	}
	return found
}
