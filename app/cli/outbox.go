package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

func (s *shell) outboxCommand() *cobra.Command {
	return s.group("outbox", "Look after the outbox: what is not published yet, and why",
		`Every change of a resource has its event in the outbox, in the lane of its
aggregate, until a worker has published it to Redis. These commands show the lanes
and act on them. LANE is a lane's number or a resource, such as prefix:17 or
192.0.2.0/24.`,
		s.outboxStatusCommand(),
		s.outboxListCommand(),
		s.outboxShowCommand(),
		s.outboxRetryCommand(),
		s.outboxPauseCommand(),
		s.outboxResumeCommand(),
		s.outboxSkipCommand(),
		s.outboxReplayCommand(),
		s.outboxAuditCommand(),
		s.outboxCleanupCommand(),
		s.outboxDoctorCommand(),
	)
}

// asking makes the body of a command that asks the Registry and prints the answer.
func (s *shell) asking(cmd *cobra.Command, run func(ctx context.Context, cl *client.Client, out *Output, args []string) error) *cobra.Command {
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		return c.explain(run(cmd.Context(), cl, out, args))
	}
	return cmd
}

// aggregateKind is what is wrong with the value of --agg.
func (s *shell) aggregateKind(text string) error {
	if text == "" || slices.Contains(client.SourceKinds, client.Kind(text)) {
		return nil
	}
	if r, err := client.ParseResource(text); err == nil && slices.Contains(client.SourceKinds, r.Kind) {
		return s.usage("--agg takes a kind, such as %s: for the one aggregate write %s instead of the flag", r.Kind, text)
	}
	return s.usage("--agg %q is no kind of aggregate: there are %s", text, strings.Trim(fmt.Sprint(client.SourceKinds), "[]"))
}

// lane is how the Registry knows a lane: its number, or its resource.
func lane(ctx context.Context, cl *client.Client, text string) (string, error) {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text, nil
	}
	if r, err := client.ParseResource(text); err == nil && (r.Kind == client.KindCommand || r.Kind == client.KindBarrier) {
		return r.String(), nil
	}
	r, _, err := resource(ctx, cl, text)
	return r.String(), err
}

func (s *shell) outboxStatusCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "status",
		Short: "Show how much is not published yet, and how the streams are",
		Args:  s.arguments(0, 0, ""),
	}, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		status, err := cl.OutboxStatus(ctx)
		if err != nil {
			return err
		}
		return out.Print(status, func(w io.Writer) { printOutboxStatus(w, status) })
	})
}

func printOutboxStatus(w io.Writer, o client.OutboxStatus) {
	oldest := ""
	if o.Pending > 0 {
		oldest = ", the oldest for " + span(time.Duration(o.OldestSeconds*float64(time.Second)))
	}
	pairs(w,
		[2]string{"unpublished", fmt.Sprintf("%d events%s", o.Pending, oldest)},
		[2]string{"lanes", fmt.Sprintf("%d ready, %d claimed (%d past their claim), %d backing off, %d failing, %d paused",
			o.Ready, o.Claimed, o.Overdue, o.BackingOff, o.Failing, o.Paused)},
		[2]string{"deepest", deepestText(o.Deepest)},
		[2]string{"partitions", fmt.Sprintf("%d days, %s to %s", o.Partitions, o.OldestDay, o.LastDay)},
		[2]string{"Redis", o.RedisError},
	)
	fmt.Fprintln(w)
	t := newTable(w, "STREAM", "STATE", "LENGTH", "GROUPS (PENDING, LAG)", "EPOCH SINCE", "AUDITED")
	for _, st := range o.Streams {
		state := "active"
		if st.Paused {
			state = "paused"
		}
		t.row(strconv.Itoa(st.Stream), state, optional(st.Length), groupsText(st.Groups), moment(st.EpochAt), moment(st.AuditedAt))
	}
	t.end()
}

func deepestText(l *client.OutboxLane) string {
	if l == nil || l.Pending == 0 {
		return ""
	}
	return fmt.Sprintf("%s with %d events, %s", l.Resource, l.Pending, l.State)
}

func groupsText(groups []client.OutboxGroup) string {
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = fmt.Sprintf("%s (%d, %s)", g.Group, g.Pending, optional(g.Lag))
		if g.Trimmed {
			parts[i] += " trimmed"
		}
	}
	return strings.Join(parts, " ")
}

// optional is a number that may not be known.
func optional(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}

func (s *shell) outboxListCommand() *cobra.Command {
	var f client.LaneFilter
	var state, kind string
	limit := 100
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List lanes, in the order of their numbers",
		Args:  s.arguments(0, 0, ""),
	}
	flags := cmd.Flags()
	states := []string{"idle", "ready", "claimed", "backing-off", "failing", "paused"}
	flags.StringVar(&state, "state", "", "only lanes in this state: "+strings.Join(states, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&kind, "agg", "", "only lanes of this kind of aggregate, such as prefix")
	flags.DurationVar(&f.Older, "older", 0, "only lanes whose first unpublished event is at least so old")
	flags.IntVar(&limit, "limit", limit, "at most so many; 0 for all")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		f.State, f.Kind = client.LaneState(state), client.Kind(kind)
		lanes := []client.OutboxLane{}
		for {
			page, err := cl.OutboxLanes(ctx, f)
			if err != nil {
				return err
			}
			lanes = append(lanes, page.Items...)
			if f.After = page.Next; f.After == "" || limit > 0 && len(lanes) >= limit {
				break
			}
		}
		if limit > 0 && len(lanes) > limit {
			lanes = lanes[:limit]
		}
		return out.Print(lanes, func(w io.Writer) { printLanes(w, lanes) })
	})
}

func printLanes(w io.Writer, lanes []client.OutboxLane) {
	t := newTable(w, "LANE", "RESOURCE", "STATE", "UNPUBLISHED", "LAST", "NEXT TRY", "ATTEMPTS", "ERROR")
	for _, l := range lanes {
		state := string(l.State)
		if l.StreamPaused {
			state += ", stream paused"
		}
		t.row(strconv.FormatInt(l.Lane, 10), l.Resource.String(), state, strconv.FormatInt(l.Pending, 10),
			strconv.FormatInt(l.LastSeq, 10), moment(l.NextAt), strconv.Itoa(l.Attempts), l.LastError)
	}
	t.end()
}

func (s *shell) outboxShowCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "show LANE|EVENT",
		Short: "Show a lane with its events, or an event by its id",
		Args:  s.arguments(1, 1, "a lane or an event's id"),
	}, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		if isUUID(args[0]) {
			event, err := cl.OutboxEvent(ctx, args[0])
			if err != nil {
				return err
			}
			return out.Print(event, func(w io.Writer) {
				e := event.Event
				fmt.Fprintf(w, "event %s: %s version %d, %s %s\ncommitted %s, published %s, %s\n\n", e.EventID, e.Resource, e.Version,
					e.Kind, strings.Join(e.Changed, ", "), moment(e.CreatedAt), moment(e.PublishedAt), e.State)
				printLane(w, event.Lane)
			})
		}
		name, err := lane(ctx, cl, args[0])
		if err != nil {
			return err
		}
		detail, err := cl.OutboxLane(ctx, name)
		if err != nil {
			return err
		}
		return out.Print(detail, func(w io.Writer) { printLane(w, detail) })
	})
}

func isUUID(s string) bool {
	return len(s) == 36 && strings.Count(s, "-") == 4 && strings.Trim(s, "0123456789abcdefABCDEF-") == ""
}

func printLane(w io.Writer, l client.OutboxLaneDetail) {
	fence := optional(l.Fence)
	if l.FenceError != "" {
		fence += ", " + l.FenceError
	}
	failure := ""
	if l.Attempts > 0 {
		failure = fmt.Sprintf("%d, the last at %s: %s", l.Attempts, moment(l.LastErrorAt), l.LastError)
	}
	pairs(w,
		[2]string{"lane", fmt.Sprintf("%d, %s, stream %d", l.Lane, l.Resource, l.Stream)},
		[2]string{"state", string(l.State)},
		[2]string{"versions", fmt.Sprintf("%d committed, %d published, fence in Redis %s", l.LastSeq, l.PubSeq, fence)},
		[2]string{"epoch", l.Epoch},
		[2]string{"claimed by", l.ClaimedBy},
		[2]string{"next try", moment(l.NextAt)},
		[2]string{"attempts", failure},
	)
	if len(l.Events) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "VERSION", "EVENT", "CHANGED", "COMMITTED", "PUBLISHED AFTER", "STATE", "ID")
	for _, e := range l.Events {
		after := ""
		if !e.PublishedAt.IsZero() {
			after = span(e.PublishedAt.Sub(e.CreatedAt))
		}
		t.row(strconv.FormatInt(e.Version, 10), e.Kind, strings.Join(e.Changed, ", "), moment(e.CreatedAt), after, e.State, e.EventID)
	}
	t.end()
}
