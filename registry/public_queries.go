package registry

import (
	"net/netip"
	"sync"
	"time"

	"hubn/app/problem"
)

// maxQueryAddresses bounds the memory of the limiter: at more, all begin anew.
const maxQueryAddresses = 10_000

// queryLimiter bounds how many questions one address may ask RDAP and whois in a
// minute without a token.
type queryLimiter struct {
	perMinute int
	clock     func() time.Time

	mu    sync.Mutex
	since time.Time
	asked map[netip.Addr]int
}

func newQueryLimiter(perMinute int, clock func() time.Time) *queryLimiter {
	return &queryLimiter{perMinute: perMinute, clock: clock, asked: map[netip.Addr]int{}}
}

// admit counts a question, and refuses it when there were too many in this minute.
// Minutes are the same for all: counts are dropped together, in no time.
func (l *queryLimiter) admit(from netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock(); now.Sub(l.since) >= time.Minute {
		l.since, l.asked = now, map[netip.Addr]int{}
	}
	from = network(from)
	if l.asked[from] >= l.perMinute {
		return problem.New(problem.RateLimited, "more than %d questions a minute from %s: wait a minute", l.perMinute, from)
	}
	if len(l.asked) >= maxQueryAddresses {
		clear(l.asked)
	}
	l.asked[from]++
	return nil
}
