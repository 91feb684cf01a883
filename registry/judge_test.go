package registry

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hubn/registry/client"
)

func TestOverallWordFollowsFromTheEvidence(t *testing.T) {
	const here, before = "here", "before"
	alive := func(name string) consumer { return consumer{name: name, kinds: []string{"prefix"}} }
	silent := func(name string) consumer { c := alive(name); c.stale = true; return c }
	said := func(lineage string, version int64, state client.ReportState) client.Reported {
		return client.Reported{Lineage: lineage, AppliedState: client.AppliedState{Version: version, State: state, Reason: "because"}}
	}
	at := func(pub, last int64) laneState { return laneState{lastSeq: last, pubSeq: pub} }
	failing := at(3, 4)
	failing.attempts = 20
	failing.lastError = new(string)
	trying := at(3, 4)
	trying.attempts = 19
	type reports = map[string]client.Reported
	for _, tt := range []struct {
		name      string
		lane      laneState
		consumers []consumer
		reports   reports
		diverged  bool
		want      client.Overall
		module    string
		waiting   []string
	}{
		{"published, nobody consumes it", at(4, 4), nil, nil, false, client.OverallApplied, "", nil},
		{"not published", at(3, 4), nil, nil, false, client.OverallPending, "", nil},
		{"its lane backs off", trying, nil, nil, false, client.OverallPending, "", nil},
		{"its lane keeps failing", failing, nil, nil, false, client.OverallFailed, "", nil},
		{"applied", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportApplied)}, false, client.OverallApplied, "", nil},
		{"withdrawn", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportWithdrawn)}, false, client.OverallApplied, "", nil},
		{"applied before the lane knows that it is published", at(3, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportApplied)}, false, client.OverallPending, "", nil},
		{"never reported", at(4, 4), []consumer{alive("roa")}, nil, false, client.OverallPending, "roa", []string{"roa"}},
		{"reported an earlier version", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 3, client.ReportApplied)}, false, client.OverallPending, "roa", []string{"roa"}},
		{"failed at an earlier version", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 3, client.ReportFailed)}, false, client.OverallPending, "roa", []string{"roa"}},
		{"reported in another lineage", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(before, 4, client.ReportApplied)}, false, client.OverallPending, "roa", []string{"roa"}},
		{"failed", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportFailed)}, false, client.OverallFailed, "roa", nil},
		{"held", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportHeld)}, false, client.OverallHeld, "roa", nil},
		{"applied by a module that is silent", at(4, 4), []consumer{silent("roa")}, reports{"roa": said(here, 4, client.ReportApplied)}, false, client.OverallStale, "roa", nil},
		{"not reported by a module that is silent", at(4, 4), []consumer{silent("roa")}, nil, false, client.OverallStale, "roa", []string{"roa"}},
		{"diverged", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportApplied)}, true, client.OverallDiverged, "", nil},
		{"held is worse than stale", at(4, 4), []consumer{silent("dns"), alive("roa")},
			reports{"roa": said(here, 4, client.ReportHeld), "dns": said(here, 4, client.ReportApplied)}, false, client.OverallHeld, "roa", nil},
		{"diverged is worse than held", at(4, 4), []consumer{alive("roa")}, reports{"roa": said(here, 4, client.ReportHeld)}, true, client.OverallDiverged, "", nil},
		{"failed is worse than diverged", at(4, 4), []consumer{alive("dns"), alive("roa")},
			reports{"roa": said(here, 4, client.ReportFailed), "dns": said(here, 4, client.ReportApplied)}, true, client.OverallFailed, "roa", nil},
		{"one applied, two waited for", at(4, 4), []consumer{alive("a"), alive("b"), alive("c")}, reports{"b": said(here, 4, client.ReportApplied)}, false, client.OverallPending, "a", []string{"a", "c"}},
		{"reports of a module that does not consume it do not count", at(4, 4), nil, reports{"old": said(here, 4, client.ReportFailed)}, false, client.OverallApplied, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.lane.requestedAt = time.Unix(1, 0)
			got := judge(evidence{lineage: here, lane: tt.lane, consumers: tt.consumers, reports: tt.reports, diverged: tt.diverged})
			if got.word != tt.want || got.module != tt.module || !cmp.Equal(got.waiting, tt.waiting) {
				t.Errorf("got %s by %q waiting for %v, want %s by %q waiting for %v", got.word, got.module, got.waiting, tt.want, tt.module, tt.waiting)
			}
		})
	}
}
