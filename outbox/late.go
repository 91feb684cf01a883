package outbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// lateQueue is how many batches may hand over at once: several times the
// workers, so that none waits.
const lateQueue = 64

// sweepPauses are the moments after a failure of the database at which claims
// are looked for that nobody holds: the server may still be at a claim whose
// connection broke, and a crash may have forgotten an acknowledgement.
var sweepPauses = []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second}

// lateWork is what a batch could not finish itself.
type lateWork struct{ settlements []settlement }

// later hands work to settleLate. Where that is overwhelmed the leases expire.
func (w *Worker) later(work lateWork) {
	if len(work.settlements) == 0 {
		return
	}
	select {
	case w.late <- work:
	default:
		w.metrics.lateDropped.Add(float64(len(work.settlements)))
	}
}

// wantSweep asks for orphaned claims to be looked for.
func (w *Worker) wantSweep() {
	select {
	case w.sweeps <- struct{}{}:
	default:
	}
}

// lateState is owned by settleLate alone.
type lateState struct {
	waiting []settlement
	pause   time.Duration
	due     time.Time
	sweeps  []time.Time // when to look for orphans
}

// settleLate settles from memory what was locked by writers, and gives back
// claims that nobody holds. It ends with a last try of both.
func (w *Worker) settleLate(ctx context.Context) {
	state := &lateState{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(state.next(time.Now()))
		select {
		case <-ctx.Done():
			w.finishLate(context.WithoutCancel(ctx), state)
			return
		case work := <-w.late:
			state.add(work, w.pace.deferMin, time.Now())
			w.metrics.late.Set(float64(len(state.waiting)))
			if over := len(state.waiting) - deferredLanes; over > 0 {
				w.metrics.lateDropped.Add(float64(over))
				state.waiting = state.waiting[over:]
			}
		case <-w.sweeps:
			state.sweeps = state.sweeps[:0]
			for _, pause := range sweepPauses {
				state.sweeps = append(state.sweeps, time.Now().Add(pause))
			}
		case <-timer.C:
			w.retryLate(ctx, state, time.Now())
		}
	}
}

func (s *lateState) add(work lateWork, pause time.Duration, now time.Time) {
	s.waiting = append(s.waiting, work.settlements...)
	s.pause, s.due = pause, now.Add(pause)
}

// next is how long nothing is due.
func (s *lateState) next(now time.Time) time.Duration {
	wait := time.Hour
	if len(s.waiting) > 0 {
		wait = min(wait, s.due.Sub(now))
	}
	if len(s.sweeps) > 0 {
		wait = min(wait, s.sweeps[0].Sub(now))
	}
	return max(wait, 0)
}

func (w *Worker) retryLate(ctx context.Context, s *lateState, now time.Time) {
	if len(s.waiting) > 0 && !now.Before(s.due) {
		s.waiting = w.settleWaiting(ctx, s.waiting, now)
		s.pause = min(2*s.pause, w.pace.deferMax)
		s.due = now.Add(s.pause)
		w.metrics.late.Set(float64(len(s.waiting)))
	}
	if len(s.sweeps) == 0 || now.Before(s.sweeps[0]) {
		return
	}
	if err := w.releaseOrphans(ctx, s.waiting); err != nil {
		s.sweeps[0] = now.Add(w.pace.deferMax)
		return
	}
	s.sweeps = s.sweeps[1:]
}

// settleWaiting tries every waiting settlement whose lease has not run out, a
// batch at a time, and answers what still waits.
func (w *Worker) settleWaiting(ctx context.Context, waiting []settlement, now time.Time) (left []settlement) {
	for len(waiting) > 0 {
		n := min(claimLanes, len(waiting))
		var live []settlement
		for _, s := range waiting[:n] {
			if now.Before(s.expires) {
				live = append(live, s)
			}
		}
		waiting = waiting[n:]
		if len(live) == 0 {
			continue
		}
		locked, err := w.settleOnce(ctx, unique(live, &left))
		if err != nil {
			return append(append(left, live...), waiting...)
		}
		left = append(left, locked...)
		w.wake(again)
	}
	return left
}

// unique keeps the first settlement of every lane and defers the others: one
// statement can touch a row once only.
func unique(settlements []settlement, deferred *[]settlement) []settlement {
	seen := make(map[int64]bool, len(settlements))
	var first []settlement
	for _, s := range settlements {
		if seen[s.lane.id] {
			*deferred = append(*deferred, s)
			continue
		}
		seen[s.lane.id] = true
		first = append(first, s)
	}
	return first
}

// finishLate is the last try before the process ends.
func (w *Worker) finishLate(ctx context.Context, s *lateState) {
	ctx, cancel := context.WithTimeout(ctx, w.pace.settle)
	defer cancel()
	for drained := false; !drained; {
		select {
		case work := <-w.late:
			s.add(work, 0, time.Now())
		default:
			drained = true
		}
	}
	if left := w.settleWaiting(ctx, s.waiting, time.Now()); len(left) > 0 {
		w.log.Warn("claims could not be given back: they expire with their leases", "lanes", len(left))
	}
	if err := w.releaseOrphans(ctx, nil); err != nil {
		w.log.Warn("claims could not be looked for: if there are any, they expire with their leases", "error", err)
	}
}

// releaseSQL gives back what this process has claimed in batches that are over.
const releaseSQL = `
	UPDATE registry.outbox_lane
	SET claimed_by = NULL,
	    next_at = now()
	WHERE lane_id = ANY (ARRAY(
	  SELECT lane_id
	  FROM registry.outbox_lane
	  WHERE ready_at IS NOT NULL
	    AND next_at > now()
	    AND strpos(claimed_by, $1) > 0
	    AND NOT claimed_by = ANY (coalesce($2::text[], '{}'))
	  FOR NO KEY UPDATE SKIP LOCKED))`

// releaseOrphans gives back claims of this process that no batch and no waiting
// settlement holds. Were one held after all, the token and the fence would keep
// order.
func (w *Worker) releaseOrphans(ctx context.Context, waiting []settlement) error {
	held := w.active.names()
	for _, s := range waiting {
		held = append(held, s.lane.claimant)
	}
	err := w.transact(ctx, statement{releaseSQL, []any{w.claims, held}, func(pgx.Rows) error { return nil }})
	if err == nil {
		w.wake(again)
	}
	return err
}

// batches are the names of the claims that batches are working on.
type batches struct {
	mu   sync.Mutex
	name map[string]struct{}
}

func (b *batches) begin(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name[name] = struct{}{}
}

func (b *batches) end(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.name, name)
}

func (b *batches) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.name))
}
