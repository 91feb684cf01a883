package rpsl

import (
	"cmp"
	"slices"
)

// equalPointers tells whether both are nil or point to equal values.
func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// compare orders origins by number, then max-length, one that is not stated first.
func (o RouteOrigin) compare(p RouteOrigin) int {
	return cmp.Or(cmp.Compare(o.ASN, p.ASN), cmp.Compare(lengthOrder(o.MaxLength), lengthOrder(p.MaxLength)))
}

// lengthOrder sorts a max-length that is not stated before all that are.
func lengthOrder(length *int) int {
	if length == nil {
		return -1
	}
	return *length
}

// equal tells whether two settings make the world see the same. What is not
// announced has no origin, whatever was left in the columns.
func (r Routing) equal(s Routing) bool {
	if !r.Announced && !s.Announced {
		return true
	}
	return r.Announced == s.Announced && equalPointers(r.Origin, s.Origin) && equalPointers(r.MaxLength, s.MaxLength)
}

// equal compares name servers and DS as sets.
func (r Reverse) equal(s Reverse) bool {
	return r.Mode == s.Mode &&
		slices.Equal(slices.Sorted(slices.Values(r.NameServers)), slices.Sorted(slices.Values(s.NameServers))) &&
		slices.Equal(slices.SortedFunc(slices.Values(r.DS), DS.compare), slices.SortedFunc(slices.Values(s.DS), DS.compare))
}

// changed are the columns in which two rows differ.
func changed(was, now *Prefix) Fields {
	var f Fields
	set := func(field Fields, differs bool) {
		if differs {
			f |= field
		}
	}
	set(FieldParent, was.Parent != now.Parent)
	set(FieldOrganisation, !sameHandle(was.Organisation, now.Organisation))
	set(FieldRouteOrganisation, !sameHandle(was.RouteOrganisation, now.RouteOrganisation))
	set(FieldName, was.Name != now.Name)
	set(FieldKind, was.Kind != now.Kind)
	set(FieldStatus, was.Status != now.Status)
	set(FieldProvenance, was.Provenance != now.Provenance)
	set(FieldRouting, !was.Routing.equal(now.Routing))
	set(FieldReverse, !was.Reverse.equal(now.Reverse))
	set(FieldRange, was.Range != now.Range)
	return f
}
