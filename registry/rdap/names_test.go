package rdap

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestReverseNamesAndTheirPrefixes(t *testing.T) {
	cases := []struct{ name, prefix, canonical string }{
		{"10.in-addr.arpa", "10.0.0.0/8", ""},
		{"2.0.192.in-addr.arpa", "192.0.2.0/24", ""},
		{"2.0.192.IN-ADDR.ARPA.", "192.0.2.0/24", "2.0.192.in-addr.arpa"},
		{"7.2.0.192.in-addr.arpa", "192.0.2.7/32", ""},
		{"64-127.2.0.192.in-addr.arpa", "192.0.2.64/26", ""},
		{"64/26.2.0.192.in-addr.arpa", "192.0.2.64/26", "64-127.2.0.192.in-addr.arpa"},
		{"64-26.2.0.192.in-addr.arpa", "192.0.2.64/26", "64-127.2.0.192.in-addr.arpa"},
		{"0-31.2.0.192.in-addr.arpa", "192.0.2.0/27", ""}, // a range, not a /31
		{"65.64-127.2.0.192.in-addr.arpa", "192.0.2.65/32", "65.2.0.192.in-addr.arpa"},
		{"in-addr.arpa", "0.0.0.0/0", ""},
		{"8.b.d.0.1.0.0.2.ip6.arpa", "2001:db8::/32", ""},
		{"8.B.D.0.1.0.0.2.ip6.arpa", "2001:db8::/32", "8.b.d.0.1.0.0.2.ip6.arpa"},
		{"c.b.a.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "2001:db8:a:bc00::/56", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := ReversePrefix(c.name)
			if err != nil || got != netip.MustParsePrefix(c.prefix) {
				t.Fatalf("got %v, %v, want %s", got, err, c.prefix)
			}
			want := c.canonical
			if want == "" {
				want = c.name
			}
			if name := ReverseName(got, ""); name != want {
				t.Errorf("the name of %s: got %s, want %s", got, name, want)
			}
		})
	}
}

func TestNamesThatAreNoReverseZoneAreRefused(t *testing.T) {
	for _, name := range []string{"", "example.net", "256.in-addr.arpa", "01.in-addr.arpa", "a.b.in-addr.arpa", "1.2.3.4.5.in-addr.arpa",
		"1-2-3.2.0.192.in-addr.arpa", "1/26.2.0.192.in-addr.arpa", "64-99.2.0.192.in-addr.arpa", "0/24.2.0.192.in-addr.arpa", "0-255.2.0.192.in-addr.arpa",
		"7.64-127.2.0.192.in-addr.arpa", "1.64-127.64-127.2.0.192.in-addr.arpa", "64-127.0.192.in-addr.arpa", "10.ip6.arpa", "g.ip6.arpa", "..ip6.arpa",
		".in-addr.arpa", "-.2.0.192.in-addr.arpa", "/.2.0.192.in-addr.arpa", strings.Repeat("0.", 33) + "ip6.arpa"} {
		if p, err := ReversePrefix(name); err == nil {
			t.Errorf("%q was taken for %s", name, p)
		}
	}
}

func TestClasslessNamesKeepTheirStyle(t *testing.T) {
	p := netip.MustParsePrefix("192.0.2.64/26")
	for style, want := range map[string]string{"": "64-127", "dash": "64-127", "slash": "64/26", "first": "64-26"} {
		name := ReverseName(p, style)
		if name != want+".2.0.192.in-addr.arpa" {
			t.Errorf("style %q: got %s", style, name)
		}
		if back, err := ReversePrefix(name); err != nil || back != p {
			t.Errorf("%s reads back as %v, %v", name, back, err)
		}
	}
}

// The vectors are those of zone planning: how many zones a prefix has, and their
// first and last name.
func TestZonesOfAPrefix(t *testing.T) {
	cases := []struct {
		prefix      string
		cut, count  int
		first, last string
	}{
		{"10.0.0.0/8", 0, 1, "10.in-addr.arpa", "10.in-addr.arpa"},
		{"172.16.0.0/12", 0, 16, "16.172.in-addr.arpa", "31.172.in-addr.arpa"},
		{"198.18.0.0/15", 0, 2, "18.198.in-addr.arpa", "19.198.in-addr.arpa"},
		{"203.0.112.0/23", 0, 2, "112.0.203.in-addr.arpa", "113.0.203.in-addr.arpa"},
		{"192.0.2.64/26", 0, 1, "64-127.2.0.192.in-addr.arpa", "64-127.2.0.192.in-addr.arpa"},
		{"192.0.2.7/32", 0, 1, "7.2.0.192.in-addr.arpa", "7.2.0.192.in-addr.arpa"},
		{"2001:db8::/29", 0, 8, "8.b.d.0.1.0.0.2.ip6.arpa", "f.b.d.0.1.0.0.2.ip6.arpa"},
		{"2001:db8:8::/45", 0, 8, "8.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "f.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"},
		{"2001:db8::/127", 0, 2, "0." + strings.Repeat("0.", 23) + "8.b.d.0.1.0.0.2.ip6.arpa", "1." + strings.Repeat("0.", 23) + "8.b.d.0.1.0.0.2.ip6.arpa"},
		{"2001:db8::/32", 34, 16, "0.8.b.d.0.1.0.0.2.ip6.arpa", "f.8.b.d.0.1.0.0.2.ip6.arpa"},
		{"0.0.0.0/0", 24, 128, "0.0.0.in-addr.arpa", "127.0.0.in-addr.arpa"}, // bounded
		{"255.255.255.254/31", 0, 1, "254-255.255.255.255.in-addr.arpa", "254-255.255.255.255.in-addr.arpa"},
	}
	for _, c := range cases {
		t.Run(c.prefix, func(t *testing.T) {
			zones := Prefix{Prefix: netip.MustParsePrefix(c.prefix), ZoneCut: c.cut}.Zones(1000)
			if len(zones) != c.count || zones[0] != c.first || zones[len(zones)-1] != c.last {
				t.Errorf("got %d zones, %q to %q, want %d, %q to %q", len(zones), zones[0], zones[len(zones)-1], c.count, c.first, c.last)
			}
		})
	}
}

func TestEveryAddressLiesInAZoneOfItsPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		least := 9 // shorter ones have more zones than are listed
		if rapid.Bool().Draw(t, "six") {
			address, least = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6"))), 0
		}
		p, err := address.Prefix(rapid.IntRange(least, address.BitLen()).Draw(t, "bits"))
		if err != nil {
			t.Fatal(err)
		}
		row := Prefix{Prefix: p, Style: rapid.SampledFrom([]string{"", "slash", "first"}).Draw(t, "style")}
		zone := row.zone(netip.PrefixFrom(address, address.BitLen()))
		if zones := row.Zones(1000); !slices.Contains(zones, zone) {
			t.Fatalf("the zone of %s is %s, which is none of %v", address, zone, zones)
		}
		back, err := ReversePrefix(zone)
		if err != nil || !back.Contains(address) {
			t.Fatalf("the zone %s of %s reads back as %v, %v", zone, address, back, err)
		}
	})
}

func FuzzReversePrefix(f *testing.F) {
	for _, seed := range []string{"64-127.2.0.192.in-addr.arpa", "65.64/26.2.0.192.in-addr.arpa", "8.b.d.0.1.0.0.2.ip6.arpa", "in-addr.arpa", "-.ip6.arpa"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p, err := ReversePrefix(name)
		if err != nil {
			return
		}
		if !p.IsValid() || p != p.Masked() {
			t.Fatalf("%q reads as %v", name, p)
		}
		if again, err := ReversePrefix(ReverseName(p, "")); err != nil || again != p {
			t.Fatalf("%q reads as %s, whose name reads as %v, %v", name, p, again, err)
		}
	})
}
