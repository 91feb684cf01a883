package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
)

func (s *shell) exportCommand() *cobra.Command {
	return s.group("export", "Export what the Registry holds", "", s.exportVRPsCommand())
}

func (s *shell) exportVRPsCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "vrps",
		Short: "Export the wanted route origins: (ASN, prefix, maxLength)",
		Long: `Print every route origin that an active source states, each once, in the order of
prefixes. The maxLength is always given. It is what ought to be: what a validator
makes of what is published may lag behind.

As CSV a line is AS64496,192.0.2.0/24,24; as JSON it is the form that RPKI
validators read and write.`,
		Args: s.arguments(0, 0, ""),
	}
	c := s.connect(cmd)
	cmd.Flags().StringVar(&format, "format", "csv", "csv or json")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"csv", "json"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if format != "csv" && format != "json" {
			return s.usage("--format %q is not known: write csv or json", format)
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		body, err := cl.Open(cmd.Context(), "/v1/export/vrps", url.Values{"format": {format}})
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
	return cmd
}
