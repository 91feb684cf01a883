package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// devStarts is how often `hubn dev` is started on the folder; the median counts.
	devStarts = 5
	// devLimit ends a start that hangs: the first one makes a database cluster.
	devLimit = 2 * time.Minute
	// devPoll is how often it is asked whether it is ready.
	devPoll = 10 * time.Millisecond
)

// devGroup measures the built program as a person starts it: how long `hubn dev`
// takes to be ready on a folder that exists, and how much memory hubn itself
// then holds, the demo registry included.
func devGroup(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp("", "hubn-bench-dev-")
	if err != nil {
		return err
	}
	b.atEnd(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the database's user must get in
		return err
	}
	program := filepath.Join(dir, "hubn")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build hubn (run this in the project's folder): %w", err)
	}
	d := devRun{program: program, data: filepath.Join(dir, "data")}
	progress("dev: the first start makes the data folder")
	if _, _, err := d.start(ctx); err != nil {
		return err
	}
	var seconds, megabytes []float64
	for i := range devStarts {
		progress("dev: start %d of %d", i+1, devStarts)
		took, resident, err := d.start(ctx)
		if err != nil {
			return err
		}
		seconds = append(seconds, took.Seconds())
		megabytes = append(megabytes, resident)
	}
	b.figure("dev_ready", median(seconds), "s")
	b.figure("dev_rss", median(megabytes), "MB")
	return nil
}

// devRun is the program and the folder that it is started on.
type devRun struct{ program, data string }

// start runs `hubn dev` until it is ready, reads the resident memory of its
// process (without its children, PostgreSQL and Redis) in MB, and ends it.
func (d devRun) start(ctx context.Context) (took time.Duration, resident float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, devLimit)
	defer cancel()
	// A file that a former start left would be taken for this one's.
	_ = os.Remove(filepath.Join(d.data, "endpoints.json"))
	command := exec.Command(d.program, "dev", "--data-dir", d.data)
	begun := time.Now()
	if err := command.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	defer func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
	}()
	tick := time.NewTicker(devPoll)
	defer tick.Stop()
	for !d.ready(ctx) {
		select {
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("hubn dev is not ready: %w", ctx.Err())
		case err := <-ended:
			ended <- err
			return 0, 0, fmt.Errorf("hubn dev ended before it was ready: %v", err)
		case <-tick.C:
		}
	}
	took = time.Since(begun)
	resident, err = statusMB(command.Process.Pid, "VmRSS")
	return took, resident, err
}

// ready tells whether endpoints.json is there and /readyz says yes.
func (d devRun) ready(ctx context.Context) bool {
	text, err := os.ReadFile(filepath.Join(d.data, "endpoints.json"))
	if err != nil {
		return false
	}
	var endpoints struct {
		RegistryURL string `json:"registry_url"`
	}
	if json.Unmarshal(text, &endpoints) != nil || endpoints.RegistryURL == "" {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoints.RegistryURL+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode == http.StatusOK
}

// statusMB is a member of a process's status, such as VmRSS (proc(5)), in MB of 10^6
// bytes.
func statusMB(pid int, member string) (float64, error) {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), member+":"); found {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status names no %s", pid, member)
}
