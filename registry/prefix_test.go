package registry

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

// prefix creates a prefix and answers it.
func (h *harness) prefix(prefix string, more ...map[string]any) client.Prefix {
	h.t.Helper()
	body := map[string]any{"prefix": prefix}
	for _, m := range more {
		for name, value := range m {
			body[name] = value
		}
	}
	return as[client.Prefix](h.post("/v1/prefixes", body).want(http.StatusCreated))
}

// organisation creates an organisation and answers its id.
func (h *harness) organisation(handle string) int64 {
	h.t.Helper()
	return as[client.Organisation](h.post("/v1/organisations", map[string]any{"handle": handle}).want(http.StatusCreated)).ID
}

func prefixPath(id int64) string { return fmt.Sprintf("/v1/prefixes/%d", id) }

func TestPrefixHoldsRoutingAndReverseSettings(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	p := h.prefix("192.0.2.0/24", map[string]any{
		"organisation": "example", "kind": "allocation", "name": "office",
		"routing": map[string]any{"announced": true, "origin": "AS64496", "max_length": 26},
		"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"NS1.Example.NET.", "ns2.bücher.example"},
			"ds": []map[string]any{{"key_tag": 1, "algorithm": 13, "digest_type": 2, "digest": strings.Repeat("AB", 32)}}},
	})
	check(t, "organisation", p.Organisation, "EXAMPLE")
	check(t, "routing", p.Routing, client.Routing{Announced: true, Origin: new(client.ASN(64496)), MaxLength: new(26)})
	check(t, "name servers", p.Reverse.NameServers, []string{"ns1.example.net", "ns2.xn--bcher-kva.example"})
	check(t, "ds", p.Reverse.DS, []client.DS{{KeyTag: 1, Algorithm: 13, DigestType: 2, Digest: strings.Repeat("ab", 32)}})

	changed := as[client.Prefix](h.change(prefixPath(p.ID), `{"routing":{"max_length":null},"reverse":{"mode":"off","name_servers":null,"ds":null},"organisation":null,"organisation_id":null}`).want(200))
	check(t, "routing", changed.Routing, client.Routing{Announced: true, Origin: new(client.ASN(64496))})
	check(t, "reverse", changed.Reverse, client.Reverse{Mode: client.ReverseOff, NameServers: []string{}, DS: []client.DS{}})
	check(t, "holder", changed.OrganisationID, int64(0))

	h.organisation("OTHER")
	back := as[client.Prefix](h.change(prefixPath(p.ID), map[string]any{"organisation": "OTHER"}).want(200))
	check(t, "holder", back.Organisation, "OTHER")
	again := as[client.Prefix](h.change(prefixPath(p.ID), map[string]any{"organisation": "EXAMPLE"}).want(200))
	check(t, "holder after naming another by handle", again.Organisation, "EXAMPLE")
	h.change(prefixPath(p.ID), map[string]any{"organisation": "NOBODY"}).wantProblem(problem.Invalid).says(t, "body.organisation", "no organisation")
}

func TestAnySpellingFindsThePrefix(t *testing.T) {
	h := newHarness(t)
	p := h.prefix("2001:DB8:0:0::/32")
	check(t, "text", p.Prefix.String(), "2001:db8::/32")
	for _, spelling := range []string{"2001:db8::/32", "2001:0DB8:0:0:0:0:0:0/32", "2001:db8:0::0.0.0.0/32"} {
		got := as[client.Prefix](h.get("/v1/prefixes/" + url.PathEscape(spelling)).want(200))
		check(t, spelling, got.ID, p.ID)
	}
	h.get("/v1/prefixes/"+url.PathEscape("2001:db8::1/32")).wantProblem(problem.Invalid).says(t, "path.id", "the prefix is 2001:db8::/32")
	h.get("/v1/prefixes/" + url.PathEscape("2001:db9::/32")).wantProblem(problem.NotFound)
	h.get("/v1/prefixes/banana").wantProblem(problem.Invalid)
}

func TestPrefixesNestInAnyOrderOfCreation(t *testing.T) {
	h := newHarness(t)
	leaf := h.prefix("10.1.2.0/24")
	other := h.prefix("10.2.0.0/16")
	root := h.prefix("10.0.0.0/8")
	middle := h.prefix("10.1.0.0/16")
	v6 := h.prefix("::/0")
	parent := func(id int64) int64 { return as[client.Prefix](h.get(prefixPath(id)).want(200)).ParentID }
	check(t, "parent of the leaf", parent(leaf.ID), middle.ID)
	check(t, "parent of the middle", parent(middle.ID), root.ID)
	check(t, "parent of the other", parent(other.ID), root.ID)
	check(t, "parent of the root", parent(root.ID), int64(0))
	check(t, "parent of the IPv6 root", v6.ParentID, int64(0))

	list := func(query string) (out []string) {
		for _, p := range as[client.Page[client.Prefix]](h.get("/v1/prefixes?" + query).want(200)).Items {
			out = append(out, p.Prefix.String())
		}
		return out
	}
	check(t, "tree order", list(""), []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "::/0"})
	check(t, "within", list("within=10.1.0.0/16"), []string{"10.1.0.0/16", "10.1.2.0/24"})
	check(t, "covers an address", list("covers=10.1.2.3"), []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"})
	check(t, "covers a prefix", list("covers=10.1.0.0/16"), []string{"10.0.0.0/8", "10.1.0.0/16"})
	check(t, "longest", list("longest=10.1.2.3"), []string{"10.1.2.0/24"})
	check(t, "longest of what nobody holds", list("longest=192.0.2.1"), []string(nil))
	check(t, "exact", list("exact=10.2.0.0/16"), []string{"10.2.0.0/16"})
	check(t, "children", list(fmt.Sprintf("parent=%d", root.ID)), []string{"10.1.0.0/16", "10.2.0.0/16"})
	check(t, "page", list("limit=2"), []string{"10.0.0.0/8", "10.1.0.0/16"})
	next := as[client.Page[client.Prefix]](h.get("/v1/prefixes?limit=2").want(200)).Next
	check(t, "next page", list("limit=2&after="+next), []string{"10.1.2.0/24", "10.2.0.0/16"})

	conflict := h.post("/v1/prefixes", map[string]any{"prefix": "10.1.0.0/16"}).wantProblem(problem.Conflict)
	conflict.says(t, "body.prefix", "already")
	refused := h.remove(prefixPath(middle.ID)).wantProblem(problem.Conflict)
	check(t, "count", refused.Count, int64(1))
	check(t, "dependants", refused.Dependants, []client.Candidate{{Resource: client.Resource{Kind: client.KindPrefix, Key: fmt.Sprint(leaf.ID)}, Label: "10.1.2.0/24"}})
	h.remove(prefixPath(leaf.ID)).want(http.StatusNoContent)
	h.remove(prefixPath(middle.ID)).want(http.StatusNoContent)
	h.get(prefixPath(middle.ID)).wantProblem(problem.Deleted)
	h.get(fmt.Sprintf("/v1/prefixes/0%d", middle.ID)).wantProblem(problem.Deleted) // the same number
	h.get("/v1/prefixes/10.1.0.0%2F16").wantProblem(problem.NotFound)
}

func TestReparentingIsNoEvent(t *testing.T) {
	h := newHarness(t)
	h.prefix("10.1.2.0/24")
	made := h.post("/v1/prefixes", map[string]any{"prefix": "10.0.0.0/8"}).want(http.StatusCreated)
	p := as[client.Prefix](made)
	check(t, "produced", made.header.Get(client.ProducedHeader), fmt.Sprintf("prefix:%d@1", p.ID))
}

func TestNewPrefixAdoptsWhatLiesInIt(t *testing.T) {
	h := newHarness(t)
	example := h.organisation("EXAMPLE")
	outer := h.prefix("192.0.2.0/24", map[string]any{"organisation_id": example})
	h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.129", "target": "a.example"}).want(http.StatusCreated)
	h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.128/26", "service": "dns"}).want(http.StatusCreated)

	h.organisation("OTHER")
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.128/25", "organisation": "OTHER"}).wantProblem(problem.Conflict)
	inner := h.prefix("192.0.2.128/25", map[string]any{"organisation_id": example})
	refused := h.remove(prefixPath(inner.ID)).wantProblem(problem.Conflict)
	check(t, "what lies in the inner one", refused.Count, int64(2))
	refused = h.remove(prefixPath(outer.ID)).wantProblem(problem.Conflict)
	check(t, "what lies in the outer one", refused.Count, int64(1))
}

func TestOrganisationWithResourcesIsNotDeleted(t *testing.T) {
	h := newHarness(t)
	id := h.organisation("EXAMPLE")
	h.prefix("192.0.2.0/24", map[string]any{"organisation_id": id})
	h.post("/v1/asns", map[string]any{"number": 64496, "organisation": "EXAMPLE"}).want(http.StatusCreated)
	refused := h.remove(fmt.Sprintf("/v1/organisations/%d", id)).wantProblem(problem.Conflict)
	check(t, "count", refused.Count, int64(2))
	if !strings.Contains(refused.Detail, "2 resources") {
		t.Errorf("the detail does not count: %s", refused.Detail)
	}
}

func TestOverlappingPrefixesFromManyClients(t *testing.T) {
	h := newHarness(t)
	// Sixteen clients, each with prefixes that contain or equal those of others.
	const clients = 16
	var wait sync.WaitGroup
	answers := make([][]*response, clients)
	for n := range clients {
		wait.Go(func() {
			for bits := 24; bits >= 12; bits -= 3 {
				for _, prefix := range []string{fmt.Sprintf("10.%d.0.0/%d", 16*(n%4), bits), fmt.Sprintf("10.%d.0.0/%d", 16*(n%4)+n%2, max(bits, 16))} {
					r, err := h.try(http.MethodPost, "/v1/prefixes", map[string]any{"prefix": prefix})
					if err != nil {
						t.Errorf("%s: %v", prefix, err)
						return
					}
					answers[n] = append(answers[n], r)
				}
			}
		})
	}
	wait.Wait()
	created := map[string]int{}
	for _, rs := range answers {
		for _, r := range rs {
			switch r.status {
			case http.StatusCreated:
				created[as[client.Prefix](r.want(http.StatusCreated)).Prefix.String()]++
			case http.StatusServiceUnavailable:
				r.wantProblem(problem.Unavailable)
			default:
				r.wantProblem(problem.Conflict)
			}
		}
	}
	// The tree that came out is the one that any order would have made.
	const wrong = `
		SELECT count(*) FROM registry.prefix p
		WHERE p.parent_id IS DISTINCT FROM (SELECT id FROM registry.prefix_covering(p.prefix, true))`
	var misplaced, total int
	conn := h.db.Conn(t, "")
	if err := conn.QueryRow(t.Context(), wrong).Scan(&misplaced); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM registry.prefix`).Scan(&total); err != nil {
		t.Fatal(err)
	}
	check(t, "misplaced prefixes", misplaced, 0)
	check(t, "prefixes", total, len(created))
	for prefix, times := range created {
		check(t, "times that "+prefix+" was created", times, 1)
	}
}

func TestTwoEditorsOfOnePrefix(t *testing.T) {
	h := newHarness(t)
	p := h.prefix("192.0.2.0/24")
	var wait sync.WaitGroup
	status := make([]int, 8)
	for n := range status {
		wait.Go(func() {
			r, err := h.try(http.MethodPatch, prefixPath(p.ID), map[string]any{"name": fmt.Sprint("editor ", n)}, ifMatch(`"1"`))
			if err == nil {
				status[n] = r.status
			}
		})
	}
	wait.Wait()
	count := map[int]int{}
	for _, s := range status {
		count[s]++
	}
	check(t, "answers", count, map[int]int{http.StatusOK: 1, http.StatusPreconditionFailed: 7})
}
