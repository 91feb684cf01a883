package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubn/app/module"
)

// backoff bounds the pause before a failed unit is started again.
type backoff struct {
	// First is the pause after the first failure.
	First time.Duration
	// Limit is the longest pause.
	Limit time.Duration
	// Forget is how long a unit must have been ready for its next failure to
	// count as the first.
	Forget time.Duration
}

// moduleBackoff retries fast enough that a restarted database is noticed within
// a second, and slowly enough that a lasting fault costs nothing.
var moduleBackoff = backoff{First: 250 * time.Millisecond, Limit: 30 * time.Second, Forget: time.Minute}

// pause is the time to wait after a number of failures in a row: doubling, and
// between half and all of that, so that replicas do not retry in step.
func (b backoff) pause(failures int) time.Duration {
	d := b.Limit
	if shift := failures - 1; shift < 16 {
		d = min(b.Limit, b.First<<shift)
	}
	return d/2 + rand.N(d/2+1)
}

// unitState is where a unit is in its life:
//
//	waiting ──> starting ──> ready ──> stopping ──> stopped
//	   │           │  ^        │           ^
//	   │           v  │        │           │
//	   │          failed <─────┘           │
//	   └───────────┴───────────────────────┘
//
// A unit waits until those that it needs have been ready once. It is starting
// until its module calls ready, failed while it waits for its next start, and
// stopped for good after that.
type unitState string

const (
	waiting  unitState = "waiting"
	starting unitState = "starting"
	ready    unitState = "ready"
	failed   unitState = "failed"
	stopping unitState = "stopping"
	stopped  unitState = "stopped"
)

// unit is one module under supervision. Its goroutine alone writes it; everyone
// else reads immutable snapshots.
type unit struct {
	name      string
	needs     []*unit
	construct func() (module.Module, error)
	// vital: without it the process cannot begin. If it fails before it was
	// ever ready, the process ends with its error; after that it is like others.
	vital bool
	log   *slog.Logger

	life     atomic.Pointer[life]
	instance atomic.Pointer[instance]
	restarts atomic.Int64
	// metrics are those of the current instance: a new instance registers its
	// own, which an old one's would forbid.
	metrics atomic.Pointer[prometheus.Registry]

	// wasReady closes when the unit is ready for the first time.
	wasReady  chan struct{}
	firstTime sync.Once

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

// newUnit is a unit that is not started yet.
func newUnit(name string, log *slog.Logger, construct func() (module.Module, error), needs ...*unit) *unit {
	ctx, cancel := context.WithCancel(context.Background())
	u := &unit{
		name: name, needs: needs, construct: construct, log: log.With("module", name),
		wasReady: make(chan struct{}), ctx: ctx, cancel: cancel, done: make(chan struct{}),
	}
	u.enter(waiting, "not started yet")
	return u
}

// life is a moment in a unit's life.
type life struct {
	state unitState
	since time.Time
	// reason says why, for a state that is not ready.
	reason string
}

// instance is one construction of a module.
type instance struct {
	module module.Module
	// serving is whether its handler may be called: it has been ready.
	serving atomic.Bool
}

// supervisor runs units, starts those that fail again, and never stops one for
// the failure of another.
type supervisor struct {
	units   []*unit
	backoff backoff
	// fatal receives the error of a vital unit that could not begin.
	fatal chan error
}

func newSupervisor(units []*unit) *supervisor {
	return &supervisor{units: units, backoff: moduleBackoff, fatal: make(chan error, len(units))}
}

// start begins to run every unit.
func (s *supervisor) start() {
	for _, u := range s.units {
		u.enter(waiting, "")
		go s.supervise(u)
	}
}

// stop ends one unit and waits until it has drained its work or the deadline of
// ctx has passed.
func (s *supervisor) stop(ctx context.Context, u *unit) error {
	u.cancel()
	select {
	case <-u.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("module %s has not drained its work in time", u.name)
	}
}

// supervise is the life of one unit.
func (s *supervisor) supervise(u *unit) {
	defer close(u.done)
	defer u.enter(stopped, "")
	if !u.waitForNeeds() {
		return
	}
	for failures := 0; ; {
		u.enter(starting, "")
		ranReady, err := u.runOnce()
		if u.ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				u.log.Warn("module ended with an error while stopping", "error", err)
			}
			return
		}
		if u.vital && !u.begun() {
			u.enter(failed, err.Error())
			s.fatal <- err
			<-u.ctx.Done()
			return
		}
		if ranReady >= s.backoff.Forget {
			failures = 0
		}
		failures++
		u.restarts.Add(1)
		pause := s.backoff.pause(failures).Round(time.Millisecond)
		u.log.Error("module failed; it is started again", "error", err, "failures", failures, "pause", pause)
		u.enter(failed, fmt.Sprintf("failed %d times in a row, next start in %s: %v", failures, pause, err))
		select {
		case <-u.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// begun tells whether the unit has ever been ready.
func (u *unit) begun() bool {
	select {
	case <-u.wasReady:
		return true
	default:
		return false
	}
}

// waitForNeeds returns when every needed unit has been ready once; false if the
// unit is to stop before that.
func (u *unit) waitForNeeds() bool {
	for _, need := range u.needs {
		u.enter(waiting, "waiting for "+need.name)
		select {
		case <-need.wasReady:
		case <-u.ctx.Done():
			return false
		}
	}
	return u.ctx.Err() == nil
}

// runOnce constructs a module and runs it to its end, and says for how long it
// was ready. A panic in Run is an error like any other.
func (u *unit) runOnce() (ranReady time.Duration, err error) {
	current := &instance{}
	defer func() {
		current.serving.Store(false)
		if l := u.life.Load(); l.state == ready {
			ranReady = time.Since(l.since)
		}
		if p := recover(); p != nil {
			u.log.Error("module panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if current.module, err = u.construct(); err != nil {
		return 0, err
	}
	u.instance.Store(current)
	err = current.module.Run(u.ctx, func() { u.becomeReady(current) })
	if err == nil && u.ctx.Err() == nil {
		err = errors.New("the module returned without being asked to stop")
	}
	return ranReady, err
}

// becomeReady is what an instance's ready calls.
func (u *unit) becomeReady(current *instance) {
	if u.instance.Load() != current || current.serving.Swap(true) || u.ctx.Err() != nil {
		return
	}
	u.enter(ready, "")
	u.firstTime.Do(func() { close(u.wasReady) })
	u.log.Debug("module is ready")
}

func (u *unit) enter(state unitState, reason string) {
	u.life.Store(&life{state: state, since: time.Now(), reason: reason})
}

// now is where the unit is in its life.
func (u *unit) now() life {
	l := *u.life.Load()
	if u.ctx.Err() != nil && l.state != stopped {
		l.state, l.reason = stopping, "draining its work"
	}
	return l
}

// status is what the unit is now: its own state, and, while it is ready, what
// its module says.
func (u *unit) status() module.Status {
	l := u.now()
	current := u.instance.Load()
	if l.state == ready {
		st := current.module.Status()
		if st.Since.IsZero() {
			st.Since = l.since
		}
		return st
	}
	st := module.Status{Reason: string(l.state), Since: l.since}
	if l.reason != "" {
		st.Reason = l.reason
	} else if l.state == starting && current != nil {
		if own := current.module.Status(); own.Reason != "" {
			st.Reason = "starting: " + own.Reason
		}
	}
	return st
}
