package event

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// countLimit bounds the counting of undelivered entries where Redis does not
// know their number.
const countLimit = 1000

// position is where a group is in its stream.
type position struct {
	delivered string // id of the last entry that the group was given
	generated string // id of the last entry that the stream ever had
	first     string // id of the first entry that it still has; empty when it has none
	length    int64
	added     int64 // entries that the stream ever had; 0 when Redis does not know
	read      int64 // entries that the group read; 0 when Redis does not know
	pending   int64
	lag       int64 // entries that the group was not yet given
}

// trimmed tells whether entries may have been trimmed from the stream before
// the group was given them. Where Redis does not count entries it may say so
// once too often, never too seldom; a group that has read nothing yet starts
// with a scan anyway.
func (p position) trimmed() bool {
	untouched := !idLess("0-0", p.delivered)
	switch {
	case untouched && p.added == 0:
		return false
	case p.first == "":
		return idLess(p.delivered, p.generated)
	case !idLess(p.delivered, p.first):
		return false
	case p.added > 0 && (p.read > 0 || untouched):
		return p.added-p.length > p.read
	default:
		return true
	}
}

// position asks Redis; a group that is not there is a NOGROUP error.
func (s stream) position(ctx context.Context) (position, error) {
	info, err := s.redis.XInfoStream(ctx, s.key).Result()
	if err != nil {
		return position{}, err
	}
	groups, err := s.redis.XInfoGroups(ctx, s.key).Result()
	if err != nil {
		return position{}, err
	}
	p := position{generated: info.LastGeneratedID, length: info.Length, added: info.EntriesAdded}
	found := false
	for _, g := range groups {
		if g.Name == s.group {
			p.delivered, p.read, p.pending, p.lag, found = g.LastDeliveredID, max(g.EntriesRead, 0), g.Pending, g.Lag, true
		}
	}
	if !found {
		return position{}, fmt.Errorf("NOGROUP no group %s of stream %s", s.group, s.key)
	}
	head, err := s.redis.XRangeN(ctx, s.key, "-", "+", 1).Result()
	if err != nil {
		return position{}, err
	}
	if len(head) > 0 {
		p.first = head[0].ID
	}
	if p.lag, err = s.undelivered(ctx, p); err != nil {
		return position{}, err
	}
	return p, nil
}

// undelivered is how many entries the group was not given yet. Redis knows it
// of a group that it counts for; else they are counted, up to a bound.
func (s stream) undelivered(ctx context.Context, p position) (int64, error) {
	if !idLess(p.delivered, p.generated) {
		return 0, nil
	}
	if p.read > 0 && p.lag >= 0 {
		return min(p.lag, p.length), nil // what was trimmed is not waited for
	}
	rest, err := s.redis.XRangeN(ctx, s.key, "("+p.delivered, "+", countLimit).Result()
	return int64(len(rest)), err
}

// idLess orders stream ids, "<milliseconds>-<sequence>".
func idLess(a, b string) bool {
	aTime, aSeq := splitID(a)
	bTime, bSeq := splitID(b)
	return aTime < bTime || aTime == bTime && aSeq < bSeq
}

func splitID(id string) (time, seq uint64) {
	t, s, _ := strings.Cut(id, "-")
	time, _ = strconv.ParseUint(t, 10, 64)
	seq, _ = strconv.ParseUint(s, 10, 64)
	return time, seq
}
