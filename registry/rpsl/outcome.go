package rpsl

import (
	"net/netip"
	"slices"
)

// outcome is what one prefix that the input touches was and is to be. A nil now
// means that it is not to be there, a nil was that it is not there yet; likewise
// for the anycast allocation that stands for its routes.
type outcome struct {
	was, now           *Prefix
	wasRoutes, nowAny  *Allocation
	network            bool // the input speaks of its registration
	netDiff, routeDiff bool // what of it changes
}

// decide makes the outcomes of all prefixes that the input touches. Parents, and
// the holders of implied prefixes, depend on all of them and are set by place.
func (p *planner) decide(in *intents) map[netip.Prefix]*outcome {
	outcomes := make(map[netip.Prefix]*outcome, len(in.networks)+len(in.routes))
	for cidr, network := range in.networks {
		outcomes[cidr] = p.decidePrefix(cidr, &network, in.routes[cidr])
	}
	for cidr, route := range in.routes {
		if outcomes[cidr] == nil {
			outcomes[cidr] = p.decidePrefix(cidr, nil, route)
		}
	}
	return outcomes
}

func (p *planner) decidePrefix(cidr netip.Prefix, network *networkIntent, route *routeIntent) *outcome {
	was, allocation := p.prefixes[cidr], p.managed[cidr]
	out := &outcome{was: was, wasRoutes: allocation, nowAny: allocation, network: network != nil}
	now := Prefix{CIDR: cidr, Provenance: ProvenanceImplied, Kind: KindAssignment, Status: StatusActive,
		Reverse: Reverse{Mode: ReverseInherit}}
	if was != nil {
		now = *was
	}
	registered := was != nil && was.Provenance == ProvenanceRegistered
	hasRoute := allocation != nil || now.Routing.Announced
	touched := false
	if route != nil {
		if origins, changes := route.result(presentOrigins(&now, allocation)); changes {
			touched = true
			hasRoute = len(origins) > 0
			out.nowAny = setRoutes(&now, allocation, origins)
			p.setRouteHolder(&now, route, hasRoute)
		}
	}
	if network != nil {
		touched = touched || !network.remove || registered
		registered = !network.remove
	}
	switch {
	case !touched:
		out.now = was
	case !registered && !hasRoute:
		out.nowAny = nil // and no prefix
	case !registered:
		makeImplied(&now)
		out.now = &now
	default:
		if network != nil {
			p.register(&now, network.object)
		}
		out.now = &now
	}
	return out
}

// presentOrigins are the origins that a prefix has now, each tuple once.
func presentOrigins(row *Prefix, allocation *Allocation) []RouteOrigin {
	var origins []RouteOrigin
	if allocation != nil {
		origins = slices.Clone(allocation.Origins)
	}
	if row.Routing.Announced && row.Routing.Origin != nil {
		o := RouteOrigin{ASN: *row.Routing.Origin, MaxLength: row.Routing.MaxLength, Active: true}
		if !slices.ContainsFunc(origins, func(p RouteOrigin) bool { return p.compare(o) == 0 }) {
			origins = append(origins, o)
		}
	}
	return origins
}

// setRoutes puts origins where they belong: one into the routing settings, more
// into an anycast allocation, which it returns. One that an operator has made
// inactive stays in its allocation, since routing settings would announce it.
func setRoutes(row *Prefix, allocation *Allocation, origins []RouteOrigin) *Allocation {
	if len(origins) == 1 && origins[0].Active {
		row.Routing = Routing{Announced: true, Origin: &origins[0].ASN, MaxLength: origins[0].MaxLength}
		return nil
	}
	if row.Routing.Announced { // else what an operator left there stays
		row.Routing = Routing{}
	}
	if len(origins) == 0 {
		return nil
	}
	now := Allocation{Prefix: row.CIDR, Service: ServiceName(row.CIDR), Origins: origins}
	if allocation != nil {
		now.ID = allocation.ID
	}
	return &now
}

// setRouteHolder keeps whom the route names. An input that only removes origins
// names nobody.
func (p *planner) setRouteHolder(row *Prefix, route *routeIntent, hasRoute bool) {
	switch {
	case !hasRoute:
		row.RouteOrganisation = ""
	case route.replace:
		row.RouteOrganisation = p.handles.spell(route.organisation)
		row.Status = StatusActive
	}
}

// makeImplied makes a row one that is there for its route only. Its holder is
// set by place where the route names none.
func makeImplied(row *Prefix) {
	if row.Provenance == ProvenanceRegistered {
		row.Provenance = ProvenanceImplied
		row.Kind, row.Status, row.Name = KindAssignment, StatusActive, ""
		row.Reverse = Reverse{Mode: ReverseInherit}
		row.Range = Range{}
	}
	row.Organisation = row.RouteOrganisation
}

// register makes a row what a network object says.
func (p *planner) register(row *Prefix, object *Network) {
	row.Provenance = ProvenanceRegistered
	row.Status = StatusActive
	row.Organisation = p.handles.spell(object.Organisation)
	row.Name = object.Name
	row.Kind = object.Kind
	row.Range = object.partOf()
	row.Reverse = Reverse{Mode: p.reverseMode(object.NameServers), NameServers: object.NameServers, DS: object.DS}
}

// reverseMode is hosted where all name servers are HubN's own.
func (p *planner) reverseMode(servers []string) ReverseMode {
	if len(servers) == 0 {
		return ReverseInherit
	}
	for _, server := range servers {
		if !slices.ContainsFunc(p.options.OwnNameServers, func(own NameServerPattern) bool { return own.Match(server) }) {
			return ReverseDelegated
		}
	}
	return ReverseHosted
}
