package rdap

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	example = Organisation{ID: 7, Handle: "EXAMPLE", Name: "Example Networks", Contact: "noc@example.net, +1 555 0100; ask for Kim",
		Created: created, Updated: created.Add(time.Hour)}
)

func examplePrefix() Prefix {
	return Prefix{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Parent: netip.MustParsePrefix("192.0.0.0/16"), Kind: "assignment", Status: "active",
		Name: "OFFICE", Origins: []uint32{64496}, Mode: "delegated", NameServers: []string{"ns1.example.net"},
		DS:      []ZoneDS{{"", DS{1, 13, "AB", 2}}, {"2.0.192.in-addr.arpa", DS{2, 13, "CD", 2}}, {"3.0.192.in-addr.arpa", DS{3, 13, "EF", 2}}},
		Created: created, Updated: created, Holder: &example}
}

func testWriter(contacts bool) *Writer {
	return &Writer{Base: "https://rdap.example.net/", Request: "https://rdap.example.net/ip/192.0.2.1",
		Contacts: func(organisation int64) bool { return contacts && organisation == 7 }}
}

func check(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// generic is a document as any JSON client sees it.
func generic(t *testing.T, document any) map[string]any {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNetworkDocument(t *testing.T) {
	var want map[string]any
	if err := json.Unmarshal([]byte(`{
		"rdapConformance": ["rdap_level_0", "cidr0", "arin_originas0", "redacted"],
		"redacted": [
			{"name": {"description": "Registrant Email"}, "prePath": "$.entities[0].vcardArray[1][?(@[0]=='email')]", "pathLang": "jsonpath", "method": "removal",
			 "reason": {"description": "How to reach a holder is shown to those who may read the registry."}},
			{"name": {"description": "Registrant Phone"}, "prePath": "$.entities[0].vcardArray[1][?(@[0]=='tel')]", "pathLang": "jsonpath", "method": "removal",
			 "reason": {"description": "How to reach a holder is shown to those who may read the registry."}},
			{"name": {"description": "Registrant Contact"}, "prePath": "$.entities[0].vcardArray[1][?(@[0]=='note')]", "pathLang": "jsonpath", "method": "removal",
			 "reason": {"description": "How to reach a holder is shown to those who may read the registry."}}],
		"objectClassName": "ip network", "handle": "192.0.2.0/24", "startAddress": "192.0.2.0", "endAddress": "192.0.2.255", "ipVersion": "v4",
		"name": "OFFICE", "type": "ASSIGNMENT", "parentHandle": "192.0.0.0/16", "status": ["active"],
		"cidr0_cidrs": [{"v4prefix": "192.0.2.0", "length": 24}], "arin_originas0_originautnums": [64496],
		"entities": [{"objectClassName": "entity", "handle": "EXAMPLE", "roles": ["registrant"], "status": ["active"],
			"vcardArray": ["vcard", [["version", {}, "text", "4.0"], ["fn", {}, "text", "Example Networks"], ["kind", {}, "text", "org"]]],
			"events": [{"eventAction": "registration", "eventDate": "2026-01-02T03:04:05Z"}, {"eventAction": "last changed", "eventDate": "2026-01-02T04:04:05Z"}],
			"links": [{"value": "https://rdap.example.net/ip/192.0.2.1", "rel": "self", "href": "https://rdap.example.net/entity/EXAMPLE", "type": "application/rdap+json"}]}],
		"events": [{"eventAction": "registration", "eventDate": "2026-01-02T03:04:05Z"}],
		"links": [
			{"value": "https://rdap.example.net/ip/192.0.2.1", "rel": "self", "href": "https://rdap.example.net/ip/192.0.2.0/24", "type": "application/rdap+json"},
			{"value": "https://rdap.example.net/ip/192.0.2.1", "rel": "up", "href": "https://rdap.example.net/ip/192.0.0.0/16", "type": "application/rdap+json"}]
	}`), &want); err != nil {
		t.Fatal(err)
	}
	check(t, "document", generic(t, testWriter(false).Network(examplePrefix())), want)
}

func TestContactIsForThoseWhoMaySeeIt(t *testing.T) {
	n := testWriter(true).Network(examplePrefix())
	check(t, "card", n.Entities[0].VCard[3:], VCard{{"email", "text", "noc@example.net"}, {"tel", "uri", "tel:+15550100"}, {"note", "text", "ask for Kim"}})
	check(t, "redacted", len(n.Redacted), 0)
	check(t, "conformance", n.Conformance, []string{"rdap_level_0", "cidr0", "arin_originas0"})

	other := example
	other.ID = 8
	e := testWriter(true).Entity(other, nil, nil, false)
	check(t, "card of another", len(e.VCard), 3)
	check(t, "path", e.Redacted[0].PrePath, "$.vcardArray[1][?(@[0]=='email')]")

	d := testWriter(false).Domain(examplePrefix(), netip.MustParsePrefix("192.0.2.0/24"))
	var paths []string
	for _, r := range d.Redacted {
		if strings.Contains(r.PrePath, "email") {
			paths = append(paths, r.PrePath)
		}
	}
	check(t, "paths", paths, []string{"$.entities[0].vcardArray[1][?(@[0]=='email')]", "$.network.entities[0].vcardArray[1][?(@[0]=='email')]"})

	without := examplePrefix()
	without.Holder = &Organisation{Handle: "QUIET"}
	check(t, "nothing to leave out", len(testWriter(false).Network(without).Redacted), 0)
}

func TestDomainHasTheZonesOwnDS(t *testing.T) {
	d := testWriter(false).Domain(examplePrefix(), netip.MustParsePrefix("192.0.2.7/32"))
	check(t, "name", d.LDHName, "2.0.192.in-addr.arpa")
	check(t, "secureDNS", d.SecureDNS, SecureDNS{true, []DS{{1, 13, "AB", 2}, {2, 13, "CD", 2}}})
	check(t, "name server", d.Nameservers[0].LDHName, "ns1.example.net")
	check(t, "network", d.Network.Handle, "192.0.2.0/24")
	if d.Network.Conformance != nil || len(d.Conformance) == 0 {
		t.Errorf("conformance is said of %v and %v: it belongs to the topmost object", d.Conformance, d.Network.Conformance)
	}
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		kind, status string
		want         []string
	}{
		{"assignment", "active", []string{"active"}},
		{"allocation", "planned", []string{"pending create"}},
		{"container", "active", []string{"active", "administrative"}},
		{"reserved", "retired", []string{"inactive", "administrative"}},
	} {
		check(t, c.kind+" "+c.status, Prefix{Kind: c.kind, Status: c.status}.statuses(), c.want)
	}
	a := testWriter(false).Autnum(ASN{Number: 64496, Special: "documentation", Created: created, Updated: created})
	check(t, "AS number for documentation", a.Status, []string{"active", "reserved"})
}

func TestDelegationIsTheNearestSetting(t *testing.T) {
	chain := func(modes ...string) []Prefix {
		var all []Prefix
		for i, mode := range modes {
			p := netip.PrefixFrom(netip.MustParseAddr("192.0.2.0"), 26-2*i).Masked()
			all = append(all, Prefix{Prefix: p, Mode: mode})
		}
		return all
	}
	cases := []struct {
		name  string
		chain []Prefix
		want  string
	}{
		{"nothing", nil, ""},
		{"inherited from nobody is off", chain("inherit", "inherit"), ""},
		{"inherited", chain("inherit", "hosted"), "192.0.2.0/24"},
		{"off ends it", chain("inherit", "off", "hosted"), ""},
		{"delegated below a hosted one", chain("delegated", "hosted"), "192.0.2.0/26"},
		{"hosted in a hosted /24", chain("hosted", "hosted"), "192.0.2.0/24"},
		{"hosted in a delegated one", chain("hosted", "delegated"), "192.0.2.0/26"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if p := Delegation(c.chain); p != nil {
				got = p.Prefix.String()
			}
			check(t, "delegation", got, c.want)
		})
	}
}

func TestWhatIsCutOffIsSaid(t *testing.T) {
	wide := Prefix{Prefix: netip.MustParsePrefix("10.0.0.0/12"), Mode: "hosted", Created: created, Updated: created}
	d := testWriter(false).Domains([]Prefix{wide, examplePrefix()}, 10, false)
	check(t, "results", len(d.Results), 10)
	check(t, "notice", d.Notices[0].Type, "result set truncated due to unexplainable reasons")
	whole := testWriter(false).Domains([]Prefix{examplePrefix()}, 10, false)
	check(t, "notices", len(whole.Notices), 0)
	e := testWriter(false).Entity(example, []Prefix{wide}, nil, true)
	check(t, "remark", e.Remarks[0].Type, "object truncated due to unexplainable reasons")
	check(t, "networks do not repeat their holder", e.Networks[0].Entities, []Entity(nil))
}

func TestDocumentsReadBack(t *testing.T) {
	for _, document := range []any{
		testWriter(true).Network(examplePrefix()),
		testWriter(false).Domain(examplePrefix(), netip.MustParsePrefix("192.0.2.0/24")),
		testWriter(true).Entity(example, []Prefix{examplePrefix()}, []ASN{{Number: 64496, Created: created, Updated: created}}, false),
		testWriter(true).Autnum(ASN{Number: 64496, Created: created, Updated: created, Holder: &example}),
		testWriter(true).Nameserver("xn--bcher-kva.example", "bücher.example"),
	} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "read back", back, document)
	}
	if _, err := Decode([]byte(`{"errorCode": 404}`)); err == nil {
		t.Error("an error was taken for an object")
	}
}

func TestWhoisText(t *testing.T) {
	const want = `inetnum:        192.0.2.0 - 192.0.2.255
netname:        OFFICE
org:            EXAMPLE
status:         ASSIGNMENT
state:          active
parent:         192.0.0.0/16
created:        2026-01-02T03:04:05Z

route:          192.0.2.0/24
origin:         AS64496

organisation:   EXAMPLE
org-name:       Example Networks
e-mail:         noc@example.net
phone:          +15550100
remarks:        ask for Kim
created:        2026-01-02T03:04:05Z
last-modified:  2026-01-02T04:04:05Z

`
	check(t, "network", Text(testWriter(true).Network(examplePrefix())), want)
	d := Text(testWriter(false).Domain(examplePrefix(), netip.MustParsePrefix("192.0.2.0/24")))
	for _, line := range []string{"domain:         2.0.192.in-addr.arpa\n", "nserver:        ns1.example.net\n", "ds-rdata:       1 13 2 AB\n", "% Contact data is left out"} {
		if !strings.Contains(d, line) {
			t.Errorf("the domain's text lacks %q:\n%s", line, d)
		}
	}
}

func TestWhoisTextKeepsToItsLines(t *testing.T) {
	p := examplePrefix()
	p.Name = "x\norg: OTHER\r\u2028origin: AS1\u202e"
	text := Text(testWriter(false).Network(p))
	check(t, "line", strings.Contains(text, "\nnetname:        x org: OTHER  origin: AS1\n"), true)
}

func TestQueriesAreWhatPeopleMean(t *testing.T) {
	for text, want := range map[string][]string{
		"192.0.2.1":                  {"ip/192.0.2.1"},
		" 2001:DB8::/32 ":            {"ip/2001:DB8::/32"},
		"192.0.2.1/24":               {"ip/192.0.2.1/24"},
		"AS64496":                    {"autnum/64496"},
		"as1.10":                     {"autnum/1.10"},
		"64496":                      {"autnum/64496"},
		"2.0.192.in-addr.arpa":       {"domain/2.0.192.in-addr.arpa"},
		"64/26.2.0.192.in-addr.arpa": {"domain/64%2F26.2.0.192.in-addr.arpa"},
		"EXAMPLE-ORG":                {"entity/EXAMPLE-ORG"},
		"AS":                         {"entity/AS"},
		"ns1.example.net":            {"entity/ns1.example.net", "nameserver/ns1.example.net"},
		"a/b":                        {"entity/a%2Fb"},
		"":                           nil,
	} {
		var got []string
		for _, q := range Queries(text) {
			got = append(got, q.Path())
		}
		check(t, text, got, want)
	}
}

// FuzzText reads what another may send as an answer, and shows it.
func FuzzText(f *testing.F) {
	for _, document := range []any{
		testWriter(false).Network(examplePrefix()),
		testWriter(true).Entity(example, []Prefix{examplePrefix()}, nil, true),
		testWriter(true).Domain(examplePrefix(), examplePrefix().Prefix),
	} {
		text, err := json.Marshal(document)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"objectClassName": "entity", "vcardArray": ["vcard", [["fn", {}, "text", ["a", "b"]]]]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		object, err := Decode(document)
		if err != nil {
			return
		}
		for line := range strings.Lines(Text(object)) {
			name, _, ok := strings.Cut(line, ":")
			if line != "\n" && !strings.HasPrefix(line, "% ") && (!ok || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "") {
				t.Fatalf("%q is no attribute", line)
			}
		}
	})
}
