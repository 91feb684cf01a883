package rdap

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// The suffixes of reverse names (RFC 1035 section 3.5, RFC 3596 section 2.5).
const (
	suffixV4 = "in-addr.arpa"
	suffixV6 = "ip6.arpa"
)

// classlessBits is where the names of IPv4 octets end and those of RFC 2317 begin.
const classlessBits = 24

// IsReverseName tells whether a name lies in one of the two reverse trees.
func IsReverseName(name string) bool {
	_, _, ok := reverseTree(name)
	return ok
}

// reverseTree cuts the suffix off a reverse name.
func reverseTree(name string) (labels, suffix string, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for _, suffix := range []string{suffixV4, suffixV6} {
		if name == suffix {
			return "", suffix, true
		}
		if labels, ok := strings.CutSuffix(name, "."+suffix); ok && labels != "" {
			return labels, suffix, true
		}
	}
	return "", "", false
}

// ReversePrefix is the prefix that a reverse name stands for: of octets, of
// nibbles, or of a classless delegation (RFC 2317: 0-127, 0/25; RFC 4183: 0-25).
func ReversePrefix(name string) (netip.Prefix, error) {
	labels, suffix, ok := reverseTree(name)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is not the name of a reverse zone: it ends in %s or %s", name, suffixV4, suffixV6)
	}
	var parts []string
	if labels != "" {
		parts = strings.Split(labels, ".")
	}
	read := prefixOfNibbles
	if suffix == suffixV4 {
		read = prefixOfOctets
	}
	p, err := read(parts)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not the name of a reverse zone: %w", name, err)
	}
	return p, nil
}

func prefixOfOctets(labels []string) (netip.Prefix, error) {
	if len(labels) > 5 {
		return netip.Prefix{}, fmt.Errorf("it has %d labels in front of %s, at most 5 can be", len(labels), suffixV4)
	}
	var (
		address [4]byte
		inside  netip.Prefix // the classless zone, once its label is seen
		length  int
	)
	for i := len(labels) - 1; i >= 0; i-- {
		label := labels[i]
		n, err := strconv.ParseUint(label, 10, 8)
		switch plain := err == nil && strconv.FormatUint(n, 10) == label; {
		case plain && length < 32:
			address[length/8] = byte(n)
			length += 8
		case length == classlessBits && !inside.IsValid():
			first, bits, err := classless(label)
			if err != nil {
				return netip.Prefix{}, err
			}
			address[3] = first
			inside = netip.PrefixFrom(netip.AddrFrom4(address), bits)
		default:
			return netip.Prefix{}, fmt.Errorf("the label %q is not an octet: write 0 to 255 without leading zeros", label)
		}
	}
	switch p := netip.PrefixFrom(netip.AddrFrom4(address), length); {
	case !inside.IsValid():
		return p, nil
	case length == classlessBits:
		return inside, nil
	case !inside.Contains(p.Addr()):
		return netip.Prefix{}, fmt.Errorf("the address %s does not lie in %s", p.Addr(), inside)
	default:
		return p, nil
	}
}

// classless reads the label of a classless delegation below a /24.
func classless(label string) (first byte, length int, err error) {
	wrong := fmt.Errorf("the label %q is neither an octet nor a classless delegation such as 64-127 or 64/26", label)
	at := strings.IndexAny(label, "-/")
	if at < 0 {
		return 0, 0, wrong
	}
	a, errA := strconv.ParseUint(label[:at], 10, 8)
	b, errB := strconv.ParseUint(label[at+1:], 10, 8)
	if errors.Join(errA, errB) != nil {
		return 0, 0, wrong
	}
	length = int(b)
	if label[at] == '-' && b > a {
		// A range; where that is none, the second number is the length.
		if size := uint(b - a + 1); bits.OnesCount(size) == 1 && size < 256 && uint(a)%size == 0 {
			return byte(a), 32 - bits.TrailingZeros(size), nil
		}
	}
	if length <= classlessBits || length > 31 || a%(1<<(32-length)) != 0 {
		return 0, 0, wrong
	}
	return byte(a), length, nil
}

func prefixOfNibbles(labels []string) (netip.Prefix, error) {
	if len(labels) > 32 {
		return netip.Prefix{}, fmt.Errorf("it has %d labels in front of %s, at most 32 can be", len(labels), suffixV6)
	}
	var address [16]byte
	for i, label := range labels {
		n, err := strconv.ParseUint(label, 16, 4)
		if err != nil || len(label) != 1 {
			return netip.Prefix{}, fmt.Errorf("the label %q is not a nibble: write one of 0 to 9 and a to f", label)
		}
		at := len(labels) - 1 - i
		address[at/2] |= byte(n) << (4 * (1 - at%2))
	}
	return netip.PrefixFrom(netip.AddrFrom16(address), 4*len(labels)), nil
}

// ReverseName is the name of a prefix that ends at a label's boundary, or of a
// classless delegation in its style: dash (64-127, if none is given), slash
// (64/26) or first (64-26). Other prefixes have no name of their own, only Zones.
func ReverseName(p netip.Prefix, style string) string {
	if p.Addr().Is6() {
		var b strings.Builder
		address := p.Addr().As16()
		for at := p.Bits()/4 - 1; at >= 0; at-- {
			b.WriteString(strconv.FormatUint(uint64(address[at/2]>>(4*(1-at%2))&15), 16) + ".")
		}
		return b.String() + suffixV6
	}
	address := p.Addr().As4()
	var labels []string
	if bits := p.Bits(); bits > classlessBits && bits < 32 {
		first := int(address[3])
		switch style {
		case "slash":
			labels = append(labels, fmt.Sprintf("%d/%d", first, bits))
		case "first":
			labels = append(labels, fmt.Sprintf("%d-%d", first, bits))
		default:
			labels = append(labels, fmt.Sprintf("%d-%d", first, first+(1<<(32-bits))-1))
		}
	}
	for at := p.Bits()/8 - 1; at >= 0; at-- {
		labels = append(labels, strconv.Itoa(int(address[at])))
	}
	return strings.Join(append(labels, suffixV4), ".")
}

// zoneBits is the length at which a prefix's reverse zones are cut: the next
// label's boundary, unless it asks for a longer one. Between /24 and /32 in IPv4
// the zone is the prefix's own (RFC 2317).
func zoneBits(p netip.Prefix, cut int) int {
	width := 8
	if p.Addr().Is6() {
		width = 4
	}
	length := max(p.Bits(), cut)
	if p.Addr().Is4() && p.Bits() > classlessBits {
		return p.Bits()
	}
	return (length + width - 1) / width * width
}

// maxZones bounds how many zones of one prefix are listed: an IPv4 /9 has 128.
const maxZones = 128

// Zones are the names of the reverse zones of a prefix, at most limit.
func (p Prefix) Zones(limit int) []string {
	length := zoneBits(p.Prefix, p.ZoneCut)
	count := min(limit, maxZones)
	if more := length - p.Prefix.Bits(); more < 7 {
		count = min(count, 1<<more)
	}
	names := make([]string, 0, count)
	for zone := netip.PrefixFrom(p.Prefix.Addr(), length); len(names) < count; {
		names = append(names, ReverseName(zone, p.Style))
		next := lastAddress(zone).Next()
		if !next.IsValid() {
			break
		}
		zone = netip.PrefixFrom(next, length)
	}
	return names
}

// zone is the name of the prefix's zone that a reverse name lies in, or the name
// itself where it stands above the zones.
func (p Prefix) zone(asked netip.Prefix) string {
	length := zoneBits(p.Prefix, p.ZoneCut)
	if asked.Bits() < length {
		return ReverseName(asked, p.Style)
	}
	return ReverseName(netip.PrefixFrom(asked.Addr(), length).Masked(), p.Style)
}
