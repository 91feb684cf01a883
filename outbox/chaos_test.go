package outbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

// chaosTime is how long the faults of one seed last.
const chaosTime = 5 * time.Second

// seeds are fixed, so that a failure can be repeated; HUBN_TEST_SEED takes another.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	text := os.Getenv("HUBN_TEST_SEED")
	if text == "" {
		return []uint64{1, 2, 3}
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("HUBN_TEST_SEED is %q: write a number", text)
	}
	return []uint64{seed}
}

func TestHistoryHoldsUnderRandomFaults(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runChaos(t, seed) })
	}
}

// runChaos has sixteen writers, three workers with short leases, and a fault
// every now and then.
func runChaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	db := schematest.New(t)
	server := eventtest.Server(t)
	client := server.Client()
	h := watchLanes(t, db)
	upset := &chaos{rng: rand.New(rand.NewPCG(seed, 7))}
	var workers []running
	for range 3 {
		w := newWorker(t, db.URL(""), client)
		w.settings.Lease = 60*time.Millisecond + time.Duration(rng.IntN(140))*time.Millisecond
		upset.hold = w.settings.Lease * 3 / 2
		w.pace.auditRecent = 500 * time.Millisecond
		w.signals.reach = upset.reach
		workers = append(workers, start(t, w))
	}
	load := startWriters(t, db, 16, 40, seed)
	over := time.After(chaosTime)
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-time.After(time.Duration(100+rng.IntN(300)) * time.Millisecond):
			strike(t, rng, server, h.pool)
		}
	}
	load.stop()
	upset.off.Store(true)
	drained(t, h.pool)
	settled(t, h.pool)
	for _, w := range workers {
		w.stop()
	}
	t.Logf("%d transactions committed; batches held or killed: %s", load.committed.Load(), upset)
	h.checkLanes(t)
	h.checkAttempts(t)
	h.checkStreams(t, client)
	h.checkFences(t, client)
	if longest := time.Duration(load.longest.Load()); longest > 5*time.Second {
		t.Errorf("I11 is broken: a writer's statement took %s", longest)
	}
}

// settled waits until no lane is claimed and the audits have nothing to take back.
func settled(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const sql = `
		SELECT NOT EXISTS (SELECT FROM registry.outbox_lane WHERE claimed_by IS NOT NULL OR pub_seq < last_seq)
		   AND NOT EXISTS (SELECT FROM registry.outbox_stream WHERE audited_at IS NULL OR audited_at < $1)`
	var since time.Time
	if err := pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&since); err != nil {
		t.Fatal(err)
	}
	eventtest.EventuallyWithin(t, 30*time.Second, "all is settled and audited", func() bool {
		var done bool
		return pool.QueryRow(t.Context(), sql, since).Scan(&done) == nil && done
	})
}

// strike does one harm to Redis or to the workers' connections.
func strike(t *testing.T, rng *rand.Rand, server *eventtest.Redis, pool *pgxpool.Pool) {
	t.Helper()
	switch rng.IntN(10) {
	case 0:
		server.Flush()
	case 1:
		server.RestartEmpty()
	case 2:
		server.Restart()
	case 3:
		before := server.Copy()
		wait(time.Duration(rng.IntN(200)) * time.Millisecond)
		server.Restore(before)
	case 4:
		server.Freeze()
		wait(time.Duration(rng.IntN(300)) * time.Millisecond)
		server.Thaw()
	case 5:
		server.Set("maxmemory", "1")
		wait(time.Duration(rng.IntN(300)) * time.Millisecond)
		server.Set("maxmemory", "0")
	case 6:
		if err := server.Client().ScriptFlush(t.Context()).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	default:
		terminate(t, pool)
	}
}

// wait lets a fault last.
func wait(d time.Duration) { <-time.After(d) }

// terminate cuts off every connection of the workers.
func terminate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const sql = `
		SELECT count(pg_terminate_backend(pid))
		FROM pg_stat_activity
		WHERE application_name = $1 AND datname = current_database()`
	if _, err := pool.Exec(t.Context(), sql, applicationName); err != nil {
		t.Fatal(err)
	}
}
