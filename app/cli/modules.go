package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// ModulesForget is `hubn modules forget NAME`, for the program's own command
// `hubn modules`.
func ModulesForget(w Wiring) *cobra.Command {
	s := &shell{w}
	var reason string
	cmd := &cobra.Command{
		Use:   "forget NAME...",
		Short: "Forget a registered module that is gone for good",
		Long: `Forget a module with everything that it reported: ` + "`hubn wait`" + ` waits for it no longer.
A module that still runs registers itself again.`,
		Args: s.arguments(1, -1, "the name of a registered module"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *output, args []string) error {
		for _, name := range args {
			if err := cl.ForgetModule(ctx, name, reason); err != nil {
				return err
			}
			if !out.json() {
				fmt.Fprintf(out.cmd.OutOrStdout(), "forgot %s\n", name)
			}
		}
		if out.json() {
			return out.print(map[string]any{"forgotten": args}, nil)
		}
		return nil
	})
}

// PrintModules prints the modules that are registered at a Registry as a table.
func PrintModules(w io.Writer, modules []client.Module) {
	t := newTable(w, "MODULE", "STATE", "KINDS", "INSTANCE", "BEHIND", "HEARD OF", "ADDRESS")
	for _, m := range modules {
		kinds := make([]string, len(m.Kinds))
		for i, k := range m.Kinds {
			kinds[i] = string(k)
		}
		if len(m.Instances) == 0 {
			t.row(m.Name, staleText(m.Stale), strings.Join(kinds, ", "), "", "", "", "")
		}
		for _, i := range m.Instances {
			t.row(m.Name, staleText(i.Stale), strings.Join(kinds, ", "), i.Instance, number(i.Behind), moment(i.SeenAt), i.Address)
		}
	}
	t.end()
}

func staleText(stale bool) string {
	if stale {
		return "stale"
	}
	return "alive"
}
