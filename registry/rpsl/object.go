package rpsl

import "net/netip"

// Attribute is one attribute of an object.
type Attribute struct {
	// Name is in lower case.
	Name string
	// Value is without comments and surrounding blanks; continuation lines are
	// joined by one blank.
	Value string
	// Line is the line of the file on which the attribute begins.
	Line int
}

// Header is what every object has.
type Header struct {
	File  string
	Line  int
	Class Class
	// Key is the value of the class attribute, as it is written.
	Key string
	// Attributes are all of them, in order, the class attribute first.
	Attributes []Attribute
	// Delete is whether the object asks for its own removal: it has a `delete:`
	// attribute (the convention of the RIPE database's updates).
	Delete bool
}

// Object is a *Network, *Route or *AutNum.
type Object interface {
	// Head is the header of the object.
	Head() *Header
}

// Head returns h: it makes whatever embeds a Header an Object.
func (h *Header) Head() *Header { return h }

// Network is an inetnum or inet6num object: address space and who holds it.
type Network struct {
	Header
	// First and Last are the range that is the object's primary key.
	First, Last netip.Addr
	// CIDRs is the same range as the fewest prefixes, in order: one, except for
	// ranges that are not one CIDR. Each becomes a prefix of the Registry.
	CIDRs []netip.Prefix
	// Name is the netname.
	Name string
	// Organisation is a handle: the `org`, else the first `mnt-by`; empty where
	// there is neither.
	Organisation string
	Kind         Kind
	// NameServers are host names in A-labels, lower case, without a final dot,
	// sorted, each once. Glue is the addresses that stand behind them.
	NameServers []string
	Glue        map[string][]netip.Addr
	// DS are sorted, each once.
	DS []DS
}

// partOf is the range that each of its prefixes is a part of, where it is several.
func (n *Network) partOf() Range {
	if len(n.CIDRs) == 1 {
		return Range{}
	}
	return Range{First: n.First, Last: n.Last}
}

// Route is a route or route6 object: who may originate a prefix.
type Route struct {
	Header
	Prefix netip.Prefix
	// Origins are AS numbers in the order of the object, each once. AS 0 means
	// that nobody may originate the prefix (RFC 6483 section 4).
	Origins []uint32
	// MaxLength is nil where the object does not state one.
	MaxLength *int
	// Organisation is a handle: the `org`, else the first `mnt-by`; empty where
	// there is neither.
	Organisation string
}

// AutNum is an aut-num object: an AS number and who holds it.
type AutNum struct {
	Header
	Number uint32
	// Name is the as-name.
	Name string
	// Organisation is a handle: the `org`, else the first `mnt-by`; empty where
	// there is neither.
	Organisation string
}
