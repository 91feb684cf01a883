package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

func (s *shell) transactionCommand() *cobra.Command {
	var how client.Write
	cmd := &cobra.Command{
		Use:   "transaction FILE|-",
		Short: "Make several changes at once, all or nothing",
		Long: `Read {"changes": [{"op", "kind", "body", …}, …]} and make the changes in their order in
one transaction; the first that is refused ends it, and nothing is written.

op is create, change or delete; body is what the API takes of the kind, or a merge
patch. What is changed or deleted is named by key, with the ETag that the change was
decided on in if_match; or by ref, the name that an earlier change gave with as to
what it made. {"$ref": "name"} in a body stands for the id of that.`,
		Example: `  echo '{"changes": [
    {"op": "create", "kind": "organisation", "as": "org", "body": {"handle": "NEW-ORG"}},
    {"op": "create", "kind": "prefix", "body": {"prefix": "192.0.2.0/24", "organisation_id": {"$ref": "org"}}}]}' |
    hubn transaction -`,
		Args: s.arguments(1, 1, "a file, or - for standard input"),
	}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	cmd.Flags().BoolVar(&how.DryRun, "dry-run", false, "show what would be made, and change nothing")
	cmd.Flags().StringVar(&how.Reason, "reason", "", "why, for the change log")
	cmd.Flags().StringVar(&how.IdempotencyKey, "idempotency-key", "", "a repeated transaction with the same key is answered as the first one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := cmd.InOrStdin()
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			in = file
		}
		var t client.Transaction
		decoder := json.NewDecoder(in)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&t); err != nil {
			return fmt.Errorf("%s is not a transaction: %w", args[0], err)
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		result, _, err := cl.Transact(cmd.Context(), how, t)
		if err != nil {
			return c.explain(err)
		}
		return out.Print(result, func(w io.Writer) {
			table := newTable(w, "OP", "KIND", "KEY", "ETAG")
			for _, r := range result.Results {
				table.row(r.Op, string(r.Kind), r.Key, r.ETag)
			}
			table.end()
		})
	}
	return cmd
}
