package registry

import (
	"net/http"
	"net/url"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

// TestResourceByKindAndName: a name stands in the place of the key.
func TestResourceByKindAndName(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "x1"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}).want(http.StatusCreated)
	for text, want := range map[string]string{
		"organisation:x1": "organisation:1", "organisation:X1": "organisation:1", "organisation:1": "organisation:1", "prefix:192.0.2.0/24": "prefix:1",
	} {
		var found client.Resolved
		h.get("/v1/resolve?q=" + url.QueryEscape(text)).want(http.StatusOK).decode(&found)
		if got := found.Resource.String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for text, kind := range map[string]problem.Kind{
		"organisation:x2": problem.NotFound, "prefix:x1": problem.NotFound, "organisation:2": problem.NotFound,
	} {
		h.get("/v1/resolve?q=" + url.QueryEscape(text)).wantProblem(kind)
	}
}

// TestSchemeOfATokenInAnyCase is RFC 9110 section 11.1.
func TestSchemeOfATokenInAnyCase(t *testing.T) {
	h := newHarness(t)
	for scheme, want := range map[string]int{
		"Bearer": http.StatusOK, "bearer": http.StatusOK, "BEARER": http.StatusOK, "Bearer ": http.StatusOK, "Basic": http.StatusUnauthorized, "Bearers": http.StatusUnauthorized,
	} {
		h.get("/v1/prefixes", header{"Authorization", scheme + " " + h.viewer}).want(want)
	}
}
