package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hubn/app/problem"
	"hubn/registry/client"
)

func named(s string) client.Resource {
	r, err := client.ParseResource(s)
	if err != nil {
		panic(err)
	}
	return r
}

func TestStateShowsRequestedPublishedAndObserved(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.exec(`UPDATE registry.prefix SET status = 'planned'`)
	s.register(client.KindPrefix)
	state := must[client.State](t)(s.viewer.State(t.Context(), named("prefix:1")))
	if state.Label != "192.0.2.0/24" || state.Version != 2 || state.Published != 0 || state.Overall != client.OverallPending ||
		state.LaneState != "ready" || !cmp.Equal(state.Waiting, []string{"mirror"}) || state.Lineage != s.lineage() || state.Requested.IsZero() || state.Reason == "" {
		t.Errorf("before publication the state is %+v", state)
	}
	s.published()
	failed := item("prefix:1", 2, client.ReportFailed)
	failed.Reason, failed.RetryAt = "no CA covers it", started
	s.report(failed)
	must[client.ReportResult](t)(s.module.Observe(t.Context(), client.ObservationReport{Module: "mirror", Items: []client.ObservationItem{
		{Resource: named("prefix:1"), Subject: "route", State: client.ObservationDiverged, ObservedAt: started}}}))
	state = must[client.State](t)(s.viewer.State(t.Context(), named("prefix:1")))
	if state.Published != 2 || state.PublishedAt.IsZero() || state.Overall != client.OverallFailed || state.Reason != "no CA covers it" || len(state.Waiting) != 0 {
		t.Errorf("after a failure the state is %+v", state)
	}
	if len(state.Consumers) != 1 || state.Consumers[0].Module != "mirror" || state.Consumers[0].Version != 2 || !state.Consumers[0].RetryAt.Equal(started) {
		t.Errorf("the consumers are %+v", state.Consumers)
	}
	if len(state.Observations) != 1 || state.Observations[0].State != "diverged" {
		t.Errorf("the observations are %+v", state.Observations)
	}
	s.exec(`DELETE FROM registry.prefix`)
	s.published()
	s.report(item("prefix:1", 3, client.ReportWithdrawn))
	state = must[client.State](t)(s.viewer.State(t.Context(), named("prefix:1")))
	if !state.Deleted || state.Label != "192.0.2.0/24" || state.Version != 3 || state.Overall != client.OverallDiverged {
		t.Errorf("after the deletion the state is %+v", state)
	}
	_, err := s.viewer.State(t.Context(), named("prefix:99"))
	refused(t, err, problem.NotFound, "prefix:99")
	_, err = s.viewer.State(t.Context(), named("prefix:x"))
	refused(t, err, problem.Invalid, "number")
}

func TestTraceShowsWhoChangedWhatAndWhatBecameOfIt(t *testing.T) {
	s := serve(t, nil)
	conn := s.db.Conn(t, "")
	for _, sql := range []string{
		`BEGIN`, `SELECT set_config('hubn.actor', 'alice', true), set_config('hubn.reason', 'as agreed', true)`,
		`INSERT INTO registry.prefix (prefix) VALUES ('192.0.2.0/24')`, `COMMIT`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s.published()
	s.exec(`UPDATE registry.prefix SET status = 'retired'`)
	trace := must[client.Trace](t)(s.viewer.Trace(t.Context(), named("prefix:1")))
	if len(trace.Events) != 2 || len(trace.Changes) != 2 {
		t.Fatalf("the trace has %d events and %d changes", len(trace.Events), len(trace.Changes))
	}
	newest, first := trace.Events[0], trace.Events[1]
	if newest.Version != 2 || newest.Kind != "changed" || newest.State != "pending" || !cmp.Equal(newest.Changed, []string{"status"}) {
		t.Errorf("the newest event is %+v", newest)
	}
	if first.Version != 1 || first.Kind != "created" || first.State != "published" || first.EventID == "" {
		t.Errorf("the first event is %+v", first)
	}
	if c := trace.Changes[1]; c.Actor != "alice" || c.Reason != "as agreed" || c.Op != "insert" || c.Before != nil || !strings.Contains(string(c.After), "192.0.2.0/24") {
		t.Errorf("the first change is %+v", c)
	}
	if c := trace.Changes[0]; !strings.HasPrefix(c.Actor, "postgresql:") || c.Op != "update" {
		t.Errorf("the second change is %+v", c)
	}
	if trace.Version != 2 || trace.Published != 1 {
		t.Errorf("the state in the trace is %+v", trace.State)
	}
}

// workList is every resource of a work list, page by page.
func (s *serving) workList(word client.Overall, module string, limit int) (out []string) {
	s.t.Helper()
	for after := ""; ; {
		page := must[client.WorkPage](s.t)(s.viewer.WorkList(s.t.Context(), word, module, after, limit))
		for _, i := range page.Items {
			out = append(out, i.Resource.String()+" "+i.Label)
			if i.Overall != word {
				s.t.Errorf("the list of %s has %+v", word, i)
			}
		}
		if after = page.Next; after == "" {
			return out
		}
	}
}

func TestTheWorkListHasEveryResourceUnderItsOneWord(t *testing.T) {
	s := serve(t, nil)
	for i := range 6 {
		s.prefix(fmt.Sprintf("10.0.%d.0/24", i))
	}
	s.exec(`INSERT INTO registry.organisation (handle) VALUES ('EXAMPLE')`)
	s.published()
	s.register(client.KindPrefix)
	must[client.HeartbeatAnswer](t)(s.admin.Heartbeat(t.Context(), "other", "one", pulse(client.KindPrefix)))
	both := func(items ...client.ReportItem) {
		s.report(items...)
		applied := []client.ReportItem{}
		for _, i := range items {
			i.State = client.ReportApplied
			applied = append(applied, i)
		}
		must[client.ReportResult](t)(s.admin.Report(t.Context(), client.Report{Module: "other", Lineage: s.lineage(), Items: applied}))
	}
	both(item("prefix:1", 1, client.ReportApplied), item("prefix:2", 1, client.ReportFailed), item("prefix:3", 1, client.ReportHeld),
		item("prefix:4", 1, client.ReportApplied), item("prefix:5", 1, client.ReportFailed))
	must[client.ReportResult](t)(s.module.Observe(t.Context(), client.ObservationReport{Module: "mirror", Items: []client.ObservationItem{
		{Resource: named("prefix:4"), Subject: "route", State: client.ObservationDiverged, ObservedAt: started},
		{Resource: named("prefix:5"), Subject: "route", State: client.ObservationDiverged, ObservedAt: started}}}))
	// A failure of a version that is no longer wanted is not work.
	s.exec(`UPDATE registry.prefix SET status = 'planned' WHERE id = 5`)
	s.exec(`UPDATE registry.outbox_lane SET attempts = 25, last_error = 'too large' WHERE agg_type = 'organisation'`)
	s.exec(`UPDATE registry.organisation SET name = 'x'`)
	for word, want := range map[client.Overall][]string{
		client.OverallApplied:  {"prefix:1 10.0.0.0/24"},
		client.OverallPending:  {"prefix:6 10.0.5.0/24"},
		client.OverallHeld:     {"prefix:3 10.0.2.0/24"},
		client.OverallDiverged: {"prefix:4 10.0.3.0/24", "prefix:5 10.0.4.0/24"},
		client.OverallFailed:   {"organisation:1 EXAMPLE", "prefix:2 10.0.1.0/24"},
		client.OverallStale:    nil,
	} {
		for _, limit := range []int{1, 100} {
			if got := s.workList(word, "", limit); !cmp.Equal(got, want) {
				t.Errorf("%s in pages of %d: %v, want %v", word, limit, got, want)
			}
		}
	}
	if got, want := s.workList(client.OverallFailed, "mirror", 0), []string{"prefix:2 10.0.1.0/24"}; !cmp.Equal(got, want) {
		t.Errorf("failed by mirror: %v, want %v", got, want)
	}
	if got := s.workList(client.OverallFailed, "other", 0); len(got) != 0 {
		t.Errorf("failed by other: %v", got)
	}
	s.silence("other", 60)
	if got, want := s.workList(client.OverallStale, "", 2), []string{"prefix:1 10.0.0.0/24", "prefix:6 10.0.5.0/24"}; !cmp.Equal(got, want) {
		t.Errorf("stale: %v, want %v", got, want)
	}
}

func TestTheWorkListOfManyIsAnsweredInBoundedPages(t *testing.T) {
	s := serve(t, nil)
	crowd(s, 7000)
	s.published()
	s.exec(`UPDATE registry.prefix SET origin_asn = 1 WHERE id IN (3, 6999)`)
	page := must[client.WorkPage](t)(s.viewer.WorkList(t.Context(), client.OverallPending, "", "", 0))
	if page.Next == "" {
		t.Errorf("one answer looked at all 7,000 resources: %+v", page.Items)
	}
	begun := time.Now()
	if got, want := s.workList(client.OverallPending, "", 0), []string{"prefix:3 10.0.2.0/24", "prefix:6999 10.27.86.0/24"}; !cmp.Equal(got, want) {
		t.Errorf("pending: %v, want %v", got, want)
	}
	t.Logf("%s for 7,000 resources", time.Since(begun))
}

func TestResolveFindsWhatAPersonMeans(t *testing.T) {
	s := serve(t, nil)
	s.exec(`INSERT INTO registry.organisation (handle) VALUES ('Example-ORG'), ('AS-TEAM')`)
	s.exec(`INSERT INTO registry.asn (number) VALUES (64496)`)
	s.exec(`INSERT INTO registry.name_server_set (name, servers) VALUES ('Example-ORG', '{ns.example.net}')`)
	s.prefix("192.0.2.0/24")
	s.prefix("2001:db8::/32")
	s.exec(`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/24', 'dns'), ('192.0.2.0/25', 'ntp')`)
	s.exec(`INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.1', 'a.example.net'), ('2001:db8::a', 'b.example.net')`)
	deleted := s.prefix("198.51.100.0/24")
	s.exec(`DELETE FROM registry.prefix WHERE id = $1`, deleted)
	for q, want := range map[string][]string{
		"192.0.2.0/24":          {"prefix:1 192.0.2.0/24", "anycast:1 192.0.2.0/24 dns"},
		"192.0.2.0/25":          {"anycast:2 192.0.2.0/25 ntp"},
		"2001:DB8:0::/32":       {"prefix:2 2001:db8::/32"},
		" 192.0.2.1 ":           {"ptr:192.0.2.1 192.0.2.1", "prefix:1 192.0.2.0/24"},
		"192.0.2.2":             {"prefix:1 192.0.2.0/24"},
		"2001:db8:0:0::a":       {"ptr:2001:db8::a 2001:db8::a", "prefix:2 2001:db8::/32"},
		"AS64496":               {"asn:64496 AS64496"},
		"64496":                 {"asn:64496 AS64496"},
		"example-org":           {"organisation:1 Example-ORG"},
		"Example-ORG":           {"organisation:1 Example-ORG", "nsset:1 Example-ORG"},
		"as-team":               {"organisation:2 AS-TEAM"},
		"prefix:1":              {"prefix:1 192.0.2.0/24"},
		"asn:64496":             {"asn:64496 AS64496"},
		"ptr:2001:db8:0:0:0::A": {"ptr:2001:db8::a 2001:db8::a"},
		"prefix:3":              {"prefix:3 198.51.100.0/24"}, // deleted, and not yet forgotten
	} {
		r, err := s.viewer.Resolve(t.Context(), q)
		var got []string
		for _, c := range r.Candidates {
			got = append(got, c.Resource.String()+" "+c.Label)
		}
		if err != nil || !cmp.Equal(got, want) || r.Resource.String()+" "+r.Label != want[0] {
			t.Errorf("%q is %v (%v), want %v", q, got, err, want)
		}
	}
	for q, says := range map[string]string{
		"192.0.2.128/25": "lies in 192.0.2.0/24 (prefix:1)", "203.0.113.0/24": "not registered", "203.0.113.1": "no prefix",
		"AS64511": "AS64511", "nobody": "nothing is called nobody", "prefix:99": "prefix:99", "prefix:x": "no prefix called",
	} {
		_, err := s.viewer.Resolve(t.Context(), q)
		refused(t, err, problem.NotFound, says)
	}
	for q, says := range map[string]string{
		"192.0.2.1/24": "192.0.2.0/24", "::ffff:192.0.2.0/120": "prefix", "::ffff:192.0.2.1": "mapped", "fe80::1%eth0": "zone",
	} {
		_, err := s.viewer.Resolve(t.Context(), q)
		refused(t, err, problem.Invalid, says)
	}
}
