package app

import (
	"strings"
	"testing"

	"hubn/schema/schematest"
)

// TestDoctorSaysWhatEachURLReaches has one module behind a pooler as its own role,
// one as the database's owner, and then both at PostgreSQL itself.
func TestDoctorSaysWhatEachURLReaches(t *testing.T) {
	db := schematest.New(t)
	through := db.Pooler(t)
	config := DefaultConfig()
	config.Database.URL = db.URL("")
	config.Registry.DatabaseURL = through("hubn_registry")
	config.Outbox.DatabaseURL = through("")
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   map[string]finding
	}{
		{"one right, one wrong", func(*Config) {}, map[string]finding{
			"database of the registry": {Result: checkOK, Detail: "through a pooler, as hubn_registry"},
			"database of the outbox":   {Result: checkFailed, Detail: "let it connect as hubn_outbox"},
		}},
		{"none", func(c *Config) { c.Registry.DatabaseURL, c.Outbox.DatabaseURL = "", "" }, map[string]finding{
			"database of the registry": {Result: checkOK, Detail: "without a pooler"},
			"database of the outbox":   {Result: checkOK, Detail: "without a pooler"},
		}},
	} {
		test.change(&config)
		d := &doctor{config: config}
		d.postgres(t.Context())
		found := map[string]finding{}
		for _, f := range d.findings {
			found[f.Check] = f
		}
		for check, want := range test.want {
			if got := found[check]; got.Result != want.Result || !strings.Contains(got.Detail, want.Detail) {
				t.Errorf("%s: %s: %+v, want %s with %q", test.name, check, got, want.Result, want.Detail)
			}
		}
	}
}
