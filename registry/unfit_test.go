package registry

import (
	"net/http"
	"net/url"
	"testing"

	"hubn/app/problem"
)

// TestValuesThatNothingHolds: what has the right form and fits no type or column is
// refused like any other wrong value.
func TestValuesThatNothingHolds(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)
	h.do(http.MethodPatch, "/v1/prefixes/1", `{"organisation_id": 9223372036854775808}`, ifMatch(`"1"`)).
		wantProblem(problem.Invalid).says(t, "body.organisation_id", "too large")
	h.post("/v1/organisations", map[string]any{"handle": "X", "name": "a\x00b"}).wantProblem(problem.Invalid)
	h.change("/v1/organisations/EXAMPLE", map[string]any{"contact": "a\x00b"}).want(http.StatusUnprocessableEntity)
	h.get("/v1/resolve?q=" + url.QueryEscape("a\x00b")).wantProblem(problem.Invalid)
	h.get("/v1/organisations?text=%FF").wantProblem(problem.Invalid)
	h.get("/v1/outbox/lanes?older=1e308").wantProblem(problem.Invalid)
	h.do(http.MethodDelete, "/v1/prefixes/1?reason=%00", nil, ifMatch(`"1"`)).wantProblem(problem.Invalid)
}
