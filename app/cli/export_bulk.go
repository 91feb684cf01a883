package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (s *shell) exportRPSLCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rpsl",
		Short: "Export RPSL objects: aut-num, inetnum, inet6num, route, route6",
		Long: `Print the objects that 'hubn import rpsl' makes the Registry of again: what is
active, in the order of prefixes, an object's routes behind it. Ranges come back as
they were imported, a max-length where it was stated, name servers also of hosted
prefixes, DS records as ds-rdata.

Prefixes that are there for their route only have no object, nor have anycast
allocations that were made by hand (hubn export vrps has all origins), nor DS
records of one zone among several.`,
		Example: `  hubn export rpsl > registry.rpsl
  hubn export rpsl | hubn import rpsl --dry-run --prune -`,
		Args: s.arguments(0, 0, ""),
	}
	c := s.connect(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return s.download(cmd, c, "/v1/export/rpsl", nil) }
	return cmd
}

// download copies an answer of the Registry to standard output.
func (s *shell) download(cmd *cobra.Command, c *Connection, path string, query url.Values) error {
	cl, err := c.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	body, err := cl.Download(cmd.Context(), path, query)
	if err != nil {
		return c.explain(err)
	}
	defer body.Close()
	out := bufio.NewWriter(cmd.OutOrStdout())
	if _, err := io.Copy(out, body); err != nil {
		_ = out.Flush()
		return fmt.Errorf("the export broke off and is not whole: %w", err)
	}
	return out.Flush()
}

func (s *shell) exportCSVCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "csv KIND",
		Short:     "Export the nouns of one kind as CSV: " + strings.Join(bulkKinds, ", "),
		Long:      "Print a header and a row for each noun of a kind, as 'hubn import csv' takes them.",
		Example:   "  hubn export csv prefix > prefixes.csv",
		Args:      s.arguments(1, 1, "a kind: "+strings.Join(bulkKinds, ", ")),
		ValidArgs: bulkKinds,
	}
	c := s.connect(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(bulkKinds, args[0]) {
			return s.usage("%q is no kind that CSV carries: write %s", args[0], strings.Join(bulkKinds, ", "))
		}
		return s.download(cmd, c, "/v1/export/csv", url.Values{"kind": args})
	}
	return cmd
}

func (s *shell) exportNDJSONCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ndjson [KIND...]",
		Short: "Export everything, or the nouns of some kinds, as lines of JSON",
		Long: `Print lines of {"kind", "body"} of one snapshot, as 'hubn import ndjson' takes them, in
an order in which each names only what came before. Passwords of BGP sessions are
left out, and so are certificates that are revoked or over.`,
		Example: `  hubn export ndjson > registry.ndjson
  hubn export ndjson ptr`,
		Args: s.arguments(0, -1, "kinds"),
	}
	c := s.connect(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return s.download(cmd, c, "/v1/export/ndjson", url.Values{"kind": args})
	}
	return cmd
}
