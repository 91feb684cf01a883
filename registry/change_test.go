package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

// changes reads the change log with a query, all pages of it.
func (h *harness) changes(query url.Values, headers ...header) (out []client.Change) {
	h.t.Helper()
	for {
		page := as[client.Page[client.Change]](h.get("/v1/changes?"+query.Encode(), headers...).want(http.StatusOK))
		out = append(out, page.Items...)
		if page.Next == "" {
			return out
		}
		query.Set("after", page.Next)
	}
}

// texts are changes in short: "update 192.0.2.0/24".
func texts(changes []client.Change) []string {
	out := []string{}
	for _, c := range changes {
		out = append(out, c.Op+" "+c.Name)
	}
	return out
}

func TestChangeLogByResourceActorRequestAndTime(t *testing.T) {
	h := newHarness(t)
	prefix := h.post("/v1/prefixes?reason=first", map[string]any{"prefix": "192.0.2.0/24"}, token(h.operator)).want(http.StatusCreated)
	path := prefix.header.Get("Location")
	h.change(path, map[string]any{"name": "one"}).want(200)
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	h.remove(path).want(http.StatusNoContent)
	again := h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)

	all := h.changes(url.Values{"limit": {"2"}})
	want := []string{"insert 192.0.2.0/24", "delete 192.0.2.0/24", "insert example", "update 192.0.2.0/24", "insert 192.0.2.0/24"}
	check(t, "all, newest first, in pages of 2", texts(all), want)
	first := all[4]
	check(t, "actor", first.Actor, "the-operator")
	check(t, "reason", first.Reason, "first")
	check(t, "request", first.RequestID, prefix.header.Get("X-Request-Id"))
	check(t, "changed", all[3].Changed, []string{"name"})
	check(t, "by id", as[client.Change](h.get(fmt.Sprintf("/v1/changes/%d", first.ID)).want(200)), first)

	for name, c := range map[string]struct {
		query url.Values
		want  int
	}{
		"by name, of both that had it":   {url.Values{"resource": {"192.0.2.0/24"}}, 4},
		"by name, in any spelling":       {url.Values{"resource": {" 192.0.2.0/24"}}, 4},
		"by key":                         {url.Values{"resource": {first.Resource.String()}}, 3},
		"by kind and name":               {url.Values{"resource": {"prefix:192.0.2.0/24"}}, 4},
		"by handle":                      {url.Values{"resource": {"example"}}, 1},
		"by actor":                       {url.Values{"actor": {"the-operator"}}, 1},
		"by request":                     {url.Values{"request": {again.header.Get("X-Request-Id")}}, 1},
		"by op":                          {url.Values{"op": {"delete"}}, 1},
		"by time":                        {url.Values{"since": {all[3].At.Format(time.RFC3339Nano)}, "until": {all[1].At.Format(time.RFC3339Nano)}}, 2},
		"before there was anything":      {url.Values{"until": {"2020-01-01T00:00:00Z"}}, 0},
		"of a resource that nobody made": {url.Values{"resource": {"prefix:999"}}, 0},
	} {
		check(t, name, len(h.changes(c.query)), c.want)
	}
	h.get("/v1/changes?resource=198.51.100.0/24").wantProblem(problem.NotFound)
	h.get("/v1/changes?resource=192.0.2.1/24").wantProblem(problem.Invalid)
	h.get("/v1/changes/999999").wantProblem(problem.NotFound)
	h.get("/v1/changes", token(h.viewer)).wantProblem(problem.Forbidden)
}

func TestAGrantReadsTheHistoryOfWhatItCovers(t *testing.T) {
	h := newHarness(t)
	own := as[client.Organisation](h.post("/v1/organisations", map[string]any{"handle": "OWN"}).want(http.StatusCreated))
	h.post("/v1/organisations", map[string]any{"handle": "FOREIGN"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "FOREIGN"}).want(http.StatusCreated)
	path := h.post("/v1/prefixes", map[string]any{"prefix": "198.51.100.0/24", "organisation": "FOREIGN"}).want(http.StatusCreated).header.Get("Location")
	h.change(path, map[string]any{"organisation": "OWN"}).want(200)
	h.change(path, map[string]any{"name": "ours"}).want(200)
	h.post("/v1/ptr-records", map[string]any{"address": "198.51.100.1", "target": "a.example"}).want(http.StatusCreated)
	secret := h.newToken(map[string]any{"name": "auditor", "grants": []any{map[string]any{"role": "auditor", "organisation_id": own.ID}}}).Secret
	// What the former holder did with it is not theirs to see.
	check(t, "of the own prefix", texts(h.changes(url.Values{"resource": {"198.51.100.0/24"}}, token(secret))), []string{"update 198.51.100.0/24"})
	check(t, "of its PTR record", len(h.changes(url.Values{"resource": {"198.51.100.1"}}, token(secret))), 1)
	check(t, "of the organisation", texts(h.changes(url.Values{"resource": {"OWN"}}, token(secret))), []string{"insert own"})
	check(t, "of a foreign prefix", len(h.changes(url.Values{"resource": {"192.0.2.0/24"}}, token(secret))), 0)
	h.get("/v1/changes", token(secret)).wantProblem(problem.Invalid)
	foreign := h.changes(url.Values{"resource": {"192.0.2.0/24"}})[0]
	h.get(fmt.Sprintf("/v1/changes/%d", foreign.ID), token(secret)).wantProblem(problem.Forbidden)
	h.get("/v1/changes/prefix/192.0.2.0%2F24/holders", token(secret)).wantProblem(problem.Forbidden)
	h.get("/v1/changes/prefix/192.0.2.0%2F24/at?time="+h.databaseTime(), token(secret)).wantProblem(problem.Forbidden)
	h.get("/v1/changes/prefix/198.51.100.0%2F24/holders", token(secret)).want(http.StatusOK)
}

func TestAPastStateIsWhatTheAPIAnsweredThen(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	before := h.databaseTime()
	made := h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "EXAMPLE",
		"routing": map[string]any{"announced": true, "origin": 64496},
		"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns1.example.net"}}}).want(http.StatusCreated)
	path, then := made.header.Get("Location"), h.databaseTime()
	h.change(path, map[string]any{"name": "renamed", "organisation": nil}).want(200)
	later := h.databaseTime()
	h.remove(path).want(http.StatusNoContent)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "name": "anew"}).want(http.StatusCreated)

	at := func(name, when string) client.Past {
		return as[client.Past](h.get("/v1/changes/" + name + "/at?time=" + url.QueryEscape(when)).want(http.StatusOK))
	}
	for _, name := range []string{"prefix/192.0.2.0%2F24", "prefix/" + path[strings.LastIndex(path, "/")+1:]} {
		past := at(name, then)
		if !past.Exists || past.Name != "192.0.2.0/24" || past.Change == 0 {
			t.Errorf("%s: the past is %+v", name, past)
		}
		check(t, name, string(past.Object), strings.TrimSpace(string(made.body)))
		check(t, name+" before it was", at(name, before).Exists, false)
		if o := at(name, later).Object; !strings.Contains(string(o), `"renamed"`) || strings.Contains(string(o), "EXAMPLE") {
			t.Errorf("%s: later it was %s", name, o)
		}
	}
	now := at("prefix/192.0.2.0%2F24", h.databaseTime())
	if !strings.Contains(string(now.Object), `"anew"`) {
		t.Errorf("now it is %s", now.Object)
	}
	h.get("/v1/changes/prefix/999/at?time=2026-01-01T00:00:00Z").wantProblem(problem.NotFound)
	h.get("/v1/changes/prefix/17/at").wantProblem(problem.Invalid)
}

func TestPastOfEveryNoun(t *testing.T) {
	h := newHarness(t)
	organisation := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE", "contact": "noc@example.net"}).want(http.StatusCreated)
	asn := h.post("/v1/asns", map[string]any{"number": 64496, "organisation": "EXAMPLE"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "EXAMPLE"}).want(http.StatusCreated)
	ptr := h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.1", "target": "a.example", "ttl": 60}).want(http.StatusCreated)
	anycast := h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.0/25", "service": "dns", "organisation": "EXAMPLE",
		"origins": []any{map[string]any{"asn": 64497}, map[string]any{"asn": 64496, "max_length": 25}}}).want(http.StatusCreated)
	then := url.QueryEscape(h.databaseTime())
	for _, path := range []string{anycast.header.Get("Location"), ptr.header.Get("Location"), asn.header.Get("Location")} {
		h.remove(path).want(http.StatusNoContent)
	}
	past := func(name string) string {
		p := as[client.Past](h.get("/v1/changes/" + name + "/at?time=" + then).want(http.StatusOK))
		return string(p.Object)
	}
	check(t, "organisation", past("organisation/EXAMPLE"), strings.TrimSpace(string(organisation.body)))
	check(t, "asn", past("asn/AS64496"), strings.TrimSpace(string(asn.body)))
	check(t, "ptr", past("ptr/192.0.2.1"), "["+strings.TrimSpace(string(ptr.body))+"]")
	var was, is client.Anycast
	if err := json.Unmarshal([]byte(past("anycast/192.0.2.0%2F25")), &was); err != nil {
		t.Fatal(err)
	}
	anycast.decode(&is)
	is.Revision = was.Revision // that of the object counts its origins' changes too
	wasText, _ := json.Marshal(was)
	isText, _ := json.Marshal(is)
	check(t, "anycast", string(wasText), string(isText))
}

func TestWhoHeldWhatSinceWhen(t *testing.T) {
	h := newHarness(t)
	for _, handle := range []string{"FIRST", "SECOND"} {
		h.post("/v1/organisations", map[string]any{"handle": handle}).want(http.StatusCreated)
	}
	path := h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "FIRST"}).want(http.StatusCreated).header.Get("Location")
	h.change(path, map[string]any{"name": "not a handover"}).want(200)
	h.do(http.MethodPatch, path+"?reason=sold", map[string]any{"organisation": "SECOND"}, ifMatch(h.etag(path))).want(200)
	h.post("/v1/asns", map[string]any{"number": 64496, "organisation": "SECOND"}).want(http.StatusCreated)
	holdings := as[client.Holders](h.get("/v1/changes/organisation/SECOND/holders").want(http.StatusOK)).Items
	if len(holdings) != 2 || holdings[0].Resource.Kind != client.KindASN || holdings[1].Reason != "sold" || holdings[1].Since.IsZero() {
		t.Errorf("SECOND holds %+v", holdings)
	}
	h.remove(path).want(http.StatusNoContent)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)
	holders := as[client.Holders](h.get("/v1/changes/prefix/192.0.2.0%2F24/holders").want(http.StatusOK)).Items
	var got []string
	for _, p := range holders {
		got = append(got, fmt.Sprintf("%s %s %t", p.Organisation, p.Reason, p.Until.IsZero()))
	}
	check(t, "holders", got, []string{"  true", "SECOND sold false", "FIRST  false"})
	check(t, "one follows the other", holders[2].Until, holders[1].Since)
	h.get("/v1/changes/ptr/192.0.2.1/holders").wantProblem(problem.Invalid)
}

// databaseTime is the database's clock.
func (h *harness) databaseTime() string {
	h.t.Helper()
	var at time.Time
	if err := h.db.Conn(h.t, "").QueryRow(h.t.Context(), `SELECT clock_timestamp()`).Scan(&at); err != nil {
		h.t.Fatal(err)
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func TestANameThatIsGoneIsFoundByWhatItStoodFor(t *testing.T) {
	h := newHarness(t)
	path := h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated).header.Get("Location")
	organisation := h.post("/v1/organisations", map[string]any{"handle": "Example"}).want(http.StatusCreated).header.Get("Location")
	h.change(organisation, map[string]any{"handle": "RENAMED"}).want(200)
	h.remove(path).want(http.StatusNoContent)
	found := func(q string) client.Resolved {
		return as[client.Resolved](h.get("/v1/resolve?q=" + url.QueryEscape(q)).want(http.StatusOK))
	}
	check(t, "deleted", found("192.0.2.0/24").Resource.String(), "prefix:1")
	check(t, "its label", found("192.0.2.0/24").Label, "192.0.2.0/24")
	check(t, "renamed", found("EXAMPLE").Resource.String(), "organisation:1")
	check(t, "its label", found("EXAMPLE").Label, "RENAMED")
	trace := as[client.Trace](h.get("/v1/trace/prefix/1").want(http.StatusOK))
	if !trace.Deleted || len(trace.Changes) != 2 {
		t.Errorf("the trace is %+v", trace)
	}
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)
	check(t, "what is there comes first", found("192.0.2.0/24").Resource.String(), "prefix:2")
	h.get("/v1/resolve?q=198.51.100.0/24").wantProblem(problem.NotFound)
}

func TestATraceShowsContactsToWhoMaySeeThem(t *testing.T) {
	h := newHarness(t)
	path := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE", "contact": "alice@example.net"}).want(http.StatusCreated).header.Get("Location")
	h.change(path, map[string]any{"name": "x"}).want(200)
	authority := h.newToken(map[string]any{"name": "authority", "roles": []string{"authority"}}).Secret
	if body := string(h.get("/v1/trace/organisation/1", token(h.viewer)).want(200).body); !strings.Contains(body, "alice@") {
		t.Errorf("a viewer does not see the contact: %s", body)
	}
	body := string(h.get("/v1/trace/organisation/1", token(authority)).want(200).body)
	if strings.Contains(body, "alice@") || !strings.Contains(body, "EXAMPLE") {
		t.Errorf("an authority sees %s", body)
	}
}
