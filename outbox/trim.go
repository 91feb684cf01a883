package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
)

// entryID is the id of a stream entry: milliseconds and a number within one.
type entryID struct{ ms, n uint64 }

func parseEntryID(s string) (entryID, error) {
	ms, n, _ := strings.Cut(s, "-")
	var id entryID
	var err error
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return id, fmt.Errorf("%q is no id of a stream entry", s)
	}
	if n != "" {
		if id.n, err = strconv.ParseUint(n, 10, 64); err != nil {
			return id, fmt.Errorf("%q is no id of a stream entry", s)
		}
	}
	return id, nil
}

func (id entryID) String() string { return fmt.Sprintf("%d-%d", id.ms, id.n) }

func (id entryID) before(other entryID) bool {
	return id.ms < other.ms || id.ms == other.ms && id.n < other.n
}

// ageID is the first id that an entry of a time can have.
func ageID(at time.Time) entryID { return entryID{ms: uint64(max(at.UnixMilli(), 0))} }

// trimTo is the first entry to keep: entries younger than age always, those that
// a group has not read or not acknowledged until maxAge.
func trimTo(now time.Time, age, maxAge time.Duration, unread []entryID) entryID {
	to := ageID(now.Add(-age))
	for _, id := range unread {
		if id.before(to) {
			to = id
		}
	}
	if oldest := ageID(now.Add(-maxAge)); to.before(oldest) {
		to = oldest
	}
	return to
}

// trimStreams removes old entries from every stream, by Redis's clock, since the
// ids are of it.
func (w *Worker) trimStreams(ctx context.Context) error {
	now, err := w.redis.Time(ctx).Result()
	if err != nil {
		return err
	}
	for no := range event.Streams {
		unread, err := w.unread(ctx, no)
		if err != nil {
			return fmt.Errorf("read the groups of stream %d: %w", no, err)
		}
		to := trimTo(now, w.settings.StreamAge, w.settings.StreamMaxAge, unread)
		n, err := w.redis.XTrimMinIDApprox(ctx, w.names.Stream(no), to.String(), 0).Result()
		if err != nil {
			return fmt.Errorf("trim stream %d: %w", no, err)
		}
		w.metrics.trimmed.Add(float64(n))
	}
	return nil
}

// unread is, for each group of a stream, the oldest entry that it still needs.
func (w *Worker) unread(ctx context.Context, no int) ([]entryID, error) {
	stream := w.names.Stream(no)
	groups, err := w.redis.XInfoGroups(ctx, stream).Result()
	if noSuchKey(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var unread []entryID
	for _, g := range groups {
		id, err := parseEntryID(g.LastDeliveredID)
		if err != nil {
			return nil, err
		}
		if g.Pending > 0 {
			pending, err := w.redis.XPending(ctx, stream, g.Name).Result()
			if err != nil {
				return nil, err
			}
			if lower, err := parseEntryID(pending.Lower); err == nil && lower.before(id) {
				id = lower
			}
		}
		unread = append(unread, id)
	}
	return unread, nil
}

// noSuchKey is how XINFO says that there is no stream yet.
func noSuchKey(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused) && strings.Contains(err.Error(), "no such key")
}

// missed is how many entries were removed from a stream before a group had read
// them: of all that were ever added, those not left are gone. Where Redis does
// not know what the group has read, it is 0.
func missed(group redis.XInfoGroup, stream *redis.XInfoStream) int64 {
	if group.EntriesRead == 0 && group.LastDeliveredID != "0-0" {
		return 0
	}
	return max(0, stream.EntriesAdded-stream.Length-group.EntriesRead)
}
