package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"hubn/app/e2e/mirror"
	"hubn/outbox"
	"hubn/outbox/event"
	"hubn/registry"
	"hubn/registry/client"
	"hubn/schema"
	"hubn/schema/schematest"
)

// recovery is how long everything may take to be well again after a fault. The
// parts pause up to 10 s between two tries; a loaded machine takes the rest.
const recovery = 90 * time.Second

// site is an installation whose servers a test breaks: a Registry, outbox
// workers and mirrors, each with connections of its own. PostgreSQL is behind a
// relay, so that it can move. The mirror has a database of its own, which
// remembers what the Registry forgets.
type site struct {
	t        testing.TB
	names    event.Names
	database *relay
	dbName   string
	redisURL string
	mirrorDB mirrorDatabase
	url      string
	admin    *client.Client
	tokens   map[string]string
	log      *slog.Logger

	owner, mirrors *pgxpool.Pool // the test's own
	streams        *redis.Client
	// password is part of every database URL; the test servers trust anyway.
	password string
	// bare sites start no Registry: the test does.
	bare bool
}

// database is a PostgreSQL server as a site uses it.
type database interface{ URL(role string) string }

// mirrorDatabase is where the mirrors keep what they know.
type mirrorDatabase interface {
	URL(role string) string
	Exec(t testing.TB, sql string, args ...any)
	Pool(t testing.TB, role string) *pgxpool.Pool
}

// newSite starts a Registry on servers of the test's own; workers and mirrors
// are the test's to start.
func newSite(t testing.TB, db database, redisURL string, with ...func(*site)) *site {
	t.Helper()
	s := &site{
		t: t, names: event.Names{Prefix: "hubn"}, database: newRelay(t), redisURL: redisURL,
		tokens: map[string]string{}, log: testLog(), password: "unused",
	}
	for _, change := range with {
		change(s)
	}
	if s.mirrorDB == nil {
		own := schematest.New(t)
		own.Migrate(t, mirror.Set)
		s.mirrorDB = own
	}
	s.mirrorDB.Exec(t, sqlWatchVersions)
	s.moveTo(db)
	s.owner, s.mirrors = newPool(t, s.databaseURL("hubn")), s.mirrorDB.Pool(t, "")
	s.streams = s.redisClient()
	if !s.bare {
		s.registry()
	}
	return s
}

// sharedDatabase is a cluster whose database the mirrors share with the Registry.
type sharedDatabase struct {
	*schematest.Cluster
	site *site
}

// URL leads through the relay, as the Registry's does.
func (d sharedDatabase) URL(role string) string {
	if role == "" {
		role = "hubn"
	}
	return d.site.databaseURL(role)
}

// shareDatabase puts the mirror's schema into the Registry's database.
func (s *site) shareDatabase(cluster *schematest.Cluster) {
	s.t.Helper()
	if _, err := schema.Migrate(s.t.Context(), cluster.Conn(s.t, ""), mirror.Set); err != nil {
		s.t.Fatal(err)
	}
	s.mirrorDB = sharedDatabase{cluster, s}
}

// sqlWatchVersions notes every change of a version that the mirror holds.
const sqlWatchVersions = `
	CREATE TABLE public.version_history (kind text, key text, old bigint, new bigint);
	GRANT INSERT ON public.version_history TO PUBLIC;
	CREATE FUNCTION public.version_seen() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.version_history VALUES (NEW.kind, NEW.key, OLD.version, NEW.version);
		RETURN NULL;
	END $$;
	CREATE TRIGGER version_seen AFTER UPDATE ON mirror.source_version
		FOR EACH ROW EXECUTE FUNCTION public.version_seen();`

// The Redis client says on standard error what its callers report as well.
func init() { redis.SetLogger(quiet{}) }

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func testLog() *slog.Logger {
	if os.Getenv("HUBN_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// moveTo makes the Registry's PostgreSQL another server, at the same address.
func (s *site) moveTo(db database) {
	s.t.Helper()
	config, err := pgx.ParseConfig(db.URL(""))
	if err != nil {
		s.t.Fatal(err)
	}
	s.dbName = config.Database
	s.database.to(db.URL(""))
}

// databaseURL is where every part finds the Registry's database.
func (s *site) databaseURL(role string) string { return s.database.url(s.dbName, role, s.password) }

// redisClient is a client of a part of its own.
func (s *site) redisClient() *redis.Client {
	s.t.Helper()
	options, err := redis.ParseURL(s.redisURL)
	if err != nil {
		s.t.Fatal(err)
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = time.Second, 2*time.Second, 2*time.Second
	c := redis.NewClient(options)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// registry starts the Registry and its HTTP server.
func (s *site) registry() {
	s.t.Helper()
	options := registry.Options{
		Settings: registry.DefaultSettings(), DatabaseURL: s.databaseURL("hubn_registry"), Redis: s.redisClient(), Names: s.names,
		Log: s.log.With("part", "registry"),
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
	launch(s.t, "registry", r.Run).waitReady()
	server := httptest.NewServer(r)
	s.t.Cleanup(server.Close)
	s.url = server.URL
	s.admin = s.client("admin")
}

func (s *site) client(token string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Options{URL: s.url, Token: s.tokens[token], Timeout: 10 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// workers starts outbox workers.
func (s *site) workers(n int) (all []*worker) {
	s.t.Helper()
	for i := range n {
		name := fmt.Sprintf("outbox %d", i)
		w := &worker{metrics: prometheus.NewRegistry()}
		w.Worker = outbox.New(outbox.Options{
			Settings: outbox.DefaultSettings(), DatabaseURL: s.databaseURL("hubn_outbox"), Redis: s.redisClient(), Names: s.names,
			Log: s.log.With("part", name), Metrics: w.metrics,
		})
		launch(s.t, name, w.Run).waitReady()
		all = append(all, w)
	}
	return all
}

// worker is a running outbox worker.
type worker struct {
	*outbox.Worker
	metrics *prometheus.Registry
}

// counted is the sum of a counter over workers.
func (s *site) counted(workers []*worker, name string) (sum float64) {
	s.t.Helper()
	for _, w := range workers {
		families, err := w.metrics.Gather()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// noticed waits until every worker says that Redis takes no events.
func (s *site) noticed(workers []*worker) {
	s.t.Helper()
	s.eventually("the workers say that Redis takes no events", func() error {
		for _, w := range workers {
			if status := w.Status(); status.Ready || !strings.HasPrefix(status.Reason, "Redis has taken no events") {
				return fmt.Errorf("one says %+v", status)
			}
		}
		return nil
	})
}

// mirror starts a replica of the mirror.
func (s *site) mirror(instance string, with ...func(*mirror.Options)) *replica {
	s.t.Helper()
	o := mirror.Options{
		DatabaseURL: s.mirrorDB.URL(""), Redis: s.redisClient(), Names: s.names, Registry: s.client(mirror.Name), Instance: instance,
		Settings: settings(), Log: s.log.With("part", instance),
	}
	for _, change := range with {
		change(&o)
	}
	m := mirror.New(o)
	p := launch(s.t, instance, m.Run)
	p.waitReady()
	return &replica{p, m}
}

// exec runs SQL as the owner, over a new connection: one that was cut off says
// so only when it is used.
func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if err := pgx.BeginFunc(s.t.Context(), s.connect(), func(tx pgx.Tx) error {
		_, err := tx.Exec(s.t.Context(), sql, args...)
		return err
	}); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// connect is a new connection as the owner, closed when the test ends.
func (s *site) connect() *pgx.Conn {
	s.t.Helper()
	var conn *pgx.Conn
	s.eventually("PostgreSQL takes a connection", func() (err error) {
		conn, err = pgx.Connect(s.t.Context(), s.databaseURL("hubn"))
		return err
	})
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// eventually waits until a condition holds, and says why it does not.
func (s *site) eventually(what string, holds func() error) {
	s.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var err error
	for begun := time.Now(); time.Since(begun) < recovery; <-ticker.C {
		if err = holds(); err == nil {
			return
		}
	}
	s.t.Fatalf("after %s still not: %s: %v", recovery, what, err)
}

// ask answers the single value of a query of the Registry's database, as soon as
// that can be asked.
func ask[T any](s *site, sql string, args ...any) (v T) {
	s.t.Helper()
	s.eventually(sql, func() error { return s.owner.QueryRow(s.t.Context(), sql, args...).Scan(&v) })
	return v
}

// askMirror is ask of the mirror's database.
func askMirror[T any](s *site, sql string, args ...any) (v T) {
	s.t.Helper()
	s.eventually(sql, func() error { return s.mirrors.QueryRow(s.t.Context(), sql, args...).Scan(&v) })
	return v
}

func list(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) ([]string, error) {
	rows, err := pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const (
	sqlWanted = `
		SELECT 'AS' || origin_asn || ',' || prefix || ',' || coalesce(max_length, masklen(prefix))
		FROM registry.prefix
		WHERE announced AND status = 'active'
		UNION
		SELECT 'AS' || o.asn || ',' || o.prefix || ',' || coalesce(o.max_length, masklen(o.prefix))
		FROM registry.anycast_route_origin o
		WHERE o.active
		ORDER BY 1`
	sqlMirrored = `
		SELECT 'AS' || asn || ',' || prefix || ',' || max_length
		FROM mirror.route_origin
		ORDER BY 1`
	sqlPending = `
		SELECT count(*) FILTER (WHERE pub_seq < last_seq), count(*) FILTER (WHERE claimed_by IS NOT NULL), coalesce(max(attempts), 0)
		FROM registry.outbox_lane`
)

// settled waits until everything is delivered: nothing is left to publish, no
// lane is claimed, no scan is owed, and the mirror, which is in the Registry's
// lineage, has what the Registry wants, and what is held besides. No lane may
// have counted an attempt: no fault of a server is a lane's failure.
func (s *site) settled(held ...string) {
	s.t.Helper()
	ctx := s.t.Context()
	s.eventually("the outbox is empty and the mirror has what the Registry wants", func() error {
		var pending, claimed, attempts int
		if err := s.owner.QueryRow(ctx, sqlPending).Scan(&pending, &claimed, &attempts); err != nil {
			return err
		}
		if attempts != 0 {
			s.t.Fatalf("a lane has counted %d attempts, want none", attempts)
		}
		var owed bool
		var lineage, served string
		if err := s.mirrors.QueryRow(ctx, `SELECT lineage, wanted > done FROM mirror.consumer`).Scan(&lineage, &owed); err != nil {
			return err
		}
		if err := s.owner.QueryRow(ctx, `SELECT registry.lineage_current()::text`).Scan(&served); err != nil {
			return err
		}
		wanted, err := list(ctx, s.owner, sqlWanted)
		if err != nil {
			return err
		}
		wanted = slices.Sorted(slices.Values(append(wanted, held...)))
		mirrored, err := list(ctx, s.mirrors, sqlMirrored)
		if err != nil {
			return err
		}
		mirrored = slices.Sorted(slices.Values(mirrored))
		if pending > 0 || claimed > 0 || owed || lineage != served || !slices.Equal(wanted, mirrored) {
			return fmt.Errorf("%d lanes pending, %d claimed, scan owed %v, lineage %s of %s; the Registry wants %s; the mirror has %s",
				pending, claimed, owed, lineage, served, briefly(wanted, mirrored), briefly(mirrored, wanted))
		}
		return nil
	})
}

// briefly is how many there are, and some of those that others lack.
func briefly(these, others []string) string {
	var only []string
	for _, v := range these {
		if !slices.Contains(others, v) {
			only = append(only, v)
		}
	}
	if len(only) > 5 {
		only = append(only[:5], "…")
	}
	return fmt.Sprintf("%d (only there: %s)", len(these), strings.Join(only, " "))
}

// announce registers prefixes that an AS announces: 10.area.0.0/24 and so on.
func (s *site) announce(area, count int, asn int64) []int64 {
	s.t.Helper()
	const sql = `
		INSERT INTO registry.prefix (prefix, announced, origin_asn)
		SELECT set_masklen(('10.' || $1::int || '.' || n || '.0')::inet, 24)::cidr, true, $3
		FROM generate_series(0, $2::int - 1) n
		RETURNING id`
	rows, err := s.connect().Query(s.t.Context(), sql, area, count, asn)
	if err != nil {
		s.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// origins are the tuples of announce.
func origins(area, from, to int, asn int64) (tuples []string) {
	for n := from; n < to; n++ {
		tuples = append(tuples, fmt.Sprintf("AS%d,10.%d.%d.0/24,24", asn, area, n))
	}
	return tuples
}

// lineages answers the Registry's lineage and its ancestors.
func (s *site) lineages() client.Lineages {
	s.t.Helper()
	var out client.Lineages
	s.eventually("the Registry answers its lineage", func() (err error) {
		out, err = s.admin.Lineage(s.t.Context())
		return err
	})
	return out
}

// published waits until nothing is left to publish.
func (s *site) published() {
	s.t.Helper()
	s.eventually("everything is published", func() error {
		var pending, claimed, attempts int
		err := s.owner.QueryRow(s.t.Context(), sqlPending).Scan(&pending, &claimed, &attempts)
		if err == nil && pending+claimed > 0 {
			err = fmt.Errorf("%d lanes pending, %d claimed", pending, claimed)
		}
		return err
	})
}

// committed is how many events were ever committed.
func (s *site) committed() int {
	s.t.Helper()
	return ask[int](s, `SELECT sum(last_seq)::int FROM registry.outbox_lane`)
}

// waited makes a barrier and waits until the mirror has reported it.
func (s *site) waited() {
	s.t.Helper()
	var barrier client.Barrier
	s.eventually("a barrier is made", func() (err error) {
		barrier, err = s.admin.CreateBarrier(s.t.Context())
		return err
	})
	s.eventually("the barrier is done", func() error {
		b, err := s.admin.Barrier(s.t.Context(), barrier.ID)
		if err == nil && !b.Done {
			err = fmt.Errorf("%+v", b)
		}
		return err
	})
}
