package event

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubn/registry/client"
	"hubn/schema"
	"hubn/schema/schematest"
)

// kept is a store around a table of bodies, and what it was told.
type kept struct {
	Store
	// bodies reads the module's own state.
	bodies func() map[client.Resource]string
	// poison makes Write fail for a body that holds the word.
	poison *string
	// hold is called inside of every Write.
	hold *func()
}

const testTables = `
CREATE TABLE test.body (kind text, key text, body text NOT NULL, PRIMARY KEY (kind, key));`

func testSet(name string) schema.Set {
	in := func(sql string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.ReplaceAll(sql, "test.", name+"."))}
	}
	return schema.Set{Schema: name, Roles: []string{"hubn_mirror"}, Files: fstest.MapFS{
		"0001_consumer.sql": in(PostgresTables("test")),
		"0002_body.sql":     in(testTables),
		"grants.sql":        in("GRANT USAGE ON SCHEMA " + name + " TO hubn_mirror; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + name + " TO hubn_mirror;"),
	}}
}

// postgresKept is a PostgresStore that works as a module's role.
func postgresKept(t *testing.T, db *schematest.DB, schema string) kept {
	db.Migrate(t, testSet(schema))
	config, err := pgxpool.ParseConfig(db.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE hubn_mirror`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	k := kept{poison: new(string), hold: new(func())}
	k.Store = NewPostgresStore(PostgresOptions{Pool: pool, Schema: schema,
		Write: func(ctx context.Context, tx pgx.Tx, changes []Change, _ any) error {
			if *k.hold != nil {
				(*k.hold)()
			}
			for _, c := range changes {
				if *k.poison != "" && strings.Contains(string(c.Body), *k.poison) {
					return fmt.Errorf("%s is poisoned", c.Resource)
				}
				sql, args := `DELETE FROM `+schema+`.body WHERE kind = $1 AND key = $2`, []any{string(c.Resource.Kind), c.Resource.Key}
				if !c.Gone() {
					sql = `INSERT INTO ` + schema + `.body VALUES ($1, $2, $3) ON CONFLICT (kind, key) DO UPDATE SET body = EXCLUDED.body`
					args = append(args, string(c.Body))
				}
				if _, err := tx.Exec(ctx, sql, args...); err != nil {
					return err
				}
			}
			return nil
		}})
	k.bodies = func() map[client.Resource]string {
		rows, err := pool.Query(context.Background(), `SELECT kind, key, body FROM `+schema+`.body`)
		if err != nil {
			t.Fatal(err)
		}
		out := map[client.Resource]string{}
		var r client.Resource
		var body string
		if _, err := pgx.ForEachRow(rows, []any{&r.Kind, &r.Key, &body}, func() error { out[r] = compact(body); return nil }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	return k
}

// memoryKept is a MemoryStore.
func memoryKept(t *testing.T) kept {
	var mu sync.Mutex
	bodies := map[client.Resource]string{}
	k := kept{poison: new(string), hold: new(func())}
	k.Store = NewMemoryStore(MemoryOptions{Write: func(_ context.Context, c Change) error {
		if *k.hold != nil {
			(*k.hold)()
		}
		if *k.poison != "" && strings.Contains(string(c.Body), *k.poison) {
			return fmt.Errorf("%s is poisoned", c.Resource)
		}
		mu.Lock()
		defer mu.Unlock()
		if c.Gone() {
			delete(bodies, c.Resource)
		} else {
			bodies[c.Resource] = compact(string(c.Body))
		}
		return nil
	}})
	k.bodies = func() map[client.Resource]string {
		mu.Lock()
		defer mu.Unlock()
		out := map[client.Resource]string{}
		for r, b := range bodies {
			out[r] = b
		}
		return out
	}
	return k
}

func compact(s string) string { return strings.ReplaceAll(s, " ", "") }

// contract is what every store keeps.
var contract = []struct {
	name string
	test func(t *testing.T, k kept)
}{
	{"store never goes back", storeNeverGoesBack},
	{"store refuses another lineage", storeRefusesAnotherLineage},
	{"one bad change stops no other", storeOneBadChangeStopsNoOther},
	{"a panic is a failure of the change", storeTakesAPanicAsAFailure},
	{"store withdraws only what was seen", storeWithdrawsOnlyWhatWasSeen},
	{"inventory is in order and without the gone", storeInventoryIsInOrderAndWithoutTheGone},
	{"retry list is claimed and settled", storeRetryListIsClaimedAndSettled},
	{"held withdrawals are decided", storeHeldWithdrawalsAreDecided},
	{"replacement changes everything at once", storeReplacementChangesEverythingAtOnce},
	{"replacement loses to another one", storeReplacementLosesToAnotherOne},
	{"replacement keeps what cannot be written", storeReplacementKeepsWhatCannotBeWritten},
	{"wishes are counted", storeWishesAreCounted},
	{"concurrent writers end with the newest", storeConcurrentWritersEndWithTheNewest},
}

func TestPostgresStore(t *testing.T) {
	db := schematest.New(t)
	for i, c := range contract {
		t.Run(c.name, func(t *testing.T) { c.test(t, postgresKept(t, db, fmt.Sprintf("test%d", i))) })
	}
}

func TestMemoryStore(t *testing.T) {
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) { c.test(t, memoryKept(t)) })
	}
}

func body(text string) json.RawMessage { return json.RawMessage(`{"text":"` + text + `"}`) }

func present(n int, version int64, text string) Change {
	return Change{Resource: prefix(n), Version: version, Body: body(text), FetchedAt: epochStart}
}

func gone(n int, version int64) Change {
	return Change{Resource: prefix(n), Version: version, FetchedAt: epochStart}
}

// begun makes the lineage L the store's.
func (k kept) begun(t *testing.T) kept {
	t.Helper()
	if err := k.Begin(t.Context(), "L"); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k kept) results(t *testing.T, lineage string, changes ...Change) []Result {
	t.Helper()
	outcomes, err := k.Apply(t.Context(), lineage, changes)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]Result, len(outcomes))
	for i, o := range outcomes {
		out[i] = o.Result
	}
	return out
}

func (k kept) check(t *testing.T, want map[client.Resource]string) {
	t.Helper()
	if diff := cmp.Diff(want, k.bodies()); diff != "" {
		t.Errorf("the module has (-want +got):\n%s", diff)
	}
}

func text(s string) string { return `{"text":"` + s + `"}` }
