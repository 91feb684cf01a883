package event

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Lease is the key that says which replica of a group owns a stream.
func (n Names) Lease(no int, group string) string { return n.tag(no) + ":lease:" + group }

// Members is the key of a group's replicas and until when each is alive.
func (n Names) Members(group string) string { return n.Prefix + ":members:" + group }

// renewLease extends a lease that is still the caller's.
var renewLease = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0`)

// dropLease removes a lease that is still the caller's.
var dropLease = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`)

// shardSet divides the streams of a group among its replicas: each takes its
// part of those that nobody owns, and gives back what is more than that. The
// leases keep replicas out of each other's way; what keeps the order is the
// version check of every write.
type shardSet struct {
	c        *Consumer
	holder   string
	sessions map[int]*session
	free     map[int]time.Time // since when a stream is seen without owner
}

// session is one stream's ownership. It ends by itself once it is cancelled: it
// finishes what it has in hand, and the replica's other streams do not wait for it.
type session struct {
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // after done
	renewed time.Time
	// leaving says that it was cancelled; returning, that the lease is to be given back.
	leaving, returning bool
}

func (s *session) leave(giveBack bool) {
	s.cancel()
	s.leaving, s.returning = true, giveBack
}

// runShards follows the streams that this replica owns, until ctx is done.
func (c *Consumer) runShards(ctx, hand context.Context) error {
	if c.o.EveryInstance {
		return c.runAllShards(ctx, hand)
	}
	s := &shardSet{
		c: c, holder: c.o.Instance + "@" + strconv.FormatInt(c.started.UnixNano(), 36),
		sessions: map[int]*session{}, free: map[int]time.Time{},
	}
	defer s.leave(hand)
	for {
		if err := s.tend(ctx, hand); err != nil {
			return err
		}
		if !wait(ctx, c.set.ShardLease/6) {
			return nil
		}
	}
}

// runAllShards follows every stream, in a group of the replica's own.
func (c *Consumer) runAllShards(ctx, hand context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for no := range c.streams {
		g.Go(guard("stream "+strconv.Itoa(no), func() error { return newShard(c, no).run(ctx, hand) }))
	}
	c.shards.Store(Streams)
	c.metrics.shards.Set(Streams)
	err := g.Wait()
	// The group is of this run alone: the next one begins with a scan.
	for _, s := range c.streams {
		_ = c.o.Redis.XGroupDestroy(hand, s.key, s.group).Err()
	}
	return err
}

// tend renews, takes and gives back. Its error is that of a session that broke.
func (s *shardSet) tend(ctx, hand context.Context) error {
	if err := s.collect(hand); err != nil {
		return err
	}
	for no, held := range s.sessions {
		s.renew(ctx, no, held)
	}
	members, err := s.announce(ctx)
	s.c.health.set(partRedis, err)
	if err != nil || ctx.Err() != nil {
		return nil
	}
	part := (Streams + members - 1) / members
	for no := Streams - 1; no >= 0 && s.owned() > part; no-- {
		if held := s.sessions[no]; held != nil && !held.leaving {
			held.leave(true)
		}
	}
	for no := range Streams {
		if s.sessions[no] == nil {
			s.take(ctx, hand, no, part)
		}
	}
	s.c.shards.Store(int64(s.owned()))
	s.c.metrics.shards.Set(float64(s.owned()))
	return nil
}

// collect buries the sessions that have ended, and gives their leases back.
func (s *shardSet) collect(hand context.Context) error {
	for no, held := range s.sessions {
		select {
		case <-held.done:
			delete(s.sessions, no)
			if held.err != nil {
				return fmt.Errorf("stream %d: %w", no, held.err)
			}
			if held.returning {
				s.giveBack(hand, no)
			}
		default:
		}
	}
	return nil
}

// owned is how many streams this replica has and keeps.
func (s *shardSet) owned() (n int) {
	for _, held := range s.sessions {
		if !held.leaving {
			n++
		}
	}
	return n
}

// renew extends a lease, also that of a session that is leaving but not done. A
// session whose lease could not be renewed in time ends.
func (s *shardSet) renew(ctx context.Context, no int, held *session) {
	asked := time.Now()
	lease := s.c.set.ShardLease
	kept, err := renewLease.Run(ctx, s.c.o.Redis, []string{s.key(no)}, s.holder, lease.Milliseconds()).Int()
	switch {
	case err == nil && kept == 1:
		held.renewed = asked
	case held.leaving || ctx.Err() != nil:
	case err == nil, time.Since(held.renewed) > lease:
		s.c.log.Warn("the lease of a stream was lost", "stream", no, "error", err)
		held.leave(false)
	}
}

// announce says that this replica is alive, and answers how many are.
func (s *shardSet) announce(ctx context.Context) (int, error) {
	now, err := s.c.o.Redis.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	key := s.c.o.Names.Members(s.c.o.Module)
	until := now.Add(s.c.set.ShardLease)
	pipe := s.c.o.Redis.Pipeline()
	pipe.ZAdd(ctx, key, redis.Z{Score: float64(until.UnixMilli()), Member: s.holder})
	pipe.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
	count := pipe.ZCard(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	return max(int(count.Val()), 1), nil
}

// take tries to own a stream, if it belongs to this replica's part, or if
// nobody has wanted it for two leases.
func (s *shardSet) take(ctx, hand context.Context, no, part int) {
	lease := s.c.set.ShardLease
	if s.owned() >= part {
		since, seen := s.free[no]
		owned, err := s.c.o.Redis.Exists(ctx, s.key(no)).Result()
		switch {
		case err != nil || owned == 1:
			delete(s.free, no)
			return
		case !seen:
			s.free[no] = time.Now()
			return
		case time.Since(since) < 2*lease:
			return
		}
	}
	asked := time.Now()
	got, err := s.c.o.Redis.SetNX(ctx, s.key(no), s.holder, lease).Result()
	if err != nil || !got {
		return
	}
	delete(s.free, no)
	shardCtx, cancel := context.WithCancel(ctx)
	held := &session{cancel: cancel, done: make(chan struct{}), renewed: asked}
	s.sessions[no] = held
	run := guard("stream "+strconv.Itoa(no), func() error { return newShard(s.c, no).run(shardCtx, hand) })
	go func() {
		defer close(held.done)
		held.err = run()
	}()
}

// giveBack makes a stream free for another replica at once.
func (s *shardSet) giveBack(hand context.Context, no int) {
	if err := dropLease.Run(hand, s.c.o.Redis, []string{s.key(no)}, s.holder).Err(); err != nil {
		s.c.log.Debug("the lease of a stream could not be given back; it expires", "stream", no, "error", err)
	}
}

// leave gives everything back at the end.
func (s *shardSet) leave(hand context.Context) {
	for _, held := range s.sessions {
		held.cancel()
	}
	for no, held := range s.sessions {
		<-held.done
		s.giveBack(hand, no)
	}
	_ = s.c.o.Redis.ZRem(hand, s.c.o.Names.Members(s.c.o.Module), s.holder).Err()
	s.c.shards.Store(0)
	s.c.metrics.shards.Set(0)
}

func (s *shardSet) key(no int) string { return s.c.o.Names.Lease(no, s.c.o.Module) }
