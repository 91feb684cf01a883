package rpsl

import (
	"net/netip"

	"go4.org/netipx"
)

// State is the part of the Registry that an import looks at: all prefixes,
// anycast allocations, AS numbers and organisations.
type State struct {
	Organisations []Organisation
	ASNs          []ASN
	Prefixes      []Prefix
	Allocations   []Allocation
}

// Organisation is a holder. Handles are the same when they differ in case only.
type Organisation struct {
	Handle string
}

// ASN is an AS number and its holder.
type ASN struct {
	Number uint32
	// Organisation is a handle; empty where nobody holds it.
	Organisation string
	Name         string
	// Dependants are what hangs on it and would be lost with it, in words for
	// the operator ("2 router certificates"); it is not deleted while there are some.
	Dependants []string
}

// Kind is what a prefix is for.
type Kind string

// The kinds of a prefix.
const (
	KindContainer  Kind = "container"
	KindAllocation Kind = "allocation"
	KindAssignment Kind = "assignment"
	KindReserved   Kind = "reserved"
)

// Status is where a prefix is in its life. An import knows active prefixes only.
type Status string

// The statuses of a prefix.
const (
	StatusPlanned Status = "planned"
	StatusActive  Status = "active"
	StatusRetired Status = "retired"
)

// Provenance is why a prefix is in the Registry.
type Provenance string

// The provenances of a prefix.
const (
	// ProvenanceRegistered is a prefix of its own: an inetnum or inet6num, or
	// one that was made through the API.
	ProvenanceRegistered Provenance = "registered"
	// ProvenanceImplied is a prefix that is there only because a route is.
	ProvenanceImplied Provenance = "implied"
)

// ReverseMode is what happens with the reverse DNS of a prefix.
type ReverseMode string

// The modes of reverse DNS.
const (
	ReverseInherit   ReverseMode = "inherit"
	ReverseOff       ReverseMode = "off"
	ReverseHosted    ReverseMode = "hosted"
	ReverseDelegated ReverseMode = "delegated"
)

// Prefix is a row of the Registry's prefixes, as far as an import reads and
// writes it. Other columns (label style, zone cut) an import leaves alone.
type Prefix struct {
	// ID is 0 for a prefix that is not there yet.
	ID   int64
	CIDR netip.Prefix
	// Parent is the smallest prefix that covers it; the zero Prefix at the top.
	// A plan computes it, also for the present state: it need not be filled in.
	Parent netip.Prefix
	// Organisation is the handle of the holder; empty where there is none.
	Organisation string
	// RouteOrganisation is the handle that the prefix's route object names;
	// empty without a route, or where it names none. It is kept so that a
	// prefix whose inetnum goes passes to whom the route names, as if there had
	// never been an inetnum.
	RouteOrganisation string
	// Range is the key of the network object that the prefix is a part of; the
	// zero Range where its object is exactly this prefix.
	Range      Range
	Name       string
	Kind       Kind
	Status     Status
	Provenance Provenance
	Routing    Routing
	Reverse    Reverse
	// Dependants are what hangs on it and would be lost with it, in words for
	// the operator ("3 PTR records"); it is not deleted while there are some.
	// Anycast allocations need not be told: they are in the State.
	Dependants []string
}

// Range is the addresses from First to Last.
type Range struct{ First, Last netip.Addr }

// IsZero tells whether it is no range.
func (r Range) IsZero() bool { return r == Range{} }

// CIDRs is the range as the fewest prefixes, in order.
func (r Range) CIDRs() []netip.Prefix { return splitRange(netipx.IPRangeFrom(r.First, r.Last)) }

// Routing is the routing settings of a prefix.
type Routing struct {
	Announced bool
	// Origin is nil where none is set; 0 means that nobody may originate it.
	Origin *uint32
	// MaxLength is nil where none is stated.
	MaxLength *int
}

// Reverse is the reverse-DNS settings of a prefix.
type Reverse struct {
	Mode ReverseMode
	// NameServers are the name servers in effect: its own list, or those of the
	// shared set it refers to. An update writes a list of its own.
	NameServers []string
	DS          []DS
}

// Allocation is an anycast allocation with its route origins.
type Allocation struct {
	// ID is 0 for an allocation that is not there yet.
	ID     int64
	Prefix netip.Prefix
	// Service is ServiceName(Prefix) for what an import manages. All others are
	// made by hand; an import leaves them alone.
	Service string
	Origins []RouteOrigin
}

// RouteOrigin is one origin of an anycast allocation.
type RouteOrigin struct {
	// ID is 0 for an origin that is not there yet.
	ID        int64
	ASN       uint32
	MaxLength *int
	Active    bool
}

// ServiceName is the service name of the anycast allocation that stands for a
// route with several origins. There is one for each prefix, and always the same.
func ServiceName(p netip.Prefix) string { return "route-" + p.String() }
