package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

const authoritiesPath = "/v1/certificate-authorities"

func (h *harness) authority(body map[string]any) client.CertificateAuthority {
	h.t.Helper()
	return as[client.CertificateAuthority](h.post(authoritiesPath, body).want(http.StatusCreated))
}

func authorityPath(id int64) string { return fmt.Sprintf("%s/%d", authoritiesPath, id) }

func TestCertificateAuthorities(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	made := h.post(authoritiesPath, map[string]any{"name": "anchor", "resources": "AS64496-AS64500 2001:DB8::/32, 192.0.2.0-192.0.2.255"}).want(http.StatusCreated)
	anchor := as[client.CertificateAuthority](made)
	check(t, "Location", made.header.Get("Location"), authorityPath(anchor.ID))
	check(t, "produced", made.header.Get(client.ProducedHeader), fmt.Sprintf("ca:%d@1", anchor.ID))
	check(t, "resources", anchor.Resources, "192.0.2.0/24, 2001:db8::/32, AS64496-AS64500")
	check(t, "AS numbers", anchor.ASNs, []client.ASNRange{{First: 64496, Last: 64500}})
	check(t, "mode and state", anchor.Mode+" "+anchor.State, "hosted active")

	// The organisation's own, below the anchor; found by its name.
	hosted := h.authority(map[string]any{"name": "hosted", "parent": "anchor", "organisation": "example"})
	check(t, "resources of the organisation", hosted.Resources, "organisation")
	check(t, "parent", hosted.Parent, "anchor")
	check(t, "by name", as[client.CertificateAuthority](h.get(authoritiesPath+"/hosted").want(200)).ID, hosted.ID)
	text := caRequest(rsaKey())
	delegated := h.authority(map[string]any{"name": "delegated", "parent": fmt.Sprint(anchor.ID), "organisation": "EXAMPLE", "mode": "delegated", "csr": text})
	check(t, "request", delegated.CSR, text)
	check(t, "key", delegated.Key, readRequest(text).value.key())

	// What consumers are served is the same.
	var source client.CASource
	h.sourceBody("ca", delegated.ID, &source)
	check(t, "source", source.Mode+" "+source.Resources, "delegated organisation")
	check(t, "the source's request", string(requestPEM(source.CSR)), text)
	h.sourceBody("ca", anchor.ID, &source)
	check(t, "the source's resources", resourcesText(source.Prefixes, source.ASNs), anchor.Resources)

	for name, c := range map[string]struct {
		body            map[string]any
		kind            problem.Kind
		location, tells string
	}{
		"taken name":        {map[string]any{"name": "anchor", "resources": "all"}, problem.Conflict, "body.name", "another CA"},
		"a number":          {map[string]any{"name": "17", "resources": "all"}, problem.Invalid, "body.name", "looks like an id"},
		"no resources":      {map[string]any{"name": "x"}, problem.Invalid, "body.resources", "it has none"},
		"host bits":         {map[string]any{"name": "x", "resources": "192.0.2.1/24"}, problem.Invalid, "body.resources", "192.0.2.0/24"},
		"unknown parent":    {map[string]any{"name": "x", "parent": "none", "resources": "all"}, problem.Invalid, "body.parent", "no CA"},
		"delegated parent":  {map[string]any{"name": "x", "parent": "delegated", "resources": "all"}, problem.Conflict, "body.parent", "delegated"},
		"hosted with key":   {map[string]any{"name": "x", "resources": "all", "csr": text}, problem.Invalid, "body.csr", "made here"},
		"no request":        {map[string]any{"name": "x", "parent": "anchor", "resources": "all", "mode": "delegated"}, problem.Invalid, "body.csr", "send its request"},
		"own anchor":        {map[string]any{"name": "x", "resources": "all", "mode": "delegated", "csr": caRequest(otherRSA())}, problem.Invalid, "body.parent", "certified by another"},
		"a router's key":    {map[string]any{"name": "x", "parent": "anchor", "resources": "all", "mode": "delegated", "csr": routerRequest(p256(), "")}, problem.Invalid, "body.csr", "RFC 7935"},
		"no request at all": {map[string]any{"name": "x", "parent": "anchor", "resources": "all", "mode": "delegated", "csr": "c2VjcmV0"}, problem.Invalid, "body.csr", "PKCS#10"},
		"key of another":    {map[string]any{"name": "x", "parent": "anchor", "organisation": "EXAMPLE", "mode": "delegated", "csr": text}, problem.Conflict, "body.csr", "certified already"},
	} {
		t.Run(name, func(t *testing.T) { h.post(authoritiesPath, c.body).wantProblem(c.kind).says(t, c.location, c.tells) })
	}

	// Changes: a key is rolled, the mode stays, circles are refused.
	rolled := as[client.CertificateAuthority](h.change(authorityPath(delegated.ID), map[string]any{"csr": caRequest(otherRSA())}).want(200))
	if rolled.Key == delegated.Key {
		t.Error("the key is not another")
	}
	h.change(authorityPath(delegated.ID), map[string]any{"mode": "hosted", "csr": nil}).wantProblem(problem.Invalid).says(t, "body.mode", "does not change")
	lower := h.authority(map[string]any{"name": "lower", "parent": "hosted", "organisation": "EXAMPLE"})
	h.change(authorityPath(hosted.ID), map[string]any{"parent": "lower"}).wantProblem(problem.Conflict).says(t, "body.parent", "below")
	h.change(authorityPath(hosted.ID), map[string]any{"parent": "hosted"}).wantProblem(problem.Conflict)
	h.change(authorityPath(anchor.ID), `{"resources":"organisation"}`).wantProblem(problem.Invalid).says(t, "body.resources", "it has none")
	quiet := h.change(authorityPath(hosted.ID), `{"name":"hosted"}`).want(200)
	check(t, "produced by no change", quiet.header.Get(client.ProducedHeader), "")
	h.do(http.MethodPatch, authorityPath(hosted.ID), `{"name":"late"}`, ifMatch(`"1"`)).wantProblem(problem.Stale)

	// Lists.
	names := func(query string) (out []string) {
		for _, a := range as[client.Page[client.CertificateAuthority]](h.get(authoritiesPath + "?" + query).want(200)).Items {
			out = append(out, a.Name)
		}
		return out
	}
	check(t, "all", names(""), []string{"anchor", "hosted", "delegated", "lower"})
	check(t, "organisation", names("organisation=EXAMPLE&mode=hosted"), []string{"hosted", "lower"})
	check(t, "parent", names("parent=anchor"), []string{"hosted", "delegated"})
	check(t, "covers", names("covers=192.0.2.7&asn=64499"), []string{"anchor"})
	check(t, "does not cover", names("asn=64501"), []string(nil))
	check(t, "text", names("text=LOW"), []string{"lower"})
	next := as[client.Page[client.CertificateAuthority]](h.get(authoritiesPath + "?limit=2").want(200)).Next
	check(t, "next page", names("limit=1&after="+next), []string{"delegated"})

	// The way out: children first; what has certified is retired, not deleted.
	gone := h.remove(authorityPath(hosted.ID)).wantProblem(problem.Conflict)
	check(t, "dependants", gone.Count, int64(1))
	h.change(authorityPath(hosted.ID), `{"state":"retired"}`).wantProblem(problem.Conflict)
	h.change(authorityPath(lower.ID), `{"state":"retired"}`).want(200)
	h.change(authorityPath(hosted.ID), `{"state":"retired"}`).want(200)
	h.change(authorityPath(lower.ID), `{"state":"active"}`).wantProblem(problem.Conflict).says(t, "body.parent", "retired")
	h.remove(authorityPath(lower.ID)).want(http.StatusNoContent)
	h.get(authorityPath(lower.ID)).wantProblem(problem.Deleted)
	h.remove("/v1/organisations/EXAMPLE").wantProblem(problem.Conflict)
}

// sourceBody reads the body of a source.
func (h *harness) sourceBody(kind string, id int64, into any) {
	h.t.Helper()
	answer := as[client.SourceAnswer](h.get(fmt.Sprintf("/v1/sources/%s/%d", kind, id)).want(200))
	if err := json.Unmarshal(answer.Body, into); err != nil {
		h.t.Fatal(err)
	}
}

// TestTwoChangesDoNotCloseACircle makes two CAs each other's parent at once.
func TestTwoChangesDoNotCloseACircle(t *testing.T) {
	h := newHarness(t)
	one := h.authority(map[string]any{"name": "one", "resources": "all"})
	two := h.authority(map[string]any{"name": "two", "resources": "all"})
	for range 5 {
		var done sync.WaitGroup
		for _, c := range []struct {
			id     int64
			parent string
		}{{one.ID, "two"}, {two.ID, "one"}} {
			etag := h.etag(authorityPath(c.id))
			done.Go(func() {
				r, err := h.try(http.MethodPatch, authorityPath(c.id), map[string]any{"parent": c.parent}, ifMatch(etag))
				if err != nil || r.status != 200 && r.status != http.StatusConflict {
					t.Errorf("%v: %+v", err, r)
				}
			})
		}
		done.Wait()
		a := as[client.CertificateAuthority](h.get(authorityPath(one.ID)).want(200))
		b := as[client.CertificateAuthority](h.get(authorityPath(two.ID)).want(200))
		if a.ParentID != 0 && b.ParentID != 0 || a.ParentID == 0 && b.ParentID == 0 {
			t.Fatalf("the parents are %d and %d: want one of the two", a.ParentID, b.ParentID)
		}
		for _, x := range []client.CertificateAuthority{a, b} {
			if x.ParentID != 0 {
				h.change(authorityPath(x.ID), `{"parent":null}`).want(200)
			}
		}
	}
}

func TestCertificatesAndTheirRevocation(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	h.prefix("2001:db8::/32", map[string]any{"organisation": "EXAMPLE"})
	h.post("/v1/asns", map[string]any{"number": 64496, "organisation": "EXAMPLE"}).want(http.StatusCreated)
	h.post("/v1/asns", map[string]any{"number": 64497}).want(http.StatusCreated)
	h.authority(map[string]any{"name": "anchor", "resources": "192.0.2.0/24, AS64496"})
	own := h.authority(map[string]any{"name": "own", "parent": "anchor", "organisation": "EXAMPLE"})
	h.authority(map[string]any{"name": "elsewhere", "parent": "anchor", "organisation": "EXAMPLE", "mode": "delegated", "csr": caRequest(otherRSA())})
	ends := time.Now().Add(365 * 24 * time.Hour).Truncate(time.Second).UTC()
	body := func(change map[string]any) map[string]any {
		b := map[string]any{"ca": "own", "profile": "bgpsec-router", "csr": routerRequest(p256(), "ROUTER-0000FBF0"), "resources": "AS64496", "not_after": ends}
		for k, v := range change {
			b[k] = v
		}
		return b
	}
	made := h.post("/v1/certificates", body(nil)).want(http.StatusCreated)
	c := as[client.Certificate](made)
	path := made.header.Get("Location")
	check(t, "produced", made.header.Get(client.ProducedHeader), fmt.Sprintf("ca:%d@2", own.ID))
	check(t, "resources", c.Resources, "AS64496")
	check(t, "ends", c.NotAfter, ends)
	check(t, "begins in whole seconds", c.NotBefore.Nanosecond(), 0)
	check(t, "key", c.Key, readRequest(c.CSR).value.key())

	for name, x := range map[string]struct {
		change          map[string]any
		kind            problem.Kind
		location, tells string
	}{
		"no such CA":         {map[string]any{"ca": "none"}, problem.Invalid, "body.ca", "no CA"},
		"delegated CA":       {map[string]any{"ca": "elsewhere"}, problem.Conflict, "body.ca", "by itself"},
		"of another AS":      {map[string]any{"csr": routerRequest(p256(), "ROUTER-0000FBF1")}, problem.Invalid, "body.csr", "names AS64497"},
		"not held":           {map[string]any{"resources": "AS64497", "csr": routerRequest(p256(), "")}, problem.Conflict, "body.resources", "does not have AS64497"},
		"two AS numbers":     {map[string]any{"resources": "AS64496-AS64497"}, problem.Invalid, "body.resources", "one AS number"},
		"AS0":                {map[string]any{"resources": "AS0"}, problem.Invalid, "body.resources", "AS0"},
		"prefix of a router": {map[string]any{"resources": "AS64496, 2001:db8::/32"}, problem.Invalid, "body.resources", "no IP resources"},
		"all of them":        {map[string]any{"resources": "organisation"}, problem.Invalid, "body.resources", "names its resources"},
		"a CA's key":         {map[string]any{"csr": caRequest(rsaKey())}, problem.Invalid, "body.csr", "P-256"},
		"ended":              {map[string]any{"not_after": "2020-01-01T00:00:00Z"}, problem.Invalid, "body.not_after", "time to come"},
		"backwards":          {map[string]any{"not_before": ends.Add(time.Hour)}, problem.Invalid, "body.not_after", "before it begins"},
		"key of another CA":  {map[string]any{"ca": "anchor"}, problem.Conflict, "body.csr", "another CA has certified it"},
		"key of a CA":        {map[string]any{"profile": "child-ca", "ca": "anchor", "resources": "192.0.2.0/25", "csr": caRequest(otherRSA())}, problem.Conflict, "body.csr", "that of a CA"},
		"outside of the CA":  {map[string]any{"profile": "child-ca", "ca": "anchor", "resources": "192.0.2.0/24 198.51.100.0/24", "csr": caRequest(rsaKey())}, problem.Conflict, "body.resources", "198.51.100.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			h.post("/v1/certificates", body(x.change)).wantProblem(x.kind).says(t, x.location, x.tells)
		})
	}

	// The same CA renews, and certifies a CA inside of what its organisation holds.
	h.post("/v1/certificates", body(map[string]any{"not_after": ends.Add(time.Hour)})).want(http.StatusCreated)
	child := as[client.Certificate](h.post("/v1/certificates",
		body(map[string]any{"profile": "child-ca", "resources": "2001:db8:1::/48", "csr": caRequest(rsaKey()), "not_before": "2026-01-01T00:00:00.7Z"})).want(http.StatusCreated))
	check(t, "begins", child.NotBefore, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	h.do(http.MethodPatch, path, `{"profile":"child-ca"}`, ifMatch("*")).wantProblem(problem.MethodNotAllowed)
	h.do(http.MethodDelete, path, nil, ifMatch("*")).wantProblem(problem.MethodNotAllowed)

	// Revocation: once, for a reason of RFC 5280, seen with the certificate.
	before := h.etag(path)
	revoke := map[string]any{"certificate_id": c.ID, "reason": "key-compromise"}
	dry := h.post("/v1/revocations?dry_run=true", revoke).want(http.StatusCreated)
	check(t, "produced by a dry run", dry.header.Get(client.ProducedHeader), fmt.Sprintf("ca:%d@5", own.ID))
	revoked := h.post("/v1/revocations", revoke).want(http.StatusCreated)
	check(t, "produced", revoked.header.Get(client.ProducedHeader), fmt.Sprintf("ca:%d@5", own.ID))
	v := as[client.Revocation](revoked)
	check(t, "read", as[client.Revocation](h.get(revoked.header.Get("Location")).want(200)), v)
	after := h.get(path).want(200)
	check(t, "revoked", as[client.Certificate](after).Revoked, &client.RevocationSource{Reason: "key-compromise", RevokedAt: v.RevokedAt})
	if after.header.Get("ETag") == before {
		t.Error("the certificate has the ETag from before its revocation")
	}
	h.post("/v1/revocations", revoke).wantProblem(problem.Conflict).says(t, "body.certificate_id", "already")
	h.post("/v1/revocations", map[string]any{"certificate_id": c.ID, "reason": "boredom"}).wantProblem(problem.Invalid)
	h.post("/v1/revocations", map[string]any{"certificate_id": 99}).wantProblem(problem.Invalid).says(t, "body.certificate_id", "no certificate 99")

	var source client.CASource
	h.sourceBody("ca", own.ID, &source)
	check(t, "certificates of the source", len(source.Certificates), 3)
	check(t, "the source's revocation", source.Certificates[0].Revocation.Reason, "key-compromise")
	check(t, "the source's request", requestPEM(source.Certificates[0].CSR), c.CSR)

	count := func(query string) int {
		return len(as[client.Page[client.Certificate]](h.get("/v1/certificates?" + query).want(200)).Items)
	}
	check(t, "all", count(""), 3)
	check(t, "of the CA", count("ca=own&profile=bgpsec-router"), 2)
	check(t, "not revoked", count("revoked=false"), 2)
	check(t, "for an AS", count("asn=64496&revoked=true"), 1)
	check(t, "for an address", count("covers=2001:db8:1::1"), 1)
	check(t, "of a key", count("key="+strings.ToUpper(c.Key)), 2)
	check(t, "ending", count("expires_before="+ends.Add(time.Minute).Format(time.RFC3339)), 2)
	revocations := as[client.Page[client.Revocation]](h.get("/v1/revocations?ca=own&revoked_for=key-compromise").want(200)).Items
	check(t, "revocations", revocations, []client.Revocation{v})
	check(t, "revocations of another", len(as[client.Page[client.Revocation]](h.get(fmt.Sprintf("/v1/revocations?certificate=%d", child.ID)).want(200)).Items), 0)

	dependants := h.remove(authorityPath(own.ID)).wantProblem(problem.Conflict)
	check(t, "dependants", dependants.Count, int64(3))
	h.change(authorityPath(own.ID), `{"state":"retired"}`).want(200)
	h.post("/v1/certificates", body(nil)).wantProblem(problem.Conflict).says(t, "body.ca", "retired")
}

// TestAuthorityByGrantReachesItsOrganisationAlone certifies with a grant.
func TestAuthorityByGrantReachesItsOrganisationAlone(t *testing.T) {
	h := newHarness(t)
	own, other := h.organisation("OWN"), h.organisation("OTHER")
	for i, holder := range []int64{own, other} {
		h.post("/v1/asns", map[string]any{"number": 64496 + i, "organisation_id": holder}).want(http.StatusCreated)
	}
	h.authority(map[string]any{"name": "own", "organisation": "OWN"})
	h.authority(map[string]any{"name": "other", "organisation": "OTHER"})
	made := as[client.NewToken](h.post("/v1/tokens", map[string]any{"name": "registrar",
		"grants": []any{map[string]any{"role": "authority", "organisation": "OWN"}}}).want(http.StatusCreated))
	capturedLog.secrets(made.Secret)
	granted := token(made.Secret)
	authority := func(change map[string]any) map[string]any {
		b := map[string]any{"name": "new", "parent": "own", "organisation": "OWN"}
		for k, v := range change {
			b[k] = v
		}
		return b
	}
	for name, refused := range map[string]map[string]any{
		"below another's": {"parent": "other"}, "a trust anchor": {"parent": nil}, "for another": {"organisation": "OTHER"}, "named resources": {"resources": "all"},
	} {
		t.Run(name, func(t *testing.T) {
			h.post(authoritiesPath, authority(refused), granted).wantProblem(problem.Forbidden)
		})
	}
	created := h.post(authoritiesPath, authority(nil), granted).want(http.StatusCreated)
	path := created.header.Get("Location")
	h.do(http.MethodPatch, path, `{"resources":"all"}`, granted, ifMatch(h.etag(path))).wantProblem(problem.Forbidden)
	h.do(http.MethodPatch, path, `{"name":"renamed"}`, granted, ifMatch(h.etag(path))).want(200)
	h.do(http.MethodDelete, authoritiesPath+"/other", nil, granted, ifMatch(h.etag(authoritiesPath+"/other"))).wantProblem(problem.Forbidden)

	certificate := func(ca string, asn int) map[string]any {
		return map[string]any{"ca": ca, "profile": "bgpsec-router", "csr": routerRequest(newP256(), ""), "resources": fmt.Sprint(asn), "not_after": time.Now().Add(time.Hour)}
	}
	h.post("/v1/certificates", certificate("other", 64497), granted).wantProblem(problem.Forbidden)
	h.post("/v1/certificates", certificate("own", 64497), granted).wantProblem(problem.Conflict)
	mine := as[client.Certificate](h.post("/v1/certificates", certificate("own", 64496), granted).want(http.StatusCreated))
	theirs := as[client.Certificate](h.post("/v1/certificates", certificate("other", 64497)).want(http.StatusCreated))
	h.post("/v1/revocations", map[string]any{"certificate_id": theirs.ID}, granted).wantProblem(problem.Forbidden)
	h.post("/v1/revocations", map[string]any{"certificate_id": mine.ID}, granted).want(http.StatusCreated)
	h.post("/v1/sessions", map[string]any{"remote_asn": 64496, "remote_address": "192.0.2.1"}, granted).wantProblem(problem.Forbidden)
}
