// Package schematest gives tests real PostgreSQL databases with HubN's schema.
//
// New is a fresh migrated database on one server that all packages of a test
// run share, although each is a process of its own. StartCluster is a whole server of
// the test's own, for tests that restart it, promote a standby, or dump and
// restore. HUBN_TEST_DATABASE_URL makes New use a server that runs already (the
// URL of a role that may create databases and roles).
package schematest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/schema"
)

// URLEnv names a server to use instead of starting one.
const URLEnv = "HUBN_TEST_DATABASE_URL"

// setupTimeout bounds what precedes a test; a cold start takes about 4 s, more
// when every package of a run compiles at the same time.
const setupTimeout = 2 * time.Minute

// DB is a database of one test, dropped when the test ends.
type DB struct {
	// Name is the database's name on its server.
	Name   string
	server server
}

// New is a fresh database with the Registry's schema, for this test alone. Its
// lineage has begun.
func New(t testing.TB) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	s, err := sharedServer(ctx)
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	name := "test_" + randomName()
	if err := s.claimClone(ctx, name); err != nil {
		t.Fatalf("schematest: %v", err)
	}
	restocked := make(chan error, 1)
	restocking, stop := context.WithCancel(context.Background())
	go func() { restocked <- s.restock(restocking) }()
	t.Cleanup(func() {
		stop()
		if err := <-restocked; err != nil {
			t.Errorf("schematest: make the next clones: %v", err)
		}
		if err := s.drop(name); err != nil {
			t.Errorf("schematest: %v", err)
		}
	})
	return &DB{Name: name, server: s}
}

// URL is the database's URL for a role; empty is the owner, who may do everything.
func (db *DB) URL(role string) string { return db.server.url(role, db.Name) }

// Pool is a pool of connections as a role, closed when the test ends.
func (db *DB) Pool(t testing.TB, role string) *pgxpool.Pool {
	t.Helper()
	return pool(t, db.URL(role))
}

// Conn is one connection as a role, closed when the test ends.
func (db *DB) Conn(t testing.TB, role string) *pgx.Conn {
	t.Helper()
	return conn(t, db.URL(role))
}

// Exec runs SQL as the owner.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	execute(t, db.URL(""), sql, args...)
}

// Migrate adds another set to the database.
func (db *DB) Migrate(t testing.TB, set schema.Set) {
	t.Helper()
	if _, err := schema.Migrate(t.Context(), db.Conn(t, ""), set); err != nil {
		t.Fatalf("schematest: %v", err)
	}
}

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

func conn(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func execute(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("schematest: %v", err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("schematest: %s: %v", sql, err)
	}
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%d_%s", os.Getpid(), hex.EncodeToString(b[:]))
}
