package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

func TestWithoutConsumersPublishedIsEnough(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.prefix("198.51.100.0/24")
	b := must[client.Barrier](t)(s.viewer.CreateBarrier(t.Context()))
	if b.Ahead != 2 || b.Raised || b.Done {
		t.Errorf("with two unpublished lanes the barrier is %+v", b)
	}
	s.exec(`UPDATE registry.outbox_lane SET pub_seq = last_seq WHERE agg_key = '1'`)
	s.prefix("203.0.113.0/24") // behind the barrier: it does not wait for this one
	if b = must[client.Barrier](t)(s.viewer.Barrier(t.Context(), b.ID)); b.Ahead != 1 || b.Raised || b.Done {
		t.Errorf("with one unpublished lane the barrier is %+v", b)
	}
	s.exec(`UPDATE registry.outbox_lane SET pub_seq = last_seq WHERE agg_key = '2'`)
	if b = must[client.Barrier](t)(s.viewer.Barrier(t.Context(), b.ID)); b.Ahead != 0 || !b.Raised || !b.Done {
		t.Errorf("with all published the barrier is %+v", b)
	}
}

func TestABarrierWaitsForALaneThatIsPaused(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	must[client.OutboxResult](t)(s.operator.OutboxPause(t.Context(), client.OutboxOrder{OutboxTarget: client.OutboxTarget{Lane: "prefix:1"}}))
	if b := must[client.Barrier](t)(s.viewer.CreateBarrier(t.Context())); b.Ahead != 1 || b.Done {
		t.Errorf("the barrier does not see the paused lane: %+v", b)
	}
}

// barrierEvents is the version of the newest barrier event on each stream.
func (s *serving) barrierVersion(stream int) int64 {
	s.t.Helper()
	return one[int64](s, `SELECT last_seq FROM registry.outbox_lane WHERE agg_type = 'barrier' AND agg_key = $1`, fmt.Sprint(stream))
}

func TestABarrierWaitsForEveryStreamOfEveryModule(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.register(client.KindPrefix)
	must[client.HeartbeatAnswer](t)(s.admin.Heartbeat(ctx, "other", "one", pulse(client.KindASN)))
	must[client.HeartbeatAnswer](t)(s.admin.Heartbeat(ctx, "idle", "one", pulse())) // consumes nothing
	first := must[client.Barrier](t)(s.viewer.CreateBarrier(ctx))
	if !first.Raised || first.Done || len(first.Modules) != 2 {
		t.Fatalf("the barrier is %+v", first)
	}
	reportAll := func(module string, streams int, state client.ReportState) {
		t.Helper()
		items := []client.ReportItem{}
		for n := range streams {
			items = append(items, item(fmt.Sprintf("barrier:%d", n), s.barrierVersion(n), state))
		}
		must[client.ReportResult](t)(s.admin.Report(ctx, client.Report{Module: module, Lineage: s.lineage(), Items: items}))
	}
	look := func() client.Barrier { return must[client.Barrier](t)(s.viewer.Barrier(ctx, first.ID)) }
	reportAll("mirror", 7, client.ReportApplied)
	if b := look(); b.Done || b.Modules[0].Missing != 1 || b.Modules[0].Done || b.Modules[1].Missing != 8 {
		t.Errorf("with one stream missing: %+v", b)
	}
	reportAll("mirror", 8, client.ReportApplied)
	if b := look(); b.Done || !b.Modules[0].Done || b.Modules[0].Reason != "" {
		t.Errorf("with one module missing: %+v", b)
	}
	reportAll("other", 8, client.ReportHeld)
	if b := look(); b.Done || b.Modules[1].Done {
		t.Errorf("a barrier that is held counts as done: %+v", b)
	}
	s.silence("other", 31)
	if b := look(); b.Done || !b.Modules[1].Stale || !strings.Contains(b.Modules[1].Reason, "hubn modules forget other") {
		t.Errorf("a stale module is not named: %+v", b.Modules)
	}
	// A later barrier proves the earlier one.
	second := must[client.Barrier](t)(s.viewer.CreateBarrier(ctx))
	if !second.Raised {
		t.Errorf("a barrier waits for the events of another: %+v", second)
	}
	reportAll("other", 8, client.ReportApplied)
	if b := look(); !b.Done {
		t.Errorf("with all reported: %+v", b)
	}
	if b := must[client.Barrier](t)(s.viewer.Barrier(ctx, second.ID)); b.Done || b.Modules[0].Missing != 8 || !b.Modules[1].Done {
		t.Errorf("the second barrier: %+v", b)
	}
}

func TestForgettingAStaleModuleFreesABarrier(t *testing.T) {
	s := serve(t, nil)
	s.register(client.KindPrefix)
	s.silence("mirror", 31)
	b := must[client.Barrier](t)(s.viewer.CreateBarrier(t.Context()))
	if b.Done {
		t.Fatalf("the barrier does not wait for a stale module: %+v", b)
	}
	if err := s.operator.ForgetModule(t.Context(), "mirror", "gone"); err != nil {
		t.Fatal(err)
	}
	if b = must[client.Barrier](t)(s.viewer.Barrier(t.Context(), b.ID)); !b.Done {
		t.Errorf("the barrier still waits: %+v", b)
	}
}

func TestABarrierOfAnEarlierLineageSaysSo(t *testing.T) {
	s := serve(t, nil)
	s.register(client.KindPrefix)
	b := must[client.Barrier](t)(s.viewer.CreateBarrier(t.Context()))
	s.exec(`SELECT registry.lineage_begin(registry.lineage_current(), 'test')`)
	b = must[client.Barrier](t)(s.viewer.Barrier(t.Context(), b.ID))
	if b.Done || b.Superseded != s.lineage() || b.Lineage == s.lineage() {
		t.Errorf("the barrier is %+v", b)
	}
	_, err := s.viewer.Barrier(t.Context(), 999)
	refused(t, err, problem.NotFound, "999")
}

func TestARegressionBeginsALineage(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.prefix("192.0.2.0/24")
	s.prefix("198.51.100.0/24")
	s.exec(`DELETE FROM registry.prefix WHERE id = 2`)
	s.exec(`DELETE FROM registry.outbox_lane WHERE agg_key = '2'`) // forgotten
	first := s.lineage()
	for n, tt := range []struct {
		resource client.Resource
		lineage  string
		version  int64
		begins   bool
	}{
		{client.Resource{Kind: client.KindPrefix, Key: "1"}, first, 1, false},
		{client.Resource{Kind: client.KindPrefix, Key: "2"}, first, 9, false}, // deleted and forgotten: proves nothing
		{client.Resource{Kind: client.KindPrefix, Key: "1"}, "11111111-1111-1111-1111-111111111111", 9, false},
		{client.Resource{Kind: client.KindPrefix, Key: "1"}, first, 2, true},
		{client.Resource{Kind: client.KindPrefix, Key: "1"}, first, 2, false}, // of the lineage before
		{client.Resource{Kind: client.KindPrefix, Key: "77"}, "", 1, true},    // an id that was never given out
		{client.Resource{Kind: client.KindPTR, Key: "192.0.2.1"}, "", 1, true},
		{client.Resource{Kind: client.KindASN, Key: "64496"}, "", 1, true},
	} {
		before := s.lineage()
		if tt.lineage == "" {
			tt.lineage = before
		}
		answer := must[client.RegressionAnswer](t)(s.module.Regression(ctx, client.Regression{Module: "mirror", Lineage: tt.lineage, Resource: tt.resource, Version: tt.version}))
		if answer.Begun != tt.begins || answer.Lineage != s.lineage() || (before != s.lineage()) != tt.begins {
			t.Errorf("regression %d of %s answers %+v; the lineage was %s and is %s", n, tt.resource, answer, before, s.lineage())
		}
	}
	ancestry := must[client.Lineages](t)(s.viewer.Lineage(ctx))
	// The test's database is a copy: it began a lineage of its own before.
	if len(ancestry.Ancestry) < 5 || ancestry.Lineage != s.lineage() || ancestry.Ancestry[4].ID != first || ancestry.Ancestry[len(ancestry.Ancestry)-1].Parent != "" {
		t.Fatalf("the ancestry is %+v", ancestry)
	}
	for i, l := range ancestry.Ancestry[:4] {
		if l.Parent != ancestry.Ancestry[i+1].ID || !strings.Contains(l.Reason, "mirror") {
			t.Errorf("ancestor %d is %+v", i, l)
		}
	}
}
