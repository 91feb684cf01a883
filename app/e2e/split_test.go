package e2e

import (
	"fmt"
	"strings"
	"testing"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

// TestWorkersAreFrozenAndKilledInTheMiddleOfADrain stops processes while they
// drain a backlog, each with claims in its hands: one for longer than its lease,
// so that it goes on with a batch that others have taken over, and two for ever.
func TestWorkersAreFrozenAndKilledInTheMiddleOfADrain(t *testing.T) {
	t.Parallel()
	redis := eventtest.Server(t)
	s := newSite(t, schematest.New(t), redis.URL())
	s.mirror("one")
	s.announce(0, 200, 64496)
	s.exec(`INSERT INTO registry.organisation (handle) SELECT 'ORG-' || n FROM generate_series(1, 2000) n`)
	for i := range 15 {
		s.exec(`UPDATE registry.organisation SET name = $1`, fmt.Sprint(i))
		s.exec(`UPDATE registry.prefix SET origin_asn = $1::int`, 64500+i)
	}
	d := &drain{site: s}
	for range 3 {
		d.worker()
	}

	frozen := d.caught(d.others(nil)...)
	d.caught(d.others(frozen)...).kill()
	d.worker()
	d.caught(d.others(frozen)...).kill()
	s.eventually("the frozen worker's claims have expired and were taken over", func() error {
		if n := d.claims(frozen); n > 0 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	frozen.thaw()
	s.settled()
	s.exec(`UPDATE registry.prefix SET origin_asn = 64510`)
	s.settled()
	s.complete()
	for _, p := range append(d.others(frozen), frozen) {
		p.endpoints() // so that it listens to signals
		p.stop()
	}
	s.complete()
}

// drain are worker processes at a backlog.
type drain struct {
	site    *site
	started []*program
	log     log
}

func (d *drain) worker() {
	d.site.t.Helper()
	d.started = append(d.started, serve(d.site.t, &d.log, "outbox", workerConfig(d.site.databaseURL("hubn_outbox"), d.site.redisURL)))
}

// others are the processes that run, but for one.
func (d *drain) others(but *program) (running []*program) {
	for _, p := range d.started {
		select {
		case <-p.done:
		default:
			if p != but {
				running = append(running, p)
			}
		}
	}
	return running
}

// caught freezes one of some processes at a moment when it has claims.
func (d *drain) caught(candidates ...*program) (caught *program) {
	d.site.t.Helper()
	d.site.eventually("a worker is caught with claims", func() error {
		for _, p := range candidates {
			p.freeze()
			if d.claims(p) > 0 {
				caught = p
				return nil
			}
			p.thaw()
		}
		left := ask[int](d.site, `SELECT sum(last_seq - pub_seq)::int FROM registry.outbox_lane`)
		return fmt.Errorf("none has any; %d events are left\n%s", left, &d.log)
	})
	return caught
}

// claims is how many lanes a process has claimed.
func (d *drain) claims(p *program) int {
	d.site.t.Helper()
	return ask[int](d.site, `SELECT count(*) FROM registry.outbox_lane WHERE claimed_by LIKE $1`, fmt.Sprintf("%%-%d/%%", p.cmd.Process.Pid))
}

// TestSplitInstall runs the Registry and two workers in processes of their own,
// from configuration files, with nothing but URLs and tokens between them.
func TestSplitInstall(t *testing.T) {
	t.Parallel()
	const databasePassword, redisPassword = "database-xb5k2m", "redis-q8w3zt"
	db := schematest.New(t)
	redis := eventtest.Server(t, "user hubn on >"+redisPassword+" ~* &* +@all")
	// The site is there for its relay, its mirror and its questions; the Registry
	// that its mirror asks is the process.
	s := newSite(t, db, "redis://hubn:"+redisPassword+"@"+redis.Addr()+"/0", func(s *site) { s.password, s.bare = databasePassword, true })
	var log log
	registry := serve(t, &log, "registry", fmt.Sprintf(`
listen: 127.0.0.1:0
log: {level: debug, format: json}
database: {url: %q}
redis: {url: %q}
registry:
  database_url: %q
`, s.databaseURL("hubn"), s.redisURL, s.databaseURL("hubn_registry")))
	url := registry.endpoints().RegistryURL
	first := serve(t, &log, "outbox", workerConfig(s.databaseURL("hubn_outbox"), s.redisURL))
	second := serve(t, &log, "outbox", workerConfig(s.databaseURL("hubn_outbox"), s.redisURL))
	first.endpoints()
	second.endpoints()

	s.url = url
	s.tokens[mirror.Name] = registry.newToken("--name", "mirror", "--role", "module", "--module", mirror.Name)
	s.tokens["admin"] = registry.newToken("--name", "operator", "--role", "operator")
	s.admin = s.client("admin")
	s.mirror("one")

	as := []string{"--url", url, "--token", s.tokens["admin"]}
	do := func(args ...string) string {
		t.Helper()
		out, err := run(t, &log, append(args, as...)...)
		if err != nil {
			t.Fatalf("hubn %v: %v\n%s\n%s", args, err, out, &log)
		}
		return out
	}
	do("prefix", "create", "192.0.2.0/24", "--announced", "--origin", "64496")
	s.announce(0, 50, 64497) // plain SQL sends no hint
	do("wait", "--timeout", "60s")
	s.holds(append(origins(0, 0, 50, 64497), "AS64496,192.0.2.0/24,24")...)

	first.kill()
	s.exec(`DELETE FROM registry.prefix WHERE prefix <<= '10.0.0.0/20'`)
	do("wait", "--timeout", "60s")
	s.holds(append(origins(0, 16, 50, 64497), "AS64496,192.0.2.0/24,24")...)
	s.settled()
	s.complete()
	second.stop()
	registry.stop()
	if strings.Contains(log.String(), "embedded") {
		t.Errorf("a process runs services of its own, although it was told where they are:\n%s", &log)
	}

	secrets := map[string]string{
		"the operator's token": s.tokens["admin"], "the module's token": s.tokens[mirror.Name], "the administrator's token": registry.adminToken(),
	}
	for what, secret := range secrets {
		secrets[what] = secretPart(t, secret)
	}
	secrets["the database's password"], secrets["the password of Redis"] = databasePassword, redisPassword
	noSecrets(t, log.String(), secrets)
}
