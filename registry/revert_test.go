package registry

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

// newest is the newest entry of the log of a resource.
func (h *harness) newest(resource string) client.Change {
	h.t.Helper()
	return as[client.Page[client.Change]](h.get("/v1/changes?limit=1&resource=" + url.QueryEscape(resource)).want(http.StatusOK)).Items[0]
}

func (h *harness) revert(id int64, headers ...header) *response {
	h.t.Helper()
	return h.post(fmt.Sprintf("/v1/changes/%d/revert", id), nil, headers...)
}

func TestRevertOfAnUpdatePutsBackWhatItChanged(t *testing.T) {
	h := newHarness(t)
	for _, handle := range []string{"FIRST", "SECOND"} {
		h.post("/v1/organisations", map[string]any{"handle": handle}).want(http.StatusCreated)
	}
	path := h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "FIRST",
		"routing": map[string]any{"announced": true, "origin": 64496, "max_length": 25}}).want(http.StatusCreated).header.Get("Location")
	before := as[map[string]any](h.get(path).want(200))
	h.change(path, map[string]any{"organisation": "SECOND", "routing": map[string]any{"announced": false, "origin": nil, "max_length": nil},
		"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns1.example.net"}}}).want(200)
	change := h.newest("192.0.2.0/24")
	// What others changed since stays.
	h.change(path, map[string]any{"name": "later"}).want(200)

	dry := h.post(fmt.Sprintf("/v1/changes/%d/revert?dry_run=true", change.ID), nil).want(200)
	check(t, "did", as[client.Reverted](dry).Did, "changed")
	check(t, "after a dry run", as[client.Prefix](h.get(path).want(200)).Organisation, "SECOND")

	done := h.post(fmt.Sprintf("/v1/changes/%d/revert?reason=mistaken", change.ID), nil, token(h.operator)).want(200)
	check(t, "produced", done.header.Get(client.ProducedHeader), "prefix:1@3")
	now := as[map[string]any](h.get(path).want(200))
	before["name"], before["revision"] = "later", now["revision"]
	check(t, "now", now, before)
	made := h.newest("192.0.2.0/24")
	check(t, "actor", made.Actor, "the-operator")
	check(t, "reason", made.Reason, fmt.Sprintf("revert of change %d: mistaken", change.ID))
	// A revert is a change, and may be reverted.
	h.revert(made.ID).want(200)
	check(t, "reverted twice", as[client.Prefix](h.get(path).want(200)).Organisation, "SECOND")
}

func TestRevertRefusesWhatLaterChangesTouched(t *testing.T) {
	h := newHarness(t)
	path := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE", "name": "a"}).want(http.StatusCreated).header.Get("Location")
	created := h.newest("EXAMPLE")
	h.change(path, map[string]any{"name": "b", "contact": "noc"}).want(200)
	first := h.newest("EXAMPLE")
	h.change(path, map[string]any{"name": "c"}).want(200)
	second := h.newest("EXAMPLE")
	stale := h.revert(first.ID)
	if d := stale.wantProblem(problem.Stale); !strings.Contains(d.Detail, "touched name") || !strings.Contains(d.Detail, fmt.Sprint(second.ID)) {
		t.Errorf("the refusal says %q", d.Detail)
	}
	if !strings.Contains(string(stale.body), `"later":[{`) || !strings.Contains(string(stale.body), `"actor":"the-admin"`) {
		t.Errorf("the refusal does not say who: %s", stale.body)
	}
	h.revert(created.ID).wantProblem(problem.Stale)
	h.revert(second.ID).want(200)
	h.revert(first.ID).want(200)
	check(t, "name", as[client.Organisation](h.get(path).want(200)).Name, "a")
	h.remove(path).want(http.StatusNoContent)
	h.revert(second.ID).wantProblem(problem.Stale)
	h.revert(999999).wantProblem(problem.NotFound)
	h.revert(first.ID, token(h.viewer)).wantProblem(problem.Forbidden)
}

func TestRevertOfACreationIsCheckedLikeADeletion(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)
	outer := h.newest("192.0.2.0/24")
	inner := h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/25"}).want(http.StatusCreated).header.Get("Location")
	if d := h.revert(outer.ID).wantProblem(problem.Conflict); d.Count != 1 {
		t.Errorf("the refusal counts %d dependants", d.Count)
	}
	h.remove(inner).want(http.StatusNoContent)
	done := h.revert(outer.ID).want(200)
	check(t, "did", as[client.Reverted](done).Did, "deleted")
	h.get("/v1/prefixes/1").wantProblem(problem.Deleted)
}

func TestRevertOfADeletionCreatesAnew(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	h.post("/v1/asns", map[string]any{"number": 64496, "organisation": "EXAMPLE", "name": "n"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "EXAMPLE", "kind": "allocation"}).want(http.StatusCreated)
	ptr := h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.1", "target": "Bücher.example", "ttl": 60}).want(http.StatusCreated)
	anycast := h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.0/25", "service": "dns",
		"origins": []any{map[string]any{"asn": 64497, "active": false}, map[string]any{"asn": 64496, "max_length": 25}}}).want(http.StatusCreated)
	for _, path := range []string{anycast.header.Get("Location"), ptr.header.Get("Location"), "/v1/prefixes/1", "/v1/asns/64496"} {
		h.remove(path).want(http.StatusNoContent)
	}
	gone := map[string]client.Change{}
	for _, name := range []string{"192.0.2.0/24", "AS64496", "192.0.2.1"} {
		gone[name] = h.newest(name)
	}
	var allocation client.Change // its origins went after it
	for _, c := range h.changes(url.Values{"resource": {"192.0.2.0/25"}, "op": {"delete"}}) {
		if c.Table == "anycast_allocation" {
			allocation = c
		}
	}
	h.revert(gone["192.0.2.1"].ID).wantProblem(problem.Conflict) // nothing covers it
	prefix := as[client.Reverted](h.revert(gone["192.0.2.0/24"].ID).want(200))
	check(t, "another id", prefix.Resource, client.Resource{Kind: client.KindPrefix, Key: "2"})
	p := as[client.Prefix](h.get("/v1/prefixes/192.0.2.0%2F24").want(200))
	check(t, "kind", p.Kind, "allocation")
	check(t, "holder", p.Organisation, "EXAMPLE")
	h.revert(gone["192.0.2.0/24"].ID).wantProblem(problem.Conflict) // somebody took the place: its own copy
	h.revert(gone["AS64496"].ID).want(200)
	check(t, "asn", as[client.ASNHolder](h.get("/v1/asns/64496").want(200)).Name, "n")
	h.revert(gone["AS64496"].ID).wantProblem(problem.Stale)
	h.revert(gone["192.0.2.1"].ID).want(200)
	record := as[client.Page[client.PTRRecord]](h.get("/v1/ptr-records?address=192.0.2.1").want(200)).Items[0]
	check(t, "as typed", record.TargetTyped, "Bücher.example")
	again := as[client.Reverted](h.revert(allocation.ID).want(200))
	a := as[client.Anycast](h.get("/v1/anycast/" + again.Resource.Key).want(200))
	check(t, "service", a.Service, "dns")
	var origins []string
	for _, o := range a.Origins {
		origins = append(origins, fmt.Sprintf("%s %t %t", o.ASN, o.Active, o.MaxLength != nil))
	}
	check(t, "origins", origins, []string{"AS64496 true true", "AS64497 false false"})
}

func TestRevertOfARouteOrigin(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)
	origins := func(list ...any) map[string]any { return map[string]any{"origins": list} }
	one, other := map[string]any{"asn": 64496}, map[string]any{"asn": 64497}
	path := h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.0/25", "service": "dns", "origins": []any{one}}).want(http.StatusCreated).header.Get("Location")
	h.change(path, origins(one, other)).want(200)
	added := h.newest("192.0.2.0/25")
	h.revert(added.ID).want(200)
	check(t, "taken away", len(as[client.Anycast](h.get(path).want(200)).Origins), 1)
	removed := h.newest("192.0.2.0/25")
	check(t, "op", removed.Op, "delete")
	h.revert(added.ID).wantProblem(problem.Stale)
	h.revert(removed.ID).want(200)
	h.change(path, origins(one, map[string]any{"asn": 64497, "active": false})).want(200)
	switched := h.newest("192.0.2.0/25")
	check(t, "op", switched.Op, "update")
	h.revert(switched.ID).want(200)
	check(t, "switched back", as[client.Anycast](h.get(path).want(200)).Origins[1].Active, true)
}

func TestRevertAsksWhoMayChangeIt(t *testing.T) {
	h := newHarness(t)
	own := as[client.Organisation](h.post("/v1/organisations", map[string]any{"handle": "OWN"}).want(http.StatusCreated))
	for _, p := range []string{"192.0.2.0/24", "198.51.100.0/24"} {
		body := map[string]any{"prefix": p}
		if p == "192.0.2.0/24" {
			body["organisation"] = "OWN"
		}
		path := h.post("/v1/prefixes", body).want(http.StatusCreated).header.Get("Location")
		h.change(path, map[string]any{"name": "x"}).want(200)
	}
	member := h.newToken(map[string]any{"name": "member", "grants": []any{map[string]any{"role": "member", "organisation_id": own.ID}}}).Secret
	h.revert(h.newest("198.51.100.0/24").ID, token(member)).wantProblem(problem.Forbidden)
	h.revert(h.newest("192.0.2.0/24").ID, token(member)).want(200)
}
