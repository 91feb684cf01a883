package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

func TestASNsAndTheirHolders(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	made := h.post("/v1/asns", map[string]any{"number": "AS64496", "organisation": "EXAMPLE", "name": "Example"}).want(http.StatusCreated)
	check(t, "Location", made.header.Get("Location"), "/v1/asns/64496")
	check(t, "special", as[client.ASNHolder](made).Special, "documentation")
	h.post("/v1/asns", map[string]any{"number": 64496}).wantProblem(problem.Conflict).says(t, "body.number", "already")
	h.post("/v1/asns", map[string]any{"number": 0}).wantProblem(problem.Invalid).says(t, "body.number", "AS0")
	h.post("/v1/asns", map[string]any{"number": 4294967296}).wantProblem(problem.Invalid)
	h.post("/v1/asns", map[string]any{}).wantProblem(problem.Invalid)

	check(t, "by text", as[client.ASNHolder](h.get("/v1/asns/as64496").want(200)).Organisation, "EXAMPLE")
	changed := h.change("/v1/asns/64496", `{"organisation":null,"organisation_id":null}`).want(200)
	check(t, "holder", as[client.ASNHolder](changed).OrganisationID, int64(0))
	check(t, "produced", changed.header.Get(client.ProducedHeader), "asn:64496@2")
	quiet := h.change("/v1/asns/64496", `{"name":"Other"}`).want(200)
	check(t, "produced by what the world does not see", quiet.header.Get(client.ProducedHeader), "")
	h.change("/v1/asns/64496", `{"number":64497}`).wantProblem(problem.Invalid).says(t, "body.number", "cannot change")
	h.remove("/v1/asns/64496").want(http.StatusNoContent)
	check(t, "tombstone", h.get("/v1/asns/64496").wantProblem(problem.Deleted).Version, int64(3))
	h.post("/v1/asns", map[string]any{"number": "1.10"}).want(http.StatusCreated)
	check(t, "asdot", as[client.ASNHolder](h.get("/v1/asns/65546").want(200)).Special, "documentation")
}

func TestSpecialASNs(t *testing.T) {
	for n, want := range map[client.ASN]string{
		0: "reserved", 1: "", 23456: "reserved", 64495: "", 64496: "documentation", 64511: "documentation", 64512: "private", 65534: "private",
		65535: "reserved", 65536: "documentation", 65551: "documentation", 65552: "", 4199999999: "", 4200000000: "private",
		4294967294: "private", 4294967295: "reserved",
	} {
		if got := specialASN(n); got != want {
			t.Errorf("%s is %q, want %q", n, got, want)
		}
	}
}

func TestPTRRecords(t *testing.T) {
	h := newHarness(t)
	body := func(address, target string) map[string]any {
		return map[string]any{"address": address, "target": target}
	}
	h.post("/v1/ptr-records", body("192.0.2.1", "a.example")).wantProblem(problem.Conflict).says(t, "body.address", "no prefix covers it")
	h.prefix("192.0.2.0/24")
	h.prefix("2001:db8::/32")
	made := h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.1", "target": "Bücher.Example.", "ttl": 3600}).want(http.StatusCreated)
	r := as[client.PTRRecord](made)
	check(t, "target", r.Target, "xn--bcher-kva.example")
	check(t, "as typed", r.TargetTyped, "Bücher.Example.")
	check(t, "produced", made.header.Get(client.ProducedHeader), "ptr:192.0.2.1@1")
	h.post("/v1/ptr-records", body("192.0.2.1", "bücher.example")).wantProblem(problem.Conflict).says(t, "body.target", "already")
	second := h.post("/v1/ptr-records", body("192.0.2.1", "second.example")).want(http.StatusCreated)
	check(t, "produced by the second record", second.header.Get(client.ProducedHeader), "ptr:192.0.2.1@2")
	h.post("/v1/ptr-records", body("2001:DB8::0:1", "six.example")).want(http.StatusCreated)

	path := made.header.Get("Location")
	changed := h.change(path, map[string]any{"target": "changed.example", "ttl": nil}).want(200)
	check(t, "produced by a change", changed.header.Get(client.ProducedHeader), "ptr:192.0.2.1@3")
	check(t, "changed", as[client.PTRRecord](changed).TTL, (*int)(nil))
	h.change(path, map[string]any{"address": "192.0.2.2"}).wantProblem(problem.Invalid).says(t, "body.address", "does not change")

	targets := func(query string) (out []string) {
		for _, r := range as[client.Page[client.PTRRecord]](h.get("/v1/ptr-records?" + query).want(200)).Items {
			out = append(out, r.Address.String()+" "+r.Target)
		}
		return out
	}
	check(t, "all", targets(""), []string{"192.0.2.1 changed.example", "192.0.2.1 second.example", "2001:db8::1 six.example"})
	check(t, "within", targets("within=192.0.2.0/24"), []string{"192.0.2.1 changed.example", "192.0.2.1 second.example"})
	check(t, "address", targets("address=2001:db8:0::1"), []string{"2001:db8::1 six.example"})
	check(t, "text", targets("text=SECOND"), []string{"192.0.2.1 second.example"})
	next := as[client.Page[client.PTRRecord]](h.get("/v1/ptr-records?limit=1").want(200)).Next
	check(t, "next page", targets("limit=1&after="+next), []string{"192.0.2.1 second.example"})

	h.remove(path).want(http.StatusNoContent)
	h.get(path).wantProblem(problem.NotFound)
}

func TestNamesOfPTRTargets(t *testing.T) {
	label := strings.Repeat("a", 63)
	for name, c := range map[string]struct{ typed, want string }{
		"upper case":             {"HOST.Example", "host.example"},
		"final dot":              {"host.example.", "host.example"},
		"unicode":                {"münchen.example", "xn--mnchen-3ya.example"},
		"not transitional":       {"faß.example", "xn--fa-hia.example"},
		"ideographic full stop":  {"例え。テスト", "xn--r8jz45g.xn--zckzah"},
		"underscore":             {"_sip.example", "_sip.example"},
		"dashes in third place":  {"r3---sn-abc.example", "r3---sn-abc.example"},
		"label of 63":            {label + ".example", label + ".example"},
		"one label":              {"localhost", "localhost"},
		"digits":                 {"1.2.0.192.example", "1.2.0.192.example"},
		"name of 253 characters": {strings.Repeat(label+".", 3) + strings.Repeat("b", 61), strings.Repeat(label+".", 3) + strings.Repeat("b", 61)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseHostName(c.typed)
			if err != nil || got != c.want {
				t.Errorf("%q is %q, %v; want %q", c.typed, got, err, c.want)
			}
		})
	}
	for name, typed := range map[string]string{
		"empty": "", "dot": ".", "empty label": "a..b", "leading dot": ".a", "leading dash": "-a.example", "trailing dash": "a-.example",
		"space": "a b.example", "label of 64": label + "a.example", "unicode label too long": strings.Repeat("ü", 60) + ".example",
		"name of 254 characters": strings.Repeat(label+".", 3) + strings.Repeat("b", 62), "slash": "0/25.example", "star": "*.example",
		"control": "a\x00.example", "bad punycode": "xn--\u00e4.example", "at sign": "noc@example.net", "address": "192.0.2.1", "IPv6 address": "2001:db8::1", "number last": "host.1", "right to left mixed": "אa.example",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseHostName(typed); err == nil {
				t.Errorf("%q is taken as %q", typed, got)
			}
		})
	}
}

func TestAnycastAllocationsAndTheirOrigins(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	h.organisation("OTHER")
	origin := func(asn int, more ...any) map[string]any {
		o := map[string]any{"asn": asn}
		for i := 0; i < len(more); i += 2 {
			o[more[i].(string)] = more[i+1]
		}
		return o
	}
	body := map[string]any{"prefix": "192.0.2.0/25", "service": "dns", "origins": []any{origin(64496), origin(64497, "max_length", 26)}}
	h.post("/v1/anycast", body).wantProblem(problem.Conflict).says(t, "body.prefix", "no prefix covers it")
	parent := h.prefix("192.0.2.0/24", map[string]any{"organisation": "EXAMPLE"})
	body["organisation"] = "OTHER"
	h.post("/v1/anycast", body).wantProblem(problem.Conflict).says(t, "body.organisation", "another organisation")
	delete(body, "organisation")
	made := h.post("/v1/anycast", body).want(http.StatusCreated)
	a := as[client.Anycast](made)
	path := made.header.Get("Location")
	check(t, "holder", a.Organisation, "EXAMPLE")
	check(t, "container", a.ContainerID, parent.ID)
	simple := func(a client.Anycast) (out []string) {
		for _, o := range a.Origins {
			s := o.ASN.String()
			if o.MaxLength != nil {
				s += fmt.Sprintf("-%d", *o.MaxLength)
			}
			if !o.Active {
				s += " off"
			}
			out = append(out, s)
		}
		return out
	}
	check(t, "origins", simple(a), []string{"AS64496", "AS64497-26"})

	// Plain SQL changes an origin: the ETag of the whole is another.
	before := h.etag(path)
	h.db.Exec(t, `UPDATE registry.anycast_route_origin SET active = false WHERE asn = 64496`)
	h.do(http.MethodPatch, path, map[string]any{"service": "ntp"}, ifMatch(before)).wantProblem(problem.Stale)

	changed := as[client.Anycast](h.change(path, map[string]any{"origins": []any{origin(64496), origin(64498)}}).want(200))
	check(t, "origins", simple(changed), []string{"AS64496", "AS64498"})
	check(t, "an origin that stays keeps its id", changed.Origins[0].ID, a.Origins[0].ID)
	same := h.change(path, map[string]any{"origins": []any{origin(64498), origin(64496)}}).want(200)
	check(t, "produced by the same set", same.header.Get(client.ProducedHeader), "")
	moved := as[client.Anycast](h.change(path, map[string]any{"prefix": "192.0.2.128/26", "origins": []any{origin(64496, "max_length", 28)}}).want(200))
	check(t, "prefix", moved.Prefix.String(), "192.0.2.128/26")
	check(t, "origins", simple(moved), []string{"AS64496-28"})
	h.change(path, map[string]any{"origins": []any{origin(64496, "max_length", 25)}}).wantProblem(problem.Invalid).
		says(t, "body.origins[0].max_length", "26 to 32")
	h.change(path, map[string]any{"origins": []any{origin(1), origin(1)}}).wantProblem(problem.Invalid).says(t, "body.origins[1]", "twice")

	// The allocation follows the prefix to another holder, in one change.
	follow := h.change(prefixPath(parent.ID), map[string]any{"organisation": "OTHER"}).want(200)
	if got := follow.header.Get(client.ProducedHeader); !strings.Contains(got, fmt.Sprintf("anycast:%d@", a.ID)) || !strings.Contains(got, "prefix:") {
		t.Errorf("produced %q, want the allocation and the prefix", got)
	}
	check(t, "holder", as[client.Anycast](h.get(path).want(200)).Organisation, "OTHER")

	count := func(query string) int {
		return len(as[client.Page[client.Anycast]](h.get("/v1/anycast?" + query).want(200)).Items)
	}
	check(t, "covers", count("covers=192.0.2.129"), 1)
	check(t, "within", count("within=192.0.2.0/24"), 1)
	check(t, "elsewhere", count("within=192.0.2.0/25"), 0)
	check(t, "holder", count("organisation=OTHER"), 1)
	check(t, "former holder", count("organisation=EXAMPLE"), 0)
	h.remove(path).want(http.StatusNoContent)
	h.get(path).wantProblem(problem.Deleted)
}
