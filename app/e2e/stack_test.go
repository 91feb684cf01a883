package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"hubn/app/e2e/mirror"
	"hubn/outbox"
	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/registry"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// stack is a Registry, outbox workers and mirrors over real PostgreSQL, HTTP and
// Redis. The mirror's schema is in the same database, under its own role.
type stack struct {
	t     testing.TB
	db    *schematest.DB
	reach func(role string) string // how the Registry and the workers reach it
	pool  *pgxpool.Pool            // of the database's owner: plain SQL
	redis *redis.Client
	names event.Names
	url   string
	// front stands before the Registry: a test may put something between.
	front  atomic.Pointer[func(http.Handler) http.Handler]
	admin  *client.Client
	tokens map[string]string
	log    *slog.Logger
	// metrics are those of the mirrors.
	metrics map[*replica]*prometheus.Registry
}

// newStack starts a Registry; workers and mirrors are the test's to start.
func newStack(t testing.TB, rdb *redis.Client) *stack {
	t.Helper()
	db := schematest.New(t)
	return newStackThrough(t, rdb, db, func(string) string { return db.URL("") })
}

// newStackThrough is newStack with a way to the database for each role.
func newStackThrough(t testing.TB, rdb *redis.Client, db *schematest.DB, reach func(role string) string) *stack {
	t.Helper()
	s := &stack{t: t, db: db, reach: reach, redis: rdb, names: event.Names{Prefix: "hubn"}, tokens: map[string]string{}, metrics: map[*replica]*prometheus.Registry{}}
	s.log = slog.New(slog.DiscardHandler)
	if os.Getenv("HUBN_TEST_LOG") != "" {
		s.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	s.db.Migrate(t, mirror.Set)
	s.pool = s.db.Pool(t, "")
	s.watchTuples()
	options := registry.Options{
		Settings: registry.DefaultSettings(), DatabaseURL: reach("hubn_registry"), Redis: rdb, Names: s.names, Log: s.log.With("part", "registry"),
	}
	for name, token := range map[string]registry.StaticToken{
		"admin":     {Roles: []string{"admin"}},
		mirror.Name: {Roles: []string{"module"}, Module: mirror.Name},
	} {
		token.Token, token.Name = registry.NewSecret(), name
		s.tokens[name] = token.Token
		options.StaticTokens = append(options.StaticTokens, token)
	}
	r := registry.New(options)
	s.start("registry", r.Run)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var h http.Handler = r
		if front := s.front.Load(); front != nil {
			h = (*front)(r)
		}
		h.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	s.admin = s.client("admin")
	return s
}

// between puts something before the Registry; nil takes it away.
func (s *stack) between(front func(http.Handler) http.Handler) {
	if front == nil {
		s.front.Store(nil)
		return
	}
	s.front.Store(&front)
}

func (s *stack) client(token string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Options{URL: s.url, Token: s.tokens[token], Timeout: 5 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// process is something that runs until it is stopped.
type process struct {
	t     testing.TB
	name  string
	stop  context.CancelFunc
	ended chan error
	ready chan struct{}
}

// end stops it and waits.
func (p *process) end() {
	p.t.Helper()
	p.stop()
	select {
	case err, ok := <-p.ended:
		if ok && err != nil {
			p.t.Errorf("%s ended with %v", p.name, err)
		}
	case <-time.After(time.Minute):
		p.t.Fatalf("%s has not ended within a minute", p.name)
	}
}

// launch runs something in the background until the test ends.
func (s *stack) launch(name string, run func(context.Context, func()) error) *process {
	s.t.Helper()
	return launch(s.t, name, run)
}

func launch(t testing.TB, name string, run func(context.Context, func()) error) *process {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &process{t: t, name: name, stop: stop, ended: make(chan error, 1), ready: make(chan struct{})}
	go func() {
		p.ended <- run(ctx, func() { close(p.ready) })
		close(p.ended)
	}()
	t.Cleanup(p.end)
	return p
}

// start is launch, and waits until it is ready.
func (s *stack) start(name string, run func(context.Context, func()) error) *process {
	s.t.Helper()
	p := s.launch(name, run)
	p.waitReady()
	return p
}

// waitReady waits until it is ready.
func (p *process) waitReady() {
	p.t.Helper()
	select {
	case <-p.ready:
	case err := <-p.ended:
		p.t.Fatalf("%s did not start: %v", p.name, err)
	case <-time.After(time.Minute):
		p.t.Fatalf("%s was not ready within a minute", p.name)
	}
}

// worker starts an outbox worker.
func (s *stack) worker() *process {
	s.t.Helper()
	w := outbox.New(outbox.Options{
		Settings: outbox.DefaultSettings(), DatabaseURL: s.reach("hubn_outbox"), Redis: s.redis, Names: s.names, Log: s.log.With("part", "outbox"),
	})
	return s.start("outbox", w.Run)
}

// settings are those of a mirror whose pauses suit a test.
func settings() event.Settings {
	return event.Settings{
		FirstPause: 40 * time.Millisecond, LongestPause: 400 * time.Millisecond, RetryPoll: 100 * time.Millisecond,
		RetryEvery: 500 * time.Millisecond, HeartbeatEvery: 500 * time.Millisecond, InspectEvery: 200 * time.Millisecond,
		ShardLease: 1500 * time.Millisecond, ReportEvery: 10 * time.Millisecond, Block: 100 * time.Millisecond, Drain: 3 * time.Second,
	}
}

// replica is one running mirror.
type replica struct {
	*process
	mirror *mirror.Mirror
}

// mirrorOptions are the options of a mirror of this stack.
func (s *stack) mirrorOptions(instance string) mirror.Options {
	return mirror.Options{
		DatabaseURL: s.db.URL(""), Redis: s.redis, Names: s.names, Registry: s.client(mirror.Name), Instance: instance,
		Settings: settings(), Log: s.log.With("part", instance),
	}
}

// mirror starts a mirror and waits until it is ready.
func (s *stack) mirror(instance string, with ...func(*mirror.Options)) *replica {
	s.t.Helper()
	o := s.mirrorOptions(instance)
	for _, change := range with {
		change(&o)
	}
	metrics := prometheus.NewRegistry()
	o.Metrics = metrics
	m := mirror.New(o)
	r := &replica{s.start(instance, m.Run), m}
	s.metrics[r] = metrics
	return r
}

// metric adds up the samples of a metric whose labels include the given values.
func (s *stack) metric(r *replica, name string, values ...string) (sum float64) {
	s.t.Helper()
	families, err := s.metrics[r].Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(labels, v) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// exec runs SQL as the database's owner.
func (s *stack) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// one answers the single value of a query.
func one[T any](s *stack, sql string, args ...any) (v T) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// announced registers a prefix that an AS announces, and answers its resource.
func (s *stack) announced(prefix string, asn int64) client.Resource {
	s.t.Helper()
	id := one[int64](s, `INSERT INTO registry.prefix (prefix, announced, origin_asn) VALUES ($1::text::cidr, true, $2) RETURNING id`, prefix, asn)
	return client.Resource{Kind: client.KindPrefix, Key: fmt.Sprint(id)}
}

// version is the version that the Registry has of a resource.
func (s *stack) version(r client.Resource) int64 {
	s.t.Helper()
	return one[int64](s, `SELECT last_seq FROM registry.outbox_lane WHERE agg_type = $1 AND agg_key = $2`, string(r.Kind), r.Key)
}

// wanted are the route origins that the Registry wants.
func (s *stack) wanted() []string {
	s.t.Helper()
	return s.texts(`
		SELECT 'AS' || origin_asn || ',' || prefix || ',' || coalesce(max_length, masklen(prefix))
		FROM registry.prefix WHERE announced AND status = 'active'
		UNION
		SELECT 'AS' || o.asn || ',' || o.prefix || ',' || coalesce(o.max_length, masklen(o.prefix))
		FROM registry.anycast_route_origin o WHERE o.active
		ORDER BY 1`)
}

// mirrored are the route origins that the mirror has.
func (s *stack) mirrored() []string {
	s.t.Helper()
	return s.texts(`SELECT 'AS' || asn || ',' || prefix || ',' || max_length FROM mirror.route_origin ORDER BY 1`)
}

func (s *stack) texts(sql string, args ...any) []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), sql, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// converges waits until the mirror has what the Registry wants.
func (s *stack) converges() {
	s.t.Helper()
	eventtest.Eventually(s.t, "the mirror has what the Registry wants", func() bool { return slices.Equal(s.wanted(), s.mirrored()) })
}

// watchTuples records every tuple that comes or goes, when it is committed: a
// tuple that blinked is found however short it was away.
func (s *stack) watchTuples() {
	s.exec(`
		CREATE TABLE public.tuple_history (n bigint GENERATED ALWAYS AS IDENTITY, op text, tuple text);
		GRANT INSERT ON public.tuple_history TO PUBLIC;
		CREATE FUNCTION public.tuple_seen() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO public.tuple_history (op, tuple)
			VALUES (TG_OP, 'AS' || coalesce(NEW.asn, OLD.asn) || ',' || coalesce(NEW.prefix, OLD.prefix) || ',' || coalesce(NEW.max_length, OLD.max_length));
			RETURN NULL;
		END $$;
		CREATE TRIGGER tuple_seen AFTER INSERT OR DELETE ON mirror.route_origin
			FOR EACH ROW EXECUTE FUNCTION public.tuple_seen();
		CREATE TABLE public.version_history (n bigint GENERATED ALWAYS AS IDENTITY, kind text, key text, old bigint, new bigint);
		GRANT INSERT ON public.version_history TO PUBLIC;
		CREATE FUNCTION public.version_seen() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO public.version_history (kind, key, old, new) VALUES (NEW.kind, NEW.key, OLD.version, NEW.version);
			RETURN NULL;
		END $$;
		CREATE TRIGGER version_seen AFTER UPDATE ON mirror.source_version
			FOR EACH ROW EXECUTE FUNCTION public.version_seen();`)
}

// withdrawn are the tuples that ever went.
func (s *stack) withdrawn() []string {
	s.t.Helper()
	return s.texts(`SELECT tuple FROM public.tuple_history WHERE op = 'DELETE' ORDER BY n`)
}

// waited makes a barrier and waits until it is done.
func (s *stack) waited() {
	s.t.Helper()
	ctx := s.t.Context()
	barrier, err := s.admin.CreateBarrier(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	eventtest.Eventually(s.t, "the barrier is done", func() bool {
		b, err := s.admin.Barrier(ctx, barrier.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		return b.Done
	})
}

// reconciled asks for a full reconciliation and waits until one is complete.
func (s *stack) reconciled(r *replica) {
	s.t.Helper()
	before := one[int64](s, `SELECT wanted FROM mirror.consumer`)
	s.reconcile(r)
	eventtest.Eventually(s.t, "the reconciliation is complete", func() bool {
		return one[int64](s, `SELECT done FROM mirror.consumer`) > before
	})
}

// refused asks for a full reconciliation and waits until one was refused.
func (s *stack) refused(r *replica) {
	s.t.Helper()
	before := s.metric(r, "hubn_consumer_reconciliations_total", "refused")
	s.reconcile(r)
	eventtest.Eventually(s.t, "the reconciliation is refused", func() bool {
		return s.metric(r, "hubn_consumer_reconciliations_total", "refused") > before
	})
}

func (s *stack) reconcile(r *replica) {
	s.t.Helper()
	if err := r.mirror.Consumer().Reconcile(s.t.Context(), "a test"); err != nil {
		s.t.Fatal(err)
	}
}

// order gives the mirror a command and answers the mirror's answer.
func (s *stack) order(name string, arguments string) client.AppliedState {
	s.t.Helper()
	ctx := s.t.Context()
	command, err := s.admin.Order(ctx, mirror.Name, client.CommandOrder{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		s.t.Fatal(err)
	}
	eventtest.Eventually(s.t, "the command "+name+" is answered", func() bool {
		if command, err = s.admin.Command(ctx, command.ID); err != nil {
			s.t.Fatal(err)
		}
		return command.Answer != nil
	})
	return *command.Answer
}
