package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version that `make build` writes into the program.
var release string

// version is what this program calls itself: its release, else the revision it
// was built from.
func version() string {
	return cmp.Or(release, buildSetting("vcs.revision"), "development")
}

func buildSetting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArguments,
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := map[string]string{
			"version": version(), "revision": buildSetting("vcs.revision"), "built_from": buildSetting("vcs.time"),
			"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		}
		return output.print(cmd.OutOrStdout(), v, func(w io.Writer) {
			fmt.Fprintf(w, "hubn %s (%s, %s)\n", v["version"], v["go"], v["platform"])
		})
	}
	return cmd
}

// outputFormat is the value of --output.
type outputFormat string

// outputFlag adds --output to a command that prints.
func outputFlag(cmd *cobra.Command) *outputFormat {
	o := new(outputFormat)
	*o = "table"
	cmd.Flags().VarP(o, "output", "o", "table, or json for scripts")
	return o
}

// String is the format's name.
func (o *outputFormat) String() string { return string(*o) }

// Set takes one of the formats.
func (o *outputFormat) Set(s string) error {
	if s != "table" && s != "json" {
		return fmt.Errorf("write table or json")
	}
	*o = outputFormat(s)
	return nil
}

// Type names the flag's value in help.
func (o *outputFormat) Type() string { return "table|json" }

// print prints a value as JSON, or as the table function does.
func (o *outputFormat) print(w io.Writer, v any, table func(io.Writer)) error {
	if *o == "table" {
		table(w)
		return nil
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
