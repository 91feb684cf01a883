package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// attention are the overall words of a resource that is not as it ought to be,
// worst first.
var attention = []client.Overall{client.OverallFailed, client.OverallDiverged, client.OverallHeld, client.OverallStale, client.OverallPending}

func (s *shell) stateCommand() *cobra.Command {
	var overall, module string
	limit := 100
	cmd := &cobra.Command{
		Use:   "state [RESOURCE]",
		Short: "Show a resource's state, or all resources that need attention",
		Long: `Without RESOURCE, list the resources that are not as they ought to be: failed,
diverged, held, stale or pending. With RESOURCE, show what is requested, published
and applied of it.`,
		Args: s.arguments(0, 1, "one resource"),
	}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	flags := cmd.Flags()
	words := make([]string, len(attention))
	for i, o := range attention {
		words[i] = string(o)
	}
	flags.StringVar(&overall, "overall", "", "only resources with this word: "+strings.Join(words, ", "))
	_ = cmd.RegisterFlagCompletionFunc("overall", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&module, "module", "", "only what this module reported")
	flags.IntVar(&limit, "limit", limit, "at most so many of each word; 0 for all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted := attention
		if overall != "" {
			if !slices.Contains(words, overall) {
				return s.usage("--overall %q is not known: write one of %s", overall, strings.Join(words, ", "))
			}
			wanted = []client.Overall{client.Overall(overall)}
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		if len(args) == 1 {
			return c.explain(showState(cmd.Context(), cl, out, args[0]))
		}
		items := []client.WorkItem{}
		for _, word := range wanted {
			more, err := workList(cmd.Context(), cl, word, module, limit)
			if err != nil {
				return c.explain(err)
			}
			items = append(items, more...)
		}
		return out.Print(items, func(w io.Writer) { printWork(w, items) })
	}
	return cmd
}

func showState(ctx context.Context, cl *client.Client, out *Output, name string) error {
	r, _, err := resource(ctx, cl, name)
	if err != nil {
		return err
	}
	state, err := cl.State(ctx, r)
	if err != nil {
		return err
	}
	return out.Print(state, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s\n\n", title(state.Resource, state.Label), state.Overall)
		printState(w, state)
	})
}

// workList reads the work list of one word, at most limit items.
func workList(ctx context.Context, cl *client.Client, word client.Overall, module string, limit int) ([]client.WorkItem, error) {
	var items []client.WorkItem
	for after := ""; ; {
		page, err := cl.WorkList(ctx, word, module, after, 0)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if limit > 0 && len(items) >= limit {
			return items[:limit], nil
		}
		if page.Next == "" {
			return items, nil
		}
		after = page.Next
	}
}

func printWork(w io.Writer, items []client.WorkItem) {
	if len(items) == 0 {
		fmt.Fprintln(w, "nothing needs attention")
		return
	}
	t := newTable(w, "RESOURCE", "", "STATE", "VERSION", "MODULE", "SINCE", "REASON")
	for _, i := range items {
		t.row(i.Resource.String(), i.Label, string(i.Overall), fmt.Sprint(i.Version), i.Module, moment(i.Since), i.Reason)
	}
	t.end()
}
