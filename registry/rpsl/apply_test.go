package rpsl_test

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"hubn/registry/rpsl"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// apply carries out a plan on a state in memory, as the database would: it fails
// the test where a row is missing, doubled or without its parent.
func apply(t failer, state rpsl.State, plan rpsl.Plan) rpsl.State {
	t.Helper()
	next := rpsl.State{
		Organisations: applyOrganisations(t, state, plan),
		ASNs:          applyASNs(t, state, plan),
		Prefixes:      applyPrefixes(t, state, plan),
		Allocations:   applyAllocations(t, state, plan),
	}
	checkState(t, next)
	return next
}

func applyOrganisations(t failer, state rpsl.State, plan rpsl.Plan) []rpsl.Organisation {
	t.Helper()
	all := slices.Concat(state.Organisations, plan.InsertOrganisations)
	seen := map[string]bool{}
	for _, o := range all {
		key := strings.ToLower(o.Handle)
		if seen[key] || key == "" {
			t.Fatalf("organisation %q is inserted twice or empty", o.Handle)
		}
		seen[key] = true
	}
	return all
}

func applyASNs(t failer, state rpsl.State, plan rpsl.Plan) []rpsl.ASN {
	t.Helper()
	rows := map[uint32]rpsl.ASN{}
	for _, a := range state.ASNs {
		rows[a.Number] = a
	}
	for _, a := range plan.InsertASNs {
		if _, ok := rows[a.Number]; ok {
			t.Fatalf("AS%d is inserted twice", a.Number)
		}
		rows[a.Number] = a
	}
	for _, u := range plan.UpdateASNs {
		if _, ok := rows[u.Now.Number]; !ok {
			t.Fatalf("AS%d is updated and not there", u.Now.Number)
		}
		rows[u.Now.Number] = u.Now
	}
	for _, a := range plan.DeleteASNs {
		if _, ok := rows[a.Number]; !ok {
			t.Fatalf("AS%d is deleted and not there", a.Number)
		}
		delete(rows, a.Number)
	}
	return sortedValues(rows, func(a, b rpsl.ASN) int { return cmp.Compare(a.Number, b.Number) })
}

func applyPrefixes(t failer, state rpsl.State, plan rpsl.Plan) []rpsl.Prefix {
	t.Helper()
	rows := map[netip.Prefix]rpsl.Prefix{}
	var id int64
	for _, p := range state.Prefixes {
		rows[p.CIDR] = p
		id = max(id, p.ID)
	}
	for _, p := range plan.InsertPrefixes {
		if _, ok := rows[p.CIDR]; ok || p.ID != 0 {
			t.Fatalf("%s is inserted twice", p.CIDR)
		}
		id++
		p.ID = id
		rows[p.CIDR] = p
	}
	for _, u := range plan.UpdatePrefixes {
		if rows[u.Now.CIDR].ID != u.Now.ID || u.Changed == 0 {
			t.Fatalf("%s is updated to %+v, without a change or a row of that id", u.Now.CIDR, u.Now)
		}
		rows[u.Now.CIDR] = u.Now
	}
	for _, p := range plan.DeletePrefixes {
		if rows[p.CIDR].ID != p.ID || p.ID == 0 {
			t.Fatalf("%s is deleted and not there", p.CIDR)
		}
		delete(rows, p.CIDR)
	}
	return sortedValues(rows, func(a, b rpsl.Prefix) int { return a.CIDR.Compare(b.CIDR) })
}

func applyAllocations(t failer, state rpsl.State, plan rpsl.Plan) []rpsl.Allocation {
	t.Helper()
	rows := map[int64]rpsl.Allocation{}
	var id, originID int64
	for _, a := range state.Allocations {
		rows[a.ID] = a
		id = max(id, a.ID)
		for _, o := range a.Origins {
			originID = max(originID, o.ID)
		}
	}
	number := func(origins []rpsl.RouteOrigin) []rpsl.RouteOrigin {
		origins = slices.Clone(origins)
		for i := range origins {
			if origins[i].ID == 0 {
				originID++
				origins[i].ID = originID
			}
		}
		return origins
	}
	for _, a := range plan.InsertAllocations {
		id++
		a.ID, a.Origins = id, number(a.Origins)
		rows[id] = a
	}
	for _, u := range plan.UpdateAllocations {
		row, ok := rows[u.Now.ID]
		if !ok {
			t.Fatalf("anycast allocation %d of %s is updated and not there", u.Now.ID, u.Now.Prefix)
		}
		origins := map[int64]rpsl.RouteOrigin{}
		for _, o := range row.Origins {
			origins[o.ID] = o
		}
		for _, o := range u.DeleteOrigins {
			delete(origins, o.ID)
		}
		for _, o := range slices.Concat(u.UpdateOrigins, number(u.InsertOrigins)) {
			origins[o.ID] = o
		}
		row.Origins = sortedValues(origins, compareOrigins)
		if got, want := originTuples(row.Origins), originTuples(u.Now.Origins); !slices.Equal(got, want) {
			t.Fatalf("origins of %s: the changes make %v, the plan says %v", row.Prefix, got, want)
		}
		rows[u.Now.ID] = row
	}
	for _, a := range plan.DeleteAllocations {
		if _, ok := rows[a.ID]; !ok {
			t.Fatalf("anycast allocation %d of %s is deleted and not there", a.ID, a.Prefix)
		}
		delete(rows, a.ID)
	}
	return sortedValues(rows, func(a, b rpsl.Allocation) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), strings.Compare(a.Service, b.Service))
	})
}

// checkState fails where a state breaks what the database would not allow.
func checkState(t failer, state rpsl.State) {
	t.Helper()
	rows := map[netip.Prefix]rpsl.Prefix{}
	for _, p := range state.Prefixes {
		rows[p.CIDR] = p
	}
	smallest := func(q netip.Prefix, bits int) (found netip.Prefix) {
		for ; bits >= 0; bits-- {
			if p := netip.PrefixFrom(q.Addr(), bits).Masked(); rows[p].CIDR.IsValid() {
				return p
			}
		}
		return netip.Prefix{}
	}
	for _, p := range state.Prefixes {
		if want := smallest(p.CIDR, p.CIDR.Bits()-1); p.Parent != want {
			t.Fatalf("the parent of %s is %s, and should be %s", p.CIDR, p.Parent, want)
		}
		if p.Routing.Announced && p.Routing.Origin == nil {
			t.Fatalf("%s is announced without an origin", p.CIDR)
		}
		if (p.Reverse.Mode == rpsl.ReverseDelegated || p.Reverse.Mode == rpsl.ReverseHosted) != (len(p.Reverse.NameServers) > 0) {
			t.Fatalf("%s has reverse mode %s with name servers %v", p.CIDR, p.Reverse.Mode, p.Reverse.NameServers)
		}
	}
	for _, a := range state.Allocations {
		if !smallest(a.Prefix, a.Prefix.Bits()).IsValid() {
			t.Fatalf("the anycast allocation of %s lies in no prefix", a.Prefix)
		}
	}
}

func sortedValues[K comparable, V any](rows map[K]V, compare func(a, b V) int) []V {
	values := make([]V, 0, len(rows))
	for _, v := range rows {
		values = append(values, v)
	}
	slices.SortFunc(values, compare)
	return values
}

func compareOrigins(a, b rpsl.RouteOrigin) int {
	return cmp.Or(cmp.Compare(a.ASN, b.ASN), cmp.Compare(lengthOf(a.MaxLength), lengthOf(b.MaxLength)))
}

func lengthOf(length *int) int {
	if length == nil {
		return -1
	}
	return *length
}

// originTuple is what the world sees of an origin.
type originTuple struct {
	asn       uint32
	maxLength int // -1: not stated
	active    bool
}

func originTuples(origins []rpsl.RouteOrigin) []originTuple {
	var tuples []originTuple
	for _, o := range slices.SortedFunc(slices.Values(origins), compareOrigins) {
		tuples = append(tuples, originTuple{o.ASN, lengthOf(o.MaxLength), o.Active})
	}
	return tuples
}

// normalised is a state without what depends on the order of changes: ids, and
// organisations that nothing refers to any more.
func normalised(state rpsl.State) rpsl.State {
	out := rpsl.State{
		ASNs:        slices.Clone(state.ASNs),
		Prefixes:    slices.Clone(state.Prefixes),
		Allocations: slices.Clone(state.Allocations),
	}
	for i := range out.Prefixes {
		out.Prefixes[i].ID = 0
	}
	for i := range out.Allocations {
		a := &out.Allocations[i]
		a.ID, a.Origins = 0, slices.SortedFunc(slices.Values(a.Origins), compareOrigins)
		for j := range a.Origins {
			a.Origins[j].ID = 0
		}
	}
	return out
}
