package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// traceSteps is how many lines of the timeline are shown unless asked for all.
const traceSteps = 30

func (s *shell) traceCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "trace RESOURCE",
		Short: "Show the way of a resource's changes: committed, published, applied",
		Long: `Show what is requested of a resource, what of it is published, and what each module
made of it: when a change was committed, by whom and why, when its event was
published, and when each module reported it.

RESOURCE is prefix:17 or 192.0.2.0/24, asn:64496 or AS64496, ptr:192.0.2.1,
anycast:5, organisation:3 or a handle.`,
		Args: s.arguments(1, 1, "a resource, such as 192.0.2.0/24"),
	}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "show the whole history that is kept, not only the last steps")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		r, _, err := resource(cmd.Context(), cl, args[0])
		if err != nil {
			return c.explain(err)
		}
		trace, err := cl.Trace(cmd.Context(), r)
		if err != nil {
			return c.explain(err)
		}
		return out.Print(trace, func(w io.Writer) { printTrace(w, trace, all) })
	}
	return cmd
}

func printTrace(w io.Writer, t client.Trace, all bool) {
	fmt.Fprintf(w, "%s  %s\n\n", title(t.Resource, t.Label), overallText(t.State))
	printState(w, t.State)
	steps := timeline(t)
	if hidden := len(steps) - traceSteps; hidden > 0 && !all {
		steps = steps[hidden:]
		fmt.Fprintf(w, "\n%d earlier steps; --all shows them\n", hidden)
	}
	if len(steps) == 0 {
		return
	}
	fmt.Fprintln(w)
	tab := newTable(w)
	day := ""
	for _, s := range steps {
		if d := s.at.Local().Format("2006-01-02"); d != day {
			tab.end()
			day = d
			fmt.Fprintln(w, day)
		}
		tab.row("  "+s.at.Local().Format("15:04:05.000"), s.who, s.what)
	}
	tab.end()
}

// overallText is the overall word. Where no module consumes the resource,
// published is all that it can be: nobody applies it.
func overallText(s client.State) string {
	if s.Overall == client.OverallApplied && len(s.Consumers)+len(s.Waiting) == 0 {
		return "published"
	}
	return string(s.Overall)
}

// printState is requested, published and observed, side by side.
func printState(w io.Writer, s client.State) {
	requested := fmt.Sprintf("version %d, committed %s", s.Version, moment(s.Requested))
	if s.Deleted {
		requested += ", which deleted it"
	}
	pairs(w, [2]string{"requested", requested}, [2]string{"published", publishedText(s)})
	if len(s.Consumers)+len(s.Waiting) > 0 {
		tab := newTable(w)
		for _, a := range s.Consumers {
			tab.row(a.Module, appliedText(a, s), detailText(a.Detail))
		}
		for _, module := range s.Waiting {
			if !slices.ContainsFunc(s.Consumers, func(a client.AppliedState) bool { return a.Module == module }) {
				tab.row(module, "has not reported it yet", "")
			}
		}
		tab.end()
	} else {
		fmt.Fprintln(w, "no module that would apply it has registered")
	}
	for _, o := range s.Observations {
		fmt.Fprintf(w, "%s sees %s: %s at %s %s\n", o.Module, o.Subject, o.State, moment(o.ObservedAt), detailText(o.Detail))
	}
}

// publishedText says how far the outbox is.
func publishedText(s client.State) string {
	if s.Published >= s.Version {
		text := fmt.Sprintf("version %d", s.Published)
		if !s.PublishedAt.IsZero() {
			text += fmt.Sprintf(", %s after the commit", span(s.PublishedAt.Sub(s.Requested)))
		}
		return text
	}
	text := fmt.Sprintf("version %d; %d not yet", s.Published, s.Version-s.Published)
	switch {
	case s.LaneState == string(client.LanePaused):
		text += "; its lane is paused: `hubn outbox resume " + s.Resource.String() + "`"
	case s.Attempts > 0:
		text += fmt.Sprintf("; %d failed attempts, the last: %s", s.Attempts, s.LastError)
	}
	return text
}

// appliedText is what a module last reported.
func appliedText(a client.AppliedState, s client.State) string {
	text := fmt.Sprintf("%s version %d", a.State, a.Version)
	switch {
	case a.Version == s.Version && !s.Requested.IsZero():
		text += fmt.Sprintf(", %s after the commit", span(a.ReportedAt.Sub(s.Requested)))
	case a.Version < s.Version:
		text += fmt.Sprintf(" of %d", s.Version)
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	if !a.RetryAt.IsZero() {
		text += "; tries again at " + moment(a.RetryAt)
	}
	if a.Stale {
		text += " (the module is not heard of)"
	}
	return text
}

// step is one line of the timeline.
type step struct {
	at        time.Time
	who, what string
}

// timeline is everything that happened, oldest first.
func timeline(t client.Trace) []step {
	var steps []step
	for _, c := range t.Changes {
		steps = append(steps, step{c.At, "committed", changeText(c)})
	}
	// In the order of their versions also where several were published in one instant.
	events := slices.SortedFunc(slices.Values(t.Events), func(a, b client.TraceEvent) int { return cmp.Compare(a.Version, b.Version) })
	for _, e := range events {
		what := fmt.Sprintf("version %d %s", e.Version, e.Kind)
		if len(e.Changed) > 0 {
			what += " (" + strings.Join(e.Changed, ", ") + ")"
		}
		steps = append(steps, step{e.CreatedAt, "outbox", what + ", event " + e.EventID})
		if e.PublishedAt.IsZero() {
			if e.State != "published" {
				steps[len(steps)-1].what += ", " + e.State
			}
			continue
		}
		steps = append(steps, step{e.PublishedAt, "published",
			fmt.Sprintf("version %d, %s after the commit", e.Version, span(e.PublishedAt.Sub(e.CreatedAt)))})
	}
	for _, a := range t.Consumers {
		if !a.FetchedAt.IsZero() {
			steps = append(steps, step{a.FetchedAt, a.Module, fmt.Sprintf("fetched version %d", a.Version)})
		}
		what := fmt.Sprintf("%s version %d", a.State, a.Version)
		if a.Instance != "" {
			what += " by " + a.Instance
		}
		if a.Reason != "" {
			what += ": " + a.Reason
		}
		steps = append(steps, step{a.ReportedAt, a.Module, what})
	}
	for _, o := range t.Observations {
		steps = append(steps, step{o.ObservedAt, o.Module, "sees " + o.Subject + ": " + o.State})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	return steps
}

// changeText is an entry of the change log: who, what, why.
func changeText(c client.TraceChange) string {
	text := fmt.Sprintf("%s of %s by %s", c.Op, strings.ReplaceAll(c.Table, "_", " "), c.Actor)
	if diff := changedMembers(c.Before, c.After); diff != "" {
		text += ": " + diff
	}
	if c.Reason != "" {
		text += fmt.Sprintf(" (%s)", c.Reason)
	}
	return text
}

// bookkeeping are the members of a row that every write changes.
var bookkeeping = []string{"revision", "created_at", "updated_at"}

// changedMembers lists the members of a row that changed, old and new.
func changedMembers(before, after json.RawMessage) string {
	var was, is map[string]json.RawMessage
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil || was == nil || is == nil {
		return ""
	}
	var names []string
	for name := range is {
		if !slices.Contains(bookkeeping, name) && !bytes.Equal(was[name], is[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s → %s", name, memberText(was[name]), memberText(is[name]))
	}
	return strings.Join(parts, ", ")
}

// memberText is a JSON value without the quotes around a plain string.
func memberText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && s != "" && string(raw) != "null" {
		return s
	}
	if string(raw) == "null" || len(raw) == 0 {
		return "none"
	}
	return string(raw)
}

// detailText is a report's detail in one line.
func detailText(detail json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(detail, &members) != nil || len(members) == 0 {
		return ""
	}
	parts := make([]string, 0, len(members))
	for name, value := range members {
		parts = append(parts, name+" "+memberText(value))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
