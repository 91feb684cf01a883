package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

func TestOrganisationFromCreationToTombstone(t *testing.T) {
	h := newHarness(t)
	made := h.post("/v1/organisations?reason=first+customer", map[string]any{"handle": "EXAMPLE", "name": "Example"}).want(http.StatusCreated)
	o := as[client.Organisation](made)
	check(t, "created", o, client.Organisation{ID: o.ID, Handle: "EXAMPLE", Name: "Example", Revision: 1})
	check(t, "ETag", made.header.Get("ETag"), `"1"`)
	path := fmt.Sprintf("/v1/organisations/%d", o.ID)
	check(t, "Location", made.header.Get("Location"), path)
	check(t, "produced", made.header.Get(client.ProducedHeader), fmt.Sprintf("organisation:%d@1", o.ID))

	check(t, "by handle, in any case", as[client.Organisation](h.get("/v1/organisations/example").want(200)), o)

	changed := h.change(path, map[string]any{"contact": "noc@example.net"}).want(200)
	o.Contact, o.Revision = "noc@example.net", 2
	check(t, "changed", as[client.Organisation](changed), o)
	check(t, "produced", changed.header.Get(client.ProducedHeader), fmt.Sprintf("organisation:%d@2", o.ID))

	gone := h.remove(path).want(http.StatusNoContent)
	check(t, "produced", gone.header.Get(client.ProducedHeader), fmt.Sprintf("organisation:%d@3", o.ID))
	tombstone := h.get(path).wantProblem(problem.Deleted)
	check(t, "last version", tombstone.Version, int64(3))
	check(t, "resource", tombstone.Resource, fmt.Sprintf("organisation:%d", o.ID))

	h.get("/v1/organisations/999999").wantProblem(problem.NotFound)
	h.get("/v1/organisations/NOBODY").wantProblem(problem.NotFound)
}

func TestChangeNamesWhatItChanges(t *testing.T) {
	h := newHarness(t)
	path := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated).header.Get("Location")
	patch := map[string]any{"name": "New"}
	check(t, "current ETag", h.do(http.MethodPatch, path, patch).wantProblem(problem.PreconditionRequired).ETag, `"1"`)
	h.do(http.MethodDelete, path, nil).wantProblem(problem.PreconditionRequired)

	h.do(http.MethodPatch, path, patch, ifMatch(`"1"`)).want(200)
	stale := h.do(http.MethodPatch, path, map[string]any{"name": "Other"}, ifMatch(`"1"`))
	check(t, "current ETag", stale.wantProblem(problem.Stale).ETag, `"2"`)
	check(t, "ETag header", stale.header.Get("ETag"), `"2"`)
	if !strings.Contains(string(stale.body), `"name":"New"`) {
		t.Errorf("the answer does not show what the object is now: %s", stale.body)
	}
	h.do(http.MethodDelete, path, nil, ifMatch(`"1"`)).wantProblem(problem.Stale)
	check(t, "name", as[client.Organisation](h.get(path).want(200)).Name, "New")
}

func TestDryRunAnswersAsIfAndChangesNothing(t *testing.T) {
	h := newHarness(t)
	dry := h.post("/v1/organisations?dry_run=true", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	if got := dry.header.Get(client.ProducedHeader); !strings.HasSuffix(got, "@1") {
		t.Errorf("%s is %q", client.ProducedHeader, got)
	}
	check(t, "organisations", len(as[client.Page[client.Organisation]](h.get("/v1/organisations").want(200)).Items), 0)
	path := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated).header.Get("Location")
	h.do(http.MethodDelete, path+"?dry_run=true", nil, ifMatch(`"1"`)).want(http.StatusNoContent)
	check(t, "conflict", h.post("/v1/organisations?dry_run=true", map[string]any{"handle": "example"}).status, http.StatusConflict)
	h.get(path).want(200)
}

func TestIdempotencyKeyAnswersOnce(t *testing.T) {
	h := newHarness(t)
	body := map[string]any{"handle": "EXAMPLE"}
	first := h.post("/v1/organisations", body, idempotent("k1")).want(http.StatusCreated)
	again := h.post("/v1/organisations", body, idempotent("k1")).want(http.StatusCreated)
	for _, name := range []string{"ETag", "Location", client.ProducedHeader} {
		check(t, name, again.header.Get(name), first.header.Get(name))
	}
	check(t, "body", string(again.body), string(first.body))
	h.post("/v1/organisations", map[string]any{"handle": "OTHER"}, idempotent("k1")).wantProblem(problem.Invalid)
	h.post("/v1/asns", map[string]any{"number": 64496}, idempotent("k1")).wantProblem(problem.Invalid)
	// Another client's key is another key; a failure leaves none.
	h.post("/v1/organisations", body, idempotent("k1"), token(h.operator)).wantProblem(problem.Conflict)
	h.post("/v1/organisations", map[string]any{"handle": "OTHER"}, idempotent("k1"), token(h.operator)).want(http.StatusCreated)
}

func TestIdempotencyKeyThatIsRunningIsRefused(t *testing.T) {
	h := newHarness(t)
	const hold = `SELECT pg_advisory_lock(hashtextextended('static:the-admin' || chr(10) || 'k1', 0))`
	other := h.db.Conn(t, "")
	if _, err := other.Exec(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}, idempotent("k1")).wantProblem(problem.Conflict)
}

func TestChangeLogHasActorReasonAndRequest(t *testing.T) {
	h := newHarness(t)
	made := h.post("/v1/organisations?reason=because", map[string]any{"handle": "EXAMPLE"}, token(h.operator)).want(http.StatusCreated)
	var actor, reason, request string
	const last = `SELECT actor, reason, request_id FROM registry.change_log ORDER BY id DESC LIMIT 1`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), last).Scan(&actor, &reason, &request); err != nil {
		t.Fatal(err)
	}
	check(t, "actor", actor, "the-operator")
	check(t, "reason", reason, "because")
	check(t, "request id", request, made.header.Get("X-Request-Id"))
}

func TestEveryBadFieldIsNamed(t *testing.T) {
	h := newHarness(t)
	d := h.post("/v1/prefixes", map[string]any{
		"prefix": "192.0.2.1/24", "kind": "gift", "colour": "blue", "name": 7,
		"routing": map[string]any{"announced": true, "origin": "AS99999999999"},
		"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns..example"}},
	}).wantProblem(problem.Invalid)
	d.says(t, "body.prefix", "the prefix is 192.0.2.0/24")
	d.says(t, "body.kind", "")
	d.says(t, "body.colour", "unexpected property")
	d.says(t, "body.name", "expected string")
	d.says(t, "body.routing.origin", "is not an AS number")
	d.says(t, "body.reverse.name_servers[0]", "empty label")

	h.get("/v1/prefixes?limit=0&covers=nonsense&colour=blue").wantProblem(problem.Invalid)
	both := h.get("/v1/prefixes?limit=0&covers=nonsense").wantProblem(problem.Invalid)
	both.says(t, "query.limit", "")
	both.says(t, "query.covers", "is not an IP address")
	h.get("/v1/prefixes?after=xyz").wantProblem(problem.Invalid).says(t, "query.after", "")
	h.get("/v1/asns/ASx").wantProblem(problem.Invalid).says(t, "path.number", "is not an AS number")

	h.post("/v1/prefixes", `{"prefix":`).wantProblem(problem.Malformed)
	h.post("/v1/prefixes", nil).wantProblem(problem.Malformed)
	path := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated).header.Get("Location")
	h.do(http.MethodPatch, path, `[]`, ifMatch(`"1"`)).wantProblem(problem.Malformed)
	h.do(http.MethodPatch, path, `{"colour":"blue"}`, ifMatch(`"1"`)).wantProblem(problem.Invalid).says(t, "body.colour", "unexpected property")
	h.do(http.MethodPatch, path, `{"handle":null}`, ifMatch(`"1"`)).wantProblem(problem.Invalid)
}

func TestRequestsThatNoOperationTakes(t *testing.T) {
	h := newHarness(t)
	h.get("/v1/nothing").wantProblem(problem.NotFound)
	r := h.do(http.MethodPut, "/v1/organisations", map[string]any{})
	r.wantProblem(problem.MethodNotAllowed)
	if !strings.Contains(r.header.Get("Allow"), "POST") {
		t.Errorf("Allow is %q", r.header.Get("Allow"))
	}
	big := fmt.Sprintf(`{"handle":"EXAMPLE","name":%q}`, strings.Repeat("x", int(DefaultSettings().MaxBodyBytes)))
	h.post("/v1/organisations", big).wantProblem(problem.TooLarge)
}

func TestListPagesHoldEveryRowOnce(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `INSERT INTO registry.organisation (handle) SELECT 'ORG-' || n FROM generate_series(1, 25) n`)
	seen := map[string]int{}
	after := ""
	for pages := 1; ; pages++ {
		page := as[client.Page[client.Organisation]](h.get("/v1/organisations?limit=10&after=" + after).want(200))
		for _, o := range page.Items {
			seen[o.Handle]++
		}
		if page.Next == "" {
			check(t, "pages", pages, 3)
			break
		}
		after = page.Next
		h.db.Exec(t, `INSERT INTO registry.organisation (handle) VALUES ($1)`, fmt.Sprintf("LATE-%d", pages))
	}
	for n := range 25 {
		check(t, "times seen", seen[fmt.Sprintf("ORG-%d", n+1)], 1)
	}
	h.get("/v1/asns?after=" + after).wantProblem(problem.Invalid)
	h.get("/v1/organisations?limit=1001").wantProblem(problem.Invalid)
	check(t, "text", len(as[client.Page[client.Organisation]](h.get("/v1/organisations?text=late-").want(200)).Items), 2)
	check(t, "wildcard taken literally", len(as[client.Page[client.Organisation]](h.get("/v1/organisations?text=%25").want(200)).Items), 0)
}

func TestDocumentsNeedNoTokenAndLoadNothing(t *testing.T) {
	h := newHarness(t)
	var document struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}
	h.get("/openapi.json", token("")).want(200).decode(&document)
	check(t, "version", document.OpenAPI, "3.1.0")
	for path, methods := range document.Paths {
		for method, op := range methods {
			for _, member := range []string{"operationId", "summary", "tags", "security", "responses"} {
				if op[member] == nil {
					t.Errorf("%s %s has no %s", method, path, member)
				}
			}
		}
	}
	page := string(h.get("/docs", token("")).want(200).body)
	for _, bad := range []string{"https://", "http://", "src="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if strings.Contains(string(h.get("/v1/organisations").want(200).body), "$schema") {
		t.Error("the body has a $schema")
	}
}
