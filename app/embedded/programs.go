package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// BinDirEnv names the environment variable that says where the PostgreSQL
// programs are; it is the one of the setting embedded.postgres_bindir.
const BinDirEnv = "HUBN_EMBEDDED_POSTGRES_BINDIR"

// oldestPostgres is the first major version that the schema works on: UNIQUE
// NULLS NOT DISTINCT came with 15.
const oldestPostgres = 15

// binDirPatterns are where distributions keep the programs of each major
// version outside of PATH.
var binDirPatterns = []string{
	"/usr/lib/postgresql/*/bin",               // Debian, Ubuntu
	"/usr/lib/postgresql*/bin",                // openSUSE, Gentoo
	"/usr/pgsql-*/bin",                        // packages of the PostgreSQL project for Red Hat's family
	"/usr/libexec/postgresql*",                // Alpine
	"/usr/local/lib/postgresql*/bin",          // built from source
	"/usr/local/pgsql/bin",                    // PostgreSQL's default prefix
	"/opt/homebrew/opt/postgresql*/bin",       // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",          // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/pos*/bin", // Homebrew on Linux
}

// FindPostgres is the folder that holds postgres and initdb of one major
// version: the one in HUBN_EMBEDDED_POSTGRES_BINDIR, else PATH, pg_config
// --bindir, and the newest of the distributions' versioned folders.
func FindPostgres() (bindir string, err error) { return FindPostgresIn("") }

// FindPostgresIn is FindPostgres with a setting that comes before everything.
func FindPostgresIn(setting string) (bindir string, err error) {
	for _, given := range []string{setting, os.Getenv(BinDirEnv)} {
		if given == "" {
			continue
		}
		if _, err := programVersions(given); err != nil {
			return "", fmt.Errorf("embedded.postgres_bindir: %w", err)
		}
		return given, nil
	}
	var refused []error
	for _, dir := range candidateBinDirs() {
		if _, err := programVersions(dir); err != nil {
			refused = append(refused, err)
			continue
		}
		return dir, nil
	}
	message := "PostgreSQL is not installed: " + installHint("postgresql") +
		", name its folder in " + BinDirEnv + ", or set database.url to a server that runs"
	if len(refused) > 0 {
		return "", fmt.Errorf("%s (%w)", message, errors.Join(refused...))
	}
	return "", errors.New(message)
}

// candidateBinDirs lists the existing folders with a program postgres, best first.
func candidateBinDirs() []string {
	var dirs []string
	add := func(dir string) {
		program, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil {
			return
		}
		if dir = filepath.Dir(program); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if program, err := exec.LookPath("postgres"); err == nil {
		add(filepath.Dir(program))
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		add(strings.TrimSpace(string(out)))
	}
	var versioned []string
	for _, pattern := range binDirPatterns {
		found, _ := filepath.Glob(pattern) // the patterns are constants: no error
		versioned = append(versioned, found...)
	}
	slices.SortStableFunc(versioned, func(a, b string) int { return majorInPath(b) - majorInPath(a) })
	for _, dir := range versioned {
		add(dir)
	}
	return dirs
}

var digits = regexp.MustCompile(`[0-9]+`)

// majorInPath is the last number in a path, which in versioned folders is the
// major version; 0 where there is none.
func majorInPath(path string) int {
	all := digits.FindAllString(path, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1])
	if err != nil {
		return 0
	}
	return n
}

// programVersions is the major version of postgres and initdb in a folder.
func programVersions(bindir string) (major int, err error) {
	major, err = programVersion(filepath.Join(bindir, "postgres"), nil)
	if err != nil {
		return 0, err
	}
	initdb, err := programVersion(filepath.Join(bindir, "initdb"), nil)
	if err != nil {
		return 0, err
	}
	if major != initdb {
		return 0, fmt.Errorf("%s holds postgres %d but initdb %d: both must be of one major version", bindir, major, initdb)
	}
	if major < oldestPostgres {
		return 0, fmt.Errorf("%s holds PostgreSQL %d: HubN needs %d or newer", bindir, major, oldestPostgres)
	}
	return major, nil
}

// programVersion asks a program of PostgreSQL for its major version, as the
// user that will run it, which proves that this user can reach it.
func programVersion(program string, credential *syscall.Credential) (int, error) {
	cmd := exec.Command(program, "--version")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s cannot be run by %s: %w", program, accountName(credential), err)
	}
	// "postgres (PostgreSQL) 15.10 (Debian 15.10-0+deb12u1)", "16beta1"
	_, version, _ := bytes.Cut(out, []byte("(PostgreSQL) "))
	major, err := strconv.Atoi(string(digits.Find(version)))
	if err != nil {
		return 0, fmt.Errorf("%s --version answers %q, which names no version", program, bytes.TrimSpace(out))
	}
	return major, nil
}

// findRedis is the first Redis-compatible server in PATH or in the folders for
// system programs, which a user's PATH often leaves out; empty where there is none.
func findRedis() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"} {
			if program, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return program
			}
		}
	}
	return ""
}

// installHint is how to install a package on this system, in half a sentence.
func installHint(pkg string) string {
	release, _ := os.ReadFile("/etc/os-release") // absent outside Linux: the general hint
	return installHintFor(runtime.GOOS, string(release), pkg)
}

func installHintFor(goos, osRelease, pkg string) string {
	if goos == "darwin" {
		return "install it with `brew install " + pkg + "`"
	}
	family := osFamily(osRelease)
	switch {
	case family["debian"] || family["ubuntu"]:
		return "install it with `apt-get install --no-install-recommends " + pkg + "`"
	case family["fedora"] || family["rhel"]:
		return "install it with `dnf install " + pkg + "-server`"
	case family["alpine"]:
		return "install it with `apk add " + pkg + "`"
	case family["arch"]:
		return "install it with `pacman -S " + pkg + "`"
	case family["suse"] || family["opensuse"]:
		return "install it with `zypper install " + pkg + "-server`"
	}
	return "install it with your system's package manager"
}

// osFamily reads ID and ID_LIKE of an os-release file.
func osFamily(osRelease string) map[string]bool {
	family := map[string]bool{}
	for line := range strings.Lines(osRelease) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			for _, id := range strings.Fields(strings.Trim(value, `"'`)) {
				family[id] = true
			}
		}
	}
	return family
}
