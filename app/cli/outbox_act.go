package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// maxAuditWait is the longest that one request may wait for an audit.
const maxAuditWait = 50

// target are the flags and the argument that say which lanes a command is about.
type target struct {
	shell  *shell
	all    bool
	stream int
	reason string
	dryRun bool
}

func (s *shell) target(cmd *cobra.Command, about string) *target {
	t := &target{shell: s, stream: -1}
	flags := cmd.Flags()
	flags.BoolVar(&t.all, "all", false, about+" all lanes")
	flags.IntVar(&t.stream, "stream", -1, about+" the lanes of this stream")
	flags.StringVar(&t.reason, "reason", "", "why, for the list of operators' actions")
	flags.BoolVar(&t.dryRun, "dry-run", false, "only count")
	return t
}

// named is the target that the command line names: exactly one.
func (t *target) named(ctx context.Context, cl *client.Client, args []string) (client.OutboxTarget, error) {
	var out client.OutboxTarget
	n := len(args)
	if t.all {
		out.All = true
		n++
	}
	if t.stream >= 0 {
		out.Stream = &t.stream
		n++
	}
	if n != 1 {
		return out, t.shell.usage("name one of a lane, --stream N and --all")
	}
	if len(args) == 0 {
		return out, nil
	}
	if name, ok := strings.CutPrefix(args[0], "stream:"); ok {
		no, err := strconv.Atoi(name)
		if err != nil {
			return out, t.shell.usage("%q is not a stream: write stream:0 to stream:7", args[0])
		}
		out.Stream = &no
		return out, nil
	}
	if args[0] == "all" {
		out.All = true
		return out, nil
	}
	var err error
	out.Lane, err = lane(ctx, cl, args[0])
	return out, err
}

// ordering makes a command that gives the outbox one order about lanes.
func (s *shell) ordering(use, short, long, about, done string,
	give func(*client.Client, context.Context, client.OutboxOrder) (client.OutboxResult, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: s.arguments(0, 1, "one lane")}
	t := s.target(cmd, about)
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		named, err := t.named(ctx, cl, args)
		if err != nil {
			return err
		}
		result, err := give(cl, ctx, client.OutboxOrder{OutboxTarget: named, Reason: t.reason, DryRun: t.dryRun})
		if err != nil {
			return err
		}
		return printResult(out, result, done)
	})
}

func printResult(out *Output, r client.OutboxResult, done string) error {
	return out.Print(r, func(w io.Writer) {
		if r.DryRun {
			fmt.Fprintf(w, "dry run, nothing was changed: %d would be %s\n", r.Matched, done)
			return
		}
		fmt.Fprintf(w, "%d of %d %s", r.Changed, r.Matched, done)
		if r.Events > 0 {
			fmt.Fprintf(w, ", %d events", r.Events)
		}
		fmt.Fprintln(w)
	})
}

func (s *shell) outboxRetryCommand() *cobra.Command {
	return s.ordering("retry LANE|--all|--stream N", "Try lanes that back off again now",
		"Make lanes that back off after a failure ready now. Their order cannot break by it.",
		"retry", "made ready", (*client.Client).OutboxRetry)
}

func (s *shell) outboxPauseCommand() *cobra.Command {
	return s.ordering("pause LANE|--stream N|--all", "Stop the publication of a lane, a stream or everything",
		"Stop the publication. Changes go on being committed, and are published in order after `hubn outbox resume`.",
		"pause", "paused", (*client.Client).OutboxPause)
}

func (s *shell) outboxResumeCommand() *cobra.Command {
	return s.ordering("resume LANE|--stream N|--all", "Let paused lanes go on", "", "resume", "resumed", (*client.Client).OutboxResume)
}

func (s *shell) outboxSkipCommand() *cobra.Command {
	var o client.OutboxSkip
	cmd := &cobra.Command{
		Use:   "skip LANE --through VERSION --reason WHY",
		Short: "Give up events of a lane; its consumers get a gap marker",
		Long: `Give up the unpublished events of a lane up to a version. A marker in their place
tells the consumers, who then fetch the state. The action is kept with its reason.`,
		Args: s.arguments(1, 1, "one lane"),
	}
	flags := cmd.Flags()
	flags.Int64Var(&o.Through, "through", 0, "the last version to give up")
	flags.StringVar(&o.Reason, "reason", "", "why")
	flags.BoolVar(&o.DryRun, "dry-run", false, "only count")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.Through < 1 || o.Reason == "" {
			return s.usage("give --through VERSION and --reason WHY: skipped events are gone for good")
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		var err error
		if o.Lane, err = lane(ctx, cl, args[0]); err != nil {
			return err
		}
		result, err := cl.OutboxSkip(ctx, o)
		if err != nil {
			return err
		}
		return printResult(out, result, "skipped")
	})
}

func (s *shell) outboxReplayCommand() *cobra.Command {
	var agg, since string
	cmd := &cobra.Command{
		Use:   "replay LANE|--agg KIND|--stream N|--all [--since TIME]",
		Short: "Append a replay event to each lane: its consumers fetch the state again",
		Long: `Append one replay event to each aggregate that is named: its consumers fetch its
state again. Nothing that was published is published a second time.

--since takes the aggregates with an event since a time, 2026-01-31T12:00:00Z, or in
the last 30m.`,
		Args: s.arguments(0, 1, "one lane"),
	}
	t := s.target(cmd, "replay")
	cmd.Flags().StringVar(&agg, "agg", "", "only aggregates of this kind, such as prefix")
	cmd.Flags().StringVar(&since, "since", "", "only aggregates with an event since this time, or in the last 30m")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		if err := s.aggregateKind(agg); err != nil {
			return err
		}
		o := client.OutboxReplay{Kind: client.Kind(agg), Reason: t.reason, DryRun: t.dryRun}
		var err error
		if since != "" {
			if o.Since, err = s.past(since, time.Now()); err != nil {
				return err
			}
		}
		// A filter alone means all that pass it.
		if len(args) == 0 && t.stream < 0 && !t.all && (agg != "" || since != "") {
			t.all = true
		}
		if o.OutboxTarget, err = t.named(ctx, cl, args); err != nil {
			return err
		}
		result, err := cl.OutboxReplay(ctx, o)
		if err != nil {
			return err
		}
		return printResult(out, result, "replayed")
	})
}

// past reads a time, or a duration before now.
func (s *shell) past(text string, now time.Time) (time.Time, error) {
	if d, err := duration(text); err == nil {
		if d < 0 {
			d = -d
		}
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, s.usage("%q is not a time: write 2026-01-31T12:00:00Z, or 30m for the last half hour", text)
}

func (s *shell) outboxAuditCommand() *cobra.Command {
	o := client.OutboxAudit{}
	stream, wait := -1, 30*time.Second
	cmd := &cobra.Command{
		Use:   "audit [--fix]",
		Short: "Compare what Redis holds with what was published",
		Long: `Let the workers compare the fences in Redis with what the database says was
published, and with --fix publish again what Redis lost.`,
		Args: s.arguments(0, 0, ""),
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Fix, "fix", false, "publish again what was lost")
	flags.IntVar(&stream, "stream", -1, "only this stream")
	flags.DurationVar(&wait, "timeout", wait, "how long to wait for the workers")
	flags.StringVar(&o.Reason, "reason", "", "why, for the list of operators' actions")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		if stream >= 0 {
			o.Stream = &stream
		}
		o.WaitSeconds = min(max(int(wait.Seconds()), 0), maxAuditWait)
		answer, err := cl.OutboxAudit(ctx, o)
		if err != nil {
			return err
		}
		if err := out.Print(answer, func(w io.Writer) { printAudit(w, answer) }); err != nil {
			return err
		}
		if !answer.Done {
			out.remark("the workers have not audited every stream within %s; does one run? `hubn outbox status`", wait)
			return s.Said
		}
		return nil
	})
}

func printAudit(w io.Writer, a client.OutboxAuditAnswer) {
	t := newTable(w, "STREAM", "AUDITED", "RESULT")
	for _, st := range a.Streams {
		t.row(strconv.Itoa(st.Stream), moment(st.AuditedAt), detailText(st.AuditResult))
	}
	t.end()
}

func (s *shell) outboxCleanupCommand() *cobra.Command {
	var o client.OutboxCleanup
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Drop the daily partitions of events that are past their retention",
		Args:  s.arguments(0, 0, ""),
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only show which are due")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		answer, err := cl.OutboxCleanup(ctx, o)
		if err != nil {
			return err
		}
		return out.Print(answer, func(w io.Writer) {
			t := newTable(w, "DAY", "EVENTS", "UNPUBLISHED", "BYTES", "DUE", "WHY")
			for _, p := range answer.Partitions {
				due := "no"
				if p.Due {
					due = "yes"
				}
				t.row(p.Day, strconv.FormatInt(p.Rows, 10), strconv.FormatInt(p.Unpublished, 10), strconv.FormatInt(p.Bytes, 10), due, p.Reason)
			}
			t.end()
		})
	})
}

func (s *shell) outboxDoctorCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "doctor",
		Short: "Examine what the outbox stands on: Redis, clocks, vacuum, partitions",
		Long:  "Examine what the outbox stands on. The exit status is 1 when something is wrong.",
		Args:  s.arguments(0, 0, ""),
	}, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		answer, err := cl.OutboxDoctor(ctx)
		if err != nil {
			return err
		}
		if err := out.Print(answer, func(w io.Writer) {
			t := newTable(w, "CHECK", "LEVEL", "FOUND", "WHAT TO DO")
			for _, f := range answer.Findings {
				t.row(f.Check, f.Level, f.Detail, f.Advice)
			}
			t.end()
		}); err != nil {
			return err
		}
		for _, f := range answer.Findings {
			if f.Level == "error" {
				return s.Said
			}
		}
		return nil
	})
}
