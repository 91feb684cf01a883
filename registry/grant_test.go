package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

func TestGrantFromCreationToDeletion(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "OWN"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "10.1.0.0/16", "organisation": "OWN"}).want(http.StatusCreated)
	made := h.newToken(map[string]any{"name": "alice", "grants": []any{map[string]any{"role": "viewer", "prefix": "192.0.2.0/24"}}})
	check(t, "grants", len(made.Grants), 1)
	create := func() *response {
		return h.post("/v1/prefixes?dry_run=true", map[string]any{"prefix": "10.1.2.0/24", "organisation": "OWN"}, token(made.Secret))
	}
	create().wantProblem(problem.Forbidden)
	body := map[string]any{"token_id": made.ID, "role": "member", "organisation": "own"}
	created := h.post("/v1/grants?reason=new+colleague", body, idempotent("a")).want(http.StatusCreated)
	g := as[client.Grant](created)
	check(t, "token", g.Token, "alice")
	check(t, "organisation", g.Organisation, "OWN")
	check(t, "location", created.header.Get("Location"), fmt.Sprintf("/v1/grants/%d", g.ID))
	check(t, "again with the key", as[client.Grant](h.post("/v1/grants?reason=new+colleague", body, idempotent("a")).want(http.StatusCreated)).ID, g.ID)
	h.post("/v1/grants", body).wantProblem(problem.Conflict)
	create().want(http.StatusCreated)
	check(t, "own grants", len(as[client.Self](h.get("/v1/self", token(made.Secret)).want(200)).Grants), 2)
	check(t, "of the organisation", len(as[client.Page[client.Grant]](h.get("/v1/grants?organisation=OWN").want(200)).Items), 1)
	check(t, "that cover", len(as[client.Page[client.Grant]](h.get("/v1/grants?covers=192.0.2.7").want(200)).Items), 1)
	check(t, "read", as[client.Grant](h.get(created.header.Get("Location")).want(200)) == g, true)
	h.do(http.MethodDelete, fmt.Sprintf("/v1/grants/%d?dry_run=true", g.ID), nil).want(http.StatusNoContent)
	create().want(http.StatusCreated)
	h.do(http.MethodDelete, fmt.Sprintf("/v1/grants/%d", g.ID), nil).want(http.StatusNoContent)
	create().wantProblem(problem.Forbidden)
	h.do(http.MethodDelete, fmt.Sprintf("/v1/grants/%d", g.ID), nil).wantProblem(problem.NotFound)

	var log string
	const entries = `
SELECT string_agg(op || ' ' || table_name || ' by ' || actor || coalesce(': ' || reason, ''), E'\n' ORDER BY id)
FROM registry.change_log WHERE kind = 'token'`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), entries).Scan(&log); err != nil {
		t.Fatal(err)
	}
	check(t, "the change log", log, strings.Join([]string{"insert api_token by the-admin", "insert role_grant by the-admin",
		"insert role_grant by the-admin: new colleague", "delete role_grant by the-admin"}, "\n"))
}

func TestGrantsThatAreRefused(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "OWN"}).want(http.StatusCreated)
	id := h.newToken(map[string]any{"name": "alice", "roles": []string{"viewer"}}).ID
	for name, c := range map[string]struct {
		body            map[string]any
		location, about string
	}{
		"admin":             {map[string]any{"role": "admin", "organisation": "OWN"}, "body.role", ""},
		"module":            {map[string]any{"role": "module", "organisation": "OWN"}, "body.role", ""},
		"nothing":           {map[string]any{"role": "member"}, "body.organisation", "name the organisation or the prefix"},
		"both":              {map[string]any{"role": "member", "organisation": "OWN", "prefix": "10.0.0.0/8"}, "body.prefix", "two grants"},
		"host bits":         {map[string]any{"role": "member", "prefix": "10.0.0.1/8"}, "body.prefix", "10.0.0.0/8"},
		"no such":           {map[string]any{"role": "member", "organisation": "NEVER"}, "body.organisation", "NEVER"},
		"no such id":        {map[string]any{"role": "member", "organisation_id": 99}, "body.organisation_id", "99"},
		"no such token":     {map[string]any{"role": "member", "organisation": "OWN", "token_id": 99}, "body.token_id", "99"},
		"in a new token":    {map[string]any{"name": "x", "grants": []any{map[string]any{"role": "member", "organisation": "NEVER"}}}, "body.grants[0].organisation", "NEVER"},
		"nothing in a new":  {map[string]any{"name": "x", "grants": []any{map[string]any{"role": "member"}}}, "body.grants[0].organisation", "name the"},
		"member everywhere": {map[string]any{"name": "x", "roles": []string{"member"}}, "body.roles[0]", "as a grant"},
	} {
		t.Run(name, func(t *testing.T) {
			path := "/v1/tokens"
			if c.body["name"] == nil {
				path = "/v1/grants"
				if c.body["token_id"] == nil {
					c.body["token_id"] = id
				}
			}
			h.post(path, c.body).wantProblem(problem.Invalid).says(t, c.location, c.about)
		})
	}
}

func TestTokenIsChangedAndRevokedForGood(t *testing.T) {
	h := newHarness(t)
	made := h.newToken(map[string]any{"name": "alice", "roles": []string{"viewer"}})
	path := fmt.Sprintf("/v1/tokens/%d", made.ID)
	h.do(http.MethodPatch, path, map[string]any{"name": "x"}).wantProblem(problem.PreconditionRequired)
	before := h.etag(path)
	h.get("/v1/organisations", token(made.Secret)).want(200)
	check(t, "the ETag after a use", h.etag(path), before)
	changed := as[client.Token](h.change(path, map[string]any{"roles": []string{"operator", "viewer", "operator"}, "source_cidrs": []string{"127.0.0.0/8"}}).want(200))
	check(t, "roles", changed.Roles, []string{"operator", "viewer"})
	check(t, "name", changed.Name, "alice")
	h.do(http.MethodPatch, path, map[string]any{"name": "x"}, ifMatch(before)).wantProblem(problem.Stale)
	h.post("/v1/organisations", map[string]any{"handle": "X"}, token(made.Secret)).want(http.StatusCreated)
	h.change(path, map[string]any{"source_cidrs": []string{"192.0.2.0/24"}}).want(200)
	h.get("/v1/organisations", token(made.Secret)).wantProblem(problem.Unauthenticated)
	h.change(path, map[string]any{"source_cidrs": nil, "expires_at": "2020-01-01T00:00:00Z"}).want(200)
	h.get("/v1/organisations", token(made.Secret)).wantProblem(problem.Unauthenticated)
	h.change(path, map[string]any{"expires_at": nil}).want(200)
	h.get("/v1/organisations", token(made.Secret)).want(200)
	h.do(http.MethodDelete, path+"?dry_run=true", nil).want(http.StatusNoContent)
	h.get("/v1/organisations", token(made.Secret)).want(200)
	h.do(http.MethodDelete, path, nil).want(http.StatusNoContent)
	h.change(path, map[string]any{"name": "x"}).wantProblem(problem.Conflict)
	h.post("/v1/grants", map[string]any{"token_id": made.ID, "role": "viewer", "prefix": "10.0.0.0/8"}).wantProblem(problem.Conflict)

	dry := as[client.NewToken](h.post("/v1/tokens?dry_run=true", map[string]any{"name": "x", "roles": []string{"viewer"}}).want(http.StatusCreated))
	check(t, "a dry run's secret", dry.Secret, "")
	check(t, "tokens", len(as[client.Page[client.Token]](h.get("/v1/tokens").want(200)).Items), 1)
	if logged := h.log.String(); strings.Contains(logged, made.Secret) {
		t.Error("the log holds the token")
	}
	var hashes int
	const inLog = `SELECT count(*) FROM registry.change_log WHERE before ? 'secret_hash' OR after ? 'secret_hash'`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), inLog).Scan(&hashes); err != nil {
		t.Fatal(err)
	}
	check(t, "hashes in the change log", hashes, 0)
}
