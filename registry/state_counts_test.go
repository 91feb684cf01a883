package registry_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hubn/registry/client"
)

// TestCountsAreThoseOfTheWorkLists makes resources of which every combination of
// facts may be true, and compares the counts with the lists, word by word.
func TestCountsAreThoseOfTheWorkLists(t *testing.T) {
	s := serve(t, nil)
	r := rand.New(rand.NewPCG(1, 2))
	empty := must[client.StateCounts](t)(s.viewer.StateCounts(t.Context()))
	if empty.Total != 0 || len(empty.Overall) != 6 || empty.CountedAt.IsZero() || empty.Lineage != s.lineage() {
		t.Errorf("of nothing the counts are %+v", empty)
	}
	for i := range 60 {
		s.prefix(fmt.Sprintf("10.0.%d.0/24", i))
	}
	s.exec(`INSERT INTO registry.organisation (handle) SELECT 'O-' || n FROM generate_series(1, 5) n`)
	s.published()
	s.register(client.KindPrefix)
	must[client.HeartbeatAnswer](t)(s.admin.Heartbeat(t.Context(), "other", "one", pulse(client.KindPrefix, client.KindOrganisation)))
	states := []client.ReportState{client.ReportApplied, client.ReportFailed, client.ReportHeld, client.ReportWithdrawn}
	for i := range 60 {
		key := fmt.Sprintf("prefix:%d", i+1)
		if r.IntN(4) == 0 { // what is reported next is of an older version
			s.exec(`UPDATE registry.prefix SET status = 'planned' WHERE id = $1`, i+1)
		}
		if r.IntN(5) > 0 {
			s.report(item(key, 1, states[r.IntN(len(states))]))
		}
		if r.IntN(5) > 0 {
			must[client.ReportResult](t)(s.admin.Report(t.Context(), client.Report{Module: "other", Lineage: s.lineage(),
				Items: []client.ReportItem{item(key, 1, states[r.IntN(len(states))])}}))
		}
		if r.IntN(8) == 0 {
			must[client.ReportResult](t)(s.module.Observe(t.Context(), client.ObservationReport{Module: "mirror", Items: []client.ObservationItem{
				{Resource: named(key), Subject: "route", State: client.ObservationDiverged, ObservedAt: started},
				{Resource: named(key), Subject: "origin", State: client.ObservationDiverged, ObservedAt: started}}}))
		}
	}
	s.exec(`UPDATE registry.outbox_lane SET pub_seq = last_seq WHERE agg_key::integer % 3 > 0 AND agg_type = 'prefix'`)
	s.exec(`UPDATE registry.outbox_lane SET attempts = 20 WHERE agg_key IN ('3', '6') AND agg_type = 'prefix'`)
	s.exec(`DELETE FROM registry.organisation WHERE id = 1`)
	compare := func(when string) client.StateCounts {
		counts := must[client.StateCounts](t)(s.viewer.StateCounts(t.Context()))
		for since := counts.CountedAt; counts.CountedAt.Equal(since); { // a new count, not one that was kept
			counts = must[client.StateCounts](t)(s.viewer.StateCounts(t.Context()))
		}
		lists := map[client.Overall]int64{}
		for word := range counts.Overall {
			lists[word] = int64(len(s.workList(word, "", 0)))
		}
		if !cmp.Equal(counts.Overall, lists) || counts.Total != 65 {
			t.Errorf("%s: counted are %v of %d, listed %v", when, counts.Overall, counts.Total, lists)
		}
		if o := counts.Kinds[client.KindOrganisation]; o[client.OverallPending]+o[client.OverallStale] != 5 {
			t.Errorf("%s: of organisations %v", when, o)
		}
		return counts
	}
	counts := compare("with two modules")
	for word, n := range counts.Overall {
		if n == 0 && word != client.OverallStale {
			t.Errorf("none is %s: the test does not see it", word)
		}
	}
	s.exec(`UPDATE registry.module_instance SET seen_at = seen_at - interval '1 hour' WHERE module = 'other'`)
	counts = compare("with a silent module")
	if len(counts.Modules) != 2 || !counts.Modules[1].Stale || counts.Modules[0].Waiting == 0 || counts.Modules[0].Failed == 0 {
		t.Errorf("by module: %+v", counts.Modules)
	}
	s.exec(`UPDATE registry.applied_state SET lineage = gen_random_uuid()`)
	compare("with reports of another history")
}
