package rpsl_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hubn/registry/rpsl"
)

// registry is a registry in memory that a test imports into.
type registry struct {
	t       *testing.T
	state   rpsl.State
	options rpsl.Options
	last    rpsl.Plan
}

func newRegistry(t *testing.T) *registry {
	return &registry{t: t, options: rpsl.Options{OwnNameServers: ownNameServers(t, "*.own.example")}}
}

// plan plans an import of a text.
func (r *registry) plan(text string) rpsl.Plan {
	r.t.Helper()
	raws, _ := read(r.t, text)
	r.last = rpsl.PlanImport(r.state, rpsl.ParseAll(raws), r.options)
	return r.last
}

// imports carries out a plan of which nothing is refused, and checks that the
// same import then changes nothing.
func (r *registry) imports(text string) {
	r.t.Helper()
	if plan := r.plan(text); len(plan.Refused) > 0 {
		r.t.Fatalf("refused: %v", plan.Refused)
	}
	r.applies(text)
}

func (r *registry) applies(text string) {
	r.t.Helper()
	first := r.last
	r.state = apply(r.t, r.state, first)
	if again := r.plan(text); !again.Empty() {
		r.t.Fatalf("a second import changes something: %+v", again)
	}
	r.last = first
}

// has compares the registry with its description, a line for each resource.
func (r *registry) has(lines ...string) {
	r.t.Helper()
	if diff := cmp.Diff(lines, describe(r.state)); diff != "" {
		r.t.Errorf("registry (want -, got +):\n%s", diff)
	}
}

// prefix is the row of a prefix, to be changed as if by hand.
func (r *registry) prefix(cidr string) *rpsl.Prefix {
	r.t.Helper()
	i := slices.IndexFunc(r.state.Prefixes, func(p rpsl.Prefix) bool { return p.CIDR == netip.MustParsePrefix(cidr) })
	if i < 0 {
		r.t.Fatalf("%s is not there", cidr)
	}
	return &r.state.Prefixes[i]
}

func (r *registry) refuses(text string, reasons ...string) {
	r.t.Helper()
	plan := r.plan(text)
	var got []string
	for _, refusal := range plan.Refused {
		got = append(got, refusal.Error())
	}
	if diff := cmp.Diff(reasons, got); diff != "" {
		r.t.Errorf("refused (want -, got +):\n%s", diff)
	}
	r.applies(text)
}

func describe(state rpsl.State) (lines []string) {
	for _, a := range state.ASNs {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("AS%d %s", a.Number, a.Organisation)))
	}
	for _, p := range state.Prefixes {
		words := []string{p.CIDR.String()}
		if p.Parent.IsValid() {
			words = append(words, "in", p.Parent.String())
		}
		if p.Organisation != "" {
			words = append(words, "of", p.Organisation)
		}
		if p.Provenance == rpsl.ProvenanceImplied {
			words = append(words, "implied")
		}
		if p.Kind != rpsl.KindAssignment {
			words = append(words, string(p.Kind))
		}
		if p.Status != rpsl.StatusActive {
			words = append(words, string(p.Status))
		}
		if p.Routing.Announced {
			words = append(words, "from", tuple(*p.Routing.Origin, p.Routing.MaxLength))
		}
		if p.Reverse.Mode != rpsl.ReverseInherit {
			words = append(words, string(p.Reverse.Mode), strings.Join(p.Reverse.NameServers, ","))
		}
		if n := len(p.Reverse.DS); n > 0 {
			words = append(words, fmt.Sprint(n, " DS"))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	for _, a := range state.Allocations {
		words := []string{"anycast", a.Prefix.String()}
		if a.Service != rpsl.ServiceName(a.Prefix) {
			words = append(words, a.Service)
		}
		for _, o := range a.Origins {
			text := tuple(o.ASN, o.MaxLength)
			if !o.Active {
				text += " (inactive)"
			}
			words = append(words, text)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

func tuple(asn uint32, maxLength *int) string {
	if maxLength == nil {
		return fmt.Sprintf("AS%d", asn)
	}
	return fmt.Sprintf("AS%d-%d", asn, *maxLength)
}

const (
	network24 = "inetnum: 192.0.2.0 - 192.0.2.255\nmnt-by: A-MNT\nnserver: ns1.example.net\n\n"
	around22  = "inetnum: 192.0.0.0/22\nmnt-by: LIR-MNT\nstatus: ALLOCATED PA\n\n"
	route24   = "route: 192.0.2.0/24\norigin: AS64496\nmax-length: 26\nmnt-by: R-MNT\n\n"
	anycast24 = "route: 192.0.2.0/24\norigin: AS64496\norigin: AS64497\nmnt-by: R-MNT\n\n"
)

func TestNetworksBecomePrefixes(t *testing.T) {
	r := newRegistry(t)
	r.imports(around22 + network24 +
		"inetnum: 192.0.3.0/24\nnserver: a.own.example\nnserver: b.own.example\nds-rdata: 1 8 1 " + strings.Repeat("00", 20) + "\n\n" +
		"inetnum: 192.0.1.0/24\nnserver: a.own.example\nnserver: b.example\n\n" +
		"inetnum: 192.0.2.128/25\nmnt-by: a-mnt\n\n" +
		"aut-num: AS64496\nmnt-by: A-MNT\n\naut-num: AS64497\n")
	r.has("AS64496 A-MNT", "AS64497",
		"192.0.0.0/22 of LIR-MNT allocation",
		"192.0.1.0/24 in 192.0.0.0/22 delegated a.own.example,b.example",
		"192.0.2.0/24 in 192.0.0.0/22 of A-MNT delegated ns1.example.net",
		"192.0.2.128/25 in 192.0.2.0/24 of A-MNT",
		"192.0.3.0/24 in 192.0.0.0/22 hosted a.own.example,b.own.example 1 DS")
	if want := []rpsl.Organisation{{Handle: "A-MNT"}, {Handle: "LIR-MNT"}}; !slices.Equal(r.last.InsertOrganisations, want) {
		t.Errorf("organisations %v, want %v", r.last.InsertOrganisations, want)
	}
}

func TestAnObjectReplacesItsEarlierState(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + route24 + "aut-num: AS64496\nmnt-by: A-MNT\n")
	r.imports("inetnum: 192.0.2.0/24\nmnt-by: B-MNT\nstatus: ALLOCATED\n\nroute: 192.0.2.0/24\norigin: AS64499\n\naut-num: AS64496\n")
	r.has("AS64496", "192.0.2.0/24 of B-MNT allocation from AS64499")

	r.prefix("192.0.2.0/24").Status = rpsl.StatusRetired
	r.prefix("192.0.2.0/24").Reverse.Mode = rpsl.ReverseOff
	r.imports("inetnum: 192.0.2.0/24\nmnt-by: B-MNT\nstatus: ALLOCATED\n")
	r.has("AS64496", "192.0.2.0/24 of B-MNT allocation from AS64499")
}

func TestOrderOfNameServersIsNoChange(t *testing.T) {
	r := newRegistry(t)
	r.imports("inetnum: 192.0.2.0/24\nnserver: a.example\nnserver: b.example\n")
	slices.Reverse(r.prefix("192.0.2.0/24").Reverse.NameServers)
	if plan := r.plan("inetnum: 192.0.2.0/24\nnserver: b.example\nnserver: a.example\n"); !plan.Empty() || plan.Unchanged != 1 {
		t.Errorf("plan %+v, want it empty", plan)
	}
}

func TestRouteOfOneOriginSetsTheRouting(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + route24)
	r.has("192.0.2.0/24 of A-MNT from AS64496-26 delegated ns1.example.net")
	r.imports("route: 192.0.2.0/24\norigin: AS0\n")
	r.has("192.0.2.0/24 of A-MNT from AS0 delegated ns1.example.net")
	r.imports("route: 192.0.2.0/24\ndelete: yes\n")
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net")
}

func TestRouteWithoutNetworkImpliesAPrefix(t *testing.T) {
	r := newRegistry(t)
	r.imports(around22 + route24 + "route: 192.0.3.0/24\norigin: AS64497\n\nroute: 192.0.3.0/25\norigin: AS64498\n\nroute: 198.51.100.0/24\norigin: AS1\n")
	r.has("192.0.0.0/22 of LIR-MNT allocation",
		"192.0.2.0/24 in 192.0.0.0/22 of R-MNT implied from AS64496-26",
		"192.0.3.0/24 in 192.0.0.0/22 of LIR-MNT implied from AS64497",
		"192.0.3.0/25 in 192.0.3.0/24 of LIR-MNT implied from AS64498",
		"198.51.100.0/24 implied from AS1")

	// What belongs to the holder around it follows that holder.
	r.imports("inetnum: 192.0.0.0/22\nmnt-by: NEW-MNT\n")
	r.has("192.0.0.0/22 of NEW-MNT",
		"192.0.2.0/24 in 192.0.0.0/22 of R-MNT implied from AS64496-26",
		"192.0.3.0/24 in 192.0.0.0/22 of NEW-MNT implied from AS64497",
		"192.0.3.0/25 in 192.0.3.0/24 of NEW-MNT implied from AS64498",
		"198.51.100.0/24 implied from AS1")

	// An implied prefix goes with its route, and is registered by its network.
	r.imports("route: 192.0.3.0/24\ndelete: 1\n\nroute: 198.51.100.0/24\norigin: AS1\ndelete: 1\n\ninetnum: 192.0.2.0/24\nmnt-by: A-MNT\n")
	r.has("192.0.0.0/22 of NEW-MNT",
		"192.0.2.0/24 in 192.0.0.0/22 of A-MNT from AS64496-26",
		"192.0.3.0/25 in 192.0.0.0/22 of NEW-MNT implied from AS64498")
}

func TestAnImpliedPrefixThatWasGivenAwayIsLeftAlone(t *testing.T) {
	r := newRegistry(t)
	r.imports(around22 + "route: 192.0.3.0/24\norigin: AS64497\n")
	r.prefix("192.0.3.0/24").Organisation = "OTHER"
	r.state.Organisations = append(r.state.Organisations, rpsl.Organisation{Handle: "OTHER"})
	r.imports("inetnum: 192.0.0.0/22\nmnt-by: LIR-MNT\n\ninetnum: 10.0.0.0/8\n")
	r.has("10.0.0.0/8", "192.0.0.0/22 of LIR-MNT", "192.0.3.0/24 in 192.0.0.0/22 of OTHER implied from AS64497")
}

func TestPrefixWhoseNetworkGoesWhileItsRouteStaysIsImplied(t *testing.T) {
	for _, route := range []string{route24, anycast24} {
		r := newRegistry(t)
		r.imports(around22 + network24 + route)
		r.prefix("192.0.2.0/24").Dependants = []string{"1 PTR record"} // which stays, as the prefix does
		r.imports("inetnum: 192.0.2.0/24\ndelete: gone\n")
		want := rpsl.Reverse{Mode: rpsl.ReverseInherit}
		got := r.prefix("192.0.2.0/24")
		if got.Provenance != rpsl.ProvenanceImplied || got.Organisation != "R-MNT" || !cmp.Equal(got.Reverse, want) || got.Name != "" {
			t.Errorf("prefix %+v, want an implied one of R-MNT without reverse DNS of its own", got)
		}
		got.Dependants = nil
		r.imports("inetnum: 192.0.2.0/24\ndelete: there is no network any more\n")
		r.imports("route: 192.0.2.0/24\ndelete: gone\n")
		r.has("192.0.0.0/22 of LIR-MNT allocation")
	}
}

func TestRouteOfSeveralOriginsIsAnycast(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + route24)
	r.imports(anycast24)
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net", "anycast 192.0.2.0/24 AS64496 AS64497")

	// Origins keep their rows where the number stays.
	r.imports("route: 192.0.2.0/24\norigin: AS64497\norigin: AS64498\nmax-length: 28\n")
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net", "anycast 192.0.2.0/24 AS64497-28 AS64498-28")
	u := r.last.UpdateAllocations[0]
	if len(u.InsertOrigins) != 1 || len(u.UpdateOrigins) != 1 || len(u.DeleteOrigins) != 1 || len(r.last.UpdatePrefixes) != 1 {
		t.Errorf("update %+v, want one origin inserted, updated and deleted", u)
	}

	r.imports(route24)
	r.has("192.0.2.0/24 of A-MNT from AS64496-26 delegated ns1.example.net")
	if len(r.last.DeleteAllocations) != 1 {
		t.Errorf("deleted allocations %v, want one", r.last.DeleteAllocations)
	}
}

func TestAnycastRouteImpliesItsPrefix(t *testing.T) {
	r := newRegistry(t)
	r.imports(anycast24)
	r.has("192.0.2.0/24 of R-MNT implied", "anycast 192.0.2.0/24 AS64496 AS64497")
	r.imports("route: 192.0.2.0/24\norigin: AS64496\ndelete: 1\n")
	r.has("192.0.2.0/24 of R-MNT implied from AS64497")
	r.imports(anycast24)
	r.imports("route: 192.0.2.0/24\ndelete: all\n")
	r.has()
}

func TestRouteObjectsOfOnePrefixAreUnited(t *testing.T) {
	r := newRegistry(t)
	r.imports("route: 192.0.2.0/24\norigin: AS1\nmax-length: 25\n\nroute: 192.0.2.0/24\norigin: AS2\nmnt-by: B-MNT\n\nroute: 192.0.2.0/24\norigin: AS1\nmax-length: 26\n")
	r.has("192.0.2.0/24 of B-MNT implied", "anycast 192.0.2.0/24 AS1-26 AS2")
	if len(r.last.Notes) != 1 || r.last.Notes[0].String() != "file:1: route 192.0.2.0/24: max-length 25 of AS1 is superseded by max-length 26 at file:9" {
		t.Errorf("notes %v", r.last.Notes)
	}
}

func TestDeletionsAndStatementsOfOneRouteApplyInOrder(t *testing.T) {
	const gone = "route: 192.0.2.0/24\ndelete: all\n\n"
	const one = "route: 192.0.2.0/24\norigin: AS64496\ndelete: one\n\n"
	const other = "route: 192.0.2.0/24\norigin: AS64499\n\n"
	tests := []struct{ name, text, want string }{
		{"one of two goes", one, "192.0.2.0/24 of R-MNT implied from AS64497"},
		{"all go, another comes", gone + other, "192.0.2.0/24 implied from AS64499"},
		{"another comes, then all go", other + gone, ""},
		{"one goes, then another replaces the rest", one + other, "192.0.2.0/24 implied from AS64499"},
		{"two come, then one goes", anycast24 + one, "192.0.2.0/24 of R-MNT implied from AS64497"},
		{"what is not there goes", strings.ReplaceAll(one, "AS64496", "AS1"), "192.0.2.0/24 of R-MNT implied; anycast 192.0.2.0/24 AS64496 AS64497"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRegistry(t)
			r.imports(anycast24)
			r.imports(test.text)
			if got := strings.Join(describe(r.state), "; "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLastObjectOfAKeyHolds(t *testing.T) {
	r := newRegistry(t)
	r.imports("inetnum: 192.0.2.0/24\nmnt-by: A-MNT\n\naut-num: AS1\n\ninetnum: 192.0.2.0 - 192.0.2.255\nmnt-by: B-MNT\n\naut-num: AS1\ndelete: x\n\naut-num: AS1\nmnt-by: C-MNT\n")
	r.has("AS1 C-MNT", "192.0.2.0/24 of B-MNT")
	var notes []string
	for _, n := range r.last.Notes {
		notes = append(notes, n.String())
	}
	want := []string{
		"file:1: inetnum 192.0.2.0/24: superseded by file:6",
		"file:4: aut-num AS1: superseded by file:12",
		"file:9: aut-num AS1: superseded by file:12",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notes (want -, got +):\n%s", diff)
	}
}

func TestRangeThatIsNotOneCIDRIsSeveralPrefixes(t *testing.T) {
	const span = "inetnum: 192.0.2.0 - 192.0.2.191\nmnt-by: A-MNT\n\n"
	r := newRegistry(t)
	r.imports(span)
	r.has("192.0.2.0/25 of A-MNT", "192.0.2.128/26 of A-MNT")
	r.imports("inetnum: 192.0.2.0 - 192.0.2.191\ndelete: x\n")
	r.has()

	// An object that is exactly one of its prefixes holds it, in any order, and
	// a range that goes does not take what is stated.
	const part = "inetnum: 192.0.2.128/26\nmnt-by: B-MNT\n\n"
	for _, text := range []string{span + part, part + span} {
		r := newRegistry(t)
		r.imports(text)
		r.has("192.0.2.0/25 of A-MNT", "192.0.2.128/26 of B-MNT")
		for _, both := range []string{
			part + "inetnum: 192.0.2.0 - 192.0.2.191\ndelete: x\n",
			"inetnum: 192.0.2.0 - 192.0.2.191\ndelete: x\n\n" + part,
		} {
			s := *r
			s.imports(both)
			s.has("192.0.2.128/26 of B-MNT")
		}
	}
}

func TestOfTwoRangesThatShareAPrefixTheLaterHolds(t *testing.T) {
	const low = "inetnum: 192.0.2.0 - 192.0.2.191\nmnt-by: A-MNT\n\n"
	const high = "inetnum: 192.0.2.128 - 192.0.2.223\nmnt-by: B-MNT\n\n"
	r := newRegistry(t)
	r.imports(low + high)
	r.has("192.0.2.0/25 of A-MNT", "192.0.2.128/26 of B-MNT", "192.0.2.192/27 of B-MNT")
	r.imports(high + low)
	r.has("192.0.2.0/25 of A-MNT", "192.0.2.128/26 of A-MNT", "192.0.2.192/27 of B-MNT")
}

func TestARouteMakesItsPrefixActive(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24)
	r.prefix("192.0.2.0/24").Status = rpsl.StatusPlanned
	r.imports(route24)
	r.has("192.0.2.0/24 of A-MNT from AS64496-26 delegated ns1.example.net")
}

func TestPrefixesBetweenMoveTheChildren(t *testing.T) {
	r := newRegistry(t)
	r.imports("inetnum: 10.0.0.0/8\n\ninetnum: 10.1.1.0/24\n\ninetnum: 10.1.2.0/24\n\ninetnum: 10.2.0.0/24\n")
	r.imports("inetnum: 10.1.0.0/16\n")
	r.has("10.0.0.0/8", "10.1.0.0/16 in 10.0.0.0/8", "10.1.1.0/24 in 10.1.0.0/16", "10.1.2.0/24 in 10.1.0.0/16", "10.2.0.0/24 in 10.0.0.0/8")
	for _, u := range r.last.UpdatePrefixes {
		if u.Changed != rpsl.FieldParent || !slices.Equal(u.Changed.Names(), []string{"parent"}) {
			t.Errorf("%s changes %v, want the parent alone", u.Now.CIDR, u.Changed.Names())
		}
	}
	if n := len(r.last.UpdatePrefixes); n != 2 {
		t.Errorf("%d prefixes are updated, want 2", n)
	}
	r.imports("inetnum: 10.1.0.0/16\ndelete: x\n\ninetnum: 10.0.0.0/8\ndelete: x\n\ninetnum: 10.1.2.128/25\n")
	r.has("10.1.1.0/24", "10.1.2.0/24", "10.1.2.128/25 in 10.1.2.0/24", "10.2.0.0/24")
	if got := r.last.DeletePrefixes; len(got) != 2 || got[0].CIDR.Bits() != 16 {
		t.Errorf("deleted %v, want children first", got)
	}
}

func TestWhatHasDependantsIsNotDeleted(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + route24 + "aut-num: AS64496\n\naut-num: AS64497\n\ninetnum: 198.51.100.0/24\n")
	r.prefix("192.0.2.0/24").Dependants = []string{"3 PTR records"}
	r.state.ASNs[0].Dependants = []string{"1 router certificate"}
	r.state.Allocations = append(r.state.Allocations, rpsl.Allocation{ID: 9, Prefix: netip.MustParsePrefix("198.51.100.128/25"), Service: "dns"})
	before := describe(r.state)
	const ptr = "192.0.2.0/24 cannot be deleted: 3 PTR records would be lost with it; delete that first"
	const certificate = "AS64496 cannot be deleted: 1 router certificate would be lost with it; delete that first"
	const anycast = "198.51.100.0/24 cannot be deleted: the anycast allocation of 198.51.100.128/25 for dns would be lost with it; delete that first"
	r.refuses("inetnum: 192.0.2.0/24\ndelete: x\n\nroute: 192.0.2.0/24\ndelete: x\n\naut-num: AS64496\ndelete: x\n\ninetnum: 198.51.100.0/24\ndelete: x\n",
		"file:1: inetnum 192.0.2.0/24: "+ptr, "file:4: route 192.0.2.0/24: "+ptr,
		"file:7: aut-num AS64496: "+certificate, "file:10: inetnum 198.51.100.0/24: "+anycast)
	r.has(before...)

	// The rest of the input goes on.
	r.refuses("inetnum: 198.51.100.0/24\ndelete: x\n\naut-num: AS64497\ndelete: x\n", "file:1: inetnum 198.51.100.0/24: "+anycast)

	r.options.Prune = true
	r.refuses("inetnum: 203.0.113.0/24\n",
		"inetnum 192.0.2.0/24: it is not in the input, but "+ptr,
		"inetnum 198.51.100.0/24: it is not in the input, but "+anycast,
		"aut-num AS64496: it is not in the input, but "+certificate)
	r.has("AS64496", "192.0.2.0/24 of A-MNT from AS64496-26 delegated ns1.example.net", "198.51.100.0/24", "203.0.113.0/24", "anycast 198.51.100.128/25 dns")
}

func TestRangeWithAPartThatCannotBeDeletedIsRefusedWhole(t *testing.T) {
	r := newRegistry(t)
	r.imports("inetnum: 192.0.2.0 - 192.0.2.191\n")
	r.prefix("192.0.2.128/26").Dependants = []string{"3 PTR records"}
	const reason = "192.0.2.128/26 cannot be deleted: 3 PTR records would be lost with it; delete that first"
	r.refuses("inetnum: 192.0.2.0 - 192.0.2.191\ndelete: x\n", "file:1: inetnum 192.0.2.0 - 192.0.2.191: "+reason)
	r.has("192.0.2.0/25", "192.0.2.128/26")
	r.options.Prune = true // which spares the other part as well
	r.refuses("inetnum: 192.0.2.0 - 192.0.2.191\ndelete: x\n\naut-num: AS1\n", "file:1: inetnum 192.0.2.0 - 192.0.2.191: "+reason)
	r.has("AS1", "192.0.2.0/25", "192.0.2.128/26")
}

func TestPruneRemovesWhatIsNotNamed(t *testing.T) {
	r := newRegistry(t)
	r.imports(around22 + network24 + route24 + "aut-num: AS1\n\ninet6num: 2001:db8::/32\n\nroute6: 2001:db8::/48\norigin: AS1\n\nroute: 192.0.3.0/24\norigin: AS1\norigin: AS2\n")
	r.state.Allocations = append(r.state.Allocations, rpsl.Allocation{ID: 9, Prefix: netip.MustParsePrefix("192.0.2.0/24"), Service: "dns"})
	r.options.Prune = true
	r.imports(route24 + around22)
	r.has("192.0.0.0/22 of LIR-MNT allocation",
		"192.0.2.0/24 in 192.0.0.0/22 of R-MNT implied from AS64496-26", "anycast 192.0.2.0/24 dns")
	if n := len(r.state.Organisations); n != 3 {
		t.Errorf("%d organisations, want all 3 to stay", n)
	}
	// An implied prefix that an operator has taken off the air has no route.
	r.state.Allocations = nil
	r.prefix("192.0.2.0/24").Routing.Announced = false
	r.imports(around22)
	r.has("192.0.0.0/22 of LIR-MNT allocation")
}

func TestPruneSparesWhatRefusedObjectsSpeakOf(t *testing.T) {
	r := newRegistry(t)
	all := network24 + route24 + "aut-num: AS1\nmnt-by: A-MNT\n\ninet6num: 2001:db8::/32\n\ninetnum: 10.0.0.0/8\n\ninetnum: 10.1.0.0 - 10.1.0.2\n"
	r.imports(all)
	before := describe(r.state)
	r.options.Prune = true
	text := "inetnum: 192.0.2.0/24\nnserver: 1.2.3.4\n\nroute: 192.0.2.1/24\norigin: AS1\n\naut-num: AS1\nmnt-by: ?\n\n" +
		"inetnum: 2001:db8::/32\n\nroute: 10.0.0.0/8\n\ninetnum: 10.0.0.0/8\n\ninetnum: 10.1.0.0 - 10.1.0.2\ncidr: 10.1.0.0/30\n"
	if plan := r.plan(text); len(plan.Refused) != 6 || !plan.Empty() {
		t.Errorf("plan %+v, want 6 refused and nothing changed", plan)
	}
	r.applies(text)
	r.has(before...)
}

func TestPruneHoldsAClassOfWhichAnObjectIsUnreadable(t *testing.T) {
	tests := []struct {
		name, text string
		held       []string
	}{
		{"key of an inetnum", "inetnum: what\n\n", []string{"inetnum"}},
		{"key of an aut-num", "aut-num: what\n\n", []string{"aut-num"}},
		{"several in one", "inetnum: 10.0.0.0/8\nroute6: 2001:db8::/32\norigin: AS1\n\n", []string{"inetnum", "route6"}},
		{"parted by a blank line", "aut-num: AS3\n\nmnt-by: A-MNT\n\n", []string{"aut-num", "inet6num", "inetnum", "route", "route6"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRegistry(t)
			r.imports(network24 + route24 + "aut-num: AS1\n\ninet6num: 2001:db8::/32\n\nroute6: 2001:db8::/32\norigin: AS1\n")
			r.options.Prune = true
			plan := r.plan(test.text + "aut-num: AS2\n")
			var held []string
			for _, refusal := range plan.Refused {
				if strings.Contains(refusal.Reason, "1 that are not in the input were kept") {
					held = append(held, string(refusal.Class))
				}
			}
			if !slices.Equal(held, test.held) {
				t.Errorf("held %v, want %v; refused %v", held, test.held, plan.Refused)
			}
			r.applies(test.text + "aut-num: AS2\n")
			// What is not held is gone.
			gone := map[string]bool{"inetnum": true, "route": true, "inet6num": true, "route6": true, "aut-num": true}
			for _, p := range r.state.Prefixes {
				network, route := "inetnum", "route"
				if p.CIDR.Addr().Is6() {
					network, route = "inet6num", "route6"
				}
				gone[network] = gone[network] && p.Provenance == rpsl.ProvenanceImplied
				gone[route] = gone[route] && !p.Routing.Announced
			}
			for _, a := range r.state.ASNs {
				gone["aut-num"] = gone["aut-num"] && a.Number != 1
			}
			for class, is := range gone {
				if is == slices.Contains(test.held, class) {
					t.Errorf("%s is gone: %v", class, is)
				}
			}
		})
	}
}

func TestPruneOfNothingIsRefused(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24)
	r.options.Prune = true
	r.refuses("", "the input states no object, so nothing is pruned: it would be everything")
	r.refuses("inetnum: 10.0.0.0/8\ndelete: x\n", "the input states no object, so nothing is pruned: it would be everything")
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net")
}

func TestRefusedObjectsLeaveTheRestToBeTaken(t *testing.T) {
	r := newRegistry(t)
	text := "inetnum: 192.0.2.1/24\n\ninetnum: 198.51.100.0/24\n"
	r.refuses(text, "file:1: inetnum 192.0.2.1/24: 192.0.2.1/24 has host bits set; the prefix is 192.0.2.0/24")
	r.has("198.51.100.0/24")
}

func TestAllocationsMadeByHandAreLeftAlone(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24)
	r.state.Allocations = []rpsl.Allocation{{ID: 5, Prefix: netip.MustParsePrefix("192.0.2.0/24"), Service: "dns",
		Origins: []rpsl.RouteOrigin{{ID: 1, ASN: 64500, Active: true}}}}
	r.imports(anycast24)
	r.imports("route: 192.0.2.0/24\ndelete: x\n")
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net", "anycast 192.0.2.0/24 dns AS64500")
}

func TestInactiveOriginsComeBackOnlyWhenStated(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + anycast24)
	r.state.Allocations[0].Origins[0].Active = false
	r.imports("route: 192.0.2.0/24\norigin: AS64497\ndelete: x\n")
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net", "anycast 192.0.2.0/24 AS64496 (inactive)")
	r.imports(anycast24)
	r.has("192.0.2.0/24 of A-MNT delegated ns1.example.net", "anycast 192.0.2.0/24 AS64496 AS64497")
}

func TestHandlesKnowNoCase(t *testing.T) {
	r := newRegistry(t)
	r.state.Organisations = []rpsl.Organisation{{Handle: "Example-MNT"}}
	r.imports("inetnum: 192.0.2.0/24\nmnt-by: EXAMPLE-MNT\n\naut-num: AS1\nmnt-by: new-mnt\n\naut-num: AS2\nmnt-by: NEW-MNT\n")
	r.has("AS1 new-mnt", "AS2 new-mnt", "192.0.2.0/24 of Example-MNT")
	if plan := r.plan("aut-num: AS1\nmnt-by: NEW-mnt\n"); !plan.Empty() {
		t.Errorf("plan %+v, want it empty", plan)
	}
}

func TestPlanCountsUnchangedObjects(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + route24 + "aut-num: AS1\n")
	plan := r.plan(network24 + "route: 192.0.2.0/24\norigin: AS1\n\naut-num: AS1\n\naut-num: AS2\n\nroute: 10.0.0.0/8\ndelete: is not there\n")
	if plan.Unchanged != 3 {
		t.Errorf("%d objects are unchanged, want the network, AS1 and what is deleted already", plan.Unchanged)
	}
}

func TestPlanIsTheSameEveryTime(t *testing.T) {
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "inetnum: 10.%d.0.0/16\nmnt-by: %s-MNT\n\nroute: 10.%d.0.0/16\norigin: AS1\nmnt-by: a-mNT\n\n", i, "aA"[i%2:i%2+1], i)
	}
	r := newRegistry(t)
	want := fmt.Sprintf("%+v", r.plan(text.String()).InsertOrganisations)
	if want != "[{Handle:a-MNT}]" {
		t.Errorf("organisations %s, want the spelling that was met first", want)
	}
	for range 20 {
		if got := fmt.Sprintf("%+v", r.plan(text.String()).InsertOrganisations); got != want {
			t.Fatalf("organisations %s, then %s", want, got)
		}
	}
}

func TestPlanChangesNeitherStateNorInput(t *testing.T) {
	r := newRegistry(t)
	r.imports(network24 + anycast24)
	before := fmt.Sprintf("%+v", r.state)
	r.plan("route: 192.0.2.0/24\norigin: AS1\n\ninetnum: 192.0.0.0/16\n")
	if after := fmt.Sprintf("%+v", r.state); after != before {
		t.Errorf("state before and after:\n%s\n%s", before, after)
	}
}
