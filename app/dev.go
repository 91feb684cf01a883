package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"hubn/app/demo"
)

func devCommand() *cobra.Command {
	var f serverFlags
	withDemo := true
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process on embedded services",
		Long: `Run the modules that --modules names, or all of them, on an embedded PostgreSQL
and Redis in the data folder, until a signal. Ports that are not given are chosen
once and kept. When everything is ready, endpoints.json in the data folder says
where it all is, and the other commands find it there.`,
		Args: noArguments,
	}
	f.addServerFlags(cmd)
	cmd.Flags().BoolVar(&withDemo, "demo", true, "put a small registry of documentation prefixes into an empty registry")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		base := DefaultConfig()
		base.Listen = "" // chosen once and kept, unless something sets it
		config, err := f.load(base)
		if err != nil {
			return err
		}
		return serve(cmd, config, f.modules, slog.LevelInfo, func(ctx context.Context, p *process) error {
			if withDemo {
				p.putDemo(ctx)
			}
			printWelcome(cmd.OutOrStdout(), p)
			return nil
		})
	}
	return cmd
}

// putDemo puts the demo into an empty Registry. Without it everything else works.
func (p *process) putDemo(ctx context.Context) {
	if !slices.Contains(p.modules, nameRegistry) {
		return
	}
	registry, err := p.registryClient()
	if err == nil {
		defer registry.Close()
		var created int
		if created, err = demo.Put(ctx, registry); created > 0 {
			p.log.Info("the registry was empty: a small demo of documentation prefixes was put in (--demo=false leaves it empty)", "objects", created)
		}
	}
	if err != nil {
		p.log.Error("the demo could not be put in", "error", err)
	}
}

// printWelcome says where everything is, for the person who started it.
func printWelcome(w io.Writer, p *process) {
	if !isTerminal(w) {
		return
	}
	e := p.endpoints()
	fmt.Fprintf(w, "\nHubN %s is ready.\n\n", version())
	for _, line := range [][2]string{
		{"API", e.RegistryURL},
		{"Admin token", e.AdminTokenFile},
		{"PostgreSQL", e.DatabaseURL},
		{"Redis", e.RedisURL},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "  %-12s %s\n", line[0], line[1])
		}
	}
	fmt.Fprintf(w, "\nCtrl-C stops it.\n\n")
}
