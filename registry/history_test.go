package registry_test

import (
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

func TestARegistryOnAStandbyDoesNotStart(t *testing.T) {
	primary := schematest.StartCluster(t)
	standby := primary.Standby(t)
	standby.WaitCaughtUp(t, primary)
	r := registry.New(registry.Options{Settings: registry.DefaultSettings(), DatabaseURL: standby.URL("")})
	ready := false
	err := r.Run(t.Context(), func() { ready = true })
	if err == nil || ready || !strings.Contains(err.Error(), "standby") {
		t.Errorf("it ended with %v, ready: %t", err, ready)
	}
}

// afterHistoryWentBack checks what must not survive a history that went back:
// before is the Registry as it was, after what was restored or promoted.
func afterHistoryWentBack(t *testing.T, token, lineage string, barrier int64, after *serving) {
	t.Helper()
	ctx := t.Context()
	answer := must[client.Lineages](t)(after.viewer.Lineage(ctx))
	if answer.Lineage == lineage || answer.Ancestry[0].Parent != lineage {
		t.Errorf("the lineage is %+v after %s", answer.Ancestry[0], lineage)
	}
	_, err := after.viewer.ScanPage(ctx, client.KindPrefix, client.PageRequest{Since: token})
	refused(t, err, problem.Stale, lineage)
	if f := after.viewer.In(lineage).Fetch(ctx, named("prefix:1")); client.ReasonOf(f.Err()) != client.ForeignLineage {
		t.Errorf("who holds the old lineage is served %s: %v", f.Outcome(), f.Err())
	}
	if f := after.viewer.Fetch(ctx, named("prefix:1")); f.Outcome() != client.Present || f.Version() != 1 {
		t.Errorf("prefix:1 is %s at version %d: %v", f.Outcome(), f.Version(), f.Err())
	}
	late := must[client.ReportResult](t)(after.admin.Report(ctx, client.Report{Module: "mirror", Lineage: lineage,
		Items: []client.ReportItem{item("prefix:1", 2, client.ReportApplied)}}))
	if late.Stored != 0 {
		t.Errorf("a report of the old lineage is stored: %+v", late)
	}
	b := must[client.Barrier](t)(after.viewer.Barrier(ctx, barrier))
	if b.Done || b.Superseded != answer.Lineage {
		t.Errorf("the barrier of the old lineage is %+v", b)
	}
	// What the new history writes is listed since its own tokens.
	page := must[client.SourcePage](t)(after.viewer.ScanPage(ctx, client.KindPrefix, client.PageRequest{}))
	after.exec(`UPDATE registry.prefix SET origin_asn = 3, announced = true WHERE id = 1`)
	next := must[client.SourcePage](t)(after.viewer.ScanPage(ctx, client.KindPrefix, client.PageRequest{Since: page.Token}))
	if len(next.Changed) != 1 || next.Changed[0] != "1" {
		t.Errorf("changed are %v, want prefix 1", next.Changed)
	}
}

// past makes a Registry's past: a prefix, a module that reported, a barrier. It
// answers a token, the lineage and the barrier.
func past(s *serving) (token, lineage string, barrier int64) {
	s.t.Helper()
	s.prefix("192.0.2.0/24")
	s.register(client.KindPrefix)
	page := must[client.SourcePage](s.t)(s.viewer.ScanPage(s.t.Context(), client.KindPrefix, client.PageRequest{}))
	s.published()
	return page.Token, s.lineage(), must[client.Barrier](s.t)(s.viewer.CreateBarrier(s.t.Context())).ID
}

func TestAPromotedStandbyIsAnotherHistory(t *testing.T) {
	primary := schematest.StartCluster(t)
	standby := primary.Standby(t)
	before := serveOn(t, primary, nil)
	token, lineage, barrier := past(before)
	standby.WaitCaughtUp(t, primary)
	standby.CutOff(t)
	before.exec(`UPDATE registry.prefix SET status = 'planned'`) // lost with the primary
	standby.Promote(t)
	after := serveOn(t, standby, nil)
	afterHistoryWentBack(t, token, lineage, barrier, after)
}

func TestARestoredDumpIsAnotherHistory(t *testing.T) {
	cluster := schematest.StartCluster(t)
	before := serveOn(t, cluster, nil)
	token, lineage, barrier := past(before)
	dump := cluster.Dump(t)
	before.exec(`UPDATE registry.prefix SET status = 'planned'`) // lost by the restore
	after := serveOn(t, schematest.RestoreElsewhere(t, dump), nil)
	afterHistoryWentBack(t, token, lineage, barrier, after)
}
