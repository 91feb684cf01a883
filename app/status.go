package app

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hubn/app/cli"
	"hubn/registry/client"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the modules of a running process do",
		Long:  "Show the modules of a running process, whether each does its work, and why not. The exit status is 1 when one does not.",
		Args:  noArguments,
	}
	c := cli.Connect(wiring(), cmd)
	output := cli.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		target, err := c.Find()
		if err != nil {
			return err
		}
		var st ProcessStatus
		if err := ask(cmd.Context(), target, "/status", &st); err != nil {
			return err
		}
		if err := output.Print(st, func(w io.Writer) { printStatus(w, target.URL, st) }); err != nil {
			return err
		}
		if !st.Ready {
			return errSaid
		}
		return nil
	}
	return cmd
}

func printStatus(w io.Writer, url string, st ProcessStatus) {
	ready := "ready"
	if !st.Ready {
		ready = "not ready"
	}
	fmt.Fprintf(w, "hubn %s at %s: %s, up for %s\n\n", st.Version, url, ready, time.Since(st.Started).Round(time.Second))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODULE\tSTATE\tSINCE\tRESTARTS\tREASON")
	for _, m := range st.Modules {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", m.Name, m.word(), m.Since.Local().Format(time.DateTime), m.Restarts, m.Reason)
	}
	_ = t.Flush()
}

// word is the module's state as a person asks for it: a module that runs may
// still say that it does not do its work.
func (m ModuleStatus) word() string {
	if m.State == string(ready) && !m.Ready {
		return "not ready"
	}
	return m.State
}

// moduleRow is one line of `hubn modules`.
type moduleRow struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// moduleList is what `hubn modules` prints.
type moduleList struct {
	Modules   []moduleRow     `json:"modules"`
	Consumers []client.Module `json:"consumers,omitempty"`
}

func modulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "modules",
		Short: "List the modules of this program, and those that consume a Registry's events",
		Long: `List the modules that --modules of serve and dev takes, and, where a Registry
runs, the consumers that are registered with it. ` + "`hubn wait`" + ` waits for these.`,
		Args: noArguments,
	}
	c := cli.Connect(wiring(), cmd)
	cmd.AddCommand(cli.ModulesForget(wiring()))
	output := cli.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var list moduleList
		for _, e := range modulesOf(table) {
			list.Modules = append(list.Modules, moduleRow{e.name, e.about})
		}
		target, err := c.Find()
		if err == nil {
			list.Consumers, err = consumers(cmd.Context(), target)
		}
		if err != nil && cmd.Flags().Changed("url") {
			return err
		}
		return output.Print(list, func(w io.Writer) { printModules(w, list, err) })
	}
	return cmd
}

// consumers are the modules that are registered with the Registry.
func consumers(ctx context.Context, t cli.Target) ([]client.Module, error) {
	registry, err := client.New(client.Options{URL: t.URL, Token: t.Token, CAFile: t.CAFile, Timeout: statusTimeout})
	if err != nil {
		return nil, err
	}
	defer registry.Close()
	return registry.Modules(ctx)
}

func printModules(w io.Writer, list moduleList, unreachable error) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODULE\tWHAT IT DOES")
	for _, m := range list.Modules {
		fmt.Fprintf(t, "%s\t%s\n", m.Name, m.About)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	switch {
	case unreachable != nil:
		fmt.Fprintf(w, "Registered consumers: unknown (%v)\n", unreachable)
		return
	case len(list.Consumers) == 0:
		fmt.Fprintln(w, "No consumer is registered.")
		return
	}
	fmt.Fprintln(t, "CONSUMER\tINSTANCE\tBEHIND\tLAST HEARD OF")
	for _, m := range list.Consumers {
		for _, i := range m.Instances {
			heard := i.SeenAt.Local().Format(time.DateTime)
			if i.Stale {
				heard += " (stale: `hubn modules forget " + m.Name + "` stops waiting for it)"
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", m.Name, i.Instance, i.Behind, heard)
		}
	}
	_ = t.Flush()
}
