package registry

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"hubn/registry/client"
)

func readResources(text string) Resources {
	var r Resources
	_ = r.UnmarshalText([]byte(text))
	return r
}

func TestResourcesAsPeopleWriteThem(t *testing.T) {
	for typed, want := range map[string]string{
		"organisation":                    "organisation",
		" Organisation ":                  "organisation",
		"all":                             "all",
		"0.0.0.0/0 ::/0 AS0-AS4294967295": "all",
		"192.0.2.0/24":                    "192.0.2.0/24",
		"AS64496":                         "AS64496",
		"64496":                           "AS64496",
		"AS64496-AS64511, AS65536":        "AS64496-AS64511, AS65536",
		"as64496 - 64511":                 "AS64496-AS64511",
		"AS2,AS1,AS3":                     "AS1-AS3",
		"AS1-AS5 AS3":                     "AS1-AS5",
		"AS1.10":                          "AS65546",
		"2001:DB8:0::/32; 192.0.2.0/25\n192.0.2.128/25": "192.0.2.0/24, 2001:db8::/32",
		"192.0.2.0-192.0.2.255":                         "192.0.2.0/24",
		"192.0.2.1 - 192.0.2.2":                         "192.0.2.1/32, 192.0.2.2/32",
		"192.0.2.1":                                     "192.0.2.1/32",
		"2001:db8::-2001:db8::ffff:ffff:ffff":           "2001:db8::/80",
		"10.0.0.0/8, 10.1.0.0/16":                       "10.0.0.0/8",
	} {
		r := readResources(typed)
		if r.err != nil || r.String() != want {
			t.Errorf("%q is %q, %v; want %q", typed, r, r.err, want)
		}
	}
	for typed, says := range map[string]string{
		"": "names no resource", " , ": "names no resource", "192.0.2.1/24": "192.0.2.0/24", "::ffff:192.0.2.0/120": "IPv4-mapped",
		"AS5-AS1": "ends before it begins", "192.0.2.2-192.0.2.1": "no range", "192.0.2.1-2001:db8::": "no range",
		"EXAMPLE": `"EXAMPLE" is no resource`, "AS4294967296": "no resource", "192.0.2.1-": "empty", "fe80::1%eth0": "no resource",
		"organisation, AS1": "no resource", strings.Repeat("AS1 ", maxResources+1): "at most",
	} {
		if r := readResources(typed); r.err == nil || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%.40q: got %v; want an error that says %q", typed, r.err, says)
		}
	}
}

// TestResourcesReadBack writes any set and reads it: the text is canonical.
func TestResourcesReadBack(t *testing.T) {
	word := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "asn") {
			a, b := rapid.Uint32().Draw(t, "first"), rapid.Uint32().Draw(t, "last")
			return resourcesText(nil, []client.ASNRange{{First: client.ASN(min(a, b)), Last: client.ASN(max(a, b))}})
		}
		address := netip.AddrFrom4([4]byte{byte(rapid.IntRange(0, 255).Draw(t, "a")), byte(rapid.IntRange(0, 3).Draw(t, "b"))})
		if rapid.Bool().Draw(t, "six") {
			address = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(rapid.IntRange(0, 3).Draw(t, "c"))})
		}
		return must(address.Prefix(rapid.IntRange(0, address.BitLen()).Draw(t, "bits"))).String()
	})
	rapid.Check(t, func(t *rapid.T) {
		typed := strings.Join(rapid.SliceOfN(word, 1, 20).Draw(t, "words"), ", ")
		first := readResources(typed)
		if first.err != nil {
			t.Fatalf("%q: %v", typed, first.err)
		}
		second := readResources(first.String())
		if second.err != nil || second.String() != first.String() {
			t.Fatalf("%q is %q, which is %q, %v", typed, first, second, second.err)
		}
		if missing := readResources(typed).missingFrom(first.prefixes, first.asns); missing != "" {
			t.Fatalf("%q is not in itself: %s", typed, missing)
		}
	})
}
