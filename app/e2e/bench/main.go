// Command bench measures HubN against references in the same run, on servers of
// its own, and prints one line for each figure:
//
//	bench <name> <value> <unit> [<ratio> x <reference>]
//
// Its argument names one group; without it all groups run. What it is doing
// meanwhile goes to standard error.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// group measures some figures that belong together.
type group func(ctx context.Context, b *bench) error

// groups are what can be measured, by name.
var groups = map[string]group{
	"dev":      devGroup,
	"outbox":   inTurn(outboxGroup, consumerGroup),
	"registry": registryGroup,
}

// inTurn is a group of several, each on servers of its own.
func inTurn(parts ...group) group {
	return func(ctx context.Context, _ *bench) error {
		for _, part := range parts {
			b := &bench{}
			err := part(ctx, b)
			b.close()
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// helpers are what this program does in a process of its own for a group.
var helpers = map[string]func(ctx context.Context, args []string) error{
	"outbox-writer":   writeFromElsewhere,
	"registry-server": serveElsewhere,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && helpers[args[0]] != nil {
		return helpers[args[0]](ctx, args[1:])
	}
	names := slices.Sorted(maps.Keys(groups))
	if len(args) > 0 {
		names = args
	}
	for _, name := range names {
		measure, ok := groups[name]
		if !ok {
			return fmt.Errorf("there is no group %q: name one of %s", name, strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
		}
		b := &bench{}
		err := measure(ctx, b)
		b.close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// bench is one group's run: it prints figures and ends what the group started.
type bench struct{ cleanups []func() }

// atEnd runs f after the group, last first.
func (b *bench) atEnd(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *bench) close() {
	for _, f := range slices.Backward(b.cleanups) {
		f()
	}
}

// figure prints a value by itself.
func (b *bench) figure(name string, value float64, unit string) {
	fmt.Printf("bench %s %s %s\n", name, decimal(value), unit)
}

// compared prints a value and its ratio to that of a reference.
func (b *bench) compared(name string, value float64, unit string, ratio float64, reference string) {
	fmt.Printf("bench %s %s %s %s x %s\n", name, decimal(value), unit, decimal(ratio), reference)
}

// decimal writes a number plainly, with three digits that mean something.
func decimal(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// progress tells a waiting person what is going on.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// median is the middle value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile is the value that a share of the values does not exceed.
func percentile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
