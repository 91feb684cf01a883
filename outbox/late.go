package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// lateQueue is how many batches may hand over at once: several times the
// workers, so that none waits.
const lateQueue = 64

// doubtPauses are the moments after a claim without an answer at which its lanes
// are looked for: the server may still be at it when the connection breaks.
var doubtPauses = []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second}

// lateWork is what a batch could not finish itself.
type lateWork struct {
	settlements []settlement
	// doubtful names a claim whose answer was lost.
	doubtful string
}

// later hands work to settleLate. Where that is overwhelmed the leases expire.
func (w *Worker) later(work lateWork) {
	if len(work.settlements) == 0 && work.doubtful == "" {
		return
	}
	select {
	case w.late <- work:
	default:
		w.metrics.lateDropped.Add(float64(len(work.settlements)))
	}
}

// doubt is a claim that may have been made.
type doubt struct {
	claimant string
	tries    int
	at       time.Time
}

// lateState is owned by settleLate alone.
type lateState struct {
	waiting []settlement
	pause   time.Duration
	due     time.Time
	doubts  []doubt
}

// settleLate settles from memory what was locked by writers, and gives back what
// lost claims hold. It ends with a last try of both.
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
		case <-timer.C:
			w.retryLate(ctx, state, time.Now())
		}
	}
}

func (s *lateState) add(work lateWork, pause time.Duration, now time.Time) {
	if len(work.settlements) > 0 {
		s.waiting = append(s.waiting, work.settlements...)
		s.pause, s.due = pause, now.Add(pause)
	}
	if work.doubtful != "" {
		s.doubts = append(s.doubts, doubt{claimant: work.doubtful, at: now.Add(doubtPauses[0])})
	}
}

// next is how long nothing is due.
func (s *lateState) next(now time.Time) time.Duration {
	wait := time.Hour
	if len(s.waiting) > 0 {
		wait = min(wait, s.due.Sub(now))
	}
	for _, d := range s.doubts {
		wait = min(wait, d.at.Sub(now))
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
	var left []doubt
	for _, d := range s.doubts {
		if now.Before(d.at) {
			left = append(left, d)
			continue
		}
		if err := w.releaseClaim(ctx, d.claimant); err != nil {
			d.at = now.Add(w.pace.deferMax)
			left = append(left, d)
			continue
		}
		if d.tries++; d.tries < len(doubtPauses) {
			d.at = now.Add(doubtPauses[d.tries])
			left = append(left, d)
		}
	}
	s.doubts = left
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
	for _, d := range s.doubts {
		if err := w.releaseClaim(ctx, d.claimant); err != nil {
			w.log.Warn("a claim without an answer could not be given back: it expires with its lease", "error", err)
		}
	}
}

// releaseSQL gives back what a claim holds, if it was made at all.
const releaseSQL = `
	UPDATE registry.outbox_lane
	SET claimed_by = NULL,
	    next_at = now()
	WHERE lane_id = ANY (ARRAY(
	  SELECT lane_id
	  FROM registry.outbox_lane
	  WHERE ready_at IS NOT NULL
	    AND next_at > now()
	    AND claimed_by = $1
	  FOR NO KEY UPDATE SKIP LOCKED))`

func (w *Worker) releaseClaim(ctx context.Context, claimant string) error {
	return w.transact(ctx, statement{releaseSQL, []any{claimant}, func(pgx.Rows) error { return nil }})
}
