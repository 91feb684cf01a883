package rpsl

import (
	"fmt"
	"net/netip"
	"slices"
)

// networkIntent is what the input wants of the registration of one prefix. The
// object is nil where prune wants it gone.
type networkIntent struct {
	object *Network
	remove bool
}

// routeIntent is what the input wants of the routes of one prefix: all its route
// objects united.
type routeIntent struct {
	objects []*Route
	// replace: origins are all that there is to be; else removed ones go and
	// the others stay as they are.
	replace      bool
	origins      []statedOrigin
	removed      []uint32
	organisation string
}

// statedOrigin is one origin and the object that states it.
type statedOrigin struct {
	asn       uint32
	maxLength *int
	by        *Route
}

// add unites the intent with one more object, and notes where it contradicts an
// earlier one.
func (in *routeIntent) add(r *Route) (notes []Note) {
	in.objects = append(in.objects, r)
	switch {
	case r.Delete && len(r.Origins) == 0:
		*in = routeIntent{objects: in.objects, replace: true}
	case r.Delete && in.replace:
		in.origins = slices.DeleteFunc(in.origins, func(o statedOrigin) bool { return slices.Contains(r.Origins, o.asn) })
	case r.Delete:
		in.removed = append(in.removed, r.Origins...)
	default:
		in.replace = true
		if in.organisation == "" {
			in.organisation = r.Organisation
		}
		for _, asn := range r.Origins {
			if note, ok := in.state(statedOrigin{asn: asn, maxLength: r.MaxLength, by: r}); ok {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// state adds an origin, or replaces it where an object united with this one
// states another max-length.
func (in *routeIntent) state(o statedOrigin) (Note, bool) {
	i := slices.IndexFunc(in.origins, func(p statedOrigin) bool { return p.asn == o.asn })
	if i < 0 {
		in.origins = append(in.origins, o)
		return Note{}, false
	}
	before := in.origins[i]
	in.origins[i] = o
	if equalPointers(before.maxLength, o.maxLength) {
		return Note{}, false
	}
	return noteOn(before.by, fmt.Sprintf("%s of AS%d is superseded by %s at %s:%d",
		maxLengthText(before.maxLength), o.asn, maxLengthText(o.maxLength), o.by.File, o.by.Line)), true
}

// result is the origins that there are to be, given those that are there, in the
// order of their numbers; changed is false if nothing is to change.
func (in *routeIntent) result(present []RouteOrigin) (wanted []RouteOrigin, changed bool) {
	if in.replace {
		for _, o := range in.origins {
			wanted = append(wanted, RouteOrigin{ASN: o.asn, MaxLength: o.maxLength, Active: true})
		}
		slices.SortFunc(wanted, RouteOrigin.compare)
		return wanted, true
	}
	for _, o := range present {
		if !slices.Contains(in.removed, o.ASN) {
			wanted = append(wanted, o)
		}
	}
	return wanted, len(wanted) < len(present)
}

func maxLengthText(length *int) string {
	if length == nil {
		return "no max-length"
	}
	return fmt.Sprintf("max-length %d", *length)
}

// noteOn makes a note on an object.
func noteOn(object Object, text string) Note {
	h := object.Head()
	return Note{File: h.File, Line: h.Line, Class: h.Class, Key: h.Key, Text: text}
}

// intents are what the whole input wants, by prefix and AS number.
type intents struct {
	networks map[netip.Prefix]networkIntent
	routes   map[netip.Prefix]*routeIntent
	// autNums holds nil where prune wants a number gone.
	autNums map[uint32]*AutNum

	taken   []Object
	refused []*Refusal
	notes   []Note
}

// gather unites the objects of the input, without those that touch what is kept:
// these are refused whole.
func gather(objects []Object, kept *kept) *intents {
	in := &intents{
		networks: map[netip.Prefix]networkIntent{},
		routes:   map[netip.Prefix]*routeIntent{},
		autNums:  map[uint32]*AutNum{},
	}
	last := lastOfKey(objects)
	var networks []*Network
	for _, object := range objects {
		if by := last[keyOf(object)]; by != nil && by != object {
			in.notes = append(in.notes, noteOn(object, fmt.Sprintf("superseded by %s:%d", by.Head().File, by.Head().Line)))
			continue
		}
		if reason := kept.reason(object); reason != "" {
			h := object.Head()
			in.refused = append(in.refused, h.refuse(h.Attributes[0], reason))
			continue
		}
		in.taken = append(in.taken, object)
		switch o := object.(type) {
		case *Network:
			networks = append(networks, o)
		case *Route:
			route := in.routes[o.Prefix]
			if route == nil {
				route = &routeIntent{}
				in.routes[o.Prefix] = route
			}
			in.notes = append(in.notes, route.add(o)...)
		case *AutNum:
			in.autNums[o.Number] = o
		}
	}
	in.spread(networks)
	return in
}

// objectKey is the primary key of a network or aut-num object.
type objectKey struct {
	first, last netip.Addr
	asn         uint32
}

// keyOf is the primary key of an object; the zero key for routes, which do not
// supersede each other.
func keyOf(object Object) objectKey {
	switch o := object.(type) {
	case *Network:
		return objectKey{first: o.First, last: o.Last}
	case *AutNum:
		return objectKey{asn: o.Number}
	}
	return objectKey{}
}

// lastOfKey finds the last object of each primary key.
func lastOfKey(objects []Object) map[objectKey]Object {
	last := make(map[objectKey]Object, len(objects))
	for _, object := range objects {
		if key := keyOf(object); key != (objectKey{}) {
			last[key] = object
		}
	}
	return last
}

// spread gives each prefix the network object that holds it. Ranges that are not
// one CIDR may share a prefix with another object: what states a prefix goes
// before what removes it, then the object that is exactly that prefix goes before
// one that merely includes it, then the later one.
func (in *intents) spread(networks []*Network) {
	rank := func(n *Network) int {
		switch {
		case n.Delete:
			return 0
		case len(n.CIDRs) > 1:
			return 1
		}
		return 2
	}
	for _, n := range networks {
		for _, p := range n.CIDRs {
			if other := in.networks[p].object; other == nil || rank(n) >= rank(other) {
				in.networks[p] = networkIntent{object: n, remove: n.Delete}
			}
		}
	}
}

// kept is what a plan must leave as it is, with the reason: it was asked to
// delete it and cannot.
type kept struct {
	prefixes map[netip.Prefix]string
	asns     map[uint32]string
}

// reason is why the object cannot be taken, or empty.
func (k *kept) reason(object Object) string {
	switch o := object.(type) {
	case *Network:
		for _, p := range o.CIDRs {
			if reason := k.prefixes[p]; reason != "" {
				return reason
			}
		}
	case *Route:
		return k.prefixes[o.Prefix]
	case *AutNum:
		return k.asns[o.Number]
	}
	return ""
}
