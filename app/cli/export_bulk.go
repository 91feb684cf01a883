package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/url"

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
