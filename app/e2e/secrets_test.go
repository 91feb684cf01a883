package e2e

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// secretPart is what of a token is secret: not its prefix, nor its public id.
func secretPart(t testing.TB, token string) string {
	t.Helper()
	const public, length = len("hubn_0123456789abcdef"), 20
	if len(token) < public+length {
		t.Fatalf("%q is not a token of HubN", token)
	}
	return token[public : public+length]
}

// noSecrets checks that a log holds none of the secrets, and that it is a log.
func noSecrets(t testing.TB, text string, secrets map[string]string) {
	t.Helper()
	if !strings.Contains(strings.ToUpper(text), "DEBUG") {
		t.Error("the log has no lines of level debug: it was not looked at closely")
	}
	for what, secret := range secrets {
		at := strings.Index(text, secret)
		if at < 0 {
			continue
		}
		line := text[strings.LastIndexByte(text[:at], '\n')+1:]
		line, _, _ = strings.Cut(line, "\n")
		t.Errorf("%s is in the log: %s", what, line)
	}
}

// adminToken is the administrator's token of a process with the Registry.
func (p *program) adminToken() string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.folder, "admin.token"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// holds checks what the mirror has at this moment.
func (s *site) holds(want ...string) {
	s.t.Helper()
	got, err := list(s.t.Context(), s.mirrors, sqlMirrored)
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("the mirror has %s, want %s", briefly(got, want), briefly(want, got))
	}
}

// TestLogsHoldNoSecret runs everything at level debug through faults that make
// errors, of which each could name a URL or a token.
func TestLogsHoldNoSecret(t *testing.T) {
	t.Parallel()
	const databasePassword, redisPassword = "database-p4v9hn", "redis-c7r2ys"
	var log log
	redis := eventtest.Server(t, "user hubn on >"+redisPassword+" ~* &* +@all")
	s := newSite(t, schematest.New(t), "redis://hubn:"+redisPassword+"@"+redis.Addr()+"/0", func(s *site) {
		s.password = databasePassword
		s.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	workers := s.workers(1)
	s.mirror("one")
	s.announce(0, 10, 64496)
	s.settled()

	for _, wrong := range []string{s.tokens["admin"] + "x", strings.ToUpper(s.tokens["admin"]), s.tokens["admin"][:40]} {
		s.asks(wrong, "/v1/prefixes")
	}
	s.asks(s.tokens["admin"], "/v1/prefixes/"+s.tokens["admin"])
	s.asks(s.tokens["admin"], "/v1/resolve?q="+s.tokens["admin"])
	var made client.NewToken
	if _, err := s.admin.Create(t.Context(), "/v1/tokens", client.Write{}, map[string]any{"name": "new", "roles": []string{"viewer"}}, &made); err != nil {
		t.Fatal(err)
	}
	s.asks(made.Secret, "/v1/prefixes")
	s.database.cut()
	redis.Stop()
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
	s.noticed(workers)
	redis.Start()
	s.settled()

	noSecrets(t, log.String(), map[string]string{
		"the administrator's token": secretPart(t, s.tokens["admin"]), "the module's token": secretPart(t, s.tokens[mirror.Name]),
		"a token that was made": secretPart(t, made.Secret), "the database's password": databasePassword, "the password of Redis": redisPassword,
	})
}

// TestURLsThatCannotBeReadAreNotRepeated starts processes whose URLs are wrong in
// a way that leaves open where the password ends.
func TestURLsThatCannotBeReadAreNotRepeated(t *testing.T) {
	t.Parallel()
	const secret = "k3x9vq"
	for _, c := range []struct{ modules, setting, config string }{
		{"outbox", "outbox.database_url", `{redis: {url: "redis://127.0.0.1:1/0"}, outbox: {database_url: "postgresql://hubn:%zz` + secret + `@127.0.0.1/hubn"}}`},
		{"outbox", "outbox.database_url", `{redis: {url: "redis://127.0.0.1:1/0"}, outbox: {database_url: "host=127.0.0.1 pass word=` + secret + `"}}`},
		{"outbox", "redis.url", `{redis: {url: "redis://hubn:%zz` + secret + `@127.0.0.1:1/0"}, outbox: {database_url: "postgresql://hubn@127.0.0.1/hubn"}}`},
		{"outbox", "redis.url", `{redis: {url: "redis://hubn:` + secret + `#@127.0.0.1:1/0"}, outbox: {database_url: "postgresql://hubn@127.0.0.1/hubn"}}`},
		{"registry", "registry.database_url", `{redis: {url: "redis://127.0.0.1:1/0"}, registry: {database_url: "postgresql://hubn:%zz` + secret + `@127.0.0.1/hubn"}}`},
		{"registry", "database.url", `{redis: {url: "redis://127.0.0.1:1/0"}, database: {url: "postgresql://hubn:%zz` + secret + `@127.0.0.1/hubn"}}`},
	} {
		var log log
		p := serve(t, &log, c.modules, c.config)
		select {
		case <-p.done:
		case <-time.After(recovery):
			t.Fatalf("%s: it goes on:\n%s", c.config, &log)
		}
		if text := log.String(); p.err == nil || !strings.Contains(text, c.setting) || strings.Contains(text, secret) {
			t.Errorf("%s: it ended with %v and said\n%s\nwant a failure that names the setting and not its text", c.config, p.err, text)
		}
	}
}

// asks makes a request whatever comes of it.
func (s *site) asks(token, path string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestRolesCannotReadAnothersSchema asks each module's role for what is not its own.
func TestRolesCannotReadAnothersSchema(t *testing.T) {
	t.Parallel()
	db := schematest.New(t)
	db.Migrate(t, mirror.Set)
	const insufficientPrivilege = "42501"
	own := map[string]string{
		"hubn_registry": `SELECT count(*) FROM registry.prefix`,
		"hubn_outbox":   `SELECT count(*) FROM registry.outbox_lane`,
		"hubn_mirror":   `SELECT count(*) FROM mirror.route_origin`,
	}
	for role, sql := range own {
		conn := db.Conn(t, role)
		var n int
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Errorf("%s cannot read its own: %v", role, err)
		}
		for _, table := range tablesOf(t, db) {
			if mayRead(role, table) {
				continue
			}
			for _, sql := range []string{`SELECT FROM ` + table + ` LIMIT 1`, `DELETE FROM ` + table} {
				_, err := conn.Exec(t.Context(), sql)
				if refused, ok := err.(*pgconn.PgError); !ok || refused.Code != insufficientPrivilege {
					t.Errorf("%s: %s: got %v, want that it is refused", role, sql, err)
				}
			}
		}
	}
}

// mayRead tells which tables a role may read: its own schema's, and the outbox's
// worker only those of the outbox.
func mayRead(role, table string) bool {
	switch role {
	case "hubn_registry":
		return strings.HasPrefix(table, "registry.")
	case "hubn_outbox":
		return slices.Contains([]string{"registry.outbox_lane", "registry.outbox_event", "registry.outbox_stream", "registry.outbox_row_state"}, table)
	default:
		return strings.HasPrefix(table, "mirror.")
	}
}

// tablesOf are the tables and views of both schemas.
func tablesOf(t *testing.T, db *schematest.DB) []string {
	t.Helper()
	rows, err := db.Conn(t, "").Query(t.Context(), `
		SELECT format('%I.%I', n.nspname, c.relname)
		FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('registry', 'mirror')
		  AND c.relkind IN ('r', 'p', 'v')
		  AND NOT c.relispartition
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return tables
}
