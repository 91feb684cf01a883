package event

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// delivery is one entry of a stream as a consumer group delivers it.
type delivery struct {
	id    string
	event Event
	// err is why the entry cannot be read; the event is then empty.
	err error
	// trimmed says that the entry was trimmed from the stream while it was pending.
	trimmed bool
	// count is how often it was delivered before; known of recovered entries only.
	count int64
}

// stream is one stream as one consumer of one group sees it.
type stream struct {
	redis    redis.UniversalClient
	no       int
	key      string
	group    string
	consumer string
}

// create makes the group, and the stream with it, and tells whether it did; a
// group that exists is left as it is.
func (s stream) create(ctx context.Context, from string) (bool, error) {
	err := s.redis.XGroupCreateMkStream(ctx, s.key, s.group, from).Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return false, nil
	}
	return err == nil, err
}

// isNoGroup tells whether Redis says that the stream or the group is not there.
func isNoGroup(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "no such key"))
}

// read delivers new entries; it waits up to block for the first one, and not at
// all when block is negative.
func (s stream) read(ctx context.Context, count int, block time.Duration) ([]delivery, error) {
	return s.readFrom(ctx, ">", count, block)
}

// own delivers entries after an id again that this consumer was given before
// and has not acknowledged.
func (s stream) own(ctx context.Context, after string, count int) ([]delivery, error) {
	return s.readFrom(ctx, after, count, -1)
}

func (s stream) readFrom(ctx context.Context, from string, count int, block time.Duration) ([]delivery, error) {
	if block >= 0 {
		block = max(block, time.Millisecond) // 0 would wait for ever
	}
	answer, err := s.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: s.group, Consumer: s.consumer, Streams: []string{s.key, from}, Count: int64(count), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []delivery
	for _, one := range answer {
		out = append(out, s.parse(one.Messages)...)
	}
	return out, nil
}

// claim takes over entries that no consumer of the group has touched for
// minIdle, from an id on; next is where to go on, "0-0" at the end.
func (s stream) claim(ctx context.Context, minIdle time.Duration, from string, count int) (got []delivery, next string, err error) {
	messages, next, deleted, err := s.redis.XAutoClaimWithDeleted(ctx, &redis.XAutoClaimArgs{
		Stream: s.key, Group: s.group, Consumer: s.consumer, MinIdle: minIdle, Start: from, Count: int64(count),
	}).Result()
	if err != nil {
		return nil, "", err
	}
	got = s.parse(messages)
	for _, id := range deleted {
		got = append(got, delivery{id: id, trimmed: true})
	}
	return got, next, nil
}

// counts answers how often pending entries of this consumer were delivered.
func (s stream) counts(ctx context.Context, first, last string, count int) (map[string]int64, error) {
	pending, err := s.redis.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.key, Group: s.group, Consumer: s.consumer, Start: first, End: last, Count: int64(count),
	}).Result()
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(pending))
	for _, p := range pending {
		out[p.ID] = p.RetryCount
	}
	return out, nil
}

func (s stream) ack(ctx context.Context, ids []string) error {
	// 1,000 a call: far below what Redis refuses, and short enough not to hold
	// up its other clients.
	for len(ids) > 0 {
		n := min(len(ids), 1000)
		if err := s.redis.XAck(ctx, s.key, s.group, ids[:n]...).Err(); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func (s stream) parse(messages []redis.XMessage) []delivery {
	out := make([]delivery, len(messages))
	for i, m := range messages {
		out[i].id = m.ID
		if len(m.Values) == 0 {
			out[i].trimmed = true
			continue
		}
		out[i].event, out[i].err = Parse(s.no, m.Values)
	}
	return out
}
