package registry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"hubn/registry/client"
)

// redisTimeout bounds a question to Redis: what it would have answered is then
// missing from the answer, which says so.
const redisTimeout = 2 * time.Second

var errNoRedis = errors.New("this Registry has no Redis to ask")

// readFence adds what Redis holds of a lane.
func (s *service) readFence(ctx context.Context, d *client.OutboxLaneDetail) {
	if d.Epoch == "" {
		d.FenceError = "its stream has no epoch yet: nothing was published"
		return
	}
	fence, err := s.fence(ctx, d.Stream, d.Epoch, d.Lane)
	switch {
	case err == nil:
		d.Fence = &fence
	case errors.Is(err, redis.Nil):
	default:
		d.FenceError = err.Error()
	}
}

func (s *service) fence(ctx context.Context, stream int, epoch string, lane int64) (int64, error) {
	if s.redis == nil {
		return 0, errNoRedis
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	return s.redis.HGet(ctx, s.names.Fence(stream, epoch), strconv.FormatInt(lane, 10)).Int64()
}

// measureStreams adds what Redis holds of streams, and answers why it could not.
func (s *service) measureStreams(ctx context.Context, streams []client.OutboxStream) string {
	if s.redis == nil {
		return errNoRedis.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	for i := range streams {
		if err := s.measureStream(ctx, &streams[i]); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (s *service) measureStream(ctx context.Context, o *client.OutboxStream) error {
	key := s.names.Stream(o.Stream)
	length, err := s.redis.XLen(ctx, key).Result()
	if err != nil {
		return err
	}
	o.Length = &length
	if exists, err := s.redis.Exists(ctx, key).Result(); err != nil || exists == 0 {
		return err
	}
	info, err := s.redis.XInfoStream(ctx, key).Result()
	if err != nil {
		return err
	}
	groups, err := s.redis.XInfoGroups(ctx, key).Result()
	if err != nil {
		return err
	}
	for _, g := range groups {
		group := client.OutboxGroup{Group: g.Name, Pending: g.Pending, LastDelivered: g.LastDeliveredID}
		// A group that began in the middle does not know how many it has read.
		if g.EntriesRead > 0 || g.LastDeliveredID == "0-0" {
			lag := info.EntriesAdded - g.EntriesRead
			group.Lag, group.Trimmed = &lag, lag > length
		}
		o.Groups = append(o.Groups, group)
	}
	return nil
}
