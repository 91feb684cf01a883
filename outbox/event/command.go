package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

// CommandHandler carries out one command of a module. What it answers is the
// detail of the command's report; an error is reported as the command's
// failure, and the command is over. A command may come twice after a crash.
type CommandHandler func(ctx context.Context, command client.Command) (detail any, err error)

// ErrNotMine is what a handler answers when another instance is to carry out
// the command: it is acknowledged without a report.
var ErrNotMine = errors.New("another instance carries out the command")

// The library's own commands.
const (
	// CommandApprove lets a held withdrawal happen: {"held": 3}.
	CommandApprove = "approve"
	// CommandReject keeps what was held: {"held": 3}.
	CommandReject = "reject"
	// CommandReconcile asks for a full reconciliation.
	CommandReconcile = "reconcile"
)

// commandTimeout bounds a command.
const commandTimeout = 10 * time.Minute

// commandLimit bounds the commands that wait; more stay in Redis.
const commandLimit = 1000

// commandRunner carries out commands one after the other, reports and then
// acknowledges them.
type commandRunner struct {
	c *Consumer

	mu      sync.Mutex
	waiting []mark
	wake    chan struct{}
}

func newCommandRunner(c *Consumer) *commandRunner {
	return &commandRunner{c: c, wake: make(chan struct{}, 1)}
}

// put hands over commands; one that waits already gains the entries.
func (r *commandRunner) put(marks []mark) {
	if len(marks) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range marks {
		i := slices.IndexFunc(r.waiting, func(w mark) bool { return w.resource == m.resource })
		switch {
		case i >= 0:
			r.waiting[i] = merged(r.waiting[i], m)
		case len(r.waiting) < commandLimit:
			r.waiting = append(r.waiting, m)
		}
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *commandRunner) next() (mark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return mark{}, false
	}
	return r.waiting[0], true
}

// finish removes the command at the front, and answers it with the entries that
// it has by now.
func (r *commandRunner) finish() mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.waiting[0]
	r.waiting = r.waiting[1:]
	return m
}

func (r *commandRunner) run(ctx context.Context) error {
	for attempt := 0; ; {
		m, ok := r.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-r.wake:
			}
			continue
		}
		if err := r.carryOut(ctx, m); err != nil {
			attempt++
			r.c.log.Warn("a command waits", "command", m.resource, "error", err)
			if !wait(ctx, pause(attempt, r.c.set.FirstPause, r.c.set.LongestPause)) {
				return nil
			}
			continue
		}
		attempt = 0
		if m = r.finish(); len(m.ids) > 0 {
			if err := r.c.streams[m.stream].ack(ctx, m.ids); err != nil && ctx.Err() == nil {
				r.c.log.Warn("a command could not be acknowledged; it comes again and is recognised", "command", m.resource, "error", err)
			}
		}
	}
}

// carryOut fetches, runs and reports one command; its errors are those of not
// reaching the Registry.
func (r *commandRunner) carryOut(ctx context.Context, m mark) error {
	c := r.c
	if m.lineage != c.Lineage() {
		return nil // asked for in a history that is over
	}
	id, err := strconv.ParseInt(m.resource.Key, 10, 64)
	if err != nil {
		return nil // counted by nobody: the Registry makes no such key
	}
	command, err := c.registry.In(m.lineage).Command(ctx, id)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fetch the command: %w", err)
	}
	if command.Module != c.o.Module {
		return nil
	}
	if a := command.Answer; a != nil && a.Version >= m.version {
		return nil // answered before it could be acknowledged
	}
	detail, err := r.handle(ctx, command)
	if errors.Is(err, ErrNotMine) {
		return nil
	}
	if err != nil && ctx.Err() != nil {
		return err // the shutdown's doing; the command comes again
	}
	item := client.ReportItem{Resource: m.resource, Version: m.version, State: client.ReportApplied, FetchedAt: m.made}
	if err != nil {
		item.State, item.Reason = client.ReportFailed, err.Error()
	}
	if detail != nil {
		if item.Detail, err = json.Marshal(detail); err != nil {
			item.State, item.Reason, item.Detail = client.ReportFailed, fmt.Sprintf("the answer cannot be written as JSON: %v", err), nil
		}
	}
	c.metrics.commands.WithLabelValues(string(item.State)).Inc()
	return c.reports.send(ctx, m.lineage, []client.ReportItem{item})
}

func (r *commandRunner) handle(ctx context.Context, command client.Command) (detail any, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	r.c.log.Info("carrying out a command", "command", command.ID, "name", command.Name, "actor", command.Actor)
	switch command.Name {
	case CommandApprove:
		return r.decide(ctx, command, Approved)
	case CommandReject:
		return r.decide(ctx, command, Rejected)
	case CommandReconcile:
		return nil, r.c.Reconcile(ctx, "a command of "+command.Actor)
	}
	if handler := r.c.o.Commands[command.Name]; handler != nil {
		err = safely(func() (err error) {
			detail, err = handler(ctx, command)
			return err
		})
		return detail, err
	}
	return nil, fmt.Errorf("%s knows no command %q", r.c.o.Module, command.Name)
}

// decide notes an operator's decision on a held withdrawal. What is approved is
// withdrawn by a new scan, on the proof of that scan.
func (r *commandRunner) decide(ctx context.Context, command client.Command, decision Decision) (any, error) {
	var arguments struct {
		Held int64 `json:"held"`
	}
	if len(command.Arguments) > 0 {
		if err := json.Unmarshal(command.Arguments, &arguments); err != nil {
			return nil, fmt.Errorf(`the arguments cannot be read (%w): write {"held": NUMBER}`, err)
		}
	}
	sets, err := r.c.store.Holds(ctx)
	if err != nil {
		return nil, err
	}
	if arguments.Held == 0 && len(sets) == 1 {
		arguments.Held = sets[0].ID
	}
	i := slices.IndexFunc(sets, func(s HeldSet) bool { return s.ID == arguments.Held })
	if i < 0 {
		numbers := make([]int64, len(sets))
		for i, s := range sets {
			numbers[i] = s.ID
		}
		return nil, fmt.Errorf(`there is no held withdrawal %d; held now: %v; write {"held": NUMBER}`, arguments.Held, numbers)
	}
	if _, err := r.c.store.Decide(ctx, arguments.Held, decision, command.Actor); err != nil {
		return nil, err
	}
	if err := r.c.countHeld(ctx); err != nil {
		return nil, err
	}
	if decision == Approved {
		if err := r.c.Reconcile(ctx, fmt.Sprintf("held withdrawal %d was approved", arguments.Held)); err != nil {
			return nil, err
		}
	}
	return map[string]any{"held": arguments.Held, "decision": decision, "sources": len(sets[i].Resources)}, nil
}
