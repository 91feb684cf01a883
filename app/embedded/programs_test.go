package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePrograms makes a folder whose programs say that they have these versions.
func fakePrograms(t *testing.T, postgres, initdb string) string {
	t.Helper()
	dir := t.TempDir()
	for name, version := range map[string]string{"postgres": postgres, "initdb": initdb} {
		writeFile(t, filepath.Join(dir, name), fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version), 0o755)
	}
	return dir
}

func TestFindPostgresRefusesWhatDoesNotFit(t *testing.T) {
	cases := []struct{ name, dir, want string }{
		{"no such folder", "/nonexistent", "no such file"},
		{"two versions", fakePrograms(t, "16.1", "15.4 (Debian)"), "postgres 16 but initdb 15"},
		{"too old", fakePrograms(t, "12.3", "12.3"), "needs 15 or newer"},
		{"no version", fakePrograms(t, "unknown", "unknown"), "names no version"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := FindPostgresIn(c.dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestFindPostgresTakesSettingBeforeEnvironmentBeforeSystem(t *testing.T) {
	setting, environment := fakePrograms(t, "17beta1", "17beta1"), fakePrograms(t, "16.2", "16.2")
	t.Setenv(BinDirEnv, environment)
	if got, err := FindPostgresIn(setting); got != setting || err != nil {
		t.Errorf("with a setting: got %s, %v, want %s", got, err, setting)
	}
	if got, err := FindPostgres(); got != environment || err != nil {
		t.Errorf("with an environment: got %s, %v, want %s", got, err, environment)
	}
	t.Setenv(BinDirEnv, "")
	t.Setenv("PATH", setting+string(os.PathListSeparator)+os.Getenv("PATH"))
	if got, err := FindPostgres(); got != setting || err != nil {
		t.Errorf("with PATH: got %s, %v, want %s", got, err, setting)
	}
}

func TestVersionIsTheLastNumberOfThePath(t *testing.T) {
	cases := map[string]int{
		"/usr/lib/postgresql/15/bin":          15,
		"/usr/lib/postgresql9/bin":            9,
		"/opt/homebrew/opt/postgresql@17/bin": 17,
		"/usr/local/pgsql/bin":                0,
	}
	for path, want := range cases {
		if got := majorInPath(path); got != want {
			t.Errorf("majorInPath(%s): got %d, want %d", path, got, want)
		}
	}
}

func TestInstallHintFitsTheSystem(t *testing.T) {
	cases := []struct{ name, goos, release, want string }{
		{"Debian", "linux", "ID=debian\n", "apt-get install"},
		{"a relative of Ubuntu", "linux", "ID=pop\nID_LIKE=\"ubuntu debian\"\n", "apt-get install"},
		{"Rocky", "linux", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install postgresql-server"},
		{"Alpine", "linux", "ID=alpine\n", "apk add"},
		{"openSUSE", "linux", "ID=opensuse-leap\nID_LIKE=\"suse opensuse\"\n", "zypper install"},
		{"macOS", "darwin", "", "brew install"},
		{"unknown", "linux", "", "package manager"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := installHintFor(c.goos, c.release, "postgresql"); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want it to hold %q", got, c.want)
			}
		})
	}
}
