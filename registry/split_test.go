package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

func TestSplittingGivesEachPartWhatLiesInIt(t *testing.T) {
	for _, around := range []string{"", "10.0.0.0/16"} {
		t.Run("in "+around, func(t *testing.T) {
			h := newHarness(t)
			h.organisation("EXAMPLE")
			in := ""
			if around != "" {
				h.pool(around)
				in = " in " + around
			}
			p := h.prefix("10.0.0.0/24", map[string]any{"organisation": "EXAMPLE", "kind": "allocation", "name": "office",
				"routing": map[string]any{"announced": true, "origin": 64496, "max_length": 24},
				"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns1.example"}, "zone_cut": 28}})
			h.prefix("10.0.0.0/26")
			h.prefix("10.0.0.192/32")
			h.post("/v1/ptr-records", map[string]any{"address": "10.0.0.130", "target": "a.example"}).want(http.StatusCreated)
			h.post("/v1/anycast", map[string]any{"prefix": "10.0.0.129/32", "service": "dns"}).want(http.StatusCreated)

			r := h.operate(p.ID, "split", map[string]any{"length": 25}).want(200)
			items := as[client.Prefixes](r).Items
			check(t, "parts", []string{items[0].Prefix.String(), items[1].Prefix.String()}, []string{"10.0.0.0/25", "10.0.0.128/25"})
			check(t, "the first part", items[0].ID, p.ID)
			check(t, "the other", []any{items[1].Organisation, items[1].Kind, items[1].Name, items[1].Routing, items[1].Reverse.ZoneCut},
				[]any{"EXAMPLE", "allocation", "office", client.Routing{Announced: true, Origin: new(client.ASN(64496))}, new(28)})
			check(t, "produced", r.header.Get(client.ProducedHeader), fmt.Sprintf("prefix:%d@2, prefix:%d@1", items[0].ID, items[1].ID))
			tree := h.tree()
			check(t, "tree", tree[len(tree)-4:], []string{"10.0.0.0/25" + in, "10.0.0.0/26 in 10.0.0.0/25", "10.0.0.128/25" + in, "10.0.0.192/32 in 10.0.0.128/25"})
			check(t, "what lies in the second part", h.remove(prefixPath(items[1].ID)).wantProblem(problem.Conflict).Count, int64(3))
			h.prefix("10.0.0.132/30") // the tree is one that others can be put in

			// And back again.
			h.remove("/v1/prefixes/10.0.0.132%2F30").want(http.StatusNoContent)
			whole := h.operate(items[1].ID, "merge", map[string]any{"with": []string{"10.0.0.0/25"}}).want(200)
			check(t, "whole", []any{as[client.Prefix](whole).ID, as[client.Prefix](whole).Prefix.String()}, []any{items[1].ID, "10.0.0.0/24"})
			check(t, "produced", whole.header.Get(client.ProducedHeader), fmt.Sprintf("prefix:%d@3, prefix:%d@2", items[0].ID, items[1].ID))
			tree = h.tree()
			check(t, "tree", tree[len(tree)-3:], []string{"10.0.0.0/24" + in, "10.0.0.0/26 in 10.0.0.0/24", "10.0.0.192/32 in 10.0.0.0/24"})
			check(t, "what lies in it", h.remove(prefixPath(items[1].ID)).wantProblem(problem.Conflict).Count, int64(4))
		})
	}
}

func TestWhatCannotBeSplit(t *testing.T) {
	h := newHarness(t)
	p := h.prefix("10.0.0.0/24")
	h.prefix("10.0.0.0/25")
	refused := h.operate(p.ID, "split", map[string]any{"length": 25}).wantProblem(problem.Conflict)
	check(t, "in the way", refused.Dependants[0].Label, "10.0.0.0/25")
	h.operate(p.ID, "split", map[string]any{"length": 24}).wantProblem(problem.Invalid).says(t, "body.length", "25 to 32")
	h.operate(p.ID, "split", map[string]any{"length": 33}).wantProblem(problem.Invalid)
	host := h.prefix("192.0.2.1/32")
	h.operate(host.ID, "split", map[string]any{"length": 32}).wantProblem(problem.Invalid).says(t, "body.length", "single address")
	wide := h.prefix("2001:db8::/32")
	h.operate(wide.ID, "split", map[string]any{"length": 41}).wantProblem(problem.Invalid).says(t, "body.length", "33 to 40")
	check(t, "256 parts", len(as[client.Prefixes](h.operate(wide.ID, "split", map[string]any{"length": 40}).want(200)).Items), 256)
	signed := h.prefix("198.51.100.0/24", map[string]any{"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns1.example"},
		"ds": []map[string]any{{"key_tag": 1, "algorithm": 13, "digest_type": 2, "digest": strings.Repeat("ab", 32)}}}})
	h.operate(signed.ID, "split", map[string]any{"length": 25}).wantProblem(problem.Conflict)
	pair := h.prefix("192.0.2.2/31")
	check(t, "a /31", len(as[client.Prefixes](h.operate(pair.ID, "split", map[string]any{"length": 32}).want(200)).Items), 2)
	six := h.prefix("2001:db9::/127")
	check(t, "a /127", len(as[client.Prefixes](h.operate(six.ID, "split", map[string]any{"length": 128}).want(200)).Items), 2)
}

func TestWhatCannotBeMerged(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	h.pool("10.0.0.0/22")
	one := h.prefix("10.0.1.0/24")
	h.prefix("10.0.2.0/24")
	h.prefix("10.0.0.0/24", map[string]any{"organisation": "EXAMPLE", "routing": map[string]any{"origin": 64496}})
	merge := func(with ...string) *response { return h.operate(one.ID, "merge", map[string]any{"with": with}) }
	if d := merge("10.0.2.0/24").wantProblem(problem.Invalid); !strings.Contains(d.Detail, "10.0.1.0/24, 10.0.2.0/24 do not make up one prefix") {
		t.Errorf("the refusal does not say why: %s", d.Detail)
	}
	if d := merge("10.0.0.0/24").wantProblem(problem.Conflict); !strings.Contains(d.Detail, "organisation, routing") {
		t.Errorf("the refusal does not name what differs: %s", d.Detail)
	}
	merge("10.0.9.0/24").wantProblem(problem.Invalid).says(t, "body.with", "no prefix 10.0.9.0/24")
	merge("10.0.1.0/24").wantProblem(problem.Invalid).says(t, "body.with", "twice")
	merge().wantProblem(problem.Invalid)
	h.remove("/v1/prefixes/10.0.0.0%2F24").want(http.StatusNoContent)
	h.prefix("10.0.0.0/24")
	h.prefix("10.0.3.0/24")
	if d := merge("10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24").wantProblem(problem.Conflict); !strings.Contains(d.Detail, "10.0.0.0/22, which is in the registry already") {
		t.Errorf("the refusal does not say why: %s", d.Detail)
	}
	check(t, "tree after refusals", len(h.tree()), 5)
	merge("10.0.0.0/24").want(200)
	check(t, "tree", h.tree(), []string{"10.0.0.0/22", "10.0.0.0/23 in 10.0.0.0/22", "10.0.2.0/24 in 10.0.0.0/22", "10.0.3.0/24 in 10.0.0.0/22"})
}
