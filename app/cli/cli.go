// Package cli is the client commands of hubn: they ask a running Registry and
// show what it answers. It talks to the Registry through registry/client alone,
// so it works from any machine; only `hubn events tail` reads Redis as well.
//
// Every command that prints takes --output table or json. Tables go to standard
// output, remarks and progress to standard error. The exit status is 0 when all
// was done, 1 when something failed, in whole or in part, and 2 for wrong use.
package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Wiring is what the commands need from the program around them.
type Wiring struct {
	// Usage marks an error as wrong use: the program ends with status 2.
	Usage func(error) error
	// Said is the error of a command that printed itself what failed: the program
	// adds nothing and ends with status 1.
	Said error
	// Version is the program's, for the Registry's log.
	Version string
}

// shell makes the commands.
type shell struct{ Wiring }

func newShell(w Wiring) *shell {
	if w.Usage == nil {
		w.Usage = func(err error) error { return err }
	}
	if w.Said == nil {
		w.Said = errors.New("failed")
	}
	return &shell{w}
}

// Commands are the client commands, for the program's root command.
func Commands(w Wiring) []*cobra.Command {
	s := newShell(w)
	return []*cobra.Command{
		s.organisation().command(),
		s.asn().command(),
		s.prefixCommand(),
		s.ptr().command(),
		s.anycast().command(),
		s.authority().command(),
		s.certificateCommand(),
		s.session().command(),
		s.moduleCommand(),
		s.importCommand(),
		s.transactionCommand(),
		s.exportCommand(),
		s.traceCommand(),
		s.historyCommand(),
		s.revertCommand(),
		s.whoisCommand(),
		s.stateCommand(),
		s.workCommand(),
		s.waitCommand(),
		s.eventsCommand(),
		s.outboxCommand(),
		s.tokenCommand(),
		s.grantCommand(),
	}
}

// usage is wrong use, in words.
func (s *shell) usage(format string, args ...any) error {
	return s.Usage(fmt.Errorf(format, args...))
}

// arguments takes between least and most arguments; what names them in the error.
func (s *shell) arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return s.usage("%s needs %s", cmd.CommandPath(), what)
		case most >= 0 && len(args) > most && most == 0:
			return s.usage("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])
		case most >= 0 && len(args) > most:
			return s.usage("%s takes only %s, and got %q as well", cmd.CommandPath(), what, args[most])
		}
		return nil
	}
}

// group is a command that only holds others.
func (s *shell) group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			slices.Sort(names)
			return s.usage("there is no command %q; there are %s", cmd.CommandPath()+" "+args[0], strings.Join(names, ", "))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}
