package rpsl_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hubn/registry/rpsl"
)

// mergedChange is a line of history.jsonl: the changes of one merge.
type mergedChange struct {
	N       int
	Changes []struct {
		Op, Class, Key, Object string
	}
}

// realRegistry is the folder with a whole registry and its history, if one is there.
func realRegistry(t testing.TB) string {
	folder := os.Getenv("HUBN_REGISTRY_DATA")
	if folder == "" {
		t.Skip("HUBN_REGISTRY_DATA names no folder with a registry (*.rpsl) and its history.jsonl")
	}
	return folder
}

func ownNameServers(t testing.TB, patterns ...string) (own []rpsl.NameServerPattern) {
	t.Helper()
	for _, s := range patterns {
		p, err := rpsl.ParseNameServerPattern(s)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, p)
	}
	return own
}

func readAll(t testing.TB, paths ...string) rpsl.Input {
	t.Helper()
	var tally rpsl.Tally
	var raws []rpsl.Raw
	for raw, err := range rpsl.Walk(paths, nil, &tally) {
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, raw)
	}
	return rpsl.ParseAll(raws)
}

func TestRealRegistryImports(t *testing.T) {
	folder := realRegistry(t)
	input := readAll(t, folder)
	options := rpsl.Options{OwnNameServers: ownNameServers(t, "*.delegation-servers.dn42")}
	plan := rpsl.PlanImport(rpsl.State{}, input, options)

	if len(plan.Refused) != 1 || plan.Refused[0].Class != rpsl.ClassAutNum || plan.Refused[0].Key != "AS0" {
		t.Errorf("refused %v, want only aut-num AS0, which nobody can hold", plan.Refused)
	}
	hosted, delegated, implied, announced := 0, 0, 0, 0
	lengths := map[int]bool{}
	for _, p := range plan.InsertPrefixes {
		switch p.Reverse.Mode {
		case rpsl.ReverseHosted:
			hosted++
		case rpsl.ReverseDelegated:
			delegated++
			lengths[p.CIDR.Bits()] = true
		}
		if p.Provenance == rpsl.ProvenanceImplied {
			implied++
		}
		if p.Routing.Announced {
			announced++
		}
	}
	if hosted != 7 || delegated != 1370 || len(lengths) != 23 {
		t.Errorf("%d hosted, %d delegated prefixes of %d lengths, want 7, 1370 and 23", hosted, delegated, len(lengths))
	}
	if routes := announced + len(plan.InsertAllocations); routes != 1697+1490 || implied != 101 || len(plan.InsertAllocations) != 72 {
		t.Errorf("%d routes with %d implied prefixes and %d anycast allocations, want 3187, 101, 72", routes, implied, len(plan.InsertAllocations))
	}
	state := apply(t, rpsl.State{}, plan)
	for _, prune := range []bool{false, true} {
		options.Prune = prune
		again := rpsl.PlanImport(state, input, options)
		if !again.Empty() {
			t.Errorf("a second import (prune %v) changes something", prune)
		}
		if again.Unchanged != len(input.Objects) {
			t.Errorf("a second import finds %d objects unchanged, want %d", again.Unchanged, len(input.Objects))
		}
	}
}

func TestRealHistoryReplaysToTheFreshImport(t *testing.T) {
	folder := realRegistry(t)
	options := rpsl.Options{OwnNameServers: ownNameServers(t, "*.delegation-servers.dn42")}
	initial := readAll(t, folder)
	state := apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, initial, options))

	final := map[string]string{}
	var order []string
	put := func(class, key, text string) {
		id := class + " " + key
		if _, ok := final[id]; !ok {
			order = append(order, id)
		}
		final[id] = text
	}
	var tally rpsl.Tally
	for raw, err := range rpsl.Walk([]string{folder}, nil, &tally) {
		if err != nil {
			t.Fatal(err)
		}
		object, err := rpsl.Parse(raw)
		if err != nil {
			continue
		}
		put(string(object.Head().Class), fileKey(object), raw.Text)
	}
	moves := 0
	for _, merge := range readHistory(t, filepath.Join(folder, "history.jsonl")) {
		var raws []rpsl.Raw
		for _, c := range merge.Changes {
			text := c.Object
			if c.Op == "delete" {
				text = fmt.Sprintf("%s: %s\ndelete: gone\n", c.Class, strings.ReplaceAll(c.Key, "_", "/"))
			}
			put(c.Class, c.Key, text)
			raws = append(raws, rpsl.Raw{File: fmt.Sprintf("change %d", merge.N), Line: 1, Text: text})
		}
		input := rpsl.ParseAll(raws)
		plan := rpsl.PlanImport(state, input, options)
		if len(plan.Refused) > 0 {
			t.Fatalf("change %d: refused %v", merge.N, plan.Refused)
		}
		for _, u := range plan.UpdatePrefixes {
			if u.Was.Routing.Announced && !u.Now.Routing.Announced && len(plan.InsertAllocations) > 0 ||
				!u.Was.Routing.Announced && u.Now.Routing.Announced && len(plan.DeleteAllocations) > 0 {
				moves++
			}
		}
		state = apply(t, state, plan)
		if again := rpsl.PlanImport(state, input, options); !again.Empty() {
			t.Fatalf("change %d: a second import changes something", merge.N)
		}
	}
	if moves == 0 {
		t.Error("no route moved between a prefix and an anycast allocation; the history has such moves")
	}
	var raws []rpsl.Raw
	for _, id := range order {
		raws = append(raws, rpsl.Raw{File: id, Line: 1, Text: final[id]})
	}
	fresh := apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, rpsl.ParseAll(raws), options))
	if diff := cmp.Diff(normalised(fresh), normalised(state), cmpopts.EquateComparable(netip.Prefix{}, rpsl.Range{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("fresh import (-) and replay (+) differ:\n%s", diff)
	}
}

// fileKey is the name of an object's file in the one-file-per-object layout.
func fileKey(object rpsl.Object) string {
	switch o := object.(type) {
	case *rpsl.Network:
		return strings.ReplaceAll(o.CIDRs[0].String(), "/", "_")
	case *rpsl.Route:
		return strings.ReplaceAll(o.Prefix.String(), "/", "_")
	}
	return object.Head().Key
}

func readHistory(t testing.TB, path string) (merges []mergedChange) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var merge mergedChange
		if err := json.Unmarshal(lines.Bytes(), &merge); err != nil {
			t.Fatal(err)
		}
		merges = append(merges, merge)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return merges
}
