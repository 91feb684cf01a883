package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hubn/registry/client"
)

const (
	// peerTime is how long the property-based client tries: each operation gets
	// some hundred requests in it.
	peerTime = "45"
	// peerInstall is far above what an installation takes.
	peerInstall = 5 * time.Minute
)

// TestEveryAnswerIsAsTheDocumentSays lets schemathesis, a property-based client,
// read the OpenAPI document and try every operation with values that it makes up,
// right and wrong: no answer is a 500, and each has a status, headers, a media type
// and a body that the document describes.
func TestEveryAnswerIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	peer := schemathesis(t)
	var log log
	// The peer tries wrong tokens too, and asks more often than people do.
	p := serveOn(t, &log, dataFolder(t), "registry", `
listen: 127.0.0.1:0
log: {level: error, format: text}
registry: {login_failures_per_minute: 1000000, public_queries_per_minute: 1000000}
`)
	url, token := p.endpoints().RegistryURL, p.adminToken()
	known, err := json.Marshal(objects(t, url, token))
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := filepath.Abs("testdata/schemathesis/hooks.py")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, peer, "run", url+"/openapi.json",
		"--header", "Authorization: Bearer "+token,
		"--phases", "examples,coverage,fuzzing",
		"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"+
			"response_schema_conformance,unsupported_method,ignored_auth",
		"--max-time", peerTime, "--max-examples", "20", "--seed", "1", "--no-shrink", "--continue-on-failure",
		"--warnings", "off", "--no-color", "--request-timeout", "20")
	cmd.Dir = t.TempDir() // it keeps what it tried
	cmd.Env = append(os.Environ(), "SCHEMATHESIS_HOOKS="+hooks, "HUBN_KNOWN_OBJECTS="+string(known), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("schemathesis: %v\n%s\nthe log of hubn:\n%s", err, out, &log)
	}
	if !strings.Contains(string(out), "Coverage (in") {
		t.Errorf("schemathesis did not try every operation:\n%s", out)
	}
}

// objects makes some of each noun, and answers their ids by the path of their
// collection.
func objects(t testing.TB, url, token string) map[string][]any {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	known := map[string][]any{}
	for _, o := range []struct {
		path string
		id   string
		body map[string]any
	}{
		{"/v1/organisations", "id", map[string]any{"handle": "EXAMPLE", "contact": "noc@example.net"}},
		{"/v1/organisations", "handle", map[string]any{"handle": "OTHER"}},
		{"/v1/asns", "number", map[string]any{"number": 64496, "organisation": "EXAMPLE"}},
		{"/v1/asns", "number", map[string]any{"number": 64497}},
		{"/v1/prefixes", "id", map[string]any{"prefix": "192.0.2.0/24", "organisation": "EXAMPLE"}},
		{"/v1/prefixes", "id", map[string]any{"prefix": "192.0.2.0/25", "organisation": "EXAMPLE"}},
		{"/v1/prefixes", "id", map[string]any{"prefix": "2001:db8::/32", "kind": "container"}},
		{"/v1/ptr-records", "id", map[string]any{"address": "192.0.2.1", "target": "a.example"}},
		{"/v1/ptr-records", "id", map[string]any{"address": "192.0.2.1", "target": "b.example"}},
		{"/v1/anycast", "id", map[string]any{"prefix": "192.0.2.128/25", "service": "dns", "origins": []any{map[string]any{"asn": 64496}}}},
		{"/v1/tokens", "id", map[string]any{"name": "one", "roles": []string{"operator"}}},
		{"/v1/tokens", "id", map[string]any{"name": "two", "grants": []any{map[string]any{"role": "member", "organisation": "EXAMPLE"}}}},
		{"/v1/grants", "id", map[string]any{"token_id": 1, "role": "viewer", "prefix": "192.0.2.0/24"}},
	} {
		var made map[string]any
		if _, err := c.Create(t.Context(), o.path, client.Write{}, o.body, &made); err != nil {
			t.Fatalf("%s: %v", o.path, err)
		}
		known[o.path] = append(known[o.path], made[o.id])
	}
	return known
}

// schemathesis is the program, installed into an environment of its own, which
// later runs find again.
func schemathesis(t testing.TB) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "-c", "import ensurepip, venv").Run()
	}
	if err != nil {
		const missing = "no python3 that makes virtual environments with pip: install it (Debian: apt-get install python3-venv)"
		if os.Getenv("HUBN_PEERS") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	requirements, err := filepath.Abs("testdata/schemathesis/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	folder := filepath.Join(cache, "hubn-test", "schemathesis")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // and with it the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	program, done := filepath.Join(folder, "venv", "bin", "schemathesis"), filepath.Join(folder, "installed")
	if have, err := os.ReadFile(done); err == nil && string(have) == string(content) {
		if _, err := os.Stat(program); err == nil {
			return program
		}
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), peerInstall)
	defer cancel()
	for _, args := range [][]string{
		{python, "-m", "venv", "--clear", filepath.Join(folder, "venv")},
		{filepath.Join(folder, "venv", "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--requirement", requirements},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("install schemathesis: %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(done, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return program
}
