package registry

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

// caller is one kind of token: a role everywhere, or a grant of it.
type caller struct {
	role
	how    string // everywhere, organisation, prefix
	secret string
}

// callers makes a token for each role, and one for each role that a grant may give
// on an organisation and on a prefix.
func (h *harness) callers(organisation int64, prefix string) []caller {
	h.t.Helper()
	var all []caller
	add := func(r role, how string, body map[string]any) {
		body["name"] = fmt.Sprintf("%s, %s", r, how)
		all = append(all, caller{r, how, h.newToken(body).Secret})
	}
	for _, r := range wholeRoles {
		body := map[string]any{"roles": []role{r}}
		if r == roleModule {
			body["module"] = "dns"
		}
		add(r, "everywhere", body)
	}
	for _, r := range grantRoles {
		add(r, "organisation", map[string]any{"grants": []any{map[string]any{"role": r, "organisation_id": organisation}}})
		add(r, "prefix", map[string]any{"grants": []any{map[string]any{"role": r, "prefix": prefix}}})
	}
	return all
}

// wants tells whether the table of this test gives the caller a permission at a place.
func (c caller) wants(needs permission, place string) bool {
	letters := wantAccess[needs][slices.Index(roles, c.role)]
	switch {
	case c.how == "everywhere":
		return strings.Contains(letters, "W")
	case strings.Contains(letters, "A"):
		return true
	case place == "own":
		return c.how == "organisation" && strings.Contains(letters, "G")
	case place == "granted":
		return c.how == "prefix" && strings.Contains(letters, "G")
	}
	return false
}

// TestEveryOperationRefusesWhoMayNot asks every operation of the API with every
// role and every kind of grant, and without a token.
func TestEveryOperationRefusesWhoMayNot(t *testing.T) {
	h := newHarness(t)
	organisation := as[client.Organisation](h.post("/v1/organisations", map[string]any{"handle": "OWN"}).want(http.StatusCreated))
	callers := h.callers(organisation.ID, "10.3.0.0/16")
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Permission  string `json:"x-hubn-permission"`
		} `json:"paths"`
	}
	h.get("/openapi.json").want(200).decode(&document)
	asked := 0
	for path, methods := range document.Paths {
		for method, op := range methods {
			if !strings.HasPrefix(path, "/v1/") {
				continue // public data, for which nobody needs a token
			}
			needs, ok := h.registry.service.needs[op.OperationID]
			if !ok || op.Permission != string(needs) {
				t.Errorf("%s %s needs %q in the document and %q in the table of operations", method, path, op.Permission, needs)
				continue
			}
			h.do(strings.ToUpper(method), path, nil, token("")).wantProblem(problem.Unauthenticated)
			for _, c := range callers {
				if c.wants(needs, "own") || c.wants(needs, "granted") {
					continue // elsewhere: what it is about decides
				}
				asked++
				h.do(strings.ToUpper(method), path, nil, token(c.secret)).wantProblem(problem.Forbidden)
			}
		}
	}
	if asked < 200 {
		t.Errorf("only %d refusals were asked for", asked)
	}
}

// attempt is a change of something at a place: own is held by the organisation of
// the grants, granted lies in the prefix of the grants, foreign is neither.
type attempt struct {
	operation, place string
	method, path     string
	body             any
}

// TestEveryRoleOnOwnGrantedAndForeign tries each change of a noun with every role
// and every kind of grant on what is its own, granted and foreign.
func TestEveryRoleOnOwnGrantedAndForeign(t *testing.T) {
	h := newHarness(t)
	made := func(path string, body map[string]any) (id int64) {
		t.Helper()
		return as[struct{ ID int64 }](h.post(path, body).want(http.StatusCreated)).ID
	}
	own := made("/v1/organisations", map[string]any{"handle": "OWN"})
	foreign := made("/v1/organisations", map[string]any{"handle": "FOREIGN"})
	var attempts []attempt
	try := func(operation, place, method, path string, body any) {
		attempts = append(attempts, attempt{operation, place, method, path, body})
	}
	for i, place := range []string{"own", "foreign", "granted"} {
		net, holder, handle := fmt.Sprintf("10.%d.", i+1), foreign, "FOREIGN"
		if place == "own" {
			holder, handle = own, "OWN"
		}
		block := made("/v1/prefixes", map[string]any{"prefix": net + "0.0/16", "organisation_id": holder, "kind": "container"})
		leaf := made("/v1/prefixes", map[string]any{"prefix": net + "1.0/24", "organisation_id": holder})
		nobodys := made("/v1/prefixes", map[string]any{"prefix": net + "2.0/24"})
		ptr := made("/v1/ptr-records", map[string]any{"address": net + "0.1", "target": "a.example"})
		anycast := made("/v1/anycast", map[string]any{"prefix": net + "0.0/24", "service": "dns"})
		try("create-prefix", place, http.MethodPost, "/v1/prefixes", map[string]any{"prefix": net + "9.0/24", "organisation": handle})
		try("create-prefix", place, http.MethodPost, "/v1/prefixes", map[string]any{"prefix": net + "9.0/24"})
		try("change-prefix", place, http.MethodPatch, fmt.Sprintf("/v1/prefixes/%d", block), map[string]any{"name": "changed"})
		try("change-prefix", place, http.MethodPatch, fmt.Sprintf("/v1/prefixes/%d", nobodys), map[string]any{"organisation": handle})
		try("delete-prefix", place, http.MethodDelete, fmt.Sprintf("/v1/prefixes/%d", leaf), nil)
		try("delete-prefix", place, http.MethodDelete, fmt.Sprintf("/v1/prefixes/%d", nobodys), nil)
		try("create-ptr-record", place, http.MethodPost, "/v1/ptr-records", map[string]any{"address": net + "2.9", "target": "b.example"})
		try("change-ptr-record", place, http.MethodPatch, fmt.Sprintf("/v1/ptr-records/%d", ptr), map[string]any{"ttl": 60})
		try("delete-ptr-record", place, http.MethodDelete, fmt.Sprintf("/v1/ptr-records/%d", ptr), nil)
		try("create-anycast", place, http.MethodPost, "/v1/anycast", map[string]any{"prefix": net + "0.0/24", "service": "ntp"})
		try("change-anycast", place, http.MethodPatch, fmt.Sprintf("/v1/anycast/%d", anycast), map[string]any{"service": "web"})
		try("delete-anycast", place, http.MethodDelete, fmt.Sprintf("/v1/anycast/%d", anycast), nil)
		next := made("/v1/prefixes", map[string]any{"prefix": net + "4.0/24", "organisation_id": holder})
		other := made("/v1/prefixes", map[string]any{"prefix": net + "5.0/24", "organisation_id": holder})
		try("next-free", place, http.MethodPost, fmt.Sprintf("/v1/prefixes/%d/next-free", block), map[string]any{"length": 26})
		try("next-free", place, http.MethodPost, fmt.Sprintf("/v1/prefixes/%d/next-free", block), map[string]any{"length": 26, "organisation": handle})
		try("split-prefix", place, http.MethodPost, fmt.Sprintf("/v1/prefixes/%d/split", leaf), map[string]any{"length": 25})
		try("merge-prefixes", place, http.MethodPost, fmt.Sprintf("/v1/prefixes/%d/merge", next), map[string]any{"with": []string{fmt.Sprint(other)}})
		try("resize-prefix", place, http.MethodPost, fmt.Sprintf("/v1/prefixes/%d/resize", leaf), map[string]any{"length": 25})
		try("move-prefix", place, http.MethodPost, fmt.Sprintf("/v1/prefixes/%d/move", leaf), map[string]any{"prefix": net + "6.0/24"})
		if place == "granted" {
			continue // what is in no prefix cannot be granted by one
		}
		ca := made("/v1/certificate-authorities", map[string]any{"name": "ca-" + place, "organisation_id": holder})
		try("create-certificate-authority", place, http.MethodPost, "/v1/certificate-authorities", map[string]any{"name": "new", "organisation_id": holder, "parent": "ca-" + place})
		try("change-certificate-authority", place, http.MethodPatch, fmt.Sprintf("/v1/certificate-authorities/%d", ca), map[string]any{"name": "changed"})
		try("delete-certificate-authority", place, http.MethodDelete, fmt.Sprintf("/v1/certificate-authorities/%d", ca), nil)
		number := fmt.Sprint(64496 + i)
		h.post("/v1/asns", map[string]any{"number": number, "organisation_id": holder}).want(http.StatusCreated)
		try("change-asn", place, http.MethodPatch, "/v1/asns/"+number, map[string]any{"name": "changed"})
		try("delete-asn", place, http.MethodDelete, "/v1/asns/"+number, nil)
		try("change-organisation", place, http.MethodPatch, fmt.Sprintf("/v1/organisations/%d", holder), map[string]any{"name": "changed"})
	}
	// What a grant does not reach: nobody's space and numbers, and what passes
	// from one holder to another.
	prefix := func(p string) string { return "/v1/prefixes/" + strings.ReplaceAll(p, "/", "%2F") }
	try("create-organisation", "foreign", http.MethodPost, "/v1/organisations", map[string]any{"handle": "NEW"})
	try("delete-organisation", "foreign", http.MethodDelete, fmt.Sprintf("/v1/organisations/%d", own), nil)
	try("create-asn", "foreign", http.MethodPost, "/v1/asns", map[string]any{"number": 64500, "organisation": "OWN"})
	try("change-asn", "foreign", http.MethodPatch, "/v1/asns/64496", map[string]any{"organisation": "FOREIGN"})
	try("change-asn", "foreign", http.MethodPatch, "/v1/asns/64496", map[string]any{"organisation_id": nil})
	try("create-prefix", "foreign", http.MethodPost, "/v1/prefixes", map[string]any{"prefix": "10.9.0.0/16", "organisation": "OWN"})
	try("create-prefix", "foreign", http.MethodPost, "/v1/prefixes", map[string]any{"prefix": "10.0.0.0/8", "organisation": "OWN"})
	try("create-prefix", "foreign", http.MethodPost, "/v1/prefixes", map[string]any{"prefix": "10.1.9.0/24", "organisation": "FOREIGN"})
	try("create-prefix", "foreign", http.MethodPost, "/v1/prefixes", map[string]any{"prefix": "10.2.9.0/24", "organisation": "OWN"})
	try("change-prefix", "foreign", http.MethodPatch, prefix("10.1.0.0/16"), map[string]any{"organisation": "FOREIGN"})
	try("change-prefix", "foreign", http.MethodPatch, prefix("10.2.0.0/16"), map[string]any{"organisation": "OWN"})
	try("create-ptr-record", "foreign", http.MethodPost, "/v1/ptr-records", map[string]any{"address": "192.0.2.1", "target": "b.example"})
	try("next-free", "foreign", http.MethodPost, prefix("10.1.0.0/16")+"/next-free", map[string]any{"length": 26, "organisation": "FOREIGN"})
	try("move-prefix", "foreign", http.MethodPost, prefix("10.1.1.0/24")+"/move", map[string]any{"prefix": "10.2.6.0/24"})
	// A CA without a parent is a trust anchor: everybody's.
	try("create-certificate-authority", "foreign", http.MethodPost, "/v1/certificate-authorities", map[string]any{"name": "anchor", "organisation_id": own})
	try("create-session", "foreign", http.MethodPost, "/v1/sessions", map[string]any{"remote_address": "192.0.2.1", "remote_asn": 64496, "local_asn": 64497})
	callers := h.callers(own, "10.3.0.0/16")
	for _, a := range attempts {
		needs, known := h.registry.service.needs[a.operation]
		if !known {
			t.Fatalf("there is no operation %s", a.operation)
		}
		var headers []header
		if a.method != http.MethodPost || strings.Count(a.path, "/") > 2 && a.operation != "next-free" {
			headers = append(headers, ifMatch("*"))
		}
		for _, c := range callers {
			r := h.do(a.method, a.path+"?dry_run=true", a.body, append(headers, token(c.secret))...)
			if got, want := r.status != http.StatusForbidden, c.wants(needs, a.place); got != want {
				t.Errorf("%s by %s, %s: %s %s %v: got %d %s, want allowed: %t", a.operation, c.role, c.how, a.place, a.path, a.body, r.status, r.body, want)
			} else if got && r.status >= 400 && !(a.place == "foreign" && r.status == http.StatusConflict) {
				t.Errorf("%s by %s, %s: %s %s: got %d: %s", a.operation, c.role, c.how, a.place, a.path, r.status, r.body)
			}
		}
	}
}

func TestContactsAreForWhoMaySeeThem(t *testing.T) {
	h := newHarness(t)
	own := as[client.Organisation](h.post("/v1/organisations", map[string]any{"handle": "OWN", "contact": "own@example.net"}).want(http.StatusCreated))
	h.post("/v1/organisations", map[string]any{"handle": "FOREIGN", "contact": "foreign@example.net"}).want(http.StatusCreated)
	for _, c := range h.callers(own.ID, "10.3.0.0/16") {
		for handle, place := range map[string]string{"OWN": "own", "FOREIGN": "foreign"} {
			want := c.wants(readContacts, place)
			o := as[client.Organisation](h.get("/v1/organisations/"+handle, token(c.secret)).want(200))
			if seen := o.Contact != ""; seen != want || o.ContactHidden == want {
				t.Errorf("%s, %s: the contact of %s is %q, hidden %t; want it shown: %t", c.role, c.how, handle, o.Contact, o.ContactHidden, want)
			}
			whole := c.wants(readContacts, "nobody's")
			listed := as[client.Page[client.Organisation]](h.get("/v1/organisations?text="+strings.ToLower(handle)+"@example", token(c.secret)).want(200))
			if found := len(listed.Items) > 0; found != whole {
				t.Errorf("%s, %s: a search finds the contact of %s: %t, want %t", c.role, c.how, handle, found, whole)
			}
		}
		// A refused change shows nothing of it either, whatever its ETag.
		if !c.wants(writeNouns, "foreign") {
			r := h.do(http.MethodPatch, "/v1/organisations/FOREIGN", map[string]any{"name": "x"}, token(c.secret), ifMatch(`"99"`))
			r.wantProblem(problem.Forbidden)
			if strings.Contains(string(r.body), "foreign@") {
				t.Errorf("%s, %s: the refusal shows the contact: %s", c.role, c.how, r.body)
			}
		}
	}
}
