package registry

import (
	"testing"

	"hubn/registry/client"
)

// TestImportOfRPSLIsInTheListOfImports: it keeps more of each kind than the others.
func TestImportOfRPSLIsInTheListOfImports(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `
INSERT INTO registry.import_job (format, actor, state, dry_run, prune, progress)
VALUES ('rpsl', 'the-admin', 'done', false, false,
        '{"objects": 9, "kinds": {"prefix": {"added": 4, "changed": 2, "deleted": 1}}}')`)
	jobs := as[client.Page[client.ImportJob]](h.get("/v1/imports").want(200)).Items
	if len(jobs) != 1 {
		t.Fatalf("the list has %d imports, want 1", len(jobs))
	}
	check(t, "kinds", jobs[0].Kinds, map[client.Kind]int{client.KindPrefix: 7})
	check(t, "total", jobs[0].Total, 9)
}
