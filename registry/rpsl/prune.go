package rpsl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// prune adds to the intents that everything goes which the input does not name.
func (p *planner) prune(in *intents, input Input, kept *kept) {
	states := func(o Object) bool { return !o.Head().Delete }
	if !slices.ContainsFunc(input.Objects, states) {
		in.refused = append(in.refused, &Refusal{Reason: "the input states no object, so nothing is pruned: it would be everything"})
		return
	}
	s := newSpared(input, in, kept)
	for _, row := range p.sorted {
		p.pruneNetwork(row, in, s)
		p.pruneRoute(row, in, s)
	}
	for _, number := range slices.Sorted(maps.Keys(p.asns)) {
		if _, named := in.autNums[number]; !named && s.mayPruneASN(number) {
			in.autNums[number] = nil
		}
	}
	in.refused = append(in.refused, s.refusals()...)
}

func (p *planner) pruneNetwork(row *Prefix, in *intents, s *spared) {
	if row.Provenance != ProvenanceRegistered {
		return
	}
	if _, named := in.networks[row.CIDR]; !named && s.mayPrune(networkClass(row.CIDR), row.CIDR) {
		in.networks[row.CIDR] = networkIntent{remove: true}
	}
}

// pruneRoute also takes implied prefixes whose route is gone already.
func (p *planner) pruneRoute(row *Prefix, in *intents, s *spared) {
	if !row.Routing.Announced && p.managed[row.CIDR] == nil && row.Provenance != ProvenanceImplied {
		return
	}
	route := in.routes[row.CIDR]
	if route != nil && route.replace || !s.mayPrune(routeClass(row.CIDR), row.CIDR) {
		return
	}
	gone := &routeIntent{replace: true}
	if route != nil { // it only removes origins; all others go as well
		gone.objects = route.objects
	}
	in.routes[row.CIDR] = gone
}

// spared is what prune leaves alone: what refused objects speak of, and what
// cannot be deleted.
type spared struct {
	kept     *kept
	prefixes map[Class]map[netip.Prefix]bool
	asns     map[uint32]bool
	// unreadable are objects that do not say what they are, by their class; all
	// classes where not even that is known.
	unreadable map[Class]*Refusal
	held       map[Class]int
	// keptPrefixes and keptASNs are what no object of the input asks to delete.
	keptPrefixes map[netip.Prefix]bool
	keptASNs     map[uint32]bool
}

func newSpared(input Input, in *intents, kept *kept) *spared {
	s := &spared{
		kept:         kept,
		prefixes:     map[Class]map[netip.Prefix]bool{},
		asns:         map[uint32]bool{},
		unreadable:   map[Class]*Refusal{},
		held:         map[Class]int{},
		keptPrefixes: map[netip.Prefix]bool{},
		keptASNs:     map[uint32]bool{},
	}
	for _, refused := range [][]*Refusal{input.Refused, in.refused} {
		for _, r := range refused {
			s.spare(r)
		}
	}
	return s
}

// spare keeps what a refused object speaks of. An object in the wrong class for
// its address family speaks of the right one.
func (s *spared) spare(r *Refusal) {
	if r.names.empty() {
		classes := r.names.classes
		switch {
		case len(classes) > 0:
		case r.Class.Taken():
			classes = []Class{r.Class}
		default:
			classes = []Class{ClassInetnum, ClassInet6num, ClassRoute, ClassRoute6, ClassAutNum}
		}
		for _, class := range classes {
			if s.unreadable[class] == nil {
				s.unreadable[class] = r
			}
		}
	}
	for _, cidr := range r.names.prefixes {
		class := networkClass(cidr)
		if r.Class == ClassRoute || r.Class == ClassRoute6 {
			class = routeClass(cidr)
		}
		if s.prefixes[class] == nil {
			s.prefixes[class] = map[netip.Prefix]bool{}
		}
		s.prefixes[class][cidr] = true
	}
	if r.names.hasASN {
		s.asns[r.names.asn] = true
	}
}

func (s *spared) mayPrune(class Class, cidr netip.Prefix) bool {
	switch {
	case s.prefixes[class][cidr]:
		return false
	case s.kept.prefixes[cidr] != "":
		s.keptPrefixes[cidr] = true
		return false
	case s.unreadable[class] != nil:
		s.held[class]++
		return false
	}
	return true
}

func (s *spared) mayPruneASN(number uint32) bool {
	switch {
	case s.asns[number]:
		return false
	case s.kept.asns[number] != "":
		s.keptASNs[number] = true
		return false
	case s.unreadable[ClassAutNum] != nil:
		s.held[ClassAutNum]++
		return false
	}
	return true
}

// refusals name what prune left although the input does not name it.
func (s *spared) refusals() []*Refusal {
	var refused []*Refusal
	for _, cidr := range slices.SortedFunc(maps.Keys(s.keptPrefixes), netip.Prefix.Compare) {
		refused = append(refused, &Refusal{Class: networkClass(cidr), Key: cidr.String(),
			Reason: "it is not in the input, but " + s.kept.prefixes[cidr]})
	}
	for _, number := range slices.Sorted(maps.Keys(s.keptASNs)) {
		refused = append(refused, &Refusal{Class: ClassAutNum, Key: fmt.Sprintf("AS%d", number),
			Reason: "it is not in the input, but " + s.kept.asns[number]})
	}
	for _, class := range slices.Sorted(maps.Keys(s.held)) {
		r := s.unreadable[class]
		refused = append(refused, &Refusal{Class: class, Reason: fmt.Sprintf(
			"%d that are not in the input were kept: the object at %s:%d could not be read and may be one of them; correct it",
			s.held[class], r.File, r.Line)})
	}
	return refused
}
