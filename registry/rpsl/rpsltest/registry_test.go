package rpsltest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

func TestGenerateIsTheSameForTheSameSeed(t *testing.T) {
	a, b := rpsltest.Generate(7, 300), rpsltest.Generate(7, 300)
	if !reflect.DeepEqual(a, b) {
		t.Error("two registries of one seed differ")
	}
	if reflect.DeepEqual(a, rpsltest.Generate(8, 300)) {
		t.Error("registries of two seeds are equal")
	}
}

func TestOnlyTheMistakesAreRefused(t *testing.T) {
	r := rpsltest.Generate(1, 2000)
	input := rpsl.Input{}
	for _, o := range r.Objects {
		input.Add(rpsl.Raw{File: o.Key, Line: 1, Text: o.Text})
	}
	for _, m := range r.History {
		for _, e := range m.Changes {
			input.Add(rpsl.Raw{File: e.Key, Line: 1, Text: e.RPSL()})
		}
	}
	for _, refused := range input.Refused {
		t.Errorf("refused: %v", refused)
	}
	input = rpsl.Input{}
	for _, o := range r.Mistakes {
		input.Add(rpsl.Raw{File: o.Key, Line: 1, Text: o.Text})
	}
	if len(input.Objects) > 0 || len(input.Refused) != len(r.Mistakes) {
		t.Errorf("%d of %d mistakes are refused", len(input.Refused), len(r.Mistakes))
	}
}

func TestRegistryHasTheShapeOfARealOne(t *testing.T) {
	r := rpsltest.Generate(3, 5000)
	own, err := rpsl.ParseNameServerPattern(rpsltest.OwnNameServers)
	if err != nil {
		t.Fatal(err)
	}
	input := rpsl.Input{}
	for _, o := range r.Objects {
		input.Add(rpsl.Raw{File: o.Key, Line: 1, Text: o.Text})
	}
	plan := rpsl.PlanImport(rpsl.State{}, input, rpsl.Options{OwnNameServers: []rpsl.NameServerPattern{own}})
	counts := map[string]int{"anycast": len(plan.InsertAllocations), "asn": len(plan.InsertASNs)}
	for _, p := range plan.InsertPrefixes {
		counts[string(p.Reverse.Mode)]++
		counts[string(p.Provenance)]++
		counts[string(p.Kind)]++
		if len(p.Reverse.DS) > 0 {
			counts["ds"]++
		}
		if p.Routing.MaxLength != nil {
			counts["max-length"]++
		}
		if p.Parent.Bits() > 8 {
			counts["nested"]++
		}
	}
	for _, what := range []string{"anycast", "asn", "hosted", "delegated", "inherit", "registered", "implied",
		"container", "allocation", "assignment", "reserved", "ds", "max-length", "nested"} {
		if counts[what] == 0 {
			t.Errorf("there is no %s in %v", what, counts)
		}
	}
}

func TestFilesAndTreeHoldTheObjects(t *testing.T) {
	r := rpsltest.Generate(5, 200)
	files, tree := t.TempDir(), t.TempDir()
	if err := r.WriteFiles(files); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteTree(tree); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(files, "history.jsonl")); err != nil {
		t.Error(err)
	}
	for folder, want := range map[string]int{files: len(r.Objects) + len(r.Mistakes), tree: len(r.Objects)} {
		var tally rpsl.Tally
		for _, err := range rpsl.Walk([]string{folder}, nil, &tally) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if tally.Objects != want {
			t.Errorf("%s holds %d objects, want %d", folder, tally.Objects, want)
		}
	}
}
