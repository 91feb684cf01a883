// Package commands tests the commands of hubn as a person types them, against
// the complete program on embedded services.
package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"hubn/app"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hubn": app.Main})
}

func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HUBN_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			env.Setenv("TZ", "UTC")
			// PostgreSQL's user has to reach the data folder; else the cluster is
			// made outside of it, where nothing clears it away.
			for _, dir := range []string{filepath.Dir(env.WorkDir), env.WorkDir} {
				if err := os.Chmod(dir, 0o755); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready":  ready,
			"json":   checkJSON,
			"status": status,
			"setenv": setFromJSON,
		},
	})
}

// startTimeout is far above what a start takes on a busy machine.
const startTimeout = 60 * time.Second

// ready waits until the hubn that runs in the background is ready.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: ready")
	}
	path := filepath.Join(ts.Getenv("HUBN_DATA_DIR"), "endpoints.json")
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		} else if !errors.Is(err, fs.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			ts.Fatalf("hubn is not ready after %s", startTimeout)
		}
	}
}

// status runs a command and checks its exit status: status 2 hubn prefix frob.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; fmt.Sprint(got) != want {
		ts.Fatalf("%s: exit status %d, want %s", strings.Join(args[1:], " "), got, want)
	}
}

// checkJSON checks a member of the last command's output, which is JSON:
// json routing.origin 64496. A regular expression stands between slashes.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: json path value")
	}
	got := member(ts, args[0])
	matches := got == args[1]
	if pattern, ok := strings.CutPrefix(args[1], "/"); ok && strings.HasSuffix(pattern, "/") {
		matches = regexp.MustCompile(strings.TrimSuffix(pattern, "/")).MatchString(got)
	}
	if matches == neg {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

// setFromJSON sets a variable to a member of the last command's output.
func setFromJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME path")
	}
	ts.Setenv(args[0], member(ts, args[1]))
}

// member is the text of a member of the last command's output; len is the length
// of a list.
func member(ts *testscript.TestScript, path string) string {
	var value any
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		ts.Fatalf("the output is not JSON: %v", err)
	}
	for name := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			inner, ok := v[name]
			if !ok {
				return "absent"
			}
			value = inner
		case []any:
			if name == "len" {
				value = len(v)
				continue
			}
			var at int
			if _, err := fmt.Sscan(name, &at); err != nil || at >= len(v) {
				return "absent"
			}
			value = v[at]
		default:
			return "absent"
		}
	}
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		ts.Fatalf("%v", err)
	}
	return string(text)
}
