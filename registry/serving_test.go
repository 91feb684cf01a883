package registry_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/registry"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// serving is a Registry that runs over real PostgreSQL and answers real HTTP.
type serving struct {
	t     testing.TB
	db    databaseServer
	pool  *pgxpool.Pool // of the database's owner: plain SQL
	url   string
	names event.Names
	// admin, viewer and module are clients with the tokens of those roles; the
	// module is called mirror.
	admin, operator, viewer, module *client.Client
}

// databaseServer is where a Registry keeps its data: a database of the shared
// server, or a server of the test's own.
type databaseServer interface {
	URL(role string) string
	Pool(t testing.TB, role string) *pgxpool.Pool
	Conn(t testing.TB, role string) *pgx.Conn
}

// serve runs a Registry on a database of its own; r may be nil.
func serve(t testing.TB, r redis.UniversalClient) *serving {
	t.Helper()
	return serveOn(t, schematest.New(t), r)
}

func serveOn(t testing.TB, db databaseServer, r redis.UniversalClient) *serving {
	t.Helper()
	s := &serving{t: t, db: db, pool: db.Pool(t, ""), names: event.Names{Prefix: "hubn"}}
	tokens := map[string]registry.StaticToken{}
	for _, role := range []string{"admin", "operator", "viewer", "module"} {
		token := registry.StaticToken{Token: registry.NewSecret(), Name: role, Roles: []string{role}}
		if role == "module" {
			token.Name, token.Module = "mirror", "mirror"
		}
		tokens[role] = token
	}
	options := registry.Options{Settings: registry.DefaultSettings(), DatabaseURL: db.URL(""), Redis: r, Names: s.names}
	for _, token := range tokens {
		options.StaticTokens = append(options.StaticTokens, token)
	}
	s.run(registry.New(options))
	s.admin, s.operator = s.client(tokens["admin"].Token), s.client(tokens["operator"].Token)
	s.viewer, s.module = s.client(tokens["viewer"].Token), s.client(tokens["module"].Token)
	return s
}

func (s *serving) run(r *registry.Registry) {
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- r.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		s.t.Fatalf("the Registry did not start: %v", err)
	case <-time.After(time.Minute):
		s.t.Fatal("the Registry was not ready within a minute")
	}
	server := httptest.NewServer(r)
	s.url = server.URL
	s.t.Cleanup(func() {
		server.Close()
		stop()
		if err := <-ended; err != nil {
			s.t.Errorf("the Registry ended with %v", err)
		}
	})
}

func (s *serving) client(token string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Options{URL: s.url, Token: token})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// exec runs SQL as the database's owner, who is nobody that the API knows.
func (s *serving) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// one answers the single value of a query.
func one[T any](s *serving, sql string, args ...any) (v T) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (s *serving) lineage() string { return one[string](s, `SELECT registry.lineage_current()::text`) }

// prefix registers a prefix by plain SQL and answers its id.
func (s *serving) prefix(cidr string) int64 {
	s.t.Helper()
	return one[int64](s, `INSERT INTO registry.prefix (prefix) VALUES ($1::text::cidr) RETURNING id`, cidr)
}

// published makes all lanes look as if a worker had published them.
func (s *serving) published() {
	s.t.Helper()
	s.exec(`UPDATE registry.outbox_lane SET pub_seq = last_seq, published_at = clock_timestamp()`)
}

// must fails the test where a call fails.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// refused checks that an error is a problem of the kind, and that it says something.
func refused(t testing.TB, err error, kind problem.Kind, says string) {
	t.Helper()
	var p *problem.Error
	if !errors.As(err, &p) || p.Kind != kind || !strings.Contains(p.Error(), says) {
		t.Errorf("got error %v, want a problem of kind %s that says %q", err, kind, says)
	}
}
