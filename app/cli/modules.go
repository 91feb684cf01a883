package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// ModulesForget is `hubn modules forget NAME`, for the program's own command
// `hubn modules`.
func ModulesForget(w Wiring) *cobra.Command {
	s := newShell(w)
	var reason string
	cmd := &cobra.Command{
		Use:   "forget NAME...",
		Short: "Forget a registered module that is gone for good",
		Long: `Forget a module with everything that it reported: ` + "`hubn wait`" + ` waits for it no longer.
A module that still runs registers itself again.`,
		Args: s.arguments(1, -1, "the name of a registered module"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		for _, name := range args {
			if err := cl.ForgetModule(ctx, name, reason); err != nil {
				return err
			}
			if !out.json() {
				fmt.Fprintf(out.cmd.OutOrStdout(), "forgot %s\n", name)
			}
		}
		if out.json() {
			return out.Print(map[string]any{"forgotten": args}, nil)
		}
		return nil
	})
}
