package cli

import (
	"net/url"

	"github.com/spf13/cobra"
)

func (s *shell) exportCommand() *cobra.Command {
	return s.group("export", "Export what the Registry holds", "", s.exportVRPsCommand(), s.exportRPSLCommand(), s.exportCSVCommand(), s.exportNDJSONCommand())
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
		return s.download(cmd, c, "/v1/export/vrps", url.Values{"format": {format}})
	}
	return cmd
}
