package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

func TestResizing(t *testing.T) {
	h := newHarness(t)
	h.pool("10.0.0.0/16")
	p := h.prefix("10.0.0.0/24", map[string]any{"kind": "allocation", "routing": map[string]any{"announced": true, "origin": 64496, "max_length": 24}})
	h.prefix("10.0.0.128/26")
	h.prefix("10.0.2.0/24")

	grown := h.operate(p.ID, "resize", map[string]any{"length": 23}).want(200)
	check(t, "grown", as[client.Prefix](grown).Prefix.String(), "10.0.0.0/23")
	check(t, "produced", grown.header.Get(client.ProducedHeader), fmt.Sprintf("prefix:%d@2", p.ID))
	check(t, "tree", h.tree(), []string{"10.0.0.0/16", "10.0.0.0/23 in 10.0.0.0/16", "10.0.0.128/26 in 10.0.0.0/23", "10.0.2.0/24 in 10.0.0.0/16"})

	neighbour := h.operate(p.ID, "resize", map[string]any{"length": 22}).wantProblem(problem.Conflict)
	neighbour.says(t, "body.prefix", "others")
	if !strings.Contains(neighbour.Detail, "10.0.2.0/24") {
		t.Errorf("the refusal does not name the neighbour: %s", neighbour.Detail)
	}
	h.operate(p.ID, "resize", map[string]any{"prefix": "10.0.0.0/8"}).wantProblem(problem.Conflict)
	outside := h.operate(p.ID, "resize", map[string]any{"prefix": "10.0.0.0/25"})
	check(t, "resources outside", outside.wantProblem(problem.Invalid).Errors[0].Location, "body.routing.max_length")
	outside = h.operate(p.ID, "resize", map[string]any{"prefix": "10.0.1.0/24"})
	check(t, "resources outside", outside.wantProblem(problem.Conflict).Count, int64(1))
	h.operate(p.ID, "resize", map[string]any{"prefix": "10.0.0.128/26"}).wantProblem(problem.Invalid) // max_length again
	h.operate(p.ID, "resize", map[string]any{"prefix": "10.8.0.0/24"}).wantProblem(problem.Invalid).says(t, "body.prefix", "move")
	h.operate(p.ID, "resize", map[string]any{}).wantProblem(problem.Invalid)
	h.operate(p.ID, "resize", map[string]any{"length": 23, "prefix": "10.0.0.0/23"}).wantProblem(problem.Invalid)
	h.operate(p.ID, "resize", map[string]any{"length": 33}).wantProblem(problem.Invalid)
	h.post(prefixPath(p.ID)+"/resize", map[string]any{"length": 24}).wantProblem(problem.PreconditionRequired)
	h.post(prefixPath(p.ID)+"/resize", map[string]any{"length": 24}, ifMatch(`"1"`)).wantProblem(problem.Stale)
	same := h.operate(p.ID, "resize", map[string]any{"length": 23}).want(200)
	check(t, "produced by the same size", same.header.Get(client.ProducedHeader), "")
	h.operate(p.ID, "resize", map[string]any{"length": 24}).want(200)
	check(t, "back again", h.tree()[1], "10.0.0.0/24 in 10.0.0.0/16")
}

func TestResizingKeepsToPTRRecordsAndAnycast(t *testing.T) {
	h := newHarness(t)
	h.pool("192.0.2.0/24")
	p := h.prefix("192.0.2.0/26")
	h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.60", "target": "inside.example"}).want(http.StatusCreated)
	h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.70", "target": "beside.example"}).want(http.StatusCreated)
	h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.64/32", "service": "dns"}).want(http.StatusCreated)
	refused := h.operate(p.ID, "resize", map[string]any{"length": 27}).wantProblem(problem.Conflict)
	check(t, "PTR records outside", refused.Dependants[0].Label, "192.0.2.60")
	h.operate(p.ID, "resize", map[string]any{"length": 25}).want(200)
	check(t, "what lies in it now", h.remove(prefixPath(p.ID)).wantProblem(problem.Conflict).Count, int64(3))
	refused = h.operate(p.ID, "move", map[string]any{"prefix": "192.0.2.128/25"}).wantProblem(problem.Conflict)
	check(t, "resources that a move would leave", refused.Count, int64(3))
}

func TestPatchChangesThePrefixByTheRulesOfTheTree(t *testing.T) {
	h := newHarness(t)
	one, two := h.pool("10.1.0.0/16"), h.pool("10.2.0.0/16")
	p := h.prefix("10.1.0.0/24")
	moved := as[client.Prefix](h.change(prefixPath(p.ID), map[string]any{"prefix": "10.2.3.0/24", "name": "moved"}).want(200))
	check(t, "moved", []any{moved.ID, moved.Prefix.String(), moved.ParentID, moved.Name}, []any{p.ID, "10.2.3.0/24", two.ID, "moved"})
	h.change(prefixPath(p.ID), map[string]any{"parent_id": one.ID}).wantProblem(problem.Invalid).says(t, "body.parent_id", "10.2.3.0/24 lies in 10.2.0.0/16")
	h.change(prefixPath(p.ID), map[string]any{"parent_id": two.ID}).want(200)
	back := as[client.Prefix](h.change(prefixPath(p.ID), map[string]any{"parent_id": one.ID, "prefix": "10.1.9.0/24"}).want(200))
	check(t, "moved back", back.ParentID, one.ID)
	h.change(prefixPath(p.ID), map[string]any{"prefix": "10.1.9.1/24"}).wantProblem(problem.Invalid).says(t, "body.prefix", "host bits")
	h.change(prefixPath(p.ID), map[string]any{"prefix": "10.2.0.0/16"}).wantProblem(problem.Conflict)
	h.change(prefixPath(p.ID), map[string]any{"prefix": "2001:db8::/64"}).wantProblem(problem.Invalid).says(t, "body.prefix", "families")
	h.change(prefixPath(one.ID), map[string]any{"prefix": "10.1.0.0/21"}).wantProblem(problem.Conflict)
	h.change(prefixPath(one.ID), map[string]any{"prefix": "10.1.8.0/21"}).want(200)
	check(t, "tree", h.tree(), []string{"10.1.8.0/21", "10.1.9.0/24 in 10.1.8.0/21", "10.2.0.0/16"})
	h.post("/v1/prefixes", map[string]any{"prefix": "10.2.1.0/24", "parent_id": one.ID}).wantProblem(problem.Invalid).says(t, "body.parent_id", "10.2.0.0/16")
	h.post("/v1/prefixes", map[string]any{"prefix": "10.3.1.0/24", "parent_id": one.ID}).wantProblem(problem.Invalid).says(t, "body.parent_id", "no prefix covers")
	h.post("/v1/prefixes", map[string]any{"prefix": "10.2.1.0/24", "parent_id": two.ID}).want(http.StatusCreated)
}

func TestMovingIntoAPool(t *testing.T) {
	h := newHarness(t)
	h.pool("10.1.0.0/16")
	to := h.pool("10.2.0.0/16")
	h.prefix("10.2.0.0/24")
	p := h.prefix("10.1.0.0/24")
	moved := as[client.Prefix](h.operate(p.ID, "move", map[string]any{"parent": "10.2.0.0/16"}).want(200))
	check(t, "moved", []any{moved.ID, moved.Prefix.String(), moved.ParentID}, []any{p.ID, "10.2.1.0/24", to.ID})
	h.operate(p.ID, "move", map[string]any{"parent": fmt.Sprint(to.ID)}).wantProblem(problem.Invalid).says(t, "body.parent", "already")
	h.operate(p.ID, "move", map[string]any{"parent": "999999"}).wantProblem(problem.Invalid).says(t, "body.parent", "does not know")
	h.operate(p.ID, "move", map[string]any{"parent": "10.2.0.0/24"}).wantProblem(problem.Conflict)
	h.operate(p.ID, "move", map[string]any{}).wantProblem(problem.Invalid)
	host := h.prefix("192.0.2.1/32")
	check(t, "a host route", as[client.Prefix](h.operate(host.ID, "move", map[string]any{"parent": fmt.Sprint(to.ID)}).want(200)).Prefix.String(), "10.2.2.0/32")
	six := h.prefix("2001:db8::/64")
	h.operate(six.ID, "move", map[string]any{"parent": fmt.Sprint(to.ID)}).wantProblem(problem.Invalid)
}
