package rpsl

// Input is what was read: the objects in their order, and those that could not
// be taken. Prune needs to know both.
type Input struct {
	Objects []Object
	Refused []*Refusal
}

// Options say how to read the input.
type Options struct {
	// Prune makes the Registry equal to the input: what it does not name goes.
	Prune bool
	// OwnNameServers are HubN's own: a network whose name servers all match has
	// its reverse DNS hosted here.
	OwnNameServers []NameServerPattern
}

// Plan is what an import changes. Applying it in one transaction makes the
// Registry what the input asks for; planning again then gives an empty plan.
type Plan struct {
	// InsertOrganisations come first: all others refer to them by handle.
	InsertOrganisations []Organisation

	InsertASNs []ASN
	UpdateASNs []ASNUpdate
	DeleteASNs []ASN

	// InsertPrefixes are in tree order, parents first; a parent may itself be
	// new. DeletePrefixes are children first. UpdatePrefixes include those whose
	// parent alone changes, because a prefix between was inserted or deleted.
	InsertPrefixes []Prefix
	UpdatePrefixes []PrefixUpdate
	DeletePrefixes []Prefix

	InsertAllocations []Allocation
	UpdateAllocations []AllocationUpdate
	DeleteAllocations []Allocation

	// Refused are the refusals of the input, then what the plan itself refuses.
	Refused []*Refusal
	// Notes name objects that a later one supersedes and the like.
	Notes []Note
	// Unchanged counts the objects that ask for what already is.
	Unchanged int
}

// Empty tells whether the plan changes nothing.
func (p *Plan) Empty() bool {
	return len(p.InsertOrganisations)+
		len(p.InsertASNs)+len(p.UpdateASNs)+len(p.DeleteASNs)+
		len(p.InsertPrefixes)+len(p.UpdatePrefixes)+len(p.DeletePrefixes)+
		len(p.InsertAllocations)+len(p.UpdateAllocations)+len(p.DeleteAllocations) == 0
}

// ASNUpdate is a change of an AS number's holder or name.
type ASNUpdate struct {
	Was, Now ASN
}

// PrefixUpdate is a change of one prefix; Now is the complete row.
type PrefixUpdate struct {
	Was, Now Prefix
	Changed  Fields
}

// AllocationUpdate is a change of the origins of an anycast allocation.
type AllocationUpdate struct {
	Was, Now Allocation
	// InsertOrigins and DeleteOrigins and UpdateOrigins turn the one into the
	// other; updated origins keep their id and get a new max-length or become active.
	InsertOrigins, UpdateOrigins, DeleteOrigins []RouteOrigin
}

// Fields is a set of columns of a prefix.
type Fields uint16

// The columns of a prefix that an import may change.
const (
	FieldParent Fields = 1 << iota
	FieldOrganisation
	FieldRouteOrganisation
	FieldName
	FieldKind
	FieldStatus
	FieldProvenance
	FieldRouting
	FieldReverse
	FieldRange
)

var fieldNames = [...]string{
	"parent", "organisation", "route organisation", "name", "kind", "status", "provenance", "routing", "reverse", "range",
}

// Has tells whether f has any of g.
func (f Fields) Has(g Fields) bool { return f&g != 0 }

// Names are the columns in words.
func (f Fields) Names() []string {
	var names []string
	for i, name := range fieldNames {
		if f.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}
