package rpsl_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

// anyRegistry draws a registry: 20 to 150 objects and 20 changes.
func anyRegistry(t *rapid.T) *rpsltest.Registry {
	return rpsltest.Generate(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(20, 150).Draw(t, "objects"))
}

func inputOf(objects []rpsltest.Object) rpsl.Input {
	var input rpsl.Input
	for _, o := range objects {
		input.Add(rpsl.Raw{File: o.Class + "/" + o.Key, Line: 1, Text: o.Text})
	}
	return input
}

func fresh(t *rapid.T, objects []rpsltest.Object, options rpsl.Options) rpsl.State {
	return apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, inputOf(objects), options))
}

func sameState(t *rapid.T, what string, want, got rpsl.State) {
	diff := cmp.Diff(normalised(want), normalised(got), cmpopts.EquateComparable(netip.Prefix{}, rpsl.Range{}), cmpopts.EquateEmpty())
	if diff != "" {
		t.Fatalf("%s (want -, got +):\n%s", what, diff)
	}
}

func mustBeDone(t *rapid.T, what string, state rpsl.State, input rpsl.Input, options rpsl.Options) {
	if again := rpsl.PlanImport(state, input, options); !again.Empty() {
		t.Fatalf("%s: a second plan is not empty: %+v", what, again)
	} else if n := len(input.Objects) - len(again.Notes); again.Unchanged < n {
		t.Fatalf("%s: a second plan finds %d of %d objects unchanged", what, again.Unchanged, n)
	}
}

func TestReplayEqualsFreshImport(t *testing.T) {
	options := rpsl.Options{OwnNameServers: ownNameServers(t, rpsltest.OwnNameServers)}
	rapid.Check(t, func(t *rapid.T) {
		r := anyRegistry(t)
		state := fresh(t, r.Objects, options)
		mustBeDone(t, "import", state, inputOf(r.Objects), options)
		for _, merge := range r.History {
			var input rpsl.Input
			for i, e := range merge.Changes {
				input.Add(rpsl.Raw{File: fmt.Sprintf("merge %d", merge.N), Line: i + 1, Text: e.RPSL()})
			}
			state = apply(t, state, rpsl.PlanImport(state, input, options))
			mustBeDone(t, fmt.Sprintf("merge %d", merge.N), state, input, options)
		}
		sameState(t, "replay of the history", fresh(t, r.Final, options), state)
	})
}

func TestPruneMakesTheRegistryEqualToTheInput(t *testing.T) {
	options := rpsl.Options{OwnNameServers: ownNameServers(t, rpsltest.OwnNameServers), Prune: true}
	rapid.Check(t, func(t *rapid.T) {
		r := anyRegistry(t)
		before := fresh(t, r.Objects, options)
		after := apply(t, before, rpsl.PlanImport(before, inputOf(r.Final), options))
		sameState(t, "prune", fresh(t, r.Final, options), after)
		mustBeDone(t, "prune", after, inputOf(r.Final), options)
	})
}

func TestOrderOfObjectsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRegistry(t)
		want := fresh(t, r.Objects, rpsl.Options{})
		shuffled := append([]rpsltest.Object{}, r.Objects...)
		shuffle := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		shuffle.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		sameState(t, "another order", want, fresh(t, shuffled, rpsl.Options{}))

		// One by one, in any order, gives the same as all at once.
		state := rpsl.State{}
		for _, o := range shuffled {
			state = apply(t, state, rpsl.PlanImport(state, inputOf([]rpsltest.Object{o}), rpsl.Options{}))
		}
		sameState(t, "one by one", want, state)
	})
}

func TestDeletingEveryObjectLeavesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRegistry(t)
		state := fresh(t, r.Objects, rpsl.Options{})
		var input rpsl.Input
		for _, o := range r.Objects {
			input.Add(rpsl.Raw{File: o.Key, Line: 1, Text: rpsltest.Edit{Op: "delete", Class: o.Class, Key: o.Key}.RPSL()})
		}
		state = apply(t, state, rpsl.PlanImport(state, input, rpsl.Options{}))
		if len(state.Prefixes)+len(state.Allocations)+len(state.ASNs) > 0 {
			t.Fatalf("left: %+v", state)
		}
		mustBeDone(t, "deletion", state, input, rpsl.Options{})
	})
}
