package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"hubn/app"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

// registryEnv names the folder of a real registry (*.rpsl) and its history.jsonl;
// without it a registry of the same shape is made.
const registryEnv = "HUBN_REGISTRY_DATA"

// dataset is a registry to import, with what is known of it.
type dataset struct {
	folder  string
	own     string // pattern of its own name servers
	objects int
	refused int
	history []rpsltest.Merge
	// final is the text of each object after the history, in the order of first mention.
	final []rpsltest.Object
	// Of the whole import: prefixes by reverse mode, and the lengths of the delegated ones.
	hosted, delegated, lengths int
}

// theRegistry is the real registry, or one that is made.
func theRegistry(t testing.TB) *dataset {
	t.Helper()
	d := &dataset{folder: os.Getenv(registryEnv), own: "*.delegation-servers.dn42"}
	if d.folder == "" {
		d.folder, d.own = t.TempDir(), rpsltest.OwnNameServers
		if err := rpsltest.Generate(1, 2000).WriteFiles(d.folder); err != nil {
			t.Fatal(err)
		}
	}
	d.read(t)
	if os.Getenv(registryEnv) != "" && (d.hosted != 7 || d.delegated != 1370 || d.lengths != 23) {
		t.Errorf("the real registry plans %d hosted and %d delegated prefixes of %d lengths; want 7, 1370, 23", d.hosted, d.delegated, d.lengths)
	}
	return d
}

func (d *dataset) read(t testing.TB) {
	t.Helper()
	final := map[string]int{}
	put := func(class, key, text string) {
		at, ok := final[class+" "+key]
		if !ok {
			at = len(d.final)
			final[class+" "+key] = at
			d.final = append(d.final, rpsltest.Object{Class: class, Key: key})
		}
		d.final[at].Text = text
	}
	var input rpsl.Input
	for raw, err := range rpsl.Walk([]string{d.folder}, nil, new(rpsl.Tally)) {
		if err != nil {
			t.Fatal(err)
		}
		d.objects++
		object, err := rpsl.Parse(raw)
		if err != nil {
			d.refused++
			continue
		}
		input.Objects = append(input.Objects, object)
		put(string(object.Head().Class), fileKey(object), raw.Text)
	}
	d.plan(t, input)
	f, err := os.Open(filepath.Join(d.folder, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var merge rpsltest.Merge
		if err := json.Unmarshal(lines.Bytes(), &merge); err != nil {
			t.Fatal(err)
		}
		d.history = append(d.history, merge)
		for _, e := range merge.Changes {
			put(e.Class, e.Key, e.Text)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// plan counts what the whole import makes.
func (d *dataset) plan(t testing.TB, input rpsl.Input) {
	t.Helper()
	pattern, err := rpsl.ParseNameServerPattern(d.own)
	if err != nil {
		t.Fatal(err)
	}
	lengths := map[int]bool{}
	for _, p := range rpsl.PlanImport(rpsl.State{}, input, rpsl.Options{OwnNameServers: []rpsl.NameServerPattern{pattern}}).InsertPrefixes {
		switch p.Reverse.Mode {
		case rpsl.ReverseHosted:
			d.hosted++
		case rpsl.ReverseDelegated:
			d.delegated++
			lengths[p.CIDR.Bits()] = true
		}
	}
	d.lengths = len(lengths)
}

// fileKey is the name of an object's file in the layout of one file each.
func fileKey(object rpsl.Object) string {
	switch o := object.(type) {
	case *rpsl.Network:
		return strings.ReplaceAll(o.CIDRs[0].String(), "/", "_")
	case *rpsl.Route:
		return strings.ReplaceAll(o.Prefix.String(), "/", "_")
	}
	return object.Head().Key
}

// command runs a command of hubn against the stack's Registry, and answers its
// standard output and exit status.
func (s *stack) command(stdin string, args ...string) (string, int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	args = append(args, "--url", s.url, "--token", s.tokens["admin"])
	status := app.Run(s.t.Context(), args, strings.NewReader(stdin), &out, &errs)
	if errs.Len() > 0 {
		s.t.Logf("hubn %s: %s", strings.Join(args[:len(args)-4], " "), errs.String())
	}
	return out.String(), status
}

// imports runs `hubn import rpsl` and answers what it says.
func (s *stack) imports(stdin string, wantStatus int, args ...string) client.ImportResult {
	s.t.Helper()
	out, status := s.command(stdin, append([]string{"import", "rpsl", "--output", "json"}, args...)...)
	if status != wantStatus {
		s.t.Fatalf("hubn import rpsl %v: exit status %d, want %d: %s", args, status, wantStatus, out)
	}
	var r client.ImportResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		s.t.Fatalf("hubn import rpsl: %v: %s", err, out)
	}
	return r
}

// exported is the wanted route origins as the command line prints them.
func (s *stack) exported() []string {
	s.t.Helper()
	out, status := s.command("", "export", "vrps")
	if status != 0 {
		s.t.Fatalf("hubn export vrps: exit status %d", status)
	}
	lines := strings.Fields(out)
	slices.Sort(lines)
	return lines
}

// contents is everything that an import decides, by natural keys.
func (s *stack) contents() []string {
	s.t.Helper()
	return s.texts(`
		SELECT concat_ws('|', 'prefix', p.prefix, p.parent_prefix, lower(o.handle), lower(r.handle), p.kind, p.status, p.provenance, p.name,
		                 p.announced, p.origin_asn, p.max_length, p.reverse_mode, p.name_servers, p.ds)
		FROM registry.prefix p
		LEFT JOIN registry.organisation o ON o.id = p.organisation_id
		LEFT JOIN registry.organisation r ON r.id = p.route_organisation_id
		UNION ALL
		SELECT concat_ws('|', 'anycast', a.prefix, a.container, a.service, lower(o.handle), r.asn, r.max_length, r.active)
		FROM registry.anycast_allocation a
		LEFT JOIN registry.organisation o ON o.id = a.organisation_id
		LEFT JOIN registry.anycast_route_origin r ON r.allocation_id = a.id
		UNION ALL
		SELECT concat_ws('|', 'asn', n.number, lower(o.handle), n.name)
		FROM registry.asn n
		LEFT JOIN registry.organisation o ON o.id = n.organisation_id
		ORDER BY 1`)
}

// ledger compares the events with the changes of what the world sees, between
// two moments.
type ledger struct {
	s    *stack
	seen map[string]aggregate
	// lastChange and lastEvent are how far the change log and the outbox were.
	lastChange int64
	lastEvent  time.Time
}

// aggregate is what the world sees of one, in parts that one statement of an
// import changes, and how many events it had.
type aggregate struct {
	row     string
	origins map[string]string // of an anycast allocation, by their rows
	events  int64
}

// sqlAggregates is the aggregates that anything happened to since a moment,
// deleted ones as well.
const sqlAggregates = `
	SELECT l.agg_type || ':' || l.agg_key,
	       l.last_seq,
	       coalesce(CASE l.agg_type
	         WHEN 'prefix' THEN (
	           SELECT ROW(p.status, p.organisation_id, p.announced, p.origin_asn, p.max_length, p.reverse_mode, p.name_servers,
	                      p.name_server_set_id, p.ds, p.rfc2317_style, p.zone_cut)::text
	           FROM registry.prefix p
	           WHERE p.id = l.agg_key::bigint)
	         WHEN 'asn' THEN (SELECT ROW(n.organisation_id)::text FROM registry.asn n WHERE n.number = l.agg_key::bigint)
	         WHEN 'organisation' THEN (
	           SELECT ROW(o.handle, o.name, o.contact)::text FROM registry.organisation o WHERE o.id = l.agg_key::bigint)
	         WHEN 'anycast' THEN (
	           SELECT ROW(a.prefix, a.organisation_id, a.service)::text FROM registry.anycast_allocation a WHERE a.id = l.agg_key::bigint)
	       END, ''),
	       (SELECT jsonb_object_agg(r.id, ROW(r.asn, r.max_length, r.active)::text)
	        FROM registry.anycast_route_origin r
	        WHERE l.agg_type = 'anycast'
	          AND r.allocation_id = l.agg_key::bigint)
	FROM (
	  SELECT kind, agg_key
	  FROM registry.change_log
	  WHERE id > $1
	  UNION
	  SELECT agg_type, agg_key
	  FROM registry.outbox_lane
	  WHERE last_event_at >= $2
	) touched
	JOIN registry.outbox_lane l ON l.agg_type = touched.kind AND l.agg_key = touched.agg_key
	WHERE l.agg_type IN ('prefix', 'asn', 'organisation', 'anycast')`

func newLedger(s *stack) *ledger {
	l := &ledger{s: s, seen: map[string]aggregate{}}
	l.advance()
	return l
}

func (l *ledger) advance() {
	l.s.t.Helper()
	if err := l.s.pool.QueryRow(l.s.t.Context(), `
		SELECT (SELECT coalesce(max(id), 0) FROM registry.change_log), clock_timestamp()`).Scan(&l.lastChange, &l.lastEvent); err != nil {
		l.s.t.Fatal(err)
	}
}

// check says which aggregates had other events than their changes called for:
// one for each kind of change (an allocation, and origins that came, changed or
// went). It answers how many events there were.
func (l *ledger) check(what string) int64 {
	l.s.t.Helper()
	rows, err := l.s.pool.Query(l.s.t.Context(), sqlAggregates, l.lastChange, l.lastEvent)
	if err != nil {
		l.s.t.Fatal(err)
	}
	total := int64(0)
	var (
		name string
		is   aggregate
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &is.events, &is.row, &is.origins}, func() error {
		was := l.seen[name]
		want := int64(0)
		if is.row != was.row {
			want++
		}
		for _, changed := range originChanges(was.origins, is.origins) {
			if changed {
				want++
			}
		}
		got := is.events - was.events
		if got != want {
			l.s.t.Errorf("%s: %s had %d events, and its change calls for %d: %v → %v", what, name, got, want, was, is)
		}
		total += got
		l.seen[name] = is
		is = aggregate{}
		return nil
	}); err != nil {
		l.s.t.Fatal(err)
	}
	l.advance()
	return total
}

// originChanges tells whether origins came, changed and went.
func originChanges(was, is map[string]string) (changes [3]bool) {
	for id, now := range is {
		before, ok := was[id]
		changes[0] = changes[0] || !ok
		changes[1] = changes[1] || ok && before != now
	}
	for id := range was {
		_, ok := is[id]
		changes[2] = changes[2] || !ok
	}
	return changes
}

// The main job on a whole registry: one command imports it, the outbox carries
// every change, a consumer follows, and its history replayed change by change
// ends where a fresh import of the final objects does.
func TestRegistryIsImportedCarriedAndReplayed(t *testing.T) {
	data := theRegistry(t)
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	s.mirror("one")
	books := newLedger(s)

	status := 0
	if data.refused > 0 {
		status = 1
	}
	begun := time.Now()
	first := s.imports("", status, data.folder, "--own-nameserver", data.own)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the import took %s; want less than 30 s", took)
	} else {
		t.Logf("%d objects imported in %s", first.Objects, took)
	}
	if first.Objects != data.objects || len(first.Refused) != data.refused {
		t.Errorf("%d objects and %d refused; want %d and %d", first.Objects, len(first.Refused), data.objects, data.refused)
	}
	reverse := one[string](s, `
		SELECT count(*) FILTER (WHERE reverse_mode = 'hosted') || ' hosted, ' ||
		       count(*) FILTER (WHERE reverse_mode = 'delegated') || ' delegated of ' ||
		       count(DISTINCT masklen(prefix)) FILTER (WHERE reverse_mode = 'delegated') || ' lengths'
		FROM registry.prefix`)
	if want := fmt.Sprintf("%d hosted, %d delegated of %d lengths", data.hosted, data.delegated, data.lengths); reverse != want {
		t.Errorf("reverse DNS: %s; want %s", reverse, want)
	}
	books.check("the import")
	if out, status := s.command("", "wait", "--timeout", "1m"); status != 0 {
		t.Fatalf("hubn wait: exit status %d: %s", status, out)
	}
	s.same("after the import, the consumer", s.exported(), s.mirrored())
	if n := one[int64](s, `SELECT count(*) FROM registry.outbox_lane WHERE pub_seq < last_seq`); n != 0 {
		t.Errorf("%d lanes are not drained", n)
	}

	again := s.imports("", status, data.folder, "--own-nameserver", data.own)
	if n := books.check("the second import"); n != 0 || again.Added+again.Changed+again.Deleted != 0 {
		t.Errorf("importing the same again changes %d resources and makes %d events", again.Added+again.Changed+again.Deleted, n)
	}

	events := int64(0)
	for _, merge := range data.history {
		var texts []string
		for _, e := range merge.Changes {
			texts = append(texts, e.RPSL())
		}
		s.imports(strings.Join(texts, "\n"), 0, "-", "--own-nameserver", data.own)
		events += books.check(fmt.Sprintf("change %d", merge.N))
	}
	if events == 0 {
		t.Error("the history made no event")
	}
	t.Logf("%d changes replayed with %d events", len(data.history), events)
	if out, status := s.command("", "wait", "--timeout", "1m"); status != 0 {
		t.Fatalf("hubn wait: exit status %d: %s", status, out)
	}
	s.same("after the replay, the consumer", s.exported(), s.mirrored())

	fresh := newStack(t, eventtest.Server(t).Client())
	fresh.worker()
	fresh.mirror("two")
	var final []rpsltest.Object
	for _, o := range data.final {
		if o.Text != "" {
			final = append(final, o)
		}
	}
	fresh.imports(rpsltest.Text(final), 0, "-", "--own-nameserver", data.own)
	if out, status := fresh.command("", "wait", "--timeout", "1m"); status != 0 {
		t.Fatalf("hubn wait: exit status %d: %s", status, out)
	}
	s.same("the replayed registry and a fresh import of the final objects", fresh.contents(), s.contents())
	s.same("the two consumers", fresh.mirrored(), s.mirrored())
}

func (s *stack) same(what string, want, got []string) {
	s.t.Helper()
	if len(want) == 0 {
		s.t.Errorf("%s: nothing to compare", what)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
