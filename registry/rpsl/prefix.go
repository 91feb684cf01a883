package rpsl

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// mapped is the block of IPv4-mapped IPv6 addresses (RFC 4291 section 2.5.5.2),
// which are IPv4 addresses in other clothes and never a resource of their own.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// ParsePrefix reads a CIDR prefix in any spelling and refuses what is not one:
// host bits, zones, IPv4-mapped addresses, a bare address. The error says what
// would be right.
func ParsePrefix(s string) (netip.Prefix, error) {
	if _, _, ok := strings.Cut(s, "/"); !ok {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return netip.Prefix{}, fmt.Errorf("%s has no length; a single address is %s", s, netip.PrefixFrom(a, a.BitLen()))
		}
		return netip.Prefix{}, fmt.Errorf("%q is no prefix; write it as 192.0.2.0/24 or 2001:db8::/32", s)
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no prefix: %s", s, reasonOf(err))
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("%s has host bits set; the prefix is %s", s, m)
	}
	if err := checkNotMapped(p); err != nil {
		return netip.Prefix{}, err
	}
	return p, nil
}

// checkNotMapped refuses IPv4-mapped prefixes, and names the IPv4 prefix meant.
func checkNotMapped(p netip.Prefix) error {
	if !p.Addr().Is4In6() || p.Bits() < mapped.Bits() {
		return nil
	}
	return fmt.Errorf("%s is an IPv4-mapped prefix; write %s", p, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped.Bits()))
}

// parseRange reads "first - last", or a CIDR prefix as the range that it is.
func parseRange(s string) (netipx.IPRange, error) {
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		p, err := ParsePrefix(s)
		if err != nil {
			return netipx.IPRange{}, err
		}
		return netipx.RangeOfPrefix(p), nil
	}
	from, err := parseAddr(strings.TrimSpace(first))
	if err != nil {
		return netipx.IPRange{}, err
	}
	to, err := parseAddr(strings.TrimSpace(last))
	if err != nil {
		return netipx.IPRange{}, err
	}
	switch {
	case from.Is4() != to.Is4():
		return netipx.IPRange{}, fmt.Errorf("%s mixes IPv4 and IPv6", s)
	case to.Less(from):
		return netipx.IPRange{}, fmt.Errorf("%s ends before it begins; is it %s - %s?", s, to, from)
	}
	return netipx.IPRangeFrom(from, to), nil
}

// parseAddr reads one address of a range.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%q is no address: %s", s, reasonOf(err))
	case a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s has a zone, which only means something on one machine; write %s", s, a.WithZone(""))
	case a.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s is an IPv4-mapped address; write %s", s, a.Unmap())
	}
	return a, nil
}

// splitRange is the fewest prefixes that make up a range, in order: at most 62
// for IPv4 and 254 for IPv6.
func splitRange(r netipx.IPRange) []netip.Prefix {
	if p, ok := r.Prefix(); ok {
		return []netip.Prefix{p}
	}
	return r.Prefixes()
}

// reasonOf is what an error of net/netip says, without its own repetition of the
// value.
func reasonOf(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "): "); i >= 0 {
		return text[i+3:]
	}
	return text
}
