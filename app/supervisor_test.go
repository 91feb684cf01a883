package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hubn/app/module"
)

// part is a module whose behaviour a test gives.
type part struct {
	name   string
	run    func(ctx context.Context, ready func()) error
	status func() module.Status
	routes []string
	http.Handler
}

func (p *part) Name() string                                { return p.name }
func (p *part) Run(ctx context.Context, ready func()) error { return p.run(ctx, ready) }
func (p *part) Routes() []string                            { return p.routes }
func (p *part) Status() module.Status {
	if p.status == nil {
		return module.Status{Ready: true}
	}
	return p.status()
}

func runUntilStopped(ctx context.Context, ready func()) error {
	ready()
	<-ctx.Done()
	return nil
}

func constantly(p *part) func() (module.Module, error) {
	return func() (module.Module, error) { return p, nil }
}

// testUnit is a unit whose log goes nowhere.
func testUnit(name string, construct func() (module.Module, error), needs ...*unit) *unit {
	return newUnit(name, slog.New(slog.DiscardHandler), construct, needs...)
}

// supervise runs units until the test ends.
func supervise(t *testing.T, units ...*unit) *supervisor {
	s := newSupervisor(units)
	s.start()
	t.Cleanup(func() {
		for _, u := range units {
			if err := s.stop(context.Background(), u); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

func TestFailedAndPanickingModulesStartAgainAndOthersGoOn(t *testing.T) {
	failures := map[string]func(){
		"error":             func() {},
		"panic":             func() { panic("out of cheese") },
		"returns by itself": nil,
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var constructed, otherStarts atomic.Int64
				flaky := testUnit("flaky", func() (module.Module, error) {
					n := constructed.Add(1)
					return &part{run: func(ctx context.Context, ready func()) error {
						if n > 3 {
							return runUntilStopped(ctx, ready)
						}
						if fail == nil {
							return nil
						}
						fail()
						return errors.New("no luck")
					}}, nil
				})
				steady := testUnit("steady", constantly(&part{run: func(ctx context.Context, ready func()) error {
					otherStarts.Add(1)
					return runUntilStopped(ctx, ready)
				}}))
				supervise(t, flaky, steady)
				<-flaky.wasReady
				<-steady.wasReady
				if got := constructed.Load(); got != 4 {
					t.Errorf("constructions of the flaky module: got %d, want 4, a new one for each start", got)
				}
				if got := flaky.restarts.Load(); got != 3 {
					t.Errorf("restarts: got %d, want 3", got)
				}
				if got := otherStarts.Load(); got != 1 {
					t.Errorf("starts of the steady module: got %d, want 1", got)
				}
			})
		})
	}
}

func TestConstructorThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		u := testUnit("late", func() (module.Module, error) {
			if tries.Add(1) == 1 {
				return nil, errors.New("the key file is not there yet")
			}
			return &part{run: runUntilStopped}, nil
		})
		supervise(t, u)
		synctest.Wait()
		if st := u.status(); st.Ready || !strings.Contains(st.Reason, "the key file is not there yet") {
			t.Errorf("status after a failed construction: %+v, want the cause", st)
		}
		<-u.wasReady
		if got := tries.Load(); got != 2 {
			t.Errorf("constructions: got %d, want 2", got)
		}
	})
}

// startTimes collects when something was started.
type startTimes struct {
	mu sync.Mutex
	at []time.Time
}

func (s *startTimes) add(t time.Time) (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, t)
	return len(s.at)
}

func (s *startTimes) all() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

func TestBackoffGrowsToItsLimitAndForgets(t *testing.T) {
	for failures := 1; failures < 100; failures++ {
		full := min(moduleBackoff.Limit, moduleBackoff.First<<min(failures-1, 20))
		if got := moduleBackoff.pause(failures); got < full/2 || got > full {
			t.Errorf("pause after %d failures: got %s, want between %s and %s", failures, got, full/2, full)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		var starts startTimes
		u := testUnit("tired", func() (module.Module, error) {
			n := starts.add(time.Now())
			return &part{run: func(ctx context.Context, ready func()) error {
				ready()
				if n == 6 {
					<-time.After(2 * moduleBackoff.Forget)
				}
				if n < 8 {
					return errors.New("tired")
				}
				<-ctx.Done()
				return nil
			}}, nil
		})
		supervise(t, u)
		<-time.After(time.Hour)
		at := starts.all()
		if len(at) != 8 {
			t.Fatalf("starts: got %d, want 8", len(at))
		}
		if got := at[5].Sub(at[4]); got < 2*time.Second {
			t.Errorf("pause after the fifth failure: got %s, want at least 2 s", got)
		}
		if got := at[6].Sub(at[5]) - 2*moduleBackoff.Forget; got > moduleBackoff.First {
			t.Errorf("pause after a long good run: got %s, want at most %s", got, moduleBackoff.First)
		}
	})
}

func TestModuleWaitsUntilWhatItNeedsWasReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		open := make(chan struct{})
		first := testUnit("first", constantly(&part{run: func(ctx context.Context, ready func()) error {
			<-open
			order = append(order, "first")
			return runUntilStopped(ctx, ready)
		}}))
		second := testUnit("second", constantly(&part{run: func(ctx context.Context, ready func()) error {
			order = append(order, "second")
			return runUntilStopped(ctx, ready)
		}}), first)
		supervise(t, second, first)
		synctest.Wait()
		if got := second.status().Reason; got != "waiting for first" {
			t.Errorf("reason: got %q", got)
		}
		close(open)
		<-second.wasReady
		if strings.Join(order, " ") != "first second" {
			t.Errorf("start order: got %v", order)
		}
	})
}

func TestStopDrainsUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := testUnit("slow", constantly(&part{run: func(ctx context.Context, ready func()) error {
			ready()
			<-ctx.Done()
			<-release
			return nil
		}}))
		s := supervise(t, slow)
		<-slow.wasReady
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.stop(ctx, slow)
		if err == nil || !strings.Contains(err.Error(), "module slow has not drained") {
			t.Errorf("stop before it drained: got %v", err)
		}
		if st := slow.status(); st.Ready {
			t.Error("a stopping module is ready")
		}
		close(release)
		if err := s.stop(t.Context(), slow); err != nil {
			t.Errorf("stop again: %v", err)
		}
		if got := slow.now().state; got != stopped {
			t.Errorf("state: got %s, want %s", got, stopped)
		}
	})
}

func TestStatusIsTheModulesOwnWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := module.Status{Ready: false, Reason: "312 changes behind"}
		u := testUnit("outbox", constantly(&part{run: runUntilStopped, status: func() module.Status { return behind }}))
		supervise(t, u)
		<-u.wasReady
		if got := u.status(); got.Ready || got.Reason != behind.Reason {
			t.Errorf("got %+v, want what the module says", got)
		}
	})
}

func TestVitalUnitThatCannotBeginEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := testUnit("postgres", func() (module.Module, error) { return nil, errors.New("PostgreSQL is not installed") })
		u.vital = true
		s := supervise(t, u)
		if err := <-s.fatal; err == nil || err.Error() != "PostgreSQL is not installed" {
			t.Errorf("got %v", err)
		}
	})
}

func TestVitalUnitThatHasBegunIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var constructed atomic.Int64
		u := testUnit("postgres", func() (module.Module, error) {
			if constructed.Add(1) > 1 {
				return &part{run: runUntilStopped}, nil
			}
			return &part{run: func(_ context.Context, ready func()) error {
				ready()
				return errors.New("killed")
			}}, nil
		})
		u.vital = true
		s := supervise(t, u)
		<-time.After(time.Minute)
		if got := u.now().state; got != ready || len(s.fatal) != 0 {
			t.Errorf("a minute after the server was killed: state %s, %d fatal errors; want ready and none", got, len(s.fatal))
		}
	})
}
