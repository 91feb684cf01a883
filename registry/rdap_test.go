package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	rdapclient "github.com/openrdap/rdap"

	"hubn/app/problem"
	"hubn/registry/client"
	"hubn/registry/rdap"
)

// publicRegistry has something of everything that RDAP and whois answer.
func publicRegistry(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	h := newHarness(t, change...)
	create := func(path string, body map[string]any) {
		t.Helper()
		h.post(path, body).want(http.StatusCreated)
	}
	create("/v1/organisations", map[string]any{"handle": "EXAMPLE-ORG", "name": "Example Networks", "contact": "noc@example.net, +1 555 0100"})
	create("/v1/organisations", map[string]any{"handle": "OTHER-ORG"})
	create("/v1/asns", map[string]any{"number": 64496, "organisation": "EXAMPLE-ORG", "name": "EXAMPLE-AS"})
	ds := map[string]any{"key_tag": 12345, "algorithm": 13, "digest_type": 2, "digest": strings.Repeat("ab", 32)}
	for _, p := range []map[string]any{
		{"prefix": "192.0.0.0/16", "kind": "container", "organisation": "EXAMPLE-ORG", "reverse": map[string]any{"mode": "hosted"}},
		{"prefix": "192.0.2.0/24", "organisation": "EXAMPLE-ORG", "name": "OFFICE",
			"routing": map[string]any{"announced": true, "origin": 64496},
			"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns1.example.net", "ns2.example.net"}, "ds": []any{ds}}},
		{"prefix": "192.0.3.64/26", "organisation": "OTHER-ORG", "status": "planned",
			"reverse": map[string]any{"mode": "delegated", "name_servers": []string{"ns1.example.net"}, "rfc2317_style": "slash"}},
		{"prefix": "192.0.4.0/24"},
		{"prefix": "2001:db8::/32", "kind": "allocation", "organisation": "EXAMPLE-ORG", "reverse": map[string]any{"mode": "hosted", "name_servers": []string{"ns1.example.net"}}},
		{"prefix": "2001:db8:1::/48", "reverse": map[string]any{"mode": "off"}},
	} {
		create("/v1/prefixes", p)
	}
	create("/v1/anycast", map[string]any{"prefix": "192.0.2.0/24", "service": "resolver", "organisation": "EXAMPLE-ORG",
		"origins": []any{map[string]any{"asn": 64497}}})
	return h
}

// bearer adds a token to every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// ask asks RDAP with a client that was made elsewhere, which may have nothing to
// remark about the answer.
func ask[T any](h *harness, secret string, kind rdapclient.RequestType, query string) *T {
	h.t.Helper()
	server, err := url.Parse(h.url + "/rdap")
	if err != nil {
		h.t.Fatal(err)
	}
	c := rdapclient.Client{HTTP: &http.Client{Transport: bearer(secret)}}
	resp, err := c.Do(rdapclient.NewRequest(kind, query).WithServer(server).WithContext(h.t.Context()))
	if err != nil {
		h.t.Fatalf("%s %s: %v", kind, query, err)
	}
	object, ok := resp.Object.(*T)
	if !ok {
		h.t.Fatalf("%s %s: got a %T", kind, query, resp.Object)
	}
	if remarks := decodingRemarks(reflect.ValueOf(object)); remarks != "" {
		h.t.Errorf("%s %s: the client remarks: %s", kind, query, remarks)
	}
	return object
}

// decodingRemarks are what the client noted while it read an answer, anywhere in it.
func decodingRemarks(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		if data, ok := v.Interface().(*rdapclient.DecodeData); ok {
			// Every number of JSON is a float64 to it.
			text := regexp.MustCompile(`!!!\w+: float64 to uint conversion`).ReplaceAllString(data.String(), "")
			if strings.Contains(text, "!!!") {
				return text
			}
			return ""
		}
		return decodingRemarks(v.Elem())
	case reflect.Slice:
		var all string
		for i := range v.Len() {
			all += decodingRemarks(v.Index(i))
		}
		return all
	case reflect.Struct:
		var all string
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all += decodingRemarks(v.Field(i))
			}
		}
		return all
	}
	return ""
}

func TestRDAPAnswersAClientMadeElsewhere(t *testing.T) {
	h := publicRegistry(t)
	const nobody = ""

	n := ask[rdapclient.IPNetwork](h, nobody, rdapclient.IPRequest, "192.0.2.77")
	check(t, "network", []string{n.Handle, n.StartAddress, n.EndAddress, n.IPVersion, n.Name, n.Type, n.ParentHandle},
		[]string{"192.0.2.0/24", "192.0.2.0", "192.0.2.255", "v4", "OFFICE", "ASSIGNMENT", "192.0.0.0/16"})
	check(t, "status", n.Status, []string{"active"})
	check(t, "holder", []string{n.Entities[0].Handle, n.Entities[0].VCard.Name()}, []string{"EXAMPLE-ORG", "Example Networks"})
	check(t, "roles", n.Entities[0].Roles, []string{"registrant"})
	check(t, "self", n.Links[0].Href, h.url+"/rdap/ip/192.0.2.0/24")
	check(t, "origins", n.DecodeData.Value("arin_originas0_originautnums"), any([]any{64496.0, 64497.0}))
	check(t, "the most specific that holds a whole prefix",
		ask[rdapclient.IPNetwork](h, nobody, rdapclient.IPRequest, "192.0.2.0/23").Handle, "192.0.0.0/16")
	six := ask[rdapclient.IPNetwork](h, nobody, rdapclient.IPRequest, "2001:DB8:0:0::1")
	check(t, "IPv6", []string{six.Handle, six.IPVersion, six.EndAddress}, []string{"2001:db8::/32", "v6", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"})

	a := ask[rdapclient.Autnum](h, nobody, rdapclient.AutnumRequest, "64496")
	check(t, "AS number", []any{a.Handle, a.Name, *a.StartAutnum, a.Entities[0].Handle}, []any{"AS64496", "EXAMPLE-AS", uint32(64496), "EXAMPLE-ORG"})

	e := ask[rdapclient.Entity](h, nobody, rdapclient.EntityRequest, "example-org")
	check(t, "entity", []any{e.Handle, len(e.Networks), len(e.Autnums)}, []any{"EXAMPLE-ORG", 3, 1})

	d := ask[rdapclient.Domain](h, nobody, rdapclient.DomainRequest, "7.2.0.192.in-addr.arpa")
	check(t, "zone", []any{d.LDHName, len(d.Nameservers), d.Nameservers[1].LDHName, d.Network.Handle, *d.SecureDNS.DelegationSigned},
		[]any{"2.0.192.in-addr.arpa", 2, "ns2.example.net", "192.0.2.0/24", true})
	check(t, "DS", *d.SecureDNS.DS[0].KeyTag, uint64(12345))
	check(t, "inherited zone", ask[rdapclient.Domain](h, nobody, rdapclient.DomainRequest, "1.4.0.192.in-addr.arpa").LDHName, "0.192.in-addr.arpa")
	for _, name := range []string{"64/26.3.0.192.in-addr.arpa", "70.64/26.3.0.192.in-addr.arpa", "64-127.3.0.192.in-addr.arpa", "70.3.0.192.in-addr.arpa"} {
		check(t, name, ask[rdapclient.Domain](h, nobody, rdapclient.DomainRequest, name).LDHName, "64/26.3.0.192.in-addr.arpa")
	}
	check(t, "nibbles", ask[rdapclient.Domain](h, nobody, rdapclient.DomainRequest, "8.B.D.0.1.0.0.2.IP6.ARPA.").LDHName, "8.b.d.0.1.0.0.2.ip6.arpa")

	check(t, "name server", ask[rdapclient.Nameserver](h, nobody, rdapclient.NameserverRequest, "NS1.example.net").LDHName, "ns1.example.net")
	if help := ask[rdapclient.Help](h, nobody, rdapclient.HelpRequest, ""); len(help.Notices) < 3 || len(help.Conformance) != 4 {
		t.Errorf("help has %d notices and conforms to %v", len(help.Notices), help.Conformance)
	}

	found := ask[rdapclient.EntitySearchResults](h, h.viewer, rdapclient.EntitySearchByHandleRequest, "example*")
	check(t, "entities by handle", []any{len(found.Entities), found.Entities[0].Handle}, []any{1, "EXAMPLE-ORG"})
	check(t, "entities by name", len(ask[rdapclient.EntitySearchResults](h, h.viewer, rdapclient.EntitySearchRequest, "Example Networks").Entities), 1)
	check(t, "no wildcards of SQL", len(ask[rdapclient.EntitySearchResults](h, h.viewer, rdapclient.EntitySearchRequest, "%_*").Entities), 0)
	var zones []string
	for _, d := range ask[rdapclient.DomainSearchResults](h, h.viewer, rdapclient.DomainSearchRequest, "*.0.192.in-addr.arpa").Domains {
		zones = append(zones, d.LDHName)
	}
	check(t, "zones below", zones, []string{"0.192.in-addr.arpa", "2.0.192.in-addr.arpa", "64/26.3.0.192.in-addr.arpa"})
	check(t, "zones of a server", len(ask[rdapclient.DomainSearchResults](h, h.viewer, rdapclient.DomainSearchByNameserverRequest, "ns1.example.net").Domains), 3)
	check(t, "name servers", len(ask[rdapclient.NameserverSearchResults](h, h.viewer, rdapclient.NameserverSearchRequest, "ns2.example.net").Nameservers), 1)
}

func TestRDAPLeavesContactsOut(t *testing.T) {
	authority := NewSecret()
	h := publicRegistry(t, func(o *Options) {
		o.StaticTokens = append(o.StaticTokens, StaticToken{Token: authority, Name: "the-authority", Roles: []string{"authority"}})
	})
	capturedLog.secrets(authority)
	granted := func(organisation string) string {
		made := as[client.NewToken](h.post("/v1/tokens", map[string]any{"name": "of " + organisation,
			"grants": []any{map[string]any{"role": "member", "organisation": organisation}}}).want(http.StatusCreated))
		capturedLog.secrets(made.Secret)
		return made.Secret
	}
	for name, c := range map[string]struct {
		secret string
		sees   bool
	}{"nobody": {"", false}, "a token that may not read contacts": {authority, false}, "a viewer": {h.viewer, true},
		"a member of the holder": {granted("EXAMPLE-ORG"), true}, "a member of another": {granted("OTHER-ORG"), false}} {
		for _, path := range []string{"entity/EXAMPLE-ORG", "ip/192.0.2.1", "autnum/64496", "domain/2.0.192.in-addr.arpa"} {
			r := h.get("/rdap/"+path, token(c.secret)).want(http.StatusOK)
			check(t, "media type", r.header.Get("Content-Type"), rdap.ContentType)
			check(t, name+" sees the mail address at "+path, strings.Contains(string(r.body), "noc@example.net"), c.sees)
			top := as[rdap.Top](r)
			check(t, name+": left out at "+path, len(top.Redacted) > 0, !c.sees)
			check(t, name+": conformance at "+path, strings.Contains(fmt.Sprint(top.Conformance), "redacted"), !c.sees)
		}
	}
}

func TestRDAPRefusesInItsOwnWords(t *testing.T) {
	h := publicRegistry(t)
	for _, c := range []struct {
		what, method, path, secret string
		status                     int
		says                       string
	}{
		{"no network", "GET", "ip/198.51.100.1", "", 404, "no network of this registry contains 198.51.100.1/32"},
		{"host bits", "GET", "ip/192.0.2.1/24", "", 400, "the prefix is 192.0.2.0/24"},
		{"no address", "GET", "ip/nonsense", "", 400, "is not an IP address"},
		{"nothing named", "GET", "ip/", "", 400, "names nothing"},
		{"no AS number", "GET", "autnum/x", "", 400, "is not an AS number"},
		{"an unknown AS number", "GET", "autnum/64500", "", 404, "AS64500"},
		{"an unknown handle", "GET", "entity/NOBODY", "", 404, "NOBODY"},
		{"an unknown server", "GET", "nameserver/ns9.example.net", "", 404, "ns9.example.net"},
		{"no reverse name", "GET", "domain/example.net", "", 400, "in-addr.arpa"},
		{"reverse DNS is off", "GET", "domain/1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "", 404, "lies in no reverse zone"},
		{"an unknown lookup", "GET", "widget/1", "", 501, "widget"},
		{"another method", "POST", "ip/192.0.2.1", "", 405, "POST"},
		{"a search without token", "GET", "entities?handle=EX*", "", 401, "searches need a token"},
		{"a search by nothing", "GET", "entities", h.viewer, 400, "one parameter"},
		{"a search by two", "GET", "entities?handle=A&fn=B", h.viewer, 400, "one parameter"},
		{"a search by what is not searched", "GET", "domains?nsIp=192.0.2.1", h.viewer, 501, "nsIp"},
		{"an asterisk alone", "GET", "entities?fn=*", h.viewer, 400, "cannot be searched for"},
		{"an asterisk inside", "GET", "entities?fn=a*b", h.viewer, 400, "cannot be searched for"},
		{"a wrong token", "GET", "ip/192.0.2.1", NewSecret(), 401, "not known here"},
		{"a token in the URL", "GET", "ip/192.0.2.1?token=" + h.viewer, "", 401, "URL"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := h.do(c.method, "/rdap/"+c.path, nil, token(c.secret)).want(c.status)
			check(t, "media type", r.header.Get("Content-Type"), rdap.ContentType)
			e := as[rdap.Error](r)
			if e.Code != c.status || e.Title != http.StatusText(c.status) || !strings.Contains(strings.Join(e.Description, " "), c.says) {
				t.Errorf("got %s, want the code %d and %q", r.body, c.status, c.says)
			}
			check(t, "conformance", e.Conformance, []string{"rdap_level_0"})
			if object, err := rdapclient.NewDecoder(r.body).Decode(); err != nil {
				t.Errorf("the client cannot read it: %v", err)
			} else if _, ok := object.(*rdapclient.Error); !ok {
				t.Errorf("the client takes it for a %T", object)
			}
		})
	}
}

func TestRDAPWithoutItsDatabaseSaysSo(t *testing.T) {
	idle := New(Options{Settings: DefaultSettings(), DatabaseURL: "postgresql:///nowhere"})
	w := httptest.NewRecorder()
	idle.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/rdap/ip/192.0.2.1", nil))
	var e rdap.Error
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	check(t, "status and code", []int{w.Code, e.Code}, []int{http.StatusServiceUnavailable, http.StatusServiceUnavailable})
	check(t, "Retry-After", w.Header().Get("Retry-After"), "1")
	check(t, "media type", w.Header().Get("Content-Type"), rdap.ContentType)
}

func TestRDAPIsBoundedForThoseWithoutToken(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Settings.PublicQueriesPerMinute = 3 })
	for range 3 {
		h.get("/rdap/help", token("")).want(http.StatusOK)
	}
	r := h.get("/rdap/help", token("")).want(http.StatusTooManyRequests)
	check(t, "Retry-After", r.header.Get("Retry-After"), "60")
	check(t, "code", as[rdap.Error](r).Code, http.StatusTooManyRequests)
	h.get("/rdap/help", token(h.viewer)).want(http.StatusOK)
}

func TestRDAPCanBeOffAndKnowsItsName(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Settings.RDAP = false })
	h.get("/rdap/help").want(http.StatusNotFound)

	h = publicRegistry(t, func(o *Options) {
		o.Settings.RDAPURL, o.Settings.RDAPTerms = "https://rdap.example.net/public", "https://example.net/terms"
	})
	n := as[rdap.Network](h.get("/rdap/ip/192.0.2.1", token("")).want(http.StatusOK))
	check(t, "self", n.Links[0], rdap.Link{Value: "https://rdap.example.net/public/ip/192.0.2.1", Rel: "self",
		Href: "https://rdap.example.net/public/ip/192.0.2.0/24", Type: rdap.ContentType})
	check(t, "terms", n.Notices[0].Links[0].Href, "https://example.net/terms")
	head := h.do(http.MethodHead, "/rdap/ip/192.0.2.1", nil, token("")).want(http.StatusOK)
	check(t, "body of HEAD", len(head.body), 0)
	check(t, "open to pages of other sites", head.header.Get("Access-Control-Allow-Origin"), "*")
}

func TestRDAPListsAsMuchOfAnEntityAsFits(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "LARGE"}).want(http.StatusCreated)
	h.db.Exec(t, `INSERT INTO registry.prefix (prefix, organisation_id)
SELECT ('198.18.' || n || '.0/24')::cidr, (SELECT id FROM registry.organisation) FROM generate_series(0, 104) n`)
	e := as[rdap.Entity](h.get("/rdap/entity/LARGE", token("")).want(http.StatusOK))
	check(t, "networks", len(e.Networks), entityListed)
	check(t, "remark", e.Remarks[0].Type, "object truncated due to unexplainable reasons")
}

// TestPublicQuestionsReadByIndex looks at the plans that do not know their
// parameters: what anybody may ask must not cost more in a larger registry.
func TestPublicQuestionsReadByIndex(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `INSERT INTO registry.organisation (handle) SELECT 'ORG-' || n FROM generate_series(1, 300) n`)
	h.db.Exec(t, `INSERT INTO registry.asn (number, organisation_id) SELECT 100000 + n, 1 FROM generate_series(1, 1000) n`)
	h.db.Exec(t, `INSERT INTO registry.prefix (prefix, organisation_id)
SELECT set_masklen('10.0.0.0'::inet + 256 * (n * 2731 % 4000), 24)::cidr, 1 FROM generate_series(0, 3999) n`)
	h.db.Exec(t, `ANALYZE registry.organisation, registry.asn, registry.prefix`)
	conn := h.db.Conn(t, databaseRole)
	for _, setup := range []string{`SET plan_cache_mode = force_generic_plan`, `SET jit = off`} {
		if _, err := conn.Exec(t.Context(), setup); err != nil {
			t.Fatal(err)
		}
	}
	for name, q := range map[string]struct{ sql, parameters, arguments string }{
		"network":       {sqlPublicLongest, "cidr", "'10.0.7.1/32'"},
		"around":        {sqlPublicCovering, "cidr[]", "'{10.0.0.0/8,10.0.7.0/24}'"},
		"within":        {sqlPublicWithin, "cidr, cidr, bigint", "'10.0.0.0/16', '10.0.255.255/32', 101"},
		"held":          {sqlPublicHeld, "bigint, bigint", "1, 101"},
		"AS number":     {sqlPublicASN, "bigint", "100001"},
		"AS numbers":    {sqlPublicASNsHeld, "bigint, bigint", "1, 101"},
		"organisation":  {sqlPublicOrganisation, "text", "'ORG-7'"},
		"origins":       {sqlAnycastOriginsOf, "cidr", "'10.0.7.0/24'"},
		"name server":   {sqlIsNameServer, "text", "'ns1.example.net'"},
		"by its server": {sqlPublicByNameServer, "text, bigint", "'ns1.example.net', 101"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := conn.Exec(t.Context(), `PREPARE q (`+q.parameters+`) AS `+q.sql); err != nil {
				t.Fatal(err)
			}
			var plan json.RawMessage
			if err := conn.QueryRow(t.Context(), `EXPLAIN (FORMAT JSON) EXECUTE q (`+q.arguments+`)`).Scan(&plan); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), `DEALLOCATE q`); err != nil {
				t.Fatal(err)
			}
			var whole any
			if err := json.Unmarshal(plan, &whole); err != nil {
				t.Fatal(err)
			}
			for _, table := range scanned(whole) {
				if table == "prefix" || table == "asn" || table == "organisation" {
					t.Errorf("it reads the whole of %s:\n%s", table, plan)
				}
			}
		})
	}
}

// scanned are the tables that a plan reads from end to end.
func scanned(node any) (tables []string) {
	switch n := node.(type) {
	case []any:
		for _, inner := range n {
			tables = append(tables, scanned(inner)...)
		}
	case map[string]any:
		if n["Node Type"] == "Seq Scan" {
			tables = append(tables, fmt.Sprint(n["Relation Name"]))
		}
		for _, inner := range n {
			tables = append(tables, scanned(inner)...)
		}
	}
	return tables
}

func TestSettingsOfRDAPAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"a URL without scheme":  {func(s *Settings) { s.RDAPURL = "rdap.example.net" }, `registry.rdap_url is "rdap.example.net"`},
		"terms that are a path": {func(s *Settings) { s.RDAPTerms = "/terms" }, `registry.rdap_terms is "/terms"`},
		"a port alone":          {func(s *Settings) { s.WhoisListen = "43" }, `registry.whois_listen is "43"`},
	} {
		s := DefaultSettings()
		c.change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if err := DefaultSettings().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func TestClientTellsWhatRDAPSays(t *testing.T) {
	h := publicRegistry(t)
	c, err := client.New(client.Options{URL: h.url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	document, err := c.RDAP(t.Context(), "ip/192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	object, err := rdap.Decode(document)
	if n, ok := object.(*rdap.Network); err != nil || !ok || n.Handle != "192.0.2.0/24" {
		t.Errorf("got %#v, %v", object, err)
	}
	for path, want := range map[string]problem.Kind{
		"ip/198.51.100.1": problem.NotFound,
		"ip/192.0.2.1/24": problem.Malformed,
		"widget/1":        problem.Invalid,
		"entities?fn=A":   problem.Unauthenticated,
	} {
		if _, err := c.RDAP(t.Context(), path); !problem.Is(err, want) {
			t.Errorf("%s: got %v, want a problem of kind %s", path, err, want)
		}
	}

	// What is no Registry says nothing, above all not that there is nothing.
	for name, answer := range map[string]http.HandlerFunc{
		"no RDAP": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"no lineage": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", rdap.ContentType)
			w.WriteHeader(404)
		},
	} {
		other := httptest.NewServer(answer)
		defer other.Close()
		c, err := client.New(client.Options{URL: other.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.RDAP(t.Context(), "ip/192.0.2.1"); client.ReasonOf(err) != client.NotRegistry {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
