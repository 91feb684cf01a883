// Package app is the house that HubN's modules live in: the commands, the
// configuration, the table of modules and their supervisor, the embedded
// services, and the HTTP server that all modules of a process share. It knows
// nothing of prefixes, zones or routes.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"hubn/app/cli"
)

// The exit statuses of every command.
const (
	exitDone   = 0
	exitFailed = 1 // in whole or in part
	exitUsage  = 2 // wrong use
)

// Main runs the command that the process was started with, and ends the process.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		// The first signal asks; from here on the next one ends the process at once.
		stop()
	}()
	os.Exit(Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs one command and answers its exit status.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	var wrong usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "hubn: %v\nTry `%s --help`.\n", err, command.CommandPath())
		return exitUsage
	case !errors.Is(err, errSaid):
		fmt.Fprintf(stderr, "hubn: %v\n", err)
	}
	return exitFailed
}

// errSaid is the failure of a command that has already printed what failed.
var errSaid = errors.New("failed")

// usageError is wrong use of a command.
type usageError struct{ error }

// Unwrap is what was wrong.
func (e usageError) Unwrap() error { return e.error }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "hubn",
		Short: "Keep a registry of network resources, and make the world follow it",
		Long: `HubN keeps one registry of allocations and of what ought to be true: who may
originate which prefix, which reverse zones exist, which BGP sessions ought to be
up. It makes the world follow, and never loses a change on the way.

Begin with ` + "`hubn dev`" + `: everything in one process on embedded services.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run and look after hubn:"}, &cobra.Group{ID: "use", Title: "Use a running hubn:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run",
		serveCommand(),
		devCommand(),
		modulesCommand(),
		migrateCommand(),
		doctorCommand(),
		statusCommand(),
		versionCommand(),
	)
	add("use", cli.Commands(wiring())...)
	return root
}

// wiring makes the client commands end as all others do.
func wiring() cli.Wiring {
	return cli.Wiring{
		Usage:   func(err error) error { return usageError{err} },
		Said:    errSaid,
		Version: version(),
	}
}

// noArguments refuses arguments; on a command with subcommands they are names
// that do not exist.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return usageError{fmt.Errorf("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])}
	}
	err := fmt.Errorf("there is no command %q", cmd.CommandPath()+" "+args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return usageError{err}
}
