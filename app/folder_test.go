package app

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hubn/app/cli"
	"hubn/registry"
)

func openTestFolder(t *testing.T, dir string) *folder {
	t.Helper()
	f, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func TestPortsAreChosenOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	f := openTestFolder(t, dir)
	first, err := f.port("http")
	if err != nil || first == 0 {
		t.Fatalf("port: got %d, %v", first, err)
	}
	f.close()

	again := openTestFolder(t, dir)
	// The kept port counts even while something else has it: URIs hold it.
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if got, err := again.port("http"); err != nil || got != first {
		t.Errorf("second start: got %d, %v, want %d", got, err, first)
	}
}

func TestFolderBelongsToOneProcess(t *testing.T) {
	dir := t.TempDir()
	f := openTestFolder(t, dir)
	if _, err := openFolder(dir); err == nil || !strings.Contains(err.Error(), "is held by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("second process: got %v, want the holder", err)
	}
	f.close()
	openTestFolder(t, dir)
}

func TestTokenIsMadeOnceForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.token")
	first, err := readOrMakeToken(path, registry.NewSecret)
	if err != nil {
		t.Fatal(err)
	}
	second, err := readOrMakeToken(path, registry.NewSecret)
	if err != nil || second != first {
		t.Errorf("second start: got another token (%v)", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode: got %o, want 600", got)
	}
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readOrMakeToken(path, registry.NewSecret); err == nil {
		t.Error("an empty token was taken")
	}
}

func TestEndpointsAreForTheOwnerAndGoWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	f := openTestFolder(t, dir)
	want := cli.Endpoints{RegistryURL: "http://127.0.0.1:8480", DatabaseURL: "postgresql:///hubn?host=/tmp/x&user=hubn"}
	if err := f.writeEndpoints(want); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, cli.EndpointsFile))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "x&user=hubn") {
		t.Errorf("the URL is not as psql takes it:\n%s", content)
	}
	info, err := os.Stat(filepath.Join(dir, cli.EndpointsFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, %v, want 600", info.Mode(), err)
	}
	if got, err := cli.ReadEndpoints(dir); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	f.close()
	if _, err := cli.ReadEndpoints(dir); err == nil || !strings.Contains(err.Error(), "no hubn runs on") {
		t.Errorf("after the process: got %v", err)
	}
}

func TestEndpointsOfAKilledProcessAreRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, cli.EndpointsFile), []byte(`{"registry_url":"http://127.0.0.1:1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	openTestFolder(t, dir)
	if _, err := cli.ReadEndpoints(dir); err == nil {
		t.Error("the endpoints of a process that no longer runs are still there")
	}
}
