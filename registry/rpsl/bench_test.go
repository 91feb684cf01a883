package rpsl_test

import (
	"strings"
	"sync"
	"testing"

	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

// hundredThousand is a registry of 100,000 objects, as text.
var hundredThousand = sync.OnceValue(func() string { return rpsltest.Generate(1, 100_000).Text() })

func readText(b *testing.B, text string) rpsl.Input {
	var tally rpsl.Tally
	var input rpsl.Input
	for raw, err := range rpsl.Read("bench", strings.NewReader(text), &tally) {
		if err != nil {
			b.Fatal(err)
		}
		input.Add(raw)
	}
	return input
}

func BenchmarkRead100000(b *testing.B) {
	text := hundredThousand()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		readText(b, text)
	}
}

// BenchmarkPlan100000 plans a first import, and the same import again.
func BenchmarkPlan100000(b *testing.B) {
	input := readText(b, hundredThousand())
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			rpsl.PlanImport(rpsl.State{}, input, rpsl.Options{})
		}
	})
	state := apply(b, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, input, rpsl.Options{}))
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			if plan := rpsl.PlanImport(state, input, rpsl.Options{Prune: true}); !plan.Empty() {
				b.Fatal("a second import changes something")
			}
		}
	})
	b.Run("one-change", func(b *testing.B) {
		one := readText(b, "route: 10.0.0.0/24\norigin: AS1\n")
		for b.Loop() {
			rpsl.PlanImport(state, one, rpsl.Options{})
		}
	})
}
