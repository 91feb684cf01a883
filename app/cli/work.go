package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

func (s *shell) workCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "work",
		Short: "Count the resources that need attention, by kind and by module",
		Long: "Count the resources by their overall word: what failed, differs from the world, is held, waits, or is applied.\n" +
			"`hubn state` lists those that need attention.",
		Args: s.arguments(0, 0, ""),
	}, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		counts, err := cl.StateCounts(ctx)
		if err != nil {
			return err
		}
		return out.Print(counts, func(w io.Writer) { printCounts(w, counts) })
	})
}

func printCounts(w io.Writer, counts client.StateCounts) {
	words := append(slices.Clone(attention), client.OverallApplied)
	head := []string{"KIND"}
	for _, word := range words {
		head = append(head, string(word))
	}
	t := newTable(w, append(head, "all")...)
	line := func(name string, numbers map[client.Overall]int64) {
		cells, all := []string{name}, int64(0)
		for _, word := range words {
			all += numbers[word]
			cells = append(cells, number(numbers[word]))
		}
		t.row(append(cells, number(all))...)
	}
	for _, kind := range client.SourceKinds {
		if numbers := counts.Kinds[kind]; numbers != nil {
			line(string(kind), numbers)
		}
	}
	line("all", counts.Overall)
	t.end()
	if len(counts.Modules) > 0 {
		fmt.Fprintln(w)
		t = newTable(w, "MODULE", "failed", "held", "waiting", "")
		for _, m := range counts.Modules {
			remark := ""
			if m.Stale {
				remark = "not heard of"
			}
			t.row(m.Module, number(m.Failed), number(m.Held), number(m.Waiting), remark)
		}
		t.end()
	}
	fmt.Fprintf(w, "\ncounted at %s\n", moment(counts.CountedAt))
}
