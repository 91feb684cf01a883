package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Unreadable is the kind of an entry that Tail cannot read; its Payload holds
// the entry's fields.
const Unreadable Kind = "unreadable"

const (
	// tailBlock is how long one read of a follower waits.
	tailBlock = 500 * time.Millisecond
	// tailBatch is how many entries one read of a follower takes.
	tailBatch = 500
	// tailRetry is the pause after Redis did not answer.
	tailRetry = time.Second
)

// Tail follows all streams and calls each for every entry, one call at a time,
// until ctx is done or each returns an error. It belongs to no group and
// acknowledges nothing. from is "$" for what comes from now on, "0" for all
// that is left, or a stream id. Within a stream the order is that of the
// stream; between streams there is none. While Redis is away it waits.
func Tail(ctx context.Context, rdb redis.UniversalClient, names Names, from string, each func(Event) error) error {
	if err := checkFrom(from); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	call := func(e Event) error {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		return each(e)
	}
	// Redis Cluster reads streams of different slots in different calls.
	var wg sync.WaitGroup
	for no := range Streams {
		wg.Go(func() {
			if err := tailStream(ctx, rdb, names.Stream(no), no, from, call); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func checkFrom(from string) error {
	if from == "$" {
		return nil
	}
	at, seq, dashed := strings.Cut(from, "-")
	_, err := strconv.ParseUint(at, 10, 64)
	if err == nil && dashed {
		_, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil {
		return fmt.Errorf(`%q is no place in a stream: write "$" for new events, "0" for all, or an id such as 1700000000000-0`, from)
	}
	return nil
}

func tailStream(ctx context.Context, rdb redis.UniversalClient, key string, no int, from string, call func(Event) error) error {
	at := from
	for ctx.Err() == nil {
		if at == "$" {
			// The place is taken once: a later "$" would skip what came between two reads.
			last, err := rdb.XRevRangeN(ctx, key, "+", "-", 1).Result()
			if err != nil {
				wait(ctx, tailRetry)
				continue
			}
			at = "0-0"
			if len(last) > 0 {
				at = last[0].ID
			}
		}
		got, err := rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{key, at}, Count: tailBatch, Block: tailBlock}).Result()
		if err != nil {
			if !errors.Is(err, redis.Nil) {
				wait(ctx, tailRetry)
			}
			continue
		}
		for _, s := range got {
			for _, m := range s.Messages {
				at = m.ID
				if err := call(tailed(no, m)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func tailed(no int, m redis.XMessage) Event {
	e, err := Parse(no, m.Values)
	if err != nil {
		e.Kind = Unreadable
		e.Payload, _ = json.Marshal(m.Values) // strings only
	}
	return e
}
