package rpsl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// PlanImport compares the input with the state of the Registry and returns what
// is to change. It changes neither.
func PlanImport(state State, input Input, options Options) Plan {
	p := newPlanner(state, options)
	p.handles.meet(input.Objects)
	kept := &kept{prefixes: map[netip.Prefix]string{}, asns: map[uint32]string{}}
	for {
		// What cannot be deleted is found only when all is united; the objects
		// that asked for it are then refused, and the rest is united again. Each
		// round keeps at least one thing more.
		in := gather(input.Objects, kept)
		if options.Prune {
			p.prune(in, input, kept)
		}
		outcomes := p.decide(in)
		if !p.keep(outcomes, in, kept) {
			plan := p.plan(outcomes, in)
			plan.Refused = slices.Concat(input.Refused, plan.Refused)
			return plan
		}
	}
}

// planner holds the state in the forms that planning looks it up in.
type planner struct {
	options  Options
	handles  *handles
	sorted   []*Prefix // tree order
	prefixes map[netip.Prefix]*Prefix
	managed  map[netip.Prefix]*Allocation
	asns     map[uint32]*ASN
	// blocked is why a prefix cannot be deleted.
	blocked map[netip.Prefix]string
}

func newPlanner(state State, options Options) *planner {
	p := &planner{
		options:  options,
		handles:  newHandles(state.Organisations),
		sorted:   make([]*Prefix, 0, len(state.Prefixes)),
		prefixes: make(map[netip.Prefix]*Prefix, len(state.Prefixes)),
		managed:  map[netip.Prefix]*Allocation{},
		asns:     make(map[uint32]*ASN, len(state.ASNs)),
		blocked:  map[netip.Prefix]string{},
	}
	for i := range state.Prefixes {
		row := state.Prefixes[i] // a copy, which gets its parent
		p.sorted = append(p.sorted, &row)
		p.prefixes[row.CIDR] = &row
	}
	slices.SortFunc(p.sorted, func(a, b *Prefix) int { return a.CIDR.Compare(b.CIDR) })
	var around ancestors
	for _, row := range p.sorted {
		row.Parent = netip.Prefix{}
		if parent := around.enter(row); parent != nil {
			row.Parent = parent.CIDR
		}
	}
	for i := range state.ASNs {
		p.asns[state.ASNs[i].Number] = &state.ASNs[i]
	}
	p.block(state.Allocations)
	return p
}

// block finds what keeps prefixes from being deleted, and tells the allocations
// that imports manage from those made by hand.
func (p *planner) block(allocations []Allocation) {
	dependants := map[netip.Prefix][]string{}
	for _, row := range p.sorted {
		if len(row.Dependants) > 0 {
			dependants[row.CIDR] = row.Dependants
		}
	}
	for i := range allocations {
		a := &allocations[i]
		if a.Service == ServiceName(a.Prefix) {
			p.managed[a.Prefix] = a
		} else if around := p.smallestAround(a.Prefix); around != nil {
			text := fmt.Sprintf("the anycast allocation of %s for %s", a.Prefix, a.Service)
			dependants[around.CIDR] = append(slices.Clip(dependants[around.CIDR]), text)
		}
	}
	for cidr, texts := range dependants {
		p.blocked[cidr] = fmt.Sprintf("%s cannot be deleted: %s would be lost with it; delete that first", cidr, strings.Join(texts, ", "))
	}
}

// smallestAround is the smallest prefix of the state that covers q or equals it.
func (p *planner) smallestAround(q netip.Prefix) *Prefix {
	for bits := q.Bits(); bits >= 0; bits-- {
		if row := p.prefixes[netip.PrefixFrom(q.Addr(), bits).Masked()]; row != nil {
			return row
		}
	}
	return nil
}

// keep adds to kept what the outcomes delete and what cannot be deleted. It
// returns whether there was any.
func (p *planner) keep(outcomes map[netip.Prefix]*outcome, in *intents, kept *kept) bool {
	found := false
	for cidr, out := range outcomes {
		if reason := p.blocked[cidr]; reason != "" && out.was != nil && out.now == nil {
			kept.prefixes[cidr], found = reason, true
		}
	}
	for number, object := range in.autNums {
		was := p.asns[number]
		if (object == nil || object.Delete) && was != nil && len(was.Dependants) > 0 {
			kept.asns[number] = fmt.Sprintf("AS%d cannot be deleted: %s would be lost with it; delete that first",
				number, strings.Join(was.Dependants, ", "))
			found = true
		}
	}
	return found
}

// ancestors is the chain of prefixes around the present one, in a walk in tree order.
type ancestors []*Prefix

// enter moves on to a prefix and returns the smallest that covers it, or nil.
func (a *ancestors) enter(row *Prefix) *Prefix {
	chain := *a
	for len(chain) > 0 && !covers(chain[len(chain)-1].CIDR, row.CIDR) {
		chain = chain[:len(chain)-1]
	}
	var parent *Prefix
	if len(chain) > 0 {
		parent = chain[len(chain)-1]
	}
	*a = append(chain, row)
	return parent
}

// covers tells whether q lies in p and is not p.
func covers(p, q netip.Prefix) bool { return p.Bits() < q.Bits() && p.Contains(q.Addr()) }
