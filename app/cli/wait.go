package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// waitTimeout is long enough for an import of a large registry to be drained
	// and applied, and short enough that a script does not hang for ever.
	waitTimeout = 5 * time.Minute
	// The pauses between two looks: most waits end within a second.
	waitFirstPause, waitLongestPause = 20 * time.Millisecond, time.Second
)

// waited is what `hubn wait` prints.
type waited struct {
	Done     bool             `json:"done"`
	Resource *client.Resource `json:"resource,omitempty"`
	Version  int64            `json:"version,omitempty"`
	Took     client.Seconds   `json:"took_seconds"`
	// Blocked says what it waited for when it gave up.
	Blocked []string `json:"blocked,omitempty"`
	// Modules have it in effect; with none, it is published and nobody applies it.
	Modules []string `json:"modules"`
}

func (s *shell) waitCommand() *cobra.Command {
	timeout := waitTimeout
	cmd := &cobra.Command{
		Use:   "wait [RESOURCE]",
		Short: "Wait until everything that is committed now is in effect",
		Long: `Without RESOURCE, wait until everything that is committed at this moment is
published and every registered module has it durably in effect. With RESOURCE, the
same for the present version of that resource.

A module that is not heard of blocks by name until ` + "`hubn modules forget NAME`" + `.
A Registry that cannot be reached, or cannot serve, is waited for as well. The exit
status is 1 when the timeout passes first.`,
		Args: s.arguments(0, 1, "one resource"),
	}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "give up after this time; 0 waits for ever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if timeout < 0 {
			return s.usage("--timeout %s lies in the past: write a time such as 30s, or 0 to wait for ever", timeout)
		}
		cl, err := c.open()
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx := cmd.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, timeout, errWaited)
			defer cancel()
		}
		w := &waiter{client: cl, url: c.url, notes: cmd.ErrOrStderr(), bar: newProgress(cmd.ErrOrStderr(), "waiting"),
			begun: time.Now(), result: waited{Modules: []string{}}}
		if len(args) == 0 {
			err = w.everything(ctx)
		} else {
			err = w.one(ctx, args[0])
		}
		w.bar.end()
		w.result.Took = client.Seconds(time.Since(w.begun).Seconds())
		return s.endWait(c, out, w, timeout, err)
	}
	return cmd
}

// errWaited is why the wait ended before it was done.
var errWaited = errors.New("timeout")

// endWait prints how a wait ended.
func (s *shell) endWait(c *Connection, out *Output, w *waiter, timeout time.Duration, err error) error {
	switch {
	case err == nil:
		w.result.Done, w.result.Blocked = true, nil
		return out.Print(w.result, func(to io.Writer) {
			what := "everything committed before"
			if w.result.Resource != nil {
				what = fmt.Sprintf("%s version %d", w.result.Resource, w.result.Version)
			}
			if len(w.result.Modules) == 0 {
				what += " is published; no module that would apply it has registered"
			} else {
				what += " is in effect"
			}
			fmt.Fprintf(to, "%s (%s)\n", what, span(w.result.Took.Duration()))
		})
	case !errors.Is(err, errWaited):
		return c.explain(err)
	}
	if out.json() {
		if err := out.Print(w.result, nil); err != nil {
			return err
		}
		return s.Said
	}
	text := fmt.Sprintf("not in effect after %s", timeout)
	for _, reason := range w.result.Blocked {
		text += "\n  " + reason
	}
	return explained{text, errWaited}
}

// waiter waits for everything or for one resource.
type waiter struct {
	client *client.Client
	url    string
	notes  io.Writer
	bar    *progress
	begun  time.Time
	result waited
	// barrier is the id of the barrier that the wait goes by, 0 before there is one.
	barrier int64
	// met: the Registry has answered; missed: that it does not was told.
	met, missed bool
}

// until asks again and again, with growing pauses, until done. A Registry that is
// away is no answer: a restart or a failover ends no wait.
func (w *waiter) until(ctx context.Context, ask func(context.Context) (done bool, err error)) error {
	for wait := waitFirstPause; ; wait = min(wait*3/2, waitLongestPause) {
		done, err := ask(ctx)
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case w.away(err):
			w.miss(err)
		case err != nil || done:
			return err
		default:
			w.met = true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// away tells whether an error says that the Registry may come yet. What answers in
// its place, such as a proxy without it, is taken for that once it was there.
func (w *waiter) away(err error) bool {
	switch client.ReasonOf(err) {
	case client.Unreachable:
		return true
	case client.Failing:
		return problem.Is(err, problem.Unavailable)
	case client.NotRegistry:
		return w.met
	}
	return false
}

// miss says that the Registry does not answer: in the bar, once in words, and at
// the end if it is so then.
func (w *waiter) miss(err error) {
	text := fmt.Sprintf("the Registry at %s does not answer: %s", w.url, causeOf(err))
	w.result.Blocked = []string{text}
	w.bar.at("waiting for the Registry", 0, 0)
	if !w.missed {
		w.missed = true
		fmt.Fprintln(w.notes, text+"; it is asked again until the timeout")
	}
}

// passed is the barrier that the wait goes by, as it is now. One of a history that
// is over, which nothing will pass any more, is made again in the present one.
func (w *waiter) passed(ctx context.Context) (b client.Barrier, err error) {
	if w.barrier != 0 {
		b, err = w.client.Barrier(ctx, w.barrier)
		if lost := problem.Is(err, problem.NotFound); err != nil && !lost || err == nil && b.Superseded == "" {
			return b, err
		}
	}
	b, err = w.client.CreateBarrier(ctx)
	w.barrier = b.ID
	return b, err
}

// everything waits for a barrier behind all that is committed now.
func (w *waiter) everything(ctx context.Context) error {
	var first int64
	return w.until(ctx, func(ctx context.Context) (bool, error) {
		barrier, err := w.passed(ctx)
		if err != nil {
			return false, err
		}
		first = max(first, barrier.Ahead)
		w.result.Blocked = barrierBlocks(barrier)
		w.result.Modules = w.result.Modules[:0]
		for _, m := range barrier.Modules {
			w.result.Modules = append(w.result.Modules, m.Module)
		}
		switch {
		case !barrier.Raised:
			w.bar.at("publishing", first-barrier.Ahead, first)
		case !barrier.Done:
			w.bar.at("waiting for "+strings.Join(missingModules(barrier), ", "), 0, 0)
		}
		return barrier.Done, nil
	})
}

// one waits for the present version of a resource.
func (w *waiter) one(ctx context.Context, name string) error {
	return w.until(ctx, func(ctx context.Context) (bool, error) {
		if w.result.Resource == nil {
			r, _, err := resource(ctx, w.client, name)
			if err != nil {
				return false, err
			}
			w.result.Resource = &r
		}
		state, err := w.client.State(ctx, *w.result.Resource)
		if err != nil {
			return false, err
		}
		// A version that a restore has lost comes to nobody.
		if w.result.Version == 0 || state.Version < w.result.Version {
			w.result.Version = state.Version
		}
		w.result.Blocked = w.stateBlocks(state)
		w.result.Modules = append(w.result.Modules[:0], state.Waiting...)
		for _, a := range state.Consumers {
			if !slices.Contains(w.result.Modules, a.Module) {
				w.result.Modules = append(w.result.Modules, a.Module)
			}
		}
		if state.Published < w.result.Version {
			w.bar.at("publishing", 0, 0)
			return false, nil
		}
		if len(w.result.Blocked) == 0 {
			return true, nil
		}
		// A module that makes nothing of the resource never reports it: then the
		// barrier proves that it has passed its event.
		barrier, err := w.passed(ctx)
		if err != nil {
			return false, err
		}
		w.result.Blocked = w.unproven(state, barrier)
		w.bar.at("waiting for "+w.result.Resource.String(), 0, 0)
		return len(w.result.Blocked) == 0, nil
	})
}

// stateBlocks says why the version is not in effect, by the reports alone.
func (w *waiter) stateBlocks(s client.State) []string {
	var blocks []string
	if s.Published < w.result.Version {
		blocks = append(blocks, "version "+fmt.Sprint(w.result.Version)+" is not published: "+publishedText(s))
	}
	for _, module := range s.Waiting {
		blocks = append(blocks, fmt.Sprintf("%s has not reported version %d", module, w.result.Version))
	}
	return append(blocks, w.faults(s)...)
}

// faults are the reports of the version that say it is not in effect.
func (w *waiter) faults(s client.State) []string {
	var faults []string
	for _, a := range s.Consumers {
		if a.Version >= w.result.Version && (a.State == client.ReportFailed || a.State == client.ReportHeld) {
			faults = append(faults, fmt.Sprintf("%s reports it %s: %s", a.Module, a.State, a.Reason))
		}
	}
	return faults
}

// unproven says which modules have neither reported the version nor passed the barrier.
func (w *waiter) unproven(s client.State, b client.Barrier) []string {
	blocks := w.faults(s)
	for _, module := range s.Waiting {
		passed := false
		for _, m := range b.Modules {
			passed = passed || m.Module == module && m.Done
		}
		if !passed || !b.Raised {
			blocks = append(blocks, blockText(module, b))
		}
	}
	return blocks
}

func blockText(module string, b client.Barrier) string {
	for _, m := range b.Modules {
		if m.Module != module {
			continue
		}
		switch {
		case m.Stale:
			return fmt.Sprintf("%s is not heard of; if it is gone for good: `hubn modules forget %s`", module, module)
		case m.Reason != "":
			return fmt.Sprintf("%s has not reported it: %s", module, m.Reason)
		}
	}
	return module + " has not reported it"
}

// barrierBlocks says what a barrier waits for.
func barrierBlocks(b client.Barrier) []string {
	if !b.Raised {
		return []string{fmt.Sprintf("%d aggregates are not published yet; `hubn outbox status` says why", b.Ahead)}
	}
	var blocks []string
	for _, module := range missingModules(b) {
		blocks = append(blocks, blockText(module, b))
	}
	return blocks
}

func missingModules(b client.Barrier) []string {
	var names []string
	for _, m := range b.Modules {
		if !m.Done {
			names = append(names, m.Module)
		}
	}
	return names
}
