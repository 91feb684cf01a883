package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"hubn/app/problem"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

func TestSessionIdleInTransactionHoldsUpOneLaneOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, schematest.New(t), eventtest.Server(t).URL())
	s.workers(2)
	s.mirror("one")
	ids := s.announce(0, 20, 64496)
	s.settled()

	session, err := s.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Exec(t.Context(), `UPDATE registry.prefix SET origin_asn = 64499 WHERE id = $1`, ids[0]); err != nil {
		t.Fatal(err)
	}
	for _, origin := range []int64{64497, 64498} {
		s.exec(`UPDATE registry.prefix SET origin_asn = $1 WHERE id = ANY ($2)`, origin, ids[1:])
		s.settled()
	}
	if got, want := s.committed(), ask[int](s, `SELECT count(*) FROM registry.outbox_event`); got != want {
		t.Errorf("%d events were committed and there are %d: the session's is not to be seen", got, want)
	}
	if err := session.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled()
	s.complete()
}

// losses decides which answers a relay loses: of each kind of statement every
// n-th.
type losses struct {
	mu    sync.Mutex
	kinds []lossy
}

type lossy struct {
	what        string
	of          func(sql string) bool
	every       int
	seen, taken int
}

func has(part string) func(string) bool {
	return func(sql string) bool { return strings.Contains(sql, part) }
}

func (l *losses) lose(sql string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.kinds {
		k := &l.kinds[i]
		if !k.of(sql) {
			continue
		}
		k.seen++
		if k.seen%k.every == 0 {
			k.taken++
			return true
		}
		return false
	}
	return false
}

// TestAnswersToCommitsGetLost cuts connections after the server has committed
// and before its answer has arrived: those of the API's writers, and those of
// the worker's claims and acknowledgements. Leases are at their five minutes: if
// a lane had to wait for one, the test would fail.
func TestAnswersToCommitsGetLost(t *testing.T) {
	t.Parallel()
	s := newSite(t, schematest.New(t), eventtest.Server(t).URL())
	s.workers(2)
	s.mirror("one")
	s.settled()
	l := &losses{kinds: []lossy{
		{what: "commits of the API", of: func(sql string) bool { return sql == "commit" }, every: 3},
		{what: "acknowledgements", of: has("settled AS"), every: 4},
		{what: "claims", of: has("SET claim_token = claim_token + 1"), every: 5},
	}}
	s.database.losing(l.lose)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for n := range 8 {
				s.createOnce(t, fmt.Sprintf("10.%d.%d.0/24", w, n), 64496)
			}
		})
	}
	writers.Wait()
	s.database.losing(nil)

	s.settled()
	s.complete()
	if got := ask[int](s, `SELECT count(*) FROM registry.prefix`); got != 64 {
		t.Errorf("there are %d prefixes, want 64", got)
	}
	for _, k := range l.kinds {
		t.Logf("answers to %s: %d of %d lost", k.what, k.taken, k.seen)
		if k.taken == 0 {
			t.Errorf("no answers to %s were lost", k.what)
		}
	}
}

// createOnce makes a prefix with an Idempotency-Key, again until it is answered,
// and then once more: the answer is the same.
func (s *site) createOnce(t *testing.T, prefix string, asn int64) {
	body := map[string]any{"prefix": prefix, "routing": map[string]any{"announced": true, "origin": asn}}
	create := func() (made client.Prefix, err error) {
		_, err = s.admin.Create(t.Context(), "/v1/prefixes", client.Write{IdempotencyKey: "create " + prefix}, body, &made)
		return made, err
	}
	var first client.Prefix
	for attempt := 0; ; attempt++ {
		made, err := create()
		if err == nil {
			first = made
			break
		}
		var said *problem.Error
		if !errors.As(err, &said) || said.Kind != problem.Unavailable || attempt == 20 {
			t.Errorf("%s, attempt %d: %v, want that it is unavailable", prefix, attempt, err)
			return
		}
	}
	for attempt := 0; ; attempt++ {
		again, err := create()
		if err == nil {
			if again.ID != first.ID || again.Prefix.String() != prefix {
				t.Errorf("the repeated request made %+v, the first one %+v", again, first)
			}
			return
		}
		if attempt == 20 {
			t.Errorf("%s, once more: %v", prefix, err)
			return
		}
	}
}
