package e2e

import (
	"os"
	"testing"

	"hubn/app/e2e/mirror"
)

// fixed is a database of which one URL is known.
type fixed string

// URL is the one, whatever the role.
func (f fixed) URL(string) string { return string(f) }

// dataFolder is a folder that the database's user can enter; t.TempDir's is not.
func dataFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubn-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWholeInstallationIsKilledAgainAndAgain kills a hubn that runs everything,
// PostgreSQL and Redis with it, in the middle of a burst, and starts it on what
// is left.
func TestWholeInstallationIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	const config = `
listen: ""
log: {level: debug, format: text}
outbox: {lease: 5s} # how long the claims of a killed worker stay
`
	folder := dataFolder(t)
	var log log
	p := serveOn(t, &log, folder, "registry,outbox", config)
	e := p.endpoints()
	s := newSite(t, fixed(e.DatabaseURL), e.RedisURL, func(s *site) { s.bare = true })
	s.url = e.RegistryURL
	s.tokens["admin"] = p.adminToken()
	s.tokens[mirror.Name] = p.newToken("--name", "mirror", "--role", "module", "--module", mirror.Name)
	s.admin = s.client("admin")
	s.mirror("one")
	b := newBurst(s)
	for range 2 {
		b.goesOn(3)
		p.kill()
		p = serveOn(t, &log, folder, "registry,outbox", config)
	}
	b.goesOn(3)
	b.kept(t)
	s.settled()
	s.waited()
	s.complete()
	s.noVersionWentBack()
	if got := len(s.lineages().Ancestry); got != 1 {
		t.Errorf("there are %d lineages, want 1: a crash does not change history", got)
	}
	p.endpoints()
	p.stop()
}
