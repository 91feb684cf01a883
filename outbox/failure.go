package outbox

import (
	"sync"
	"time"
)

// backoffSQL is how long a lane whose event cannot be published waits: at most
// a second, doubling to five minutes, with full jitter; from the twentieth
// failure in a row a quarter of an hour, for ever. h is the settlement with the
// failures before it.
const backoffSQL = `
	CASE WHEN NOT h.advanced AND h.attempts + 1 >= 20 THEN (0.9 + 0.1 * random()) * interval '15 minutes'
	     ELSE random() * least(power(2, CASE WHEN h.advanced THEN 0 ELSE h.attempts END), 300) * interval '1 second' END`

// breaker stops a process from working while Redis takes nothing: a fault of
// Redis, or of the way to it, is no lane's failure.
//
//	closed ──fault──> open ──pause over──> trying ──success──> closed
//	                   ^                      │
//	                   └────────fault─────────┘
type breaker struct {
	min, max time.Duration

	mu     sync.Mutex
	open   bool
	trials int64 // begun so far
	trying int64 // the trial under way; 0: none
	pause  time.Duration
	until  time.Time
	since  time.Time
	cause  error
}

func newBreaker(minPause, maxPause time.Duration) *breaker {
	return &breaker{min: minPause, max: maxPause}
}

// permit is what a worker may do now.
type permit struct {
	// wait is how long to do nothing; 0: work.
	wait time.Duration
	// trial is not 0 for a batch that tries: it is small, and its end decides.
	trial int64
}

func (b *breaker) permit(now time.Time) permit {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return permit{}
	case b.trying != 0:
		return permit{wait: b.min}
	case now.Before(b.until):
		return permit{wait: b.until.Sub(now)}
	}
	b.trials++
	b.trying = b.trials
	return permit{trial: b.trying}
}

// failed notes a fault, and answers whether it opened the breaker.
func (b *breaker) failed(now time.Time, trial int64, cause error) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		b.open, b.since, b.pause, opened = true, now, b.min, true
	case trial != 0:
		b.trying = 0
		b.pause = min(2*b.pause, b.max)
	default:
		return false // a batch that was under way when it opened
	}
	b.cause = cause
	b.until = now.Add(jitter(b.pause))
	return opened
}

// succeeded notes that Redis took what it was sent, and answers whether that
// closed the breaker. Only a trial can: another batch may have begun before.
func (b *breaker) succeeded(trial int64) (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open || trial == 0 {
		return false
	}
	b.open, b.trying, b.cause = false, 0, nil
	return true
}

// ended notes the end of a batch: a trial that decided nothing, since the
// database failed or there was another worker in its way, makes room for the next.
func (b *breaker) ended(trial int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial != 0 && b.trying == trial {
		b.trying = 0
	}
}

// fault is since when and why nothing is published; nil while something is.
func (b *breaker) fault() (since time.Time, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return time.Time{}, nil
	}
	return b.since, b.cause
}
