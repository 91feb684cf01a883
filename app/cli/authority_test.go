package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// bodyOf is what the arguments of a noun's create or set make of its body.
func bodyOf[T any](t *testing.T, n *noun[T], creating bool, args ...string) (map[string]any, error) {
	t.Helper()
	cmd := &cobra.Command{}
	f := n.bodyFlags(cmd, creating)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	body, err := f.body()
	if err == nil && n.implied != nil {
		n.implied(body, creating)
	}
	return body, err
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBodiesOfCAsAndSessions(t *testing.T) {
	pem, der, password := writeFile(t, "-----BEGIN"), writeFile(t, "\x30\x82\x01\x00"), writeFile(t, "secret\r\n")
	ca, session := testShell().authority(), testShell().session()
	for _, c := range []struct {
		name string
		got  func() (map[string]any, error)
		want map[string]any
	}{
		{"a request makes a CA delegated", func() (map[string]any, error) { return bodyOf(t, ca, true, "--csr", pem) },
			map[string]any{"csr": "-----BEGIN", "mode": "delegated"}},
		{"DER is kept as it is", func() (map[string]any, error) { return bodyOf(t, ca, false, "--csr", der) },
			map[string]any{"csr": []byte("\x30\x82\x01\x00")}},
		{"a trust anchor", func() (map[string]any, error) { return bodyOf(t, ca, false, "--parent", "none") }, map[string]any{"parent": nil}},
		{"a new one", func() (map[string]any, error) {
			return bodyOf(t, ca, true, "--parent", "none", "--organisation", "none")
		}, map[string]any{}},
		{"a password without the end of its line", func() (map[string]any, error) { return bodyOf(t, session, true, "--password-file", password) },
			map[string]any{"password": "secret"}},
		{"no password any more", func() (map[string]any, error) { return bodyOf(t, session, false, "--password-file", "none") }, map[string]any{"password": nil}},
		{"families", func() (map[string]any, error) { return bodyOf(t, session, true, "--family", "ipv6-unicast") },
			map[string]any{"families": []any{"ipv6-unicast"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.got()
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
	for name, path := range map[string]string{"empty": writeFile(t, "\n"), "missing": "/nonexistent", "too long": writeFile(t, string(make([]byte, 5000)))} {
		if got, err := bodyOf(t, session, true, "--password-file", path); err == nil {
			t.Errorf("%s: taken as %v", name, got)
		}
	}
}

func TestStatesOfACertificate(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	c := client.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	for at, want := range map[time.Time]string{now: "wanted", now.Add(-2 * time.Hour): "to come", now.Add(2 * time.Hour): "expired"} {
		if got := certificateState(c, at); got != want {
			t.Errorf("at %s: %q, want %q", at, got, want)
		}
	}
	c.Revoked = &client.RevocationSource{Reason: "superseded", RevokedAt: now}
	if got := certificateState(c, now); got != "revoked" {
		t.Errorf("revoked: %q", got)
	}
}
