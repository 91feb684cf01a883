package rpsl

import (
	"maps"
	"net/netip"
	"slices"
)

// plan makes rows of the outcomes.
func (p *planner) plan(outcomes map[netip.Prefix]*outcome, in *intents) Plan {
	plan := Plan{Refused: in.refused, Notes: in.notes}
	p.place(outcomes, &plan)
	for _, cidr := range slices.SortedFunc(maps.Keys(outcomes), netip.Prefix.Compare) {
		planAllocation(outcomes[cidr], &plan)
	}
	asnDiff := p.planASNs(in, &plan)
	plan.InsertOrganisations = p.handles.missing(&plan)
	for _, object := range in.taken {
		if !changes(object, outcomes, asnDiff) {
			plan.Unchanged++
		}
	}
	return plan
}

// changes tells whether what the object speaks of changes.
func changes(object Object, outcomes map[netip.Prefix]*outcome, asnDiff map[uint32]bool) bool {
	switch o := object.(type) {
	case *Network:
		return slices.ContainsFunc(o.CIDRs, func(cidr netip.Prefix) bool { return outcomes[cidr].netDiff })
	case *Route:
		return outcomes[o.Prefix].routeDiff
	case *AutNum:
		return asnDiff[o.Number]
	}
	return false
}

// place walks all prefixes that are to be there in tree order, gives each its
// parent, and implied ones whose route names nobody the holder of the space
// around them; and it plans the rows that differ from the present ones.
func (p *planner) place(outcomes map[netip.Prefix]*outcome, plan *Plan) {
	var around ancestors
	for _, cidr := range p.union(outcomes) {
		was, now, out := p.prefixes[cidr], p.prefixes[cidr], outcomes[cidr]
		if out != nil {
			now = out.now
		}
		if now == nil {
			plan.DeletePrefixes = append(plan.DeletePrefixes, *was)
			out.netDiff, out.routeDiff = true, true
			continue
		}
		row := *now
		parent := around.enter(&row)
		row.Parent = netip.Prefix{}
		if parent != nil {
			row.Parent = parent.CIDR
		}
		if p.follows(was, &row, parent, now != was) {
			row.Organisation = ""
			if parent != nil {
				row.Organisation = parent.Organisation
			}
		}
		planPrefix(was, row, out, plan)
	}
	slices.Reverse(plan.DeletePrefixes)
}

// union is the prefixes that are there, or are to be, in tree order.
func (p *planner) union(outcomes map[netip.Prefix]*outcome) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(p.sorted)+len(outcomes))
	for _, row := range p.sorted {
		all = append(all, row.CIDR)
	}
	for cidr, out := range outcomes {
		if out.was == nil && out.now != nil {
			all = append(all, cidr)
		}
	}
	if len(all) > len(p.sorted) {
		slices.SortFunc(all, netip.Prefix.Compare)
	}
	return all
}

// follows tells whether a prefix takes the holder around it: it is implied, its
// route names nobody, and the input touches it or what is around it.
func (p *planner) follows(was, row, parent *Prefix, touched bool) bool {
	if row.Provenance != ProvenanceImplied || row.RouteOrganisation != "" {
		return false
	}
	if touched || was.Parent != row.Parent {
		return true
	}
	return parent != nil && !sameHandle(p.prefixes[parent.CIDR].Organisation, parent.Organisation)
}

// planPrefix plans one row that is to be there.
func planPrefix(was *Prefix, now Prefix, out *outcome, plan *Plan) {
	var diff Fields
	if was == nil {
		plan.InsertPrefixes = append(plan.InsertPrefixes, now)
		out.netDiff, out.routeDiff = true, true
		return
	}
	if diff = changed(was, &now); diff == 0 {
		return
	}
	plan.UpdatePrefixes = append(plan.UpdatePrefixes, PrefixUpdate{Was: *was, Now: now, Changed: diff})
	if out == nil {
		return
	}
	const ofRoute = FieldRouting | FieldRouteOrganisation
	const ofNetwork = FieldOrganisation | FieldName | FieldKind | FieldStatus | FieldProvenance | FieldReverse | FieldRange
	out.netDiff = diff.Has(ofNetwork)
	out.routeDiff = diff.Has(ofRoute) || !out.network && diff.Has(ofNetwork)
}

// planAllocation plans the anycast allocation of one prefix.
func planAllocation(out *outcome, plan *Plan) {
	was, now := out.wasRoutes, out.nowAny
	switch {
	case was == now:
		return
	case was == nil:
		plan.InsertAllocations = append(plan.InsertAllocations, *now)
	case now == nil:
		plan.DeleteAllocations = append(plan.DeleteAllocations, *was)
	default:
		update, differs := diffOrigins(*was, *now)
		if !differs {
			return
		}
		plan.UpdateAllocations = append(plan.UpdateAllocations, update)
	}
	out.routeDiff = true
}

// diffOrigins turns the origins of one allocation into those of another. An
// origin keeps its row where the number stays.
func diffOrigins(was, now Allocation) (AllocationUpdate, bool) {
	update := AllocationUpdate{Was: was, Now: now}
	update.Now.Origins = slices.Clone(now.Origins)
	left := slices.Clone(was.Origins)
	take := func(same func(RouteOrigin) bool) (RouteOrigin, bool) {
		i := slices.IndexFunc(left, same)
		if i < 0 {
			return RouteOrigin{}, false
		}
		found := left[i]
		left = slices.Delete(left, i, i+1)
		return found, true
	}
	// Equal tuples first, so that they keep their rows.
	matched := make([]bool, len(now.Origins))
	for i := range update.Now.Origins {
		o := &update.Now.Origins[i]
		if found, ok := take(func(l RouteOrigin) bool { return l.compare(*o) == 0 }); ok {
			matched[i], o.ID = true, found.ID
			if found.Active != o.Active {
				update.UpdateOrigins = append(update.UpdateOrigins, *o)
			}
		}
	}
	for i := range update.Now.Origins {
		o := &update.Now.Origins[i]
		if matched[i] {
			continue
		}
		if found, ok := take(func(l RouteOrigin) bool { return l.ASN == o.ASN }); ok {
			o.ID = found.ID
			update.UpdateOrigins = append(update.UpdateOrigins, *o)
		} else {
			update.InsertOrigins = append(update.InsertOrigins, *o)
		}
	}
	update.DeleteOrigins = left
	return update, len(update.InsertOrigins)+len(update.UpdateOrigins)+len(update.DeleteOrigins) > 0
}

// planASNs plans the AS numbers, and returns those that change.
func (p *planner) planASNs(in *intents, plan *Plan) map[uint32]bool {
	diff := map[uint32]bool{}
	for _, number := range slices.Sorted(maps.Keys(in.autNums)) {
		object, was := in.autNums[number], p.asns[number]
		if object == nil || object.Delete {
			if was != nil {
				plan.DeleteASNs = append(plan.DeleteASNs, *was)
				diff[number] = true
			}
			continue
		}
		now := ASN{Number: number, Organisation: p.handles.spell(object.Organisation), Name: object.Name}
		switch {
		case was == nil:
			plan.InsertASNs = append(plan.InsertASNs, now)
		case sameHandle(was.Organisation, now.Organisation) && was.Name == now.Name:
			continue
		default:
			now.Dependants = was.Dependants
			plan.UpdateASNs = append(plan.UpdateASNs, ASNUpdate{Was: *was, Now: now})
		}
		diff[number] = true
	}
	return diff
}
