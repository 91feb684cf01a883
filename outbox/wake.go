package outbox

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// source is what woke a worker.
type source string

const (
	hint       source = "hint"       // somebody committed
	polled     source = "poll"       // the database may hold what nobody told of
	full       source = "full"       // a batch was full: there is more
	again      source = "again"      // a batch was not empty, or something was repaired
	subscribed source = "subscribed" // hints may have been missed before
)

// wake wakes one worker of this process. One wake-up is kept while all are
// busy; more would find nothing new.
func (w *Worker) wake(s source) {
	select {
	case w.wakes <- s:
	default:
	}
}

// poll wakes a worker at the busy pace, and more and more slowly while hints and
// batches show that nothing happens.
func (w *Worker) poll(ctx context.Context) {
	pause := w.pace.busy
	seen := w.taken.Load()
	for sleep(ctx, jitter(pause)) {
		w.wake(polled)
		taken := w.taken.Load()
		if taken != seen {
			pause = w.pace.busy
		} else {
			pause = min(pause*3/2, w.pace.idle)
		}
		seen = taken
	}
}

// listen wakes a worker for every hint. Each process gets every hint; the one
// that takes the turn claims at once, while the others only look sooner than
// they would have: so one worker claims, and a process that took the turn and
// hangs delays nobody by more than a busy poll.
func (w *Worker) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.subscribe(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug("hints are not heard: the database is polled", "error", err)
		}
		sleep(ctx, jitter(w.pace.idle))
	}
}

// subscribe hears hints until the connection fails. A connection that is half
// open is found by pings.
func (w *Worker) subscribe(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub := w.redis.Subscribe(ctx, w.names.Wake())
	defer func() { _ = sub.Close() }()
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	messages := make(chan any)
	failed := make(chan error, 1)
	go func() { failed <- receive(ctx, sub, messages) }()
	pings := time.NewTicker(w.pace.redis)
	defer pings.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-late.C:
			w.wake(hint)
		case <-pings.C:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		case m := <-messages:
			switch m.(type) {
			case *redis.Subscription:
				w.wake(subscribed)
			case *redis.Message:
				if w.takeTurn(ctx) {
					w.wake(hint)
				} else {
					late.Reset(jitter(w.pace.busy))
				}
			}
		}
	}
}

// receive hands on what the subscription says, until it fails or ctx is done.
// Silence for two pings is a failure.
func receive(ctx context.Context, sub *redis.PubSub, messages chan<- any) error {
	for {
		m, err := sub.ReceiveTimeout(ctx, silence)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case messages <- m:
		}
	}
}

// silence is how long a subscription may say nothing at all: it is pinged more
// than twice meanwhile.
const silence = 12 * time.Second

// turnTime is how long a turn lasts after the last hint that was acted on: a
// busy poll, after which the others would look anyway.
const turnTime = 100 * time.Millisecond

// takeTurn asks Redis whether this process is the one to act on a hint. Where it
// cannot say, everybody acts.
func (w *Worker) takeTurn(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	key := w.names.Wake() + ":turn"
	taken, err := w.redis.SetNX(ctx, key, w.instance, turnTime).Result()
	if err != nil || taken {
		return true
	}
	holder, err := w.redis.Get(ctx, key).Result()
	return err != nil || holder == w.instance
}
