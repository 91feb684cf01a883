package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

func TestCommitsWakeTheWorkersAtOnceAndThenCoalesced(t *testing.T) {
	server := miniredis.RunT(t)
	r := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = r.Close() })
	h := newHarness(t, func(o *Options) { o.Redis = r })
	hints := r.Subscribe(t.Context(), event.Names{Prefix: "hubn"}.Wake())
	t.Cleanup(func() { _ = hints.Close() })
	if _, err := hints.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for i := range 10 {
				if _, err := h.try(http.MethodPost, "/v1/organisations", map[string]any{"handle": fmt.Sprintf("ORG-%d-%d", n, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	receive := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*wakeInterval)
		defer cancel()
		_, err := hints.ReceiveMessage(ctx)
		return err == nil
	}
	got := 0
	for receive() {
		got++
	}
	most := int(time.Since(begun)/wakeInterval) + 2
	if got == 0 || got > most {
		t.Errorf("80 commits made %d hints, want 1 to %d", got, most)
	}
	h.post("/v1/organisations?dry_run=true", map[string]any{"handle": "DRY"}).want(http.StatusCreated)
	h.post("/v1/organisations", map[string]any{"handle": "ORG-1-1"}).want(http.StatusConflict)
	if receive() {
		t.Error("a dry run or a refusal made a hint")
	}
}

func TestRegistryWorksWithoutRedis(t *testing.T) {
	r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = r.Close() })
	h := newHarness(t, func(o *Options) { o.Redis = r })
	for n := range 5 {
		h.post("/v1/organisations", map[string]any{"handle": fmt.Sprint("ORG-", n)}).want(http.StatusCreated)
	}
	waitFor(t, "the warning in the log", func() bool { return strings.Contains(h.log.String(), "Redis takes no hints") })
}

func TestRegistryThatDoesNotRunAnswers503(t *testing.T) {
	r := New(Options{Settings: DefaultSettings()})
	if s := r.Status(); s.Ready || s.Reason == "" {
		t.Errorf("status before Run is %+v", s)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	h := &harness{t: t, url: server.URL, registry: r}
	resp, err := h.try(http.MethodGet, "/v1/prefixes", nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "status", resp.status, http.StatusServiceUnavailable)
	check(t, "Retry-After", resp.header.Get("Retry-After"), "1")
	docs, err := h.try(http.MethodGet, "/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "document", docs.status, http.StatusOK)
}

func TestDatabaseThatIsNotThereEndsRunWithoutItsPassword(t *testing.T) {
	for name, url := range map[string]string{
		"nothing listens": "postgresql://u:geheim@127.0.0.1:1/x?connect_timeout=2",
		"not a URL":       "postgresql://u:geheim@[::/x",
	} {
		r := New(Options{Settings: DefaultSettings(), DatabaseURL: url})
		err := r.Run(t.Context(), func() { t.Error("ready without a database") })
		if err == nil || strings.Contains(err.Error(), "geheim") || strings.Contains(r.Status().Reason, "geheim") {
			t.Errorf("%s: Run answers %v, status %+v", name, err, r.Status())
		}
	}
}

func TestRestartedDatabaseIsFoundAgain(t *testing.T) {
	cluster := schematest.StartCluster(t)
	h := newHarness(t, func(o *Options) { o.DatabaseURL = cluster.URL(databaseRole) })
	h.post("/v1/organisations", map[string]any{"handle": "BEFORE"}).want(http.StatusCreated)
	lineage := h.get("/v1/organisations").want(200).header.Get(client.LineageHeader)
	cluster.Stop(t)
	h.get("/v1/organisations").wantProblem(problem.Unavailable)
	h.post("/v1/organisations", map[string]any{"handle": "DOWN"}).wantProblem(problem.Unavailable)
	cluster.Start(t)
	waitFor(t, "the Registry to answer again", func() bool {
		r, err := h.try(http.MethodGet, "/v1/organisations", nil)
		return err == nil && r.status == 200
	})
	after := h.post("/v1/organisations", map[string]any{"handle": "AFTER"}).want(http.StatusCreated)
	check(t, "lineage after a restart", after.header.Get(client.LineageHeader), lineage)
}

func TestRestartCostsNoRequest(t *testing.T) {
	cluster := schematest.StartCluster(t)
	h := newHarness(t, func(o *Options) { o.DatabaseURL = cluster.URL(databaseRole) })
	// Several connections, all of which the restart cuts off.
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			if _, err := h.try(http.MethodPost, "/v1/organisations", map[string]any{"handle": fmt.Sprint("ORG-", n)}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	cluster.Restart(t)
	h.get("/v1/organisations").want(200)
	cluster.Restart(t)
	h.post("/v1/organisations", map[string]any{"handle": "AFTER"}).want(http.StatusCreated)
}

func TestRestoredDatabaseBeginsALineage(t *testing.T) {
	cluster := schematest.StartCluster(t)
	h := newHarness(t, func(o *Options) { o.DatabaseURL = cluster.URL(databaseRole) })
	before := h.get("/v1/organisations").want(200).header.Get(client.LineageHeader)
	dump := cluster.Dump(t)
	h.post("/v1/organisations", map[string]any{"handle": "LOST"}).want(http.StatusCreated)
	cluster.Restore(t, dump)
	waitFor(t, "an answer with another lineage", func() bool {
		r, err := h.try(http.MethodGet, "/v1/organisations/LOST", nil)
		return err == nil && r.status == http.StatusNotFound && r.header.Get(client.LineageHeader) != before
	})
}

func TestMaintenanceForgetsWhatIsOld(t *testing.T) {
	h := newHarness(t)
	keep := h.organisation("KEEP")
	path := h.post("/v1/organisations", map[string]any{"handle": "OLD"}, idempotent("old")).want(http.StatusCreated).header.Get("Location")
	h.remove(path).want(http.StatusNoContent)
	fresh := h.post("/v1/organisations", map[string]any{"handle": "FRESH"}, idempotent("new")).want(http.StatusCreated).header.Get("Location")
	h.remove(fresh).want(http.StatusNoContent)
	waiting := h.post("/v1/organisations", map[string]any{"handle": "UNPUBLISHED"}).want(http.StatusCreated).header.Get("Location")
	h.remove(waiting).want(http.StatusNoContent)
	h.post("/v1/asns", map[string]any{"number": 64496}).want(http.StatusCreated)
	h.remove("/v1/asns/64496").want(http.StatusNoContent)
	h.db.Exec(t, `UPDATE registry.idempotency_key SET created_at = created_at - interval '25 hours' WHERE key = 'old'`)
	h.db.Exec(t, `UPDATE registry.outbox_lane SET last_event_at = last_event_at - interval '31 days' WHERE agg_key <> $1`, strings.TrimPrefix(fresh, "/v1/organisations/"))
	h.db.Exec(t, `UPDATE registry.outbox_lane SET pub_seq = last_seq WHERE agg_key <> $1`, strings.TrimPrefix(waiting, "/v1/organisations/"))
	if err := h.registry.service.upkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.get(path).wantProblem(problem.NotFound)
	h.get(fresh).wantProblem(problem.Deleted)
	h.get(waiting).wantProblem(problem.Deleted)
	h.get("/v1/asns/64496").wantProblem(problem.Deleted) // natural keys are kept for ever
	h.get(fmt.Sprintf("/v1/organisations/%d", keep)).want(200)
	var keys []string
	if err := h.db.Conn(t, "").QueryRow(t.Context(), `SELECT array_agg(key) FROM registry.idempotency_key`).Scan(&keys); err != nil {
		t.Fatal(err)
	}
	check(t, "idempotency keys", keys, []string{"new"})
}

func TestMaintenanceForgetsOldCommandsAndOperations(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `INSERT INTO registry.module (name, kinds) VALUES ('mirror', '{prefix}')`)
	h.db.Exec(t, `
		INSERT INTO registry.module_command (module, name, actor, created_at)
		SELECT 'mirror', name, 'a', now() - age
		FROM (VALUES ('old', interval '91 days'), ('unpublished', '91 days'), ('fresh', '89 days')) c (name, age)`)
	h.db.Exec(t, `UPDATE registry.outbox_lane SET pub_seq = last_seq
		WHERE agg_key <> (SELECT id::text FROM registry.module_command WHERE name = 'unpublished')`)
	h.db.Exec(t, `
		INSERT INTO registry.applied_state (module, agg_type, agg_key, lineage, version, state, fetched_at)
		SELECT 'mirror', 'command', id::text, registry.lineage_current(), 1, 'applied', now()
		FROM registry.module_command`)
	h.db.Exec(t, `
		INSERT INTO registry.outbox_audit (actor, action, target, at)
		VALUES ('a', 'old', 'x', now() - interval '366 days'), ('a', 'fresh', 'x', now() - interval '364 days')`)
	if err := h.registry.service.upkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var commands, said, actions []string
	var lanes int
	const left = `
		SELECT (SELECT array_agg(name ORDER BY id) FROM registry.module_command),
		       (SELECT array_agg(c.name ORDER BY c.id) FROM registry.applied_state a LEFT JOIN registry.module_command c ON c.id::text = a.agg_key),
		       (SELECT array_agg(action) FROM registry.outbox_audit),
		       (SELECT count(*) FROM registry.outbox_lane WHERE agg_type = 'command')`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), left).Scan(&commands, &said, &actions, &lanes); err != nil {
		t.Fatal(err)
	}
	check(t, "commands", commands, []string{"unpublished", "fresh"})
	check(t, "answers of commands", said, []string{"unpublished", "fresh"})
	check(t, "lanes of commands", lanes, 2)
	check(t, "operations", actions, []string{"fresh"})
}

func TestMaintenanceMakesPartitions(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `DO $$ DECLARE part regclass; BEGIN
		FOR part IN SELECT inhrelid::regclass FROM pg_inherits
			WHERE inhparent IN ('registry.outbox_event'::regclass, 'registry.change_log'::regclass)
		LOOP EXECUTE 'DROP TABLE ' || part; END LOOP; END $$`)
	if err := h.registry.service.upkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	var parts int
	const count = `SELECT count(*) FROM pg_inherits WHERE inhparent = 'registry.outbox_event'::regclass`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), count).Scan(&parts); err != nil {
		t.Fatal(err)
	}
	if parts < outboxDays {
		t.Errorf("there are %d partitions, want at least %d", parts, outboxDays)
	}
}

func TestBarrierGoesOnWithoutAnybodyAsking(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	conn := h.db.Conn(t, "")
	var id int64
	if err := conn.QueryRow(t.Context(), `SELECT registry.barrier_create()`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	h.db.Exec(t, `UPDATE registry.outbox_lane SET pub_seq = last_seq`)
	waitFor(t, "the barrier to be raised", func() bool {
		var raised bool
		err := conn.QueryRow(t.Context(), `SELECT raised_at IS NOT NULL FROM registry.barrier WHERE id = $1`, id).Scan(&raised)
		return err == nil && raised
	})
}

// calling is the context of a request.
func (h *harness) calling() context.Context {
	return context.WithValue(h.t.Context(), callKey{}, &call{service: h.registry.service, principal: principal{Name: "test"}})
}

func TestDeadlockIsTriedAgain(t *testing.T) {
	h := newHarness(t)
	id := h.organisation("EXAMPLE")
	a, b := h.prefix("192.0.2.0/24"), h.prefix("198.51.100.0/24")
	const touch = `UPDATE registry.prefix SET organisation_id = $2 WHERE id = $1`
	var both, wait sync.WaitGroup
	both.Add(2)
	errs := make([]error, 2)
	for n, order := range [][]int64{{a.ID, b.ID}, {b.ID, a.ID}} {
		first := true
		wait.Go(func() {
			errs[n] = h.registry.service.write(h.calling(), func(ctx context.Context, w *writing) error {
				if _, err := w.Exec(ctx, touch, order[0], id); err != nil {
					return err
				}
				if first { // both hold one row now
					first = false
					both.Done()
					both.Wait()
				}
				_, err := w.Exec(ctx, touch, order[1], id)
				return err
			})
		})
	}
	wait.Wait()
	for n, err := range errs {
		if err != nil {
			t.Errorf("transaction %d: %v", n, err)
		}
	}
}

func TestLanesAreLockedInOneOrder(t *testing.T) {
	h := newHarness(t)
	a, b := h.prefix("192.0.2.0/24"), h.prefix("198.51.100.0/24")
	name := func(p client.Prefix) client.Resource {
		return client.Resource{Kind: client.KindPrefix, Key: fmt.Sprint(p.ID)}
	}
	s := h.registry.service
	var wait sync.WaitGroup
	for _, order := range [][]client.Resource{{name(a), name(b)}, {name(b), name(a)}} {
		wait.Go(func() {
			ctx := h.calling()
			for range 50 {
				if err := s.writeOnce(ctx, s.db.Load(), "", func(ctx context.Context, w *writing) error { return w.lockLanes(ctx, order...) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

func TestBodyThatDoesNotComeEndsTheRequest(t *testing.T) {
	h := newHarness(t)
	h.registry.service.bodyTimeout = 50 * time.Millisecond
	body, never := io.Pipe()
	t.Cleanup(func() { _ = never.Close() })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/v1/organisations", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.admin)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	check(t, "status", resp.StatusCode, http.StatusBadRequest)
}

func TestHandlerMayWorkLongerThanABodyTakesToCome(t *testing.T) {
	h := newHarness(t)
	h.registry.service.bodyTimeout = 50 * time.Millisecond
	path := h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated).header.Get("Location")
	tx, err := h.db.Conn(t, "").Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM registry.organisation FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan *response, 1)
	go func() {
		r, err := h.try(http.MethodPatch, path, map[string]any{"name": "patient"}, ifMatch(`"1"`))
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	select {
	case <-done:
		t.Error("the change did not wait for the lock")
	case <-time.After(6 * h.registry.service.bodyTimeout):
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r != nil {
		r.want(http.StatusOK)
	}
}

func TestTimesAreUTCWhateverTheServersZone(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kathmandu''', current_database()); END $$`)
	made := h.newToken(map[string]any{"name": "x", "roles": []string{"viewer"}, "expires_at": "2035-01-01T12:00:00+05:45"})
	check(t, "expiry", made.ExpiresAt, time.Date(2035, 1, 1, 6, 15, 0, 0, time.UTC))
	if body := string(h.get("/v1/tokens").want(200).body); !strings.Contains(body, `"expires_at":"2035-01-01T06:15:00Z"`) {
		t.Errorf("the time is not UTC: %s", body)
	}
}

func TestRunLeavesNothingBehind(t *testing.T) {
	db := schematest.New(t)
	before := goleak.IgnoreCurrent()
	r := New(Options{Settings: DefaultSettings(), DatabaseURL: db.URL(databaseRole)})
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- r.Run(ctx, func() { close(ready) }) }()
	<-ready
	if s := r.Status(); !s.Ready || s.Detail["lineage"] == "" {
		t.Errorf("status while it runs is %+v", s)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := r.Run(t.Context(), func() {}); err == nil {
		t.Error("a second Run is taken")
	}
	goleak.VerifyNone(t, before)
}
