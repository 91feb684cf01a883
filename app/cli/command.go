package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

func (s *shell) moduleCommand() *cobra.Command {
	return s.group("command", "Commands to modules, and what they answered",
		`Commands to modules: approve what a module holds back, publish now, and the like. One
travels to its module as an event, wherever that runs, and the module's report is
the answer.`, s.commandListCommand(), s.commandShowCommand(), s.commandCreateCommand())
}

func (s *shell) commandListCommand() *cobra.Command {
	var open bool
	limit := 100
	cmd := &cobra.Command{
		Use:   "list MODULE",
		Short: "List the commands of a module, newest first",
		Args:  s.arguments(1, 1, "the name of a module"),
	}
	cmd.Flags().BoolVar(&open, "open", false, "only those that the module has not answered")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many; 0 for all")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if limit < 0 {
			return s.usage("--limit %d is not possible: write 1 or more, or 0 for all", limit)
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		commands, after := []client.Command{}, ""
		for {
			size := pageLimit
			if limit > 0 {
				size = min(size, limit-len(commands))
			}
			page, err := cl.Commands(ctx, args[0], open, after, size)
			if err != nil {
				return err
			}
			commands, after = append(commands, page.Items...), page.Next
			if after == "" || limit > 0 && len(commands) >= limit {
				break
			}
		}
		if after != "" {
			out.remark("there are more: --limit 0 shows all")
		}
		return out.Print(commands, func(w io.Writer) {
			t := newTable(w, "ID", "NAME", "BY", "GIVEN", "ANSWER", "REASON")
			for _, c := range commands {
				state, reason := answerOf(c)
				t.row(number(c.ID), c.Name, shorten(c.Actor, 20), moment(c.CreatedAt), state, shorten(reason, 30))
			}
			t.end()
		})
	})
}

// answerOf is what a module said of a command.
func answerOf(c client.Command) (state, reason string) {
	if c.Answer == nil {
		return "", c.Reason
	}
	return string(c.Answer.State), c.Answer.Reason
}

func (s *shell) commandShowCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "show COMMAND",
		Short: "Show one command and its answer",
		Args:  s.arguments(1, 1, "a command: its id"),
	}, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return s.usage("%q is not the id of a command: `hubn command list MODULE` shows them", args[0])
		}
		c, err := cl.Command(ctx, id)
		if err != nil {
			return err
		}
		return out.Print(c, func(w io.Writer) { showCommand(w, c) })
	})
}

func showCommand(w io.Writer, c client.Command) {
	rows := [][2]string{{"id", number(c.ID)}, {"module", c.Module}, {"name", c.Name}, {"arguments", string(c.Arguments)},
		{"by", c.Actor}, {"reason", c.Reason}, {"given", moment(c.CreatedAt)}}
	if a := c.Answer; a != nil {
		rows = append(rows, [2]string{"answer", string(a.State)}, [2]string{"because", a.Reason}, [2]string{"answered", moment(a.ReportedAt)},
			[2]string{"detail", string(a.Detail)})
	}
	pairs(w, rows...)
}

func (s *shell) commandCreateCommand() *cobra.Command {
	var arguments, reason string
	cmd := &cobra.Command{
		Use:   "create MODULE NAME",
		Short: "Give a module a command",
		Args:  s.arguments(2, 2, "the name of a module and of one of its commands"),
	}
	cmd.Flags().StringVar(&arguments, "arguments", "", "its arguments, a JSON object")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the change log and the module")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		var members map[string]json.RawMessage
		if arguments != "" && json.Unmarshal([]byte(arguments), &members) != nil {
			return s.usage("--arguments %q is not a JSON object: write for example '{\"run\": 17}'", arguments)
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		c, err := cl.Order(ctx, args[0], client.CommandOrder{Name: args[1], Arguments: json.RawMessage(arguments), Reason: reason})
		if err != nil {
			return err
		}
		return out.Print(c, func(w io.Writer) {
			fmt.Fprintf(w, "gave %s the command %s: command:%d\n", c.Module, c.Name, c.ID)
		})
	})
}
