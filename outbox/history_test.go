package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
)

// A history is everything that happened to the lanes of a test's database, as a
// trigger wrote it down, besides the events themselves. It is checked against
// the streams when all is over.
type history struct {
	pool *pgxpool.Pool
}

// watchLanes begins to write the history down.
func watchLanes(t *testing.T, db database) history {
	t.Helper()
	db.Exec(t, `
		CREATE TABLE public.lane_history (
		  id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz,
		  lane_id bigint, old_pub bigint, new_pub bigint, old_token bigint, new_token bigint,
		  old_claim text, new_claim text, old_next timestamptz, attempts integer)`)
	db.Exec(t, `
		CREATE FUNCTION public.lane_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
		  INSERT INTO public.lane_history (at, lane_id, old_pub, new_pub, old_token, new_token, old_claim, new_claim, old_next, attempts)
		  VALUES (now(), NEW.lane_id, OLD.pub_seq, NEW.pub_seq, OLD.claim_token, NEW.claim_token,
		          OLD.claimed_by, NEW.claimed_by, OLD.next_at, NEW.attempts);
		  RETURN NULL;
		END $$`)
	db.Exec(t, `
		CREATE TRIGGER lane_changed AFTER UPDATE ON registry.outbox_lane
		FOR EACH ROW EXECUTE FUNCTION public.lane_changed()`)
	return history{db.Pool(t, "")}
}

// none fails the test for every row that a query finds.
func (h history) none(t *testing.T, invariant, sql string) {
	t.Helper()
	rows, err := h.pool.Query(context.Background(), sql+` LIMIT 5`)
	if err != nil {
		t.Fatalf("%s: %v", invariant, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		t.Fatalf("%s: %v", invariant, err)
	}
	for _, row := range found {
		t.Errorf("%s is broken: %v", invariant, row)
	}
}

// checkLanes checks what the database alone can tell.
func (h history) checkLanes(t *testing.T) {
	t.Helper()
	h.none(t, "I3: seq has no gap", `
		SELECT l.lane_id, l.last_seq, count(e.*) AS events
		FROM registry.outbox_lane l LEFT JOIN registry.outbox_event e USING (lane_id)
		GROUP BY l.lane_id HAVING count(e.*) <> l.last_seq OR count(DISTINCT e.seq) <> l.last_seq`)
	h.none(t, "I3: seq order is the order of the row's revisions", `
		SELECT * FROM (
		  SELECT e.lane_id, e.seq, c.after->>'revision' AS revision,
		         (c.after->>'revision')::bigint <= lag((c.after->>'revision')::bigint) OVER (PARTITION BY e.lane_id ORDER BY e.seq) AS wrong
		  FROM registry.outbox_event e
		  JOIN registry.outbox_lane l USING (lane_id)
		  JOIN registry.change_log c ON c.kind = l.agg_type AND c.agg_key = l.agg_key AND c.xid = e.xid) o
		WHERE wrong`)
	h.none(t, "I4: pub_seq goes back only under a new token", `
		SELECT * FROM public.lane_history WHERE new_pub < old_pub AND new_token <= old_token`)
	h.none(t, "I5: tokens only grow", `
		SELECT * FROM public.lane_history WHERE new_token < old_token`)
	h.none(t, "I5: only a lane that is free or whose claim has expired is claimed", `
		SELECT * FROM public.lane_history
		WHERE new_claim IS NOT NULL AND new_claim IS DISTINCT FROM old_claim
		  AND (new_token <> old_token + 1 OR old_claim IS NOT NULL AND old_next > at)`)
	h.none(t, "I5: only the claim's owner acknowledges", `
		SELECT * FROM public.lane_history
		WHERE new_pub > old_pub AND (old_claim IS NULL OR new_claim IS NOT NULL OR new_token <> old_token)`)
	h.none(t, "I8: no claim is left", `
		SELECT lane_id, claimed_by FROM registry.outbox_lane WHERE claimed_by IS NOT NULL`)
	h.none(t, "I7: what is published is marked, and nothing else", `
		SELECT e.lane_id, e.seq FROM registry.outbox_event e JOIN registry.outbox_lane l USING (lane_id)
		WHERE (e.published_at IS NULL) <> (e.seq > l.pub_seq)`)
}

// checkAttempts checks that no failure was counted.
func (h history) checkAttempts(t *testing.T) {
	t.Helper()
	h.none(t, "I10: a fault of Redis is no attempt", `SELECT * FROM public.lane_history WHERE attempts > 0`)
}

// storedEvent is an event as the database has it.
type storedEvent struct {
	resource    string
	stream      int
	seq         int64
	publishedAt time.Time
}

func (h history) stored(t *testing.T) map[string]storedEvent {
	t.Helper()
	rows, err := h.pool.Query(context.Background(), `
		SELECT e.event_id::text, l.agg_type || ':' || l.agg_key, l.stream_no, e.seq, coalesce(e.published_at, 'epoch')
		FROM registry.outbox_event e JOIN registry.outbox_lane l USING (lane_id)`)
	if err != nil {
		t.Fatal(err)
	}
	events := map[string]storedEvent{}
	var id string
	var e storedEvent
	if _, err := pgx.ForEachRow(rows, []any{&id, &e.resource, &e.stream, &e.seq, &e.publishedAt}, func() error {
		events[id] = e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return events
}

// checkStreams compares the streams with the events of the database.
func (h history) checkStreams(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	stored := h.stored(t)
	type place struct{ epoch, resource string }
	last := map[place]int64{}
	seen := map[string]bool{}
	var resyncs [event.Streams]time.Time // the newest of each stream
	for _, e := range read(t, client) {
		if e.Kind == event.Resync && e.Version == 0 {
			resyncs[e.Stream] = e.CreatedAt
			continue
		}
		if e.Kind != event.Resync {
			s, known := stored[e.EventID]
			switch {
			case !known:
				t.Errorf("I1 is broken: %s version %d is in stream %d and was never committed", e.Resource, e.Version, e.Stream)
			case s.resource != e.Resource.String() || s.seq != e.Version || s.stream != e.Stream:
				t.Errorf("stream %d has %s version %d for %+v", e.Stream, e.Resource, e.Version, s)
			}
			seen[e.EventID] = true
		}
		at := place{e.Epoch, e.Resource.String()}
		if before, ok := last[at]; ok && e.Kind != event.Resync && e.Version != before+1 || e.Version <= before {
			t.Errorf("I2 is broken: %s version %d follows %d in one epoch", e.Resource, e.Version, before)
		}
		last[at] = e.Version
	}
	missing := 0
	for id, s := range stored {
		if seen[id] || s.publishedAt.Before(resyncs[s.stream].Add(time.Second)) && !resyncs[s.stream].IsZero() && s.publishedAt.After(time.Unix(0, 0)) {
			continue
		}
		if missing++; missing <= 5 {
			t.Errorf("I1 is broken: %s version %d (%s) is in no stream, and no resync covers it", s.resource, s.seq, id)
		}
	}
}

// checkFences checks that Redis and database agree in the end.
func (h history) checkFences(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	rows, err := h.pool.Query(context.Background(), `
		SELECT l.lane_id::text, l.stream_no, l.pub_seq::text, s.lineage || '/' || s.epoch
		FROM registry.outbox_lane l JOIN registry.outbox_stream s USING (stream_no) WHERE l.pub_seq > 0`)
	if err != nil {
		t.Fatal(err)
	}
	var id, pubSeq, epoch string
	var no int
	if _, err := pgx.ForEachRow(rows, []any{&id, &no, &pubSeq, &epoch}, func() error {
		if fence := client.HGet(context.Background(), names.Fence(no, epoch), id).Val(); fence != pubSeq {
			t.Errorf("I4 is broken: lane %s is acknowledged up to %s, Redis has %q", id, pubSeq, fence)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// writers change organisations until they are stopped: one or two in a
// transaction, some with a delay before COMMIT, some rolled back.
type writers struct {
	stop      func()
	committed atomic.Int64
	// longest is how long a writer's statement took at most, in nanoseconds.
	longest atomic.Int64
}

func startWriters(t *testing.T, db database, count, organisations int, seed uint64) *writers {
	t.Helper()
	pool := db.Pool(t, "")
	_, err := pool.Exec(t.Context(), `
		INSERT INTO registry.organisation (handle) SELECT 'ORG-' || i FROM generate_series(1, $1::integer) i`, organisations)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{}
	var group sync.WaitGroup
	for n := range count {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		group.Go(func() {
			for ctx.Err() == nil {
				// Cut connections and restarts of the server are the test's doing.
				_ = w.write(ctx, pool, rng, organisations)
				sleep(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
			}
		})
	}
	w.stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(w.stop)
	return w
}

func (w *writers) write(ctx context.Context, pool *pgxpool.Pool, rng *rand.Rand, organisations int) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	begun := time.Now()
	first := 1 + rng.IntN(organisations)
	_, err = tx.Exec(ctx, `
		UPDATE registry.organisation o SET name = $1
		FROM (SELECT id FROM registry.organisation WHERE handle = ANY ($2) ORDER BY id FOR NO KEY UPDATE) l
		WHERE o.id = l.id`, fmt.Sprint(rng.Uint64()), []string{fmt.Sprintf("ORG-%d", first), fmt.Sprintf("ORG-%d", first+rng.IntN(3))})
	if err != nil {
		return err
	}
	if took := int64(time.Since(begun)); took > w.longest.Load() {
		w.longest.Store(took)
	}
	if rng.IntN(4) == 0 {
		sleep(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
	}
	if rng.IntN(8) == 0 {
		return nil // rolled back
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.committed.Add(1)
	return nil
}

// chaos lets batches be held and killed at every point.
type chaos struct {
	mu   sync.Mutex
	rng  *rand.Rand
	hold time.Duration
	off  atomic.Bool
	hits sync.Map // point → *atomic.Int64: how often something was done there
}

// errKilled ends a batch as the death of its process would.
var errKilled = fmt.Errorf("killed by the test")

func (c *chaos) reach(ctx context.Context, p point) error {
	if c.off.Load() {
		return nil
	}
	c.mu.Lock()
	dice := c.rng.IntN(100)
	c.mu.Unlock()
	if dice < 12 {
		n, _ := c.hits.LoadOrStore(p, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}
	switch {
	case dice < 4:
		return errKilled
	case dice < 12:
		sleep(ctx, c.hold)
	}
	return nil
}

// String says where how much was done.
func (c *chaos) String() string {
	var b strings.Builder
	for _, p := range []point{claimed, fetched, published, beforeAck} {
		n, _ := c.hits.LoadOrStore(p, new(atomic.Int64))
		fmt.Fprintf(&b, "%s %d ", p, n.(*atomic.Int64).Load())
	}
	return b.String()
}
