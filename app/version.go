package app

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"hubn/app/cli"
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
	output := cli.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := map[string]string{
			"version": version(), "revision": buildSetting("vcs.revision"), "built_from": buildSetting("vcs.time"),
			"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		}
		return output.Print(v, func(w io.Writer) {
			fmt.Fprintf(w, "hubn %s (%s, %s)\n", v["version"], v["go"], v["platform"])
		})
	}
	return cmd
}
