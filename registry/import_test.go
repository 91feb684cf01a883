package registry

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
	"hubn/registry/rpsl"
	"hubn/schema/schematest"
)

// importing is an importer on a database of its own.
type importing struct {
	*importer
	db *schematest.DB
	t  testing.TB
}

func newImporting(t testing.TB) *importing {
	t.Helper()
	db := schematest.New(t)
	return &importing{
		importer: &importer{
			pool:  db.Pool(t, "hubn_registry"),
			log:   slog.New(slog.DiscardHandler),
			act:   func(context.Context, pgx.Tx, int64) error { return nil },
			stage: func(client.ImportProgress) {},
		},
		db: db,
		t:  t,
	}
}

func parsed(t testing.TB, text string) importRequest {
	t.Helper()
	var req importRequest
	req.actor = "test"
	for raw, err := range rpsl.Read("test.rpsl", strings.NewReader(text), new(rpsl.Tally)) {
		if err != nil {
			t.Fatal(err)
		}
		req.add(raw)
	}
	return req
}

func (im *importing) take(text string, change ...func(*importRequest)) *client.ImportResult {
	im.t.Helper()
	req := parsed(im.t, text)
	for _, c := range change {
		c(&req)
	}
	result, err := im.run(im.t.Context(), req)
	if err != nil {
		im.t.Fatalf("import: %v", err)
	}
	return result
}
