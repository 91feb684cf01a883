package rdap

import (
	"net/netip"
	"slices"
	"time"
)

// Prefix is a row of the Registry's prefixes, as far as the world sees it.
type Prefix struct {
	Prefix netip.Prefix
	Parent netip.Prefix // not valid where there is none
	Kind   string       // container, allocation, assignment, reserved
	Status string       // planned, active, retired
	Name   string
	// Implied prefixes are there because a route is.
	Implied bool
	// Origins are who may originate it, of the prefix itself and of the anycast
	// allocations of the same prefix.
	Origins []uint32
	// Mode is inherit, off, hosted or delegated.
	Mode        string
	NameServers []string
	DS          []ZoneDS
	Style       string
	ZoneCut     int // 0 where none is set
	Created     time.Time
	Updated     time.Time
	Holder      *Organisation
}

// ZoneDS is a DS record, and of which zone where the prefix has several.
type ZoneDS struct {
	Zone string
	DS
}

// Organisation is a row of the organisations.
type Organisation struct {
	ID                    int64
	Handle, Name, Contact string
	Created, Updated      time.Time
}

// ASN is a row of the AS numbers.
type ASN struct {
	Number  uint32
	Name    string
	Special string // reserved, private, documentation, or nothing
	Created time.Time
	Updated time.Time
	Holder  *Organisation
}

// Delegation finds the prefix whose settings hold for a reverse name: the most
// specific one that does not inherit, of those that cover the name, most specific
// first. It answers nothing where reverse DNS is off.
func Delegation(covering []Prefix) *Prefix {
	for i, p := range covering {
		switch p.Mode {
		case "inherit":
			continue
		case "off":
			return nil
		}
		// Hosted space smaller than a /24 has no zone of its own where the /24 is
		// hosted too.
		if p.Mode == "hosted" && p.Prefix.Addr().Is4() && p.Prefix.Bits() > classlessBits {
			if above := Delegation(covering[i+1:]); above != nil && above.Mode == "hosted" {
				return above
			}
		}
		return &covering[i]
	}
	return nil
}

// lastAddress is the last address of a prefix.
func lastAddress(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// InOrder sorts prefixes as a tree is read: parents first, IPv4 before IPv6.
func InOrder(prefixes []Prefix) []Prefix {
	slices.SortFunc(prefixes, func(a, b Prefix) int {
		if order := a.Prefix.Addr().Compare(b.Prefix.Addr()); order != 0 {
			return order
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return prefixes
}
