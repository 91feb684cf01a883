package registry

import (
	"math/big"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func prefixes(t testing.TB, texts string) (out []netip.Prefix) {
	t.Helper()
	for _, text := range strings.Fields(texts) {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func spaceText(all []netip.Prefix) string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}
	return strings.Join(out, " ")
}

func TestFirstFit(t *testing.T) {
	for name, c := range map[string]struct {
		pool, taken string
		bits, count int
		want        string
	}{
		"an empty pool":            {"10.0.0.0/24", "", 26, 1, "10.0.0.0/26"},
		"several":                  {"10.0.0.0/24", "", 26, 3, "10.0.0.0/26 10.0.0.64/26 10.0.0.128/26"},
		"fewer than asked for":     {"10.0.0.0/24", "", 25, 9, "10.0.0.0/25 10.0.0.128/25"},
		"the first gap":            {"10.0.0.0/24", "10.0.0.0/26 10.0.0.128/26", 26, 2, "10.0.0.64/26 10.0.0.192/26"},
		"a gap that is too small":  {"10.0.0.0/24", "10.0.0.0/27 10.0.0.64/26", 26, 1, "10.0.0.128/26"},
		"the rest of a block":      {"10.0.0.0/24", "10.0.0.0/27", 27, 1, "10.0.0.32/27"},
		"a full pool":              {"10.0.0.0/24", "10.0.0.0/25 10.0.0.128/25", 32, 1, ""},
		"taken ones in each other": {"10.0.0.0/24", "10.0.0.0/25 10.0.0.0/32 10.0.0.64/32", 32, 1, "10.0.0.128/32"},
		"a /31 of two addresses":   {"10.0.0.0/31", "", 32, 5, "10.0.0.0/32 10.0.0.1/32"},
		"the last IPv4 addresses":  {"255.255.255.252/30", "255.255.255.252/31", 31, 2, "255.255.255.254/31"},
		"up to the very last":      {"255.255.255.254/31", "", 32, 3, "255.255.255.254/32 255.255.255.255/32"},
		"behind the very last":     {"255.255.255.254/31", "255.255.255.255/32", 32, 3, "255.255.255.254/32"},
		"a /127":                   {"2001:db8::/64", "2001:db8::/127", 127, 1, "2001:db8::2/127"},
		"a /128":                   {"2001:db8::/127", "2001:db8::/128", 128, 2, "2001:db8::1/128"},
		"the last IPv6 address":    {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/128", 128, 2, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"},
		"all of IPv4":              {"0.0.0.0/0", "0.0.0.0/1", 1, 2, "128.0.0.0/1"},
		"all of IPv6":              {"::/0", "", 3, 2, "::/3 2000::/3"},
	} {
		if got := spaceText(firstFit(netip.MustParsePrefix(c.pool), prefixes(t, c.taken), c.bits, c.count)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestFirstFitFindsWhatIsLeft compares with trying block after block.
func TestFirstFitFindsWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := netip.MustParsePrefix(rapid.SampledFrom([]string{"10.0.0.0/24", "2001:db8::/120", "255.255.255.0/24"}).Draw(t, "pool"))
		host := pool.Addr().BitLen()
		block := rapid.Custom(func(t *rapid.T) netip.Prefix {
			bits := rapid.IntRange(host-7, host).Draw(t, "bits")
			all := firstFit(pool, nil, bits, 1<<(bits-pool.Bits()))
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "block")]
		})
		taken := rapid.SliceOfN(block, 0, 20).Draw(t, "taken")
		sortSpace(taken)
		bits := rapid.IntRange(host-8, host).Draw(t, "length")
		count := rapid.IntRange(1, 300).Draw(t, "count")
		var want []netip.Prefix
		for _, candidate := range parts(pool, bits) {
			free := true
			for _, other := range taken {
				free = free && !other.Overlaps(candidate)
			}
			if free && len(want) < count {
				want = append(want, candidate)
			}
		}
		if got := firstFit(pool, taken, bits, count); spaceText(got) != spaceText(want) {
			t.Fatalf("got %s, want %s", spaceText(got), spaceText(want))
		}
		// Every free block lies in what is left, and no larger one exists than the largest of that.
		rest := left(pool, taken)
		if most, ok := largest(rest); ok && bits < most && len(want) > 0 {
			t.Fatalf("a /%d is free, and the largest of %s is a /%d", bits, spaceText(rest), most)
		}
		sum := new(big.Int).Sub(size(pool), size(rest...))
		if addresses := firstFit(pool, taken, host, 256); sum.Int64() != int64(256-len(addresses)) {
			t.Fatalf("%s addresses are taken, and %d are free", sum, len(addresses))
		}
	})
}

func TestTogether(t *testing.T) {
	for texts, want := range map[string]string{
		"10.0.0.0/24 10.0.1.0/24":               "10.0.0.0/23",
		"10.0.1.0/25 10.0.0.0/24 10.0.1.128/25": "10.0.0.0/23",
		"10.0.1.0/24 10.0.2.0/24":               "",
		"10.0.0.0/24 10.0.2.0/24":               "",
		"2001:db8::/33 2001:db8:8000::/33":      "2001:db8::/32",
		"192.0.2.0/32 192.0.2.1/32":             "192.0.2.0/31",
		"0.0.0.0/1 128.0.0.0/1":                 "0.0.0.0/0",
		"192.0.2.0/24 2001:db8::/32":            "",
	} {
		whole, ok := together(prefixes(t, texts))
		got := ""
		if ok {
			got = whole.String()
		}
		if got != want {
			t.Errorf("%s together: got %q, want %q", texts, got, want)
		}
	}
}
