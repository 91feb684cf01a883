package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

const historyLong = `Show who changed what, when and why, newest first. Each entry is one row that was
inserted, updated or deleted; its number is what ` + "`hubn revert`" + ` takes.

RESOURCE is prefix:17 or a name that resources have or had: 192.0.2.0/24, AS64496,
192.0.2.1 (its PTR records), a handle. What is deleted by now is found too.

TIME is 2026-12-01T10:00:00Z, 2026-12-01, "2026-12-01 10:00" (local), or how long
ago: 90m, 24h.`

func (s *shell) historyCommand() *cobra.Command {
	var (
		f            client.ChangeFilter
		since, until string
		at           string
		holders      bool
		all          bool
	)
	cmd := &cobra.Command{
		Use:   "history [RESOURCE]",
		Short: "Show the change log: of a resource, of an actor, of a request, of a time",
		Long:  historyLong,
		Args:  s.arguments(0, 1, "one resource"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Actor, "actor", "", "only what this actor did, as the log names it")
	flags.StringVar(&f.Request, "request", "", "only what this request did: the X-Request-Id of its answer")
	flags.StringVar(&f.Token, "with-token", "", "only what was done with the token of this public id")
	flags.StringVar(&f.Op, "op", "", "only one of insert, update, delete")
	_ = cmd.RegisterFlagCompletionFunc("op", cobra.FixedCompletions([]string{"insert", "update", "delete"}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&since, "since", "", "only what happened at this TIME or later")
	flags.StringVar(&until, "until", "", "only what happened before this TIME")
	flags.IntVar(&f.Limit, "limit", 50, "at most so many, 1 to 1000")
	flags.StringVar(&f.After, "after", "", "go on where an earlier list ended, as it said")
	flags.StringVar(&at, "at", "", "show RESOURCE as it was at this TIME")
	flags.BoolVar(&holders, "holders", false, "show who held RESOURCE and since when; of an organisation, what it holds")
	flags.BoolVar(&all, "long", false, "show whole rows, not only what changed")
	cmd.MarkFlagsMutuallyExclusive("at", "holders")
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if f.Since, err = parseTime(since); err == nil {
			f.Until, err = parseTime(until)
		}
		switch {
		case err != nil:
			return s.Usage(err)
		case f.Limit < 1 || f.Limit > 1000:
			return s.usage("--limit %d is not possible: write 1 to 1000", f.Limit)
		case len(args) == 0 && (at != "" || holders):
			return s.usage("--at and --holders need a resource, such as 192.0.2.0/24")
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		switch {
		case at != "":
			when, err := parseTime(at)
			if err != nil {
				return s.Usage(err)
			}
			return showPast(ctx, cl, out, args[0], when)
		case holders:
			return showHolders(ctx, cl, out, args[0])
		case len(args) == 1:
			f.Resource = args[0]
		}
		page, err := cl.Changes(ctx, f)
		if err != nil {
			return err
		}
		if err := out.Print(page.Items, func(w io.Writer) { printChanges(w, page.Items, all) }); err != nil {
			return err
		}
		if page.Next != "" {
			out.remark("there are more: --after %s goes on here", page.Next)
		}
		return nil
	})
}

// parseTime reads a time as people write it; empty is none.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return time.Now().Add(-ago), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(`%q is not a time: write 2026-12-01T10:00:00Z, 2026-12-01, "2026-12-01 10:00" or how long ago, such as 90m or 24h`, text)
}

func printChanges(w io.Writer, changes []client.Change, long bool) {
	if len(changes) == 0 {
		fmt.Fprintln(w, "nothing was changed")
		return
	}
	for _, c := range changes {
		what := strings.ReplaceAll(c.Table, "_", " ")
		fmt.Fprintf(w, "%d  %s  %s of %s %s by %s\n", c.ID, moment(c.At), c.Op, what, title(c.Resource, c.Name), c.Actor)
		if c.Reason != "" {
			fmt.Fprintf(w, "    why: %s\n", c.Reason)
		}
		for _, line := range changeLines(c, long) {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
}

// changeLines says what an entry changed, one member of the row a line.
func changeLines(c client.Change, long bool) []string {
	if c.Op == "update" && !long {
		if diff := changedMembers(c.Before, c.After); diff != "" {
			return strings.Split(diff, ", ")
		}
		return nil
	}
	if !long {
		return nil
	}
	var lines []string
	if c.Before != nil {
		lines = append(lines, "before: "+string(c.Before))
	}
	if c.After != nil {
		lines = append(lines, "after:  "+string(c.After))
	}
	return lines
}

// everNamed is a resource for the questions about the past: the Registry finds
// its name, also of one that is gone.
func everNamed(ctx context.Context, cl *client.Client, text string) (client.Resource, error) {
	if r, ok := named(text); ok {
		return r, nil
	}
	page, err := cl.Changes(ctx, client.ChangeFilter{Resource: text, Limit: 1})
	if err != nil {
		return client.Resource{}, err
	}
	if len(page.Items) == 0 {
		r, _, err := resource(ctx, cl, text)
		return r, err
	}
	r := page.Items[0].Resource
	if r.Kind == client.KindPTR || r.Kind == client.KindASN {
		return r, nil
	}
	// By name, for the one that had it at the time that is asked for.
	return client.Resource{Kind: r.Kind, Key: text}, nil
}

func showPast(ctx context.Context, cl *client.Client, out *Output, text string, at time.Time) error {
	r, err := everNamed(ctx, cl, text)
	if err != nil {
		return err
	}
	past, err := cl.At(ctx, r, at)
	if err != nil {
		return err
	}
	return out.Print(past, func(w io.Writer) {
		if !past.Exists {
			fmt.Fprintf(w, "%s did not exist at %s\n", title(past.Resource, text), moment(past.Time))
			return
		}
		fmt.Fprintf(w, "%s at %s", title(past.Resource, past.Name), moment(past.Time))
		if past.Change != 0 {
			fmt.Fprintf(w, ", as change %d left it at %s", past.Change, moment(past.ChangedAt))
		}
		fmt.Fprintln(w)
		for _, row := range past.Rows {
			fmt.Fprintf(w, "\n%s %s\n", strings.ReplaceAll(row.Table, "_", " "), row.Row)
			printRow(w, row)
		}
	})
}

// pastKinds are those of which the Registry answers a past object as it answers
// the present one.
var pastKinds = []client.Kind{client.KindOrganisation, client.KindASN, client.KindPrefix, client.KindAnycast}

// showPast shows an object as it was.
func (n *noun[T]) showPast(ctx context.Context, cl *client.Client, out *Output, text, at string) error {
	when, err := parseTime(at)
	if err != nil {
		return n.shell.Usage(err)
	}
	r := client.Resource{Kind: n.kind, Key: strings.TrimPrefix(text, string(n.kind)+":")}
	past, err := cl.At(ctx, r, when)
	if err != nil {
		return err
	}
	if !past.Exists {
		return fmt.Errorf("%s did not exist at %s: `hubn history %s` shows since when", past.Resource, moment(when), past.Resource)
	}
	var o object[T]
	if err := json.Unmarshal(past.Object, &o); err != nil {
		return err
	}
	return out.Print(o.raw, func(w io.Writer) { n.show(w, o.value) })
}

// printRow shows the members of a row that hold something.
func printRow(w io.Writer, row client.PastRow) {
	var shown [][2]string
	for _, m := range members(row.Data) {
		switch m[1] {
		case "none", "[]", `""`:
		default:
			shown = append(shown, [2]string{"  " + m[0], m[1]})
		}
	}
	pairs(w, shown...)
}

func showHolders(ctx context.Context, cl *client.Client, out *Output, text string) error {
	r, err := everNamed(ctx, cl, text)
	if err != nil {
		return err
	}
	holders, err := cl.Holders(ctx, r)
	if err != nil {
		return err
	}
	return out.Print(holders, func(w io.Writer) {
		if len(holders.Items) == 0 {
			fmt.Fprintln(w, "nothing")
			return
		}
		t := newTable(w, "RESOURCE", "HOLDER", "SINCE", "UNTIL", "CHANGE", "BY")
		for _, h := range holders.Items {
			holder, until, since := h.Organisation, "now", moment(h.Since)
			if h.OrganisationID == 0 {
				holder = "nobody"
			}
			if !h.Until.IsZero() {
				until = moment(h.Until)
			}
			t.row(h.Resource.String(), holder, since, until, optionalID(h.Change), h.Actor)
		}
		t.end()
	})
}

func optionalID(id int64) string {
	if id == 0 {
		return ""
	}
	return number(id)
}

// members are the members of a row in order, without those that every write changes.
func members(raw json.RawMessage) [][2]string {
	var row map[string]json.RawMessage
	if json.Unmarshal(raw, &row) != nil {
		return nil
	}
	var out [][2]string
	for _, name := range slices.Sorted(maps.Keys(row)) {
		if !slices.Contains(bookkeeping, name) {
			out = append(out, [2]string{name, memberText(row[name])})
		}
	}
	return out
}
