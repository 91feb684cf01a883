package rpsl_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

// written is a state as RPSL.
func written(t failer, state rpsl.State, own ...string) string {
	t.Helper()
	there, ranges := map[netip.Prefix]bool{}, map[rpsl.Range]bool{}
	for _, p := range state.Prefixes {
		if p.Status == rpsl.StatusActive && p.Provenance == rpsl.ProvenanceRegistered {
			there[p.CIDR] = true
			if !p.Range.IsZero() {
				ranges[p.Range] = true
			}
		}
	}
	routes := map[netip.Prefix][]rpsl.RouteOrigin{}
	for _, a := range state.Allocations {
		if a.Service == rpsl.ServiceName(a.Prefix) {
			routes[a.Prefix] = a.Origins
		}
	}
	var out strings.Builder
	w := rpsl.NewWriter(&out, own, rpsl.WholeRanges(slices.Collect(maps.Keys(ranges)), func(p netip.Prefix) bool { return there[p] }))
	for _, n := range state.ASNs {
		_ = w.ASN(n)
	}
	for _, p := range state.Prefixes {
		_ = w.Prefix(&p, routes[p.CIDR])
	}
	n, err := w.Flush()
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	if got := strings.Count(out.String(), "\n\n"); got != n {
		t.Fatalf("%d objects were counted, %d written", n, got)
	}
	return out.String()
}

// parsed is a text as input; nothing of it may be refused.
func parsed(t failer, text string) rpsl.Input {
	t.Helper()
	var input rpsl.Input
	for raw, err := range rpsl.Read("export", strings.NewReader(text), new(rpsl.Tally)) {
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		input.Add(raw)
	}
	if len(input.Refused) > 0 {
		t.Fatalf("of what was written this is refused: %v", input.Refused[0])
	}
	return input
}

// described are the objects of an input, each in a line, without what HubN does
// not keep: the routes of a prefix are one object.
func described(input rpsl.Input) []string {
	all := map[string]string{}
	routes := map[netip.Prefix][]string{}
	for _, object := range input.Objects {
		switch o := object.(type) {
		case *rpsl.Network:
			all[fmt.Sprint(o.First, "-", o.Last)] = fmt.Sprint(o.Name, " ", strings.ToLower(o.Organisation), " ", o.Kind, o.NameServers, o.DS)
		case *rpsl.AutNum:
			all[fmt.Sprint(o.Number)] = o.Name + " " + strings.ToLower(o.Organisation)
		case *rpsl.Route:
			for _, origin := range o.Origins {
				routes[o.Prefix] = append(routes[o.Prefix], fmt.Sprint(origin, " to ", lengthOf(o.MaxLength)))
			}
			all["route "+o.Prefix.String()] = fmt.Sprint(slices.Sorted(slices.Values(routes[o.Prefix])))
		}
	}
	var lines []string
	for key, what := range all {
		lines = append(lines, key+": "+what)
	}
	return slices.Sorted(slices.Values(lines))
}

// returns checks that what is written gives the state back, and the objects.
func returns(t failer, state rpsl.State, objects rpsl.Input, options rpsl.Options) {
	t.Helper()
	input := parsed(t, written(t, state))
	if diff := cmp.Diff(described(objects), described(input)); diff != "" {
		t.Fatalf("the objects do not come back (imported -, exported +):\n%s", diff)
	}
	options.Prune = true
	if again := rpsl.PlanImport(state, input, options); !again.Empty() {
		t.Fatalf("importing what was written changes something: %+v", again)
	}
	back := apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, input, options))
	diff := cmp.Diff(normalised(state), normalised(back), cmpopts.EquateComparable(netip.Prefix{}, rpsl.Range{}), cmpopts.EquateEmpty())
	if diff != "" {
		t.Fatalf("an empty registry becomes another (want -, got +):\n%s", diff)
	}
}

func TestWhatIsWrittenIsWhatWasImported(t *testing.T) {
	options := rpsl.Options{OwnNameServers: ownNameServers(t, rpsltest.OwnNameServers)}
	rapid.Check(t, func(t *rapid.T) {
		r := anyRegistry(t)
		returns(t, fresh(t, r.Objects, options), inputOf(r.Objects), options)
		returns(t, fresh(t, r.Final, options), inputOf(r.Final), options)
	})
}

func TestARealRegistryIsWrittenAsItWas(t *testing.T) {
	input := readAll(t, realRegistry(t))
	options := rpsl.Options{OwnNameServers: ownNameServers(t, "*.delegation-servers.dn42")}
	returns(t, apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, input, options)), input, options)
}

func TestRangesComeBackAsOneObject(t *testing.T) {
	const text = `
inetnum: 192.0.2.0 - 192.0.2.95
netname: WHOLE
mnt-by: ONE-MNT
status: ALLOCATED PA

inetnum: 198.51.100.0 - 198.51.100.95
netname: WHOLE
mnt-by: ONE-MNT

inetnum: 198.51.100.64 - 198.51.100.95
netname: PART
mnt-by: TWO-MNT
`
	input := parsed(t, text)
	state := apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, input, rpsl.Options{}))
	returns(t, state, input, rpsl.Options{})

	t.Run("with a part that was changed by hand", func(t *testing.T) {
		changed := state
		changed.Prefixes = slices.Clone(state.Prefixes)
		changed.Prefixes[1].Name = "OTHER"
		got := described(parsed(t, written(t, changed)))
		want := []string{
			"192.0.2.0-192.0.2.95: WHOLE one-mnt allocation[] []",
			"192.0.2.64-192.0.2.95: OTHER one-mnt allocation[] []",
			"198.51.100.0-198.51.100.95: WHOLE one-mnt assignment[] []",
			"198.51.100.64-198.51.100.95: PART two-mnt assignment[] []",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(want -, got +):\n%s", diff)
		}
	})
	t.Run("with a part that was deleted by hand", func(t *testing.T) {
		deleted := state
		deleted.Prefixes = slices.Delete(slices.Clone(state.Prefixes), 1, 2)
		if got := written(t, deleted); !strings.Contains(got, "192.0.2.0 - 192.0.2.63\n") || strings.Contains(got, "192.0.2.95") {
			t.Errorf("the range is written although a part of it is gone:\n%s", got)
		}
	})
}

func TestWrittenObjectsSayWhatRPSLCanCarry(t *testing.T) {
	length := 26
	origin := uint32(64496)
	prefix := rpsl.Prefix{CIDR: netip.MustParsePrefix("192.0.2.0/24"), Organisation: "ORG-ONE", Name: "one # two\nthree",
		Kind: rpsl.KindReserved, Status: rpsl.StatusActive, Provenance: rpsl.ProvenanceRegistered, RouteOrganisation: "TWO-MNT",
		Routing: rpsl.Routing{Announced: true, Origin: &origin, MaxLength: &length},
		Reverse: rpsl.Reverse{Mode: rpsl.ReverseHosted, DS: []rpsl.DS{{KeyTag: 1, Algorithm: 13, DigestType: 1, Digest: strings.Repeat("ab", 20)}}}}
	planned := prefix
	planned.CIDR, planned.Status = netip.MustParsePrefix("198.51.100.0/24"), rpsl.StatusPlanned
	got := written(t, rpsl.State{Prefixes: []rpsl.Prefix{prefix, planned}}, "ns1.example.net")
	want := `inetnum:            192.0.2.0 - 192.0.2.255
netname:            one  two three
org:                ORG-ONE
status:             RESERVED
nserver:            ns1.example.net
ds-rdata:           1 13 1 ABABABABABABABABABABABABABABABABABABABAB

route:              192.0.2.0/24
origin:             AS64496
max-length:         26
mnt-by:             TWO-MNT

`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(want -, got +):\n%s", diff)
	}
}
