package rpsl_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hubn/registry/rpsl"
)

func parse(t *testing.T, text string) rpsl.Object {
	t.Helper()
	object, err := rpsl.Parse(rpsl.Raw{File: "file", Line: 10, Text: text})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return object
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func ptr[T any](v T) *T { return &v }

func TestParseKeepsAttributesWithTheirLines(t *testing.T) {
	object := parse(t, "Route: 192.0.2.0/24 # ours\ndescr: first\n second # remark\n+\n\tthird\n# comment\n% remark\nORIGIN:AS64496\nremarks:\n")
	want := &rpsl.Header{File: "file", Line: 10, Class: rpsl.ClassRoute, Key: "192.0.2.0/24", Attributes: []rpsl.Attribute{
		{Name: "route", Value: "192.0.2.0/24", Line: 10},
		{Name: "descr", Value: "first second third", Line: 11},
		{Name: "origin", Value: "AS64496", Line: 17},
		{Name: "remarks", Value: "", Line: 18},
	}}
	if diff := cmp.Diff(want, object.Head()); diff != "" {
		t.Errorf("header (want -, got +):\n%s", diff)
	}
}

func TestParseNetwork(t *testing.T) {
	tests := []struct {
		name, text string
		want       rpsl.Network
	}{
		{"range with its cidr", "inetnum: 192.0.2.0 - 192.0.2.255\ncidr: 192.0.2.0/24\nnetname: TEST-NET\nstatus: ASSIGNED\nmnt-by: A-MNT\nmnt-by: B-MNT\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Name: "TEST-NET", Organisation: "A-MNT", Kind: rpsl.KindAssignment}},
		{"prefix", "inetnum: 192.0.2.0/24\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Kind: rpsl.KindAssignment}},
		{"range without blanks", "inetnum: 192.0.2.0-192.0.2.127\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/25"), Kind: rpsl.KindAssignment}},
		{"IPv6 range written out", "inet6num: 2001:0db8:0000:0000:0000:0000:0000:0000 - 2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff\ncidr: 2001:DB8::/32\nstatus: ALLOCATED-BY-RIR\n",
			rpsl.Network{CIDRs: prefixes("2001:db8::/32"), Kind: rpsl.KindAllocation}},
		{"range that is not one CIDR", "inetnum: 192.0.2.1 - 192.0.2.8\ncidr: 192.0.2.1/32, 192.0.2.2/31\ncidr: 192.0.2.8/32 192.0.2.4/30\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/30", "192.0.2.8/32"), Kind: rpsl.KindAssignment}},
		{"single addresses", "inet6num: 2001:db8::1 - 2001:db8::1\n",
			rpsl.Network{CIDRs: prefixes("2001:db8::1/128"), Kind: rpsl.KindAssignment}},
		{"org goes before mnt-by, the first of a list holds", "inetnum: 192.0.2.0/31\nmnt-by: A-MNT, B-MNT\norg: ORG-EX1-TEST\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/31"), Organisation: "ORG-EX1-TEST", Kind: rpsl.KindAssignment}},
		{"list of maintainers", "inetnum: 192.0.2.0/32\nmnt-by:\n  A-MNT,\n  B-MNT\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/32"), Organisation: "A-MNT", Kind: rpsl.KindAssignment}},
		{"the whole address space is a container", "inet6num: ::/0\npolicy: reserved\nstatus: ALLOCATED\n",
			rpsl.Network{CIDRs: prefixes("::/0"), Kind: rpsl.KindContainer}},
		{"reserved by policy", "inetnum: 172.20.0.0/14\npolicy: reserved\nstatus: ALLOCATED\n",
			rpsl.Network{CIDRs: prefixes("172.20.0.0/14"), Kind: rpsl.KindReserved}},
		{"container by status", "inetnum: 192.0.2.0/24\nstatus: LIR-PARTITIONED  PA\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Kind: rpsl.KindContainer}},
		{"allocation by status", "inetnum: 192.0.2.0/24\nstatus: allocated pa\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Kind: rpsl.KindAllocation}},
		{"name servers are canonical, sorted and once", "inetnum: 192.0.2.0/24\nnserver: NS2.Example.NET.\nnserver: ns1.example.net 192.0.2.1 2001:db8::1\nnserver: ns2.example.net\nnserver: bücher.example\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Kind: rpsl.KindAssignment,
				NameServers: []string{"ns1.example.net", "ns2.example.net", "xn--bcher-kva.example"},
				Glue:        map[string][]netip.Addr{"ns1.example.net": {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}}},
		{"DS digests with blanks, sorted and once", "inetnum: 192.0.2.0/24\nnserver: a.example\n" +
			"ds-rdata: 25503 7 2 8E96D576D920F57AF8473CF2B55989C22578AAF3F63D47C860B89C71 6CEFF754\n" +
			"ds-rdata: 1 13 1 ( 0123456789abcdef0123\n  456789abcdef01234567 )\n" +
			"ds-rdata: 1 13 1 0123456789ABCDEF0123456789ABCDEF01234567\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Kind: rpsl.KindAssignment, NameServers: []string{"a.example"}, DS: []rpsl.DS{
				{KeyTag: 1, Algorithm: 13, DigestType: 1, Digest: "0123456789abcdef0123456789abcdef01234567"},
				{KeyTag: 25503, Algorithm: 7, DigestType: 2, Digest: "8e96d576d920f57af8473cf2b55989c22578aaf3f63d47c860b89c716ceff754"},
			}}},
		{"names are valid text", "inetnum: 192.0.2.0/24\nnetname: a\x00b\xffc\n",
			rpsl.Network{CIDRs: prefixes("192.0.2.0/24"), Name: "ab\uFFFDc", Kind: rpsl.KindAssignment}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := parse(t, test.text).(*rpsl.Network)
			if !ok {
				t.Fatal("it is no network")
			}
			diff := cmp.Diff(&test.want, got, cmpopts.IgnoreFields(rpsl.Network{}, "Header", "First", "Last"),
				cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}))
			if diff != "" {
				t.Errorf("network (want -, got +):\n%s", diff)
			}
		})
	}
}

func TestParseRoute(t *testing.T) {
	tests := []struct {
		name, text string
		want       rpsl.Route
	}{
		{"one origin", "route: 192.0.2.0/24\norigin: AS64496\n", rpsl.Route{Origins: []uint32{64496}}},
		{"several origins, one twice", "route: 192.0.2.0/24\norigin: AS64496\nmax-length: 28\norigin: as4294967295\norigin: AS64496\nmnt-by: A-MNT\n",
			rpsl.Route{Origins: []uint32{64496, 4294967295}, MaxLength: ptr(28), Organisation: "A-MNT"}},
		{"nobody may originate it", "route: 192.0.2.0/24\norigin: AS0\nmax-length: 24\n", rpsl.Route{Origins: []uint32{0}, MaxLength: ptr(24)}},
		{"deleted without origins", "route: 192.0.2.0/24\ndelete: no reason\n", rpsl.Route{}},
		{"deleted with a max-length that would be refused", "route: 192.0.2.0/24\nmax-length: 99\norigin: AS1\ndelete:\n", rpsl.Route{Origins: []uint32{1}}},
		{"deleted as a range", "route: 192.0.2.0 - 192.0.2.255\ndelete:\n", rpsl.Route{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := parse(t, test.text).(*rpsl.Route)
			if !ok {
				t.Fatal("it is no route")
			}
			test.want.Prefix = netip.MustParsePrefix("192.0.2.0/24")
			diff := cmp.Diff(&test.want, got, cmpopts.IgnoreFields(rpsl.Route{}, "Header"), cmpopts.EquateComparable(netip.Prefix{}))
			if diff != "" {
				t.Errorf("route (want -, got +):\n%s", diff)
			}
			if want := strings.Contains(test.text, "delete:"); got.Delete != want {
				t.Errorf("delete is %v, want %v", got.Delete, want)
			}
		})
	}
}

func TestParseAutNum(t *testing.T) {
	got, ok := parse(t, "aut-num: AS4242420000\nas-name: EXAMPLE\nmnt-by: A-MNT\n").(*rpsl.AutNum)
	if !ok || got.Number != 4242420000 || got.Name != "EXAMPLE" || got.Organisation != "A-MNT" {
		t.Errorf("got %+v", got)
	}
}

func TestParseDeletionNeedsTheKeyOnly(t *testing.T) {
	for _, text := range []string{
		"inetnum: 192.0.2.0/24\ndelete: gone\n",
		"inetnum: 192.0.2.0 - 192.0.2.255\nds-rdata: nonsense\ncidr: 10.0.0.0/8\nmnt-by: %%\ndelete: gone\n",
	} {
		object, err := rpsl.Parse(rpsl.Raw{Text: text})
		if err != nil || !object.Head().Delete || !slices.Equal(object.(*rpsl.Network).CIDRs, prefixes("192.0.2.0/24")) {
			t.Errorf("%q: %+v, %v", text, object, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const ns = "nserver: ns1.example.net\n"
	tests := []struct {
		name, text string
		line       int
		reason     string
	}{
		{"host bits", "inetnum: 192.0.2.1/24\n", 10, "192.0.2.1/24 has host bits set; the prefix is 192.0.2.0/24"},
		{"IPv6 host bits", "route6: 2001:db8::1/32\norigin: AS1\n", 10, "2001:db8::1/32 has host bits set; the prefix is 2001:db8::/32"},
		{"IPv4-mapped prefix", "route6: ::ffff:192.0.2.0/120\norigin: AS1\n", 10, "::ffff:192.0.2.0/120 is an IPv4-mapped prefix; write 192.0.2.0/24"},
		{"IPv4-mapped range", "inet6num: ::ffff:192.0.2.0 - ::ffff:192.0.2.255\n", 10, "::ffff:192.0.2.0 is an IPv4-mapped address; write 192.0.2.0"},
		{"range that holds the mapped block", "inet6num: ::fffe:8000:0 - ::1:0:0:1\n", 10, "is an IPv4-mapped prefix; write 0.0.0.0/0"},
		{"zone in a prefix", "inet6num: fe80::1%eth0/64\n", 10, "IPv6 zones cannot be present in a prefix"},
		{"zone in a range", "inet6num: fe80::1%eth0 - fe80::2\n", 10, "fe80::1%eth0 has a zone, which only means something on one machine; write fe80::1"},
		{"bare address", "inetnum: 192.0.2.1\n", 10, "192.0.2.1 has no length; a single address is 192.0.2.1/32"},
		{"no prefix", "route: our network\norigin: AS1\n", 10, `"our network" is no prefix; write it as 192.0.2.0/24 or 2001:db8::/32`},
		{"length too large", "route: 192.0.2.0/33\norigin: AS1\n", 10, `"192.0.2.0/33" is no prefix: prefix length out of range`},
		{"short form", "route: 10/8\norigin: AS1\n", 10, `"10/8" is no prefix: unable to parse IP`},
		{"leading zero", "inetnum: 010.0.0.0 - 10.0.0.1\n", 10, `"010.0.0.0" is no address: IPv4 field has octet with leading zero`},
		{"range backwards", "inetnum: 192.0.2.9 - 192.0.2.1\n", 10, "192.0.2.9 - 192.0.2.1 ends before it begins; is it 192.0.2.1 - 192.0.2.9?"},
		{"mixed range", "inetnum: 192.0.2.9 - 2001:db8::\n", 10, "mixes IPv4 and IPv6"},
		{"IPv6 in inetnum", "inetnum: 2001:db8::/32\n", 10, "2001:db8:: is IPv6, which belongs into a inet6num object"},
		{"IPv4 in route6", "route6: 192.0.2.0/24\norigin: AS1\n", 10, "192.0.2.0 is IPv4, which belongs into a route object"},
		{"empty key", "inetnum:\n", 10, `"" is no prefix`},
		{"cidr is another", "inetnum: 192.0.2.0 - 192.0.2.255\nstatus: ASSIGNED\ncidr: 192.0.2.0/25\n", 12, "cidr 192.0.2.0/25 is not the range 192.0.2.0 - 192.0.2.255, which is 192.0.2.0/24"},
		{"cidr with host bits", "inetnum: 192.0.2.0 - 192.0.2.255\ncidr: 192.0.2.1/24\n", 11, "cidr 192.0.2.1/24 has host bits set; the prefix is 192.0.2.0/24"},
		{"handle", "inetnum: 192.0.2.0/24\nmnt-by: A MNT!\nmnt-by: $\norg: (none)\n", 13, `"(none)" is no handle: '(' at position 1`},
		{"long handle", "inetnum: 192.0.2.0/24\nmnt-by: " + strings.Repeat("A", 81) + "\n", 11, "has 81 characters; a handle has at most 80"},
		{"empty list of maintainers", "inetnum: 192.0.2.0/24\nmnt-by: ,\n", 11, `"," holds no name`},
		{"name server is an address", "inetnum: 192.0.2.0/24\nnserver: 192.0.2.53\n", 11, "nserver 192.0.2.53 is an address where a host name must stand"},
		{"name server ends in a number", "inetnum: 192.0.2.0/24\nnserver: ns.192\n", 11, `nserver "ns.192" is no host name: its last label is a number`},
		{"name server with a slash", "inetnum: 192.0.2.0/24\nnserver: ns/1.example\n", 11, `label "ns/1" has '/' at position 3`},
		{"name server with an empty label", "inetnum: 192.0.2.0/24\nnserver: ns..example\n", 11, "it has an empty label"},
		{"name server with a long label", "inetnum: 192.0.2.0/24\nnserver: " + strings.Repeat("a", 64) + ".example\n", 11, "is longer than 63 characters"},
		{"long name server", "inetnum: 192.0.2.0/24\nnserver: " + strings.Repeat("a.", 127) + "example\n", 11, "has 261 characters; at most 253 are possible"},
		{"name server with a wrong A-label", "inetnum: 192.0.2.0/24\nnserver: xn--a.example\n", 11, "is no internationalised domain name"},
		{"name server that is a hyphen", "inetnum: 192.0.2.0/24\nnserver: -a.example\n", 11, `label "-a" has '-' at position 1`},
		{"name server missing", "inetnum: 192.0.2.0/24\nnserver: # none\n", 11, "nserver has no host name"},
		{"root as name server", "inetnum: 192.0.2.0/24\nnserver: .\n", 11, `"." is no host name`},
		{"glue that is no address", "inetnum: 192.0.2.0/24\nnserver: ns1.example ns2.example\n", 11, `nserver ns1.example: "ns2.example" is no address`},
		{"too many name servers", "inetnum: 192.0.2.0/24\n" + manyNameServers(17), 27, "17 name servers are more than 16"},
		{"DS of three fields", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 1 2 3\n", 12, "is no DS data"},
		{"DS key tag", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 65536 8 2 00\n", 12, `"65536" is no key tag`},
		{"DS algorithm", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 1 0 2 00\n", 12, `"0" is no DNSSEC algorithm`},
		{"DS digest type", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 1 8 9 00\n", 12, `"9" is no digest type that is assigned`},
		{"DS digest too short", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 1 8 2 0011\n", 12, `digest "0011" has 2 bytes; one of type 2 has 32`},
		{"DS SHA-384 with the length of SHA-256", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 1 8 4 " + strings.Repeat("00", 32) + "\n", 12, "has 32 bytes; one of type 4 has 48"},
		{"DS digest not hexadecimal", "inetnum: 192.0.2.0/24\n" + ns + "ds-rdata: 1 8 1 xyz0\n", 12, `digest "xyz0" is not hexadecimal`},
		{"DS without name servers", "inetnum: 192.0.2.0/24\nds-rdata: 1 8 1 " + strings.Repeat("00", 20) + "\n", 11, "ds-rdata stands without nserver"},
		{"route without origin", "route: 192.0.2.0/24\n", 10, "a route needs at least one origin"},
		{"origin without AS", "route: 192.0.2.0/24\norigin: 64496\n", 11, `"64496" is no AS number; write AS64496`},
		{"origin in asdot", "route: 192.0.2.0/24\norigin: AS1.10\n", 11, "AS1.10 is in asdot notation; write AS65546"},
		{"origin too large", "route: 192.0.2.0/24\norigin: AS4294967296\n", 11, "AS4294967296 is too large"},
		{"origin with a sign", "route: 192.0.2.0/24\norigin: AS+1\n", 11, `"AS+1" is no AS number`},
		{"two origins in one line", "route: 192.0.2.0/24\norigin: AS1, AS2\n", 11, `"AS1, AS2" is no AS number`},
		{"deletion with a wrong origin", "route: 192.0.2.0/24\norigin: x\ndelete:\n", 11, `"x" is no AS number`},
		{"max-length below the prefix", "route: 192.0.2.0/24\nmax-length: 23\norigin: AS1\n", 11, "max-length 23 is not between 24, the length of 192.0.2.0/24, and 32"},
		{"max-length above IPv4", "route: 192.0.2.0/24\nmax-length: 33\norigin: AS1\n", 11, "max-length 33 is not between"},
		{"max-length above IPv6", "route6: 2001:db8::/32\nmax-length: 129\norigin: AS1\n", 11, "max-length 129 is not between 32, the length of 2001:db8::/32, and 128"},
		{"max-length that is no number", "route: 192.0.2.0/24\nmax-length: /25\norigin: AS1\n", 11, `max-length "/25" is no length; write a number such as 24`},
		{"two max-lengths", "route: 192.0.2.0/24\nmax-length: 24\nmax-length: 25\norigin: AS1\n", 12, "max-length stands 2 times (24, 25, …); keep one"},
		{"route that is a range of several prefixes", "route: 192.0.2.0 - 192.0.2.2\norigin: AS1\n", 10, "is not one prefix but 2; write a route for each"},
		{"AS 0 held", "aut-num: AS0\n", 10, "AS 0 is reserved and cannot be held (RFC 7607)"},
		{"aut-num that is none", "aut-num: ASX\n", 10, `"ASX" is no AS number; write it as AS64496`},
		{"two objects in one", "inetnum: 192.0.2.0/24\nroute: 192.0.2.0/24\norigin: AS1\n", 11, "route: 192.0.2.0/24 is inside another object; part objects by a blank line"},
		{"line that is no attribute", "route: 192.0.2.0/24\norigin AS1\n", 11, `"origin AS1" is neither an attribute (name: value) nor its continuation`},
		{"continuation first", " route: 192.0.2.0/24\n", 10, "the object begins with a continuation line"},
		{"nothing", "", 10, "the object has no attribute"},
		{"another class", "mntner: A-MNT\n", 10, `class "mntner" is not one that is imported`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object, err := rpsl.Parse(rpsl.Raw{File: "file", Line: 10, Text: test.text})
			var refusal *rpsl.Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("got %+v, %v; want a refusal", object, err)
			}
			if object != nil {
				t.Errorf("there is an object beside the refusal: %+v", object)
			}
			if refusal.File != "file" || refusal.Line != test.line || !strings.Contains(refusal.Reason, test.reason) {
				t.Errorf("refused at %s:%d: %s\nwant it at line %d: …%s…", refusal.File, refusal.Line, refusal.Reason, test.line, test.reason)
			}
		})
	}
}

func manyNameServers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("nserver: ns" + string(rune('a'+i)) + ".example\n")
	}
	return b.String()
}

func TestRefusalNamesFileLineAndObject(t *testing.T) {
	_, err := rpsl.Parse(rpsl.Raw{File: "data/route.rpsl", Line: 7, Text: "route: 192.0.2.0/24\norigin: AS64496\nmax-length: 8\n"})
	want := "data/route.rpsl:9: route 192.0.2.0/24: max-length 8 is not between 24, the length of 192.0.2.0/24, and 32"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	text, err := json.Marshal(err)
	if err != nil || !strings.Contains(string(text), `"attribute":"max-length","value":"8"`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestNameServerPattern(t *testing.T) {
	tests := []struct {
		pattern, host string
		want          bool
	}{
		{"ns1.example.net", "ns1.example.net", true},
		{"NS1.example.net.", "ns1.example.net", true},
		{"ns1.example.net", "a.ns1.example.net", false},
		{"*.example.net", "ns1.example.net", true},
		{"*.example.net", "a.b.example.net", true},
		{"*.example.net", "example.net", false},
		{"*.example.net", ".example.net", false},
		{"*.example.net", "badexample.net", false},
	}
	for _, test := range tests {
		p, err := rpsl.ParseNameServerPattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(test.host); got != test.want {
			t.Errorf("%s matches %s: %v, want %v", p, test.host, got, test.want)
		}
	}
	for _, bad := range []string{"", "*", "*.", "ns*.example.net", "**.example.net", "192.0.2.1", "a b"} {
		if p, err := rpsl.ParseNameServerPattern(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, p)
		}
	}
	if (rpsl.NameServerPattern{}).Match("") {
		t.Error("the zero pattern matches")
	}
}
