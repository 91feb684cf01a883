package registry

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
	"hubn/schema/schematest"
)

// TestLimitsHoldBehindAPooler looks at a transaction's limits, and at what it left
// in the connection that the next one gets.
func TestLimitsHoldBehindAPooler(t *testing.T) {
	database := schematest.New(t)
	through := database.Pooler(t)
	settings := DefaultSettings()
	db, err := openDatabase(t.Context(), through(databaseRole), settings, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	const look = `SELECT name || ' ' || setting FROM pg_settings
		WHERE name IN ('jit', 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_isolation', 'transaction_read_only')`
	read := func(q interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}) map[string]bool {
		rows, err := q.Query(t.Context(), look)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, line := range lines {
			found[line] = true
		}
		return found
	}
	before := read(db.pool)
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	tx, err := db.begin(t.Context(), options, func(pgx.Tx) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	inside := read(tx)
	for name, value := range limits(settings) {
		if !inside[name+" "+value] {
			t.Errorf("%s is not %s in the transaction: %v", name, value, inside)
		}
	}
	for _, want := range []string{"transaction_isolation repeatable read", "transaction_read_only on"} {
		if !inside[want] {
			t.Errorf("%s does not hold in the transaction: %v", want, inside)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for line := range read(db.pool) {
		if !before[line] {
			t.Errorf("the transaction left %q", line)
		}
	}
}

func TestPoolerIsToldOf(t *testing.T) {
	database := schematest.New(t)
	through := database.Pooler(t)
	_, err := openDatabase(t.Context(), through(""), DefaultSettings(), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "let it connect as "+databaseRole) {
		t.Errorf("as the owner: %v, want the role to connect as", err)
	}
	h := newHarness(t, func(o *Options) { o.DatabaseURL = through(databaseRole) })
	var found client.OutboxDoctor
	h.post("/v1/outbox/doctor", nil, token(h.operator)).want(200).decode(&found)
	for _, f := range found.Findings {
		if f.Check == "pooler" && f.Level == "ok" && strings.Contains(f.Detail, "a pooler is between") {
			return
		}
	}
	t.Errorf("the doctor says nothing of the pooler: %+v", found.Findings)
}
