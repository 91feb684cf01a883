package schema_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hubn/schema"
	"hubn/schema/pooler"
	"hubn/schema/schematest"
)

func TestPoolerIsFound(t *testing.T) {
	db := schematest.New(t)
	through := db.Pooler(t)
	for url, want := range map[string]bool{db.URL(""): false, through(""): true, through("hubn_registry"): true} {
		if got, err := pooler.Ask(t.Context(), url); err != nil || got != want {
			t.Errorf("a pooler at %s: %v, %v; want %v", url, got, err, want)
		}
	}
}

// TestMigrationsAtOnceThroughAPooler migrates an empty database several times at once:
// their transactions share the pooler's few connections.
func TestMigrationsAtOnceThroughAPooler(t *testing.T) {
	db := schematest.New(t)
	db.Exec(t, `DROP SCHEMA registry CASCADE`)
	through := db.Pooler(t)
	migrate := func() (applied []schema.Applied, err error) {
		conn, err := pooler.Connect(t.Context(), through(""))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, conn.Close(context.Background())) }()
		return schema.Migrate(t.Context(), conn, schema.Registry)
	}
	type result struct {
		applied []schema.Applied
		err     error
	}
	results := make(chan result)
	const migrations = 4
	for range migrations {
		go func() {
			applied, err := migrate()
			results <- result{applied, err}
		}()
	}
	times := map[int]int{}
	for range migrations {
		r := <-results
		if r.err != nil {
			t.Errorf("a migration failed: %v", r.err)
		}
		for _, step := range r.applied {
			times[step.Version]++
		}
	}
	want := map[int]int{}
	for n := range len(times) {
		want[n+1] = 1
	}
	if diff := cmp.Diff(want, times); diff != "" || len(times) < 17 {
		t.Errorf("how often each version was applied (-want +got):\n%s", diff)
	}
	if applied, err := migrate(); err != nil || len(applied) > 0 {
		t.Errorf("migration of what is up to date: %v, %v; want nothing", applied, err)
	}
}
