package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

func (s *shell) revertCommand() *cobra.Command {
	var how writing
	cmd := &cobra.Command{
		Use:   "revert CHANGE",
		Short: "Undo one change by a new one",
		Long: `Undo one entry of the change log (its number is in ` + "`hubn history`" + `) by a new change,
which is checked like any other. It is refused when later changes touched the same.
A resource that was deleted is created anew, under another id.`,
		Args: s.arguments(1, 1, "the number of a change"),
	}
	cmd.Flags().StringVar(&how.reason, "reason", "", "why, for the change log")
	cmd.Flags().BoolVar(&how.dryRun, "dry-run", false, "change nothing, and show what would be")
	var id int64
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if id, err = strconv.ParseInt(args[0], 10, 64); err != nil || id < 1 {
			return s.usage("%q is not the number of a change: `hubn history` shows them", args[0])
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		done, written, err := cl.Revert(ctx, id, how.write())
		if err != nil {
			return err
		}
		return out.Print(done, func(w io.Writer) {
			verb := done.Did
			if how.dryRun {
				fmt.Fprint(w, "dry run, nothing was changed: ")
				verb = "would be " + verb
			}
			fmt.Fprintf(w, "change %d is reverted: %s %s", done.Change, done.Resource, verb)
			for _, p := range written.Produced {
				fmt.Fprintf(w, ", %s version %d", p.Resource, p.Version)
			}
			fmt.Fprintln(w)
			if done.Patch != nil {
				fmt.Fprintf(w, "  %s\n", done.Patch)
			}
		})
	})
}
