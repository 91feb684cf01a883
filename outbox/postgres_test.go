package outbox

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

func TestPostgresRestartedInTheMiddleOfABurst(t *testing.T) {
	for name, restart := range map[string]func(*schematest.Cluster, testing.TB){
		"orderly": (*schematest.Cluster).Restart,
		"crash":   func(c *schematest.Cluster, t testing.TB) { c.Crash(t); c.Start(t) },
	} {
		t.Run(name, func(t *testing.T) {
			c := schematest.StartCluster(t)
			client := eventtest.Server(t).Client()
			h := watchLanes(t, c)
			w := start(t, newWorker(t, c.URL(""), client))
			load := startWriters(t, c, 4, 20, 1)
			for range 2 {
				before := load.committed.Load()
				eventtest.Eventually(t, "the burst goes on", func() bool { return load.committed.Load() > before+50 })
				restart(c, t)
			}
			load.stop()
			drained(t, h.pool)
			eventtest.Eventually(t, "no lane is claimed", func() bool { return claims(h) == 0 })
			w.stop()
			h.checkLanes(t)
			h.checkAttempts(t)
			h.checkStreams(t, client)
			h.checkFences(t, client)
		})
	}
}

func TestStatusSaysThatPostgresIsAway(t *testing.T) {
	c := schematest.StartCluster(t)
	w := start(t, newWorker(t, c.URL(""), eventtest.Server(t).Client()))
	c.Stop(t)
	eventtest.Eventually(t, "the status says so", func() bool {
		s := w.Status()
		return !s.Ready && strings.HasPrefix(s.Reason, "PostgreSQL has not answered since ")
	})
	c.Start(t)
	eventtest.Eventually(t, "the worker is ready again", func() bool { return w.Status().Ready })
}

func claims(h history) (n int) {
	const sql = `SELECT count(*) FROM registry.outbox_lane WHERE claimed_by IS NOT NULL`
	if err := h.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		return -1
	}
	return n
}

func TestConnectionsThatAreCutAtEveryPoint(t *testing.T) {
	var terminated atomic.Int64
	b := newBed(t, nil)
	b.worker.stop()
	w := newWorker(t, b.db.URL(""), b.client)
	left := map[point]int{claimed: 3, fetched: 3, published: 3, beforeAck: 3}
	var mu sync.Mutex
	w.signals.reach = func(_ context.Context, p point) error {
		mu.Lock()
		defer mu.Unlock()
		if left[p] == 0 {
			return nil
		}
		left[p]--
		terminated.Add(1)
		terminate(t, b.pool)
		return nil
	}
	b.worker = start(t, w)
	b.organisations(t, 20)
	for range 20 {
		b.touch(t, 20)
		drained(t, b.pool)
	}
	b.check(t)
	if got := terminated.Load(); got != 12 {
		t.Errorf("the connections were cut %d times, want 12: the batches did not reach every point", got)
	}
}

func TestReplyToCommitThatIsLost(t *testing.T) {
	b := newBed(t, nil)
	b.worker.stop()
	relay := newRelay(t, b.db.URL(""))
	w := newWorker(t, relay.url(b.db.URL("")), b.client)
	// Far longer than the test: a claim without an answer must be given back.
	w.settings.Lease = time.Hour
	b.worker = start(t, w)
	b.organisations(t, 10)
	for i := range 12 {
		relay.loseReplies(1 + i%3)
		b.touch(t, 10)
		drained(t, b.pool)
	}
	b.check(t)
	if relay.lost.Load() == 0 {
		t.Error("no reply was lost")
	}
}

// relay is a TCP relay before PostgreSQL's socket that loses replies: the server
// has carried out the command, and the client sees a broken connection.
type relay struct {
	listener net.Listener
	socket   string
	// lose counts down the replies until one is lost; 0: none.
	lose atomic.Int64
	lost atomic.Int64
}

func newRelay(t *testing.T, databaseURL string) *relay {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, socket: fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)}
	if !strings.HasPrefix(config.Host, "/") {
		r.socket = net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	}
	t.Cleanup(func() { _ = l.Close() })
	go r.accept()
	return r
}

// url is the database's URL by way of the relay.
func (r *relay) url(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	host, port, _ := net.SplitHostPort(r.listener.Addr().String())
	q.Set("host", host)
	q.Set("port", port)
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = "", q.Encode()
	return u.String()
}

// loseReplies lets n-1 replies pass and loses the next one.
func (r *relay) loseReplies(n int) { r.lose.Store(int64(n)) }

func (r *relay) accept() {
	for {
		down, err := r.listener.Accept()
		if err != nil {
			return
		}
		network := "unix"
		if !strings.HasPrefix(r.socket, "/") {
			network = "tcp"
		}
		up, err := net.Dial(network, r.socket)
		if err != nil {
			_ = down.Close()
			continue
		}
		go r.pass(up, down, false)
		go r.pass(down, up, true)
	}
}

func (r *relay) pass(to, from net.Conn, replies bool) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if replies && r.lose.Load() > 0 && r.lose.Add(-1) == 0 {
			r.lost.Add(1)
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestSessionThatIsIdleInTransactionDelaysItsLaneAlone(t *testing.T) {
	b := newBed(t, nil)
	b.worker.stop()
	w := newWorker(t, b.db.URL(""), b.client)
	armed, reached, release := atomic.Bool{}, make(chan struct{}), make(chan struct{})
	w.signals.reach = func(_ context.Context, p point) error {
		if p == beforeAck && armed.CompareAndSwap(true, false) {
			close(reached)
			<-release
		}
		return nil
	}
	b.organisations(t, 20)
	b.worker = start(t, w)
	drained(t, b.pool)
	armed.Store(true)
	b.touch(t, 20)
	<-reached
	// All is published and not acknowledged; one lane now belongs to a session that idles.
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE registry.organisation SET name = 'idle' WHERE handle = 'ORG-1'`); err != nil {
		t.Fatal(err)
	}
	close(release)
	eventtest.Eventually(t, "the nineteen others are acknowledged", func() bool { return b.count(t, `pub_seq = last_seq`) == 19 })
	for range 3 {
		b.db.Exec(t, `UPDATE registry.organisation SET name = name || '.' WHERE handle <> 'ORG-1'`)
		eventtest.Eventually(t, "the nineteen others are published", func() bool { return b.count(t, `pub_seq = last_seq`) == 19 })
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.check(t)
}

// restored is a cluster whose data folder can be put back to what it was: a
// history that goes back without anything in it that says so.
func TestHistoryThatGoesBackGetsANewLineage(t *testing.T) {
	for name, goBack := range map[string]func(t *testing.T, c *schematest.Cluster, then func()) *schematest.Cluster{
		"dump restored on the same server": func(t *testing.T, c *schematest.Cluster, then func()) *schematest.Cluster {
			dump := c.Dump(t)
			then()
			c.Restore(t, dump)
			return c
		},
		"dump restored on another server": func(t *testing.T, c *schematest.Cluster, then func()) *schematest.Cluster {
			dump := c.Dump(t)
			then()
			return schematest.RestoreElsewhere(t, dump)
		},
		"standby promoted that was cut off": func(t *testing.T, c *schematest.Cluster, then func()) *schematest.Cluster {
			standby := c.Standby(t)
			standby.WaitCaughtUp(t, c)
			standby.CutOff(t)
			then()
			standby.Promote(t)
			return standby
		},
		"data folder put back": func(t *testing.T, c *schematest.Cluster, then func()) *schematest.Cluster {
			var folder string
			if err := c.Conn(t, "").QueryRow(t.Context(), `SHOW data_directory`).Scan(&folder); err != nil {
				t.Fatal(err)
			}
			c.Stop(t)
			copyFolder(t, folder, folder+".before")
			c.Start(t)
			then()
			c.Stop(t)
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			copyFolder(t, folder+".before", folder)
			c.Start(t)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) { testGoesBack(t, goBack) })
	}
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

func testGoesBack(t *testing.T, goBack func(t *testing.T, c *schematest.Cluster, then func()) *schematest.Cluster) {
	const change = `UPDATE registry.organisation SET name = name || '.'`
	c := schematest.StartCluster(t)
	client := eventtest.Server(t).Client()
	w := start(t, newWorker(t, c.URL(""), client))
	c.Exec(t, `INSERT INTO registry.organisation (handle) SELECT 'ORG-' || i FROM generate_series(1, 10) i`)
	drained(t, c.Pool(t, ""))
	first := currentLineage(t, c)
	w.stop()
	after := goBack(t, c, func() {
		w = start(t, newWorker(t, c.URL(""), client))
		c.Exec(t, change)
		c.Exec(t, change)
		drained(t, c.Pool(t, ""))
		w.stop()
	})
	// Two new changes: their versions are ones that the fences have reached.
	w = start(t, newWorker(t, after.URL(""), client))
	after.Exec(t, change)
	pool := after.Pool(t, "")
	drained(t, pool)
	eventtest.Eventually(t, "there is a new lineage", func() bool { return currentLineage(t, after) != first })
	after.Exec(t, change)
	eventtest.Eventually(t, "every stream is in the new lineage", func() bool {
		for no := range event.Streams {
			if !strings.HasPrefix(client.Get(t.Context(), names.Epoch(no)).Val(), currentLineage(t, after)+"/") {
				return false
			}
		}
		return true
	})
	drained(t, pool)
	w.stop()
	checkNewLineage(t, read(t, client), first, currentLineage(t, after))
}

// checkNewLineage checks that in each stream the new lineage begins with a
// resync, after which nothing of the old one comes, and that the newest version
// of everything is published in it.
func checkNewLineage(t *testing.T, entries []event.Event, first, second string) {
	t.Helper()
	begun := map[int]bool{}
	newest := map[string]int64{}
	for _, e := range entries {
		switch {
		case e.Lineage == second && e.Kind == event.Resync:
			begun[e.Stream] = true
		case e.Lineage == second && !begun[e.Stream]:
			t.Errorf("stream %d has %s version %d of the new lineage before its resync", e.Stream, e.Resource, e.Version)
		case e.Lineage != second && begun[e.Stream]:
			t.Errorf("stream %d has %s version %d of lineage %s (first %s) after the new one began", e.Stream, e.Resource, e.Version, e.Lineage, first)
		}
		if e.Lineage == second {
			newest[e.Resource.String()] = e.Version
		}
	}
	if len(begun) != event.Streams {
		t.Errorf("%d streams begin the new lineage with a resync, want %d", len(begun), event.Streams)
	}
	published := 0
	for resource, version := range newest {
		if strings.HasPrefix(resource, "organisation:") {
			published++
			if version != 3 {
				t.Errorf("%s is published up to version %d, want 3", resource, version)
			}
		}
	}
	if published != 10 {
		t.Errorf("%d organisations are published in the new lineage, want 10", published)
	}
}

func currentLineage(t *testing.T, c *schematest.Cluster) (id string) {
	t.Helper()
	if err := c.Conn(t, "").QueryRow(t.Context(), `SELECT registry.lineage_current()::text`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}
