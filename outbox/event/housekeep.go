package event

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// forgottenAfter is how long a replica must not have been seen in Redis before
// its name there is removed.
const forgottenAfter = 24 * time.Hour

// dropConsumer removes a consumer of a group, unless entries are pending for it:
// they would be acknowledged by nobody.
var dropConsumer = redis.NewScript(`
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return 0`)

// housekeep removes what replicas that are gone left behind in Redis: their
// names in a shared group, or their own groups, when they were not seen for as
// long as after says. It is for tidiness alone and
// gives up at the first error.
func (c *Consumer) housekeep(ctx context.Context, after time.Duration) {
	for _, s := range c.streams {
		groups, err := c.o.Redis.XInfoGroups(ctx, s.key).Result()
		if err != nil {
			return
		}
		for _, g := range groups {
			if err := c.housekeepGroup(ctx, s, g.Name, after); err != nil {
				return
			}
		}
	}
}

func (c *Consumer) housekeepGroup(ctx context.Context, s stream, group string, after time.Duration) error {
	own := group == s.group
	if !own && (!c.o.EveryInstance || !strings.HasPrefix(group, c.o.Module+"/")) {
		return nil
	}
	consumers, err := c.o.Redis.XInfoConsumers(ctx, s.key, group).Result()
	if err != nil {
		return err
	}
	alive := len(consumers) == 0 // a group that was just made
	for _, one := range consumers {
		if one.Idle < after || one.Name == s.consumer {
			alive = true
		} else if own {
			if err := dropConsumer.Run(ctx, c.o.Redis, []string{s.key}, group, one.Name).Err(); err != nil {
				return err
			}
		}
	}
	if own || alive {
		return nil
	}
	c.log.Info("the group of an instance that is gone is removed", "stream", s.key, "group", group)
	return c.o.Redis.XGroupDestroy(ctx, s.key, group).Err()
}
