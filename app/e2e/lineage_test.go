package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hubn/app/e2e/mirror"
	"hubn/outbox"
	"hubn/outbox/event/eventtest"
	"hubn/registry"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// copied makes a copy of the stack's database as it is now: what a backup would
// bring back. It has no connection to the original; a Registry that opens it
// finds that its history goes on elsewhere.
func (s *stack) copied() string {
	s.t.Helper()
	ctx := s.t.Context()
	u, err := url.Parse(s.db.URL(""))
	if err != nil {
		s.t.Fatal(err)
	}
	name := s.db.Name + "_copy"
	u.Path = "/postgres"
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
		_ = conn.Close(context.Background())
		if err != nil {
			s.t.Errorf("drop the copy: %v", err)
		}
	})
	// A template may have no other connections.
	const others = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1`
	eventtest.Eventually(s.t, "the database is copied", func() bool {
		if _, err := conn.Exec(ctx, others, s.db.Name); err != nil {
			s.t.Fatal(err)
		}
		_, err = conn.Exec(ctx, `CREATE DATABASE `+name+` TEMPLATE `+s.db.Name)
		return err == nil
	})
	s.pool.Reset() // its connections were cut
	u.Path = "/" + name
	return u.String()
}

// another starts a Registry and a worker on another database, and puts the
// Registry in the place of the stack's.
func (s *stack) another(databaseURL string) {
	s.t.Helper()
	options := registry.Options{
		Settings: registry.DefaultSettings(), DatabaseURL: databaseURL, Redis: s.redis, Names: s.names, Log: s.log.With("part", "registry 2"),
	}
	for name, token := range map[string]registry.StaticToken{
		"admin":     {Roles: []string{"admin"}},
		mirror.Name: {Roles: []string{"module"}, Module: mirror.Name},
	} {
		token.Token, token.Name = s.tokens[name], name
		options.StaticTokens = append(options.StaticTokens, token)
	}
	r := registry.New(options)
	s.start("registry 2", r.Run)
	s.between(func(http.Handler) http.Handler { return r })
	w := outbox.New(outbox.Options{
		Settings: outbox.DefaultSettings(), DatabaseURL: databaseURL, Redis: s.redis, Names: s.names, Log: s.log.With("part", "outbox 2"),
	})
	s.start("outbox 2", w.Run)
}

// The Registry is brought back to an earlier state. The mirror follows it into
// the new lineage; what the Registry no longer knows is held.
func TestRestoredRegistryIsFollowedAndItsLossesAreHeld(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	w := s.worker()
	kept := s.announced("192.0.2.0/24", 64496)
	deleted := s.announced("198.51.100.0/24", 64496)
	m := s.mirror("one")
	s.quiet()
	backup := s.copied()

	// The hour that will be lost: a change, a new source, and a deletion.
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497 WHERE id = $1::text::bigint`, kept.Key)
	s.exec(`UPDATE registry.prefix SET origin_asn = 64498 WHERE id = $1::text::bigint`, kept.Key)
	for i := range 7 {
		s.announced(fmt.Sprintf("203.0.113.%d/28", 16*i), 64499)
	}
	s.exec(`DELETE FROM registry.prefix WHERE id = $1::text::bigint`, deleted.Key)
	s.quiet()
	old := m.mirror.Consumer().Lineage()

	w.end()
	s.another(backup)
	eventtest.Eventually(t, "the new lineage is adopted", func() bool { return m.mirror.Consumer().Lineage() != old })
	want := []string{"AS64496,192.0.2.0/24,24", "AS64496,198.51.100.0/24,24"}
	for i := range 7 {
		want = append(want, fmt.Sprintf("AS64499,203.0.113.%d/28,28", 16*i))
	}
	slices.Sort(want)
	if got := s.mirrored(); !slices.Equal(got, want) {
		t.Errorf("the mirror has %v, want %v: the old state, and the lost sources held", got, want)
	}
	if got := s.texts(`SELECT s.reason FROM mirror.held_set s`); len(got) != 1 || !strings.Contains(got[0], "knows nothing") {
		t.Errorf("held for %v, want one withdrawal that says why", got)
	}

	// Events of the new lineage count from where its versions are.
	conn, err := pgx.Connect(t.Context(), backup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	change := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	change(`UPDATE registry.prefix SET origin_asn = 64500 WHERE prefix = '192.0.2.0/24'`)
	s.waited()
	want[slices.Index(want, "AS64496,192.0.2.0/24,24")] = "AS64500,192.0.2.0/24,24"
	slices.Sort(want)
	if got := s.mirrored(); !slices.Equal(got, want) {
		t.Errorf("after a change in the new lineage the mirror has %v, want %v", got, want)
	}

	id := one[int64](s, `SELECT id FROM mirror.held_set`)
	if answer := s.order("approve", fmt.Sprintf(`{"held": %d}`, id)); answer.State != client.ReportApplied {
		t.Errorf("the answer to approve is %+v", answer)
	}
	eventtest.Eventually(t, "the lost sources are withdrawn", func() bool { return len(s.mirrored()) == 2 })
}

// A Registry that has nothing to do with the mirror's history is not followed,
// however much it looks like one, until an operator says so; and even then
// nothing is withdrawn without another word.
func TestForeignRegistryIsNotFollowed(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	w := s.worker()
	for i := range 8 {
		s.announced(fmt.Sprintf("192.0.2.%d/27", 32*i), 64496)
	}
	m := s.mirror("one")
	s.quiet()
	before := s.mirrored()
	old := m.mirror.Consumer().Lineage()
	w.end()

	foreign := schematest.New(t)
	foreign.Exec(t, `INSERT INTO registry.prefix (prefix, announced, origin_asn) VALUES ('203.0.113.0/24', true, 64500)`)
	s.another(foreign.URL(""))
	var lineage string
	eventtest.Eventually(t, "the status is loud", func() bool {
		status := m.mirror.Status()
		lineage, _ = status.Detail["foreign_lineage"].(string)
		return !status.Ready && lineage != "" && strings.Contains(status.Reason, "adopt-lineage "+lineage)
	})
	if got := s.mirrored(); !slices.Equal(got, before) || m.mirror.Consumer().Lineage() != old {
		t.Errorf("the mirror has %v in lineage %s, want %v in %s", got, m.mirror.Consumer().Lineage(), before, old)
	}
	if err := m.mirror.AdoptLineage(t.Context(), "00000000-0000-4000-8000-000000000000"); err != nil {
		t.Fatal(err)
	}
	s.refusedNow(m)
	if got := m.mirror.Consumer().Lineage(); got != old {
		t.Errorf("permission for one lineage let %s in", got)
	}
	if err := m.mirror.AdoptLineage(t.Context(), lineage); err != nil {
		t.Fatal(err)
	}
	eventtest.Eventually(t, "the lineage is adopted", func() bool { return m.mirror.Consumer().Lineage() == lineage })
	// Ids of another history mean other things: the foreign prefix:1 replaces
	// the mirror's own, and what the lineage has no id for is held.
	want := append(slices.DeleteFunc(before, func(t string) bool { return t == "AS64496,192.0.2.0/27,27" }), "AS64500,203.0.113.0/24,24")
	eventtest.Eventually(t, "the mirror has what the lineage states, and holds the rest", func() bool { return slices.Equal(s.mirrored(), want) })
	eventtest.Eventually(t, "the status is ready again", func() bool { return m.mirror.Status().Ready })
}

// refusedNow waits for a refusal that begins from now on.
func (s *stack) refusedNow(r *replica) {
	s.t.Helper()
	before := s.metric(r, "hubn_consumer_reconciliations_total", "refused")
	eventtest.Eventually(s.t, "another reconciliation is refused", func() bool {
		return s.metric(r, "hubn_consumer_reconciliations_total", "refused") > before+1
	})
}
