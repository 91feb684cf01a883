package mirror

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"hubn/outbox/event"
	"hubn/registry/client"
)

// need is one source's need of one tuple.
type need struct {
	source client.Resource
	tuple  client.Tuple
}

// stated answers the route origins that a source states: those that it wants to
// be active. A source that is gone states none.
func stated(c event.Change) ([]client.Tuple, error) {
	if c.Gone() {
		return nil, nil
	}
	switch c.Resource.Kind {
	case client.KindPrefix:
		var source client.PrefixSource
		if err := c.Decode(&source); err != nil {
			return nil, err
		}
		r := source.Routing
		if source.Status != "active" || !r.Announced || r.Origin == nil {
			return nil, nil
		}
		return []client.Tuple{tuple(*r.Origin, source.Prefix, r.MaxLength)}, nil
	case client.KindAnycast:
		var source client.AnycastSource
		if err := c.Decode(&source); err != nil {
			return nil, err
		}
		var out []client.Tuple
		for _, o := range source.Origins {
			if t := tuple(o.ASN, source.Prefix, o.MaxLength); o.Active && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s: the mirror takes no sources of this kind", c.Resource)
}

// tuple is a route origin with its maximum length: the prefix's own, where none
// is stated.
func tuple(asn client.ASN, prefix netip.Prefix, maxLength *int) client.Tuple {
	length := prefix.Bits()
	if maxLength != nil {
		length = *maxLength
	}
	return client.Tuple{ASN: asn, Prefix: prefix, MaxLength: length}
}

// difference is what has to change for sources to need what they state.
type difference struct {
	add, drop []need
}

// compare compares what is stored of the sources with what they state now.
func compare(stored []need, changes []event.Change) (difference, error) {
	var d difference
	old := map[need]bool{}
	for _, n := range stored {
		old[n] = true
	}
	for _, c := range changes {
		tuples, err := stated(c)
		if err != nil {
			return d, err
		}
		for _, t := range tuples {
			n := need{c.Resource, t}
			if !old[n] {
				d.add = append(d.add, n)
			}
			delete(old, n)
		}
	}
	for n := range old {
		d.drop = append(d.drop, n)
	}
	slices.SortFunc(d.drop, compareNeeds)
	return d, nil
}

func compareNeeds(a, b need) int {
	return cmp.Or(
		cmp.Compare(a.source.Kind, b.source.Kind), cmp.Compare(a.source.Key, b.source.Key), compareTuples(a.tuple, b.tuple),
	)
}

// compareTuples is the order in which tuples are locked, the same for everybody.
func compareTuples(a, b client.Tuple) int {
	return cmp.Or(
		a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.ASN, b.ASN), cmp.Compare(a.MaxLength, b.MaxLength),
	)
}

// tuplesOf are the tuples of needs, in their order, each once.
func tuplesOf(needs ...[]need) []client.Tuple {
	var out []client.Tuple
	for _, list := range needs {
		for _, n := range list {
			out = append(out, n.tuple)
		}
	}
	slices.SortFunc(out, compareTuples)
	return slices.Compact(out)
}
