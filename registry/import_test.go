package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
	"hubn/schema/schematest"
)

// importing is an importer on a database of its own.
type importing struct {
	*importer
	db     *schematest.DB
	owner  *pgx.Conn
	t      testing.TB
	stages chan string
}

func newImporting(t testing.TB) *importing {
	t.Helper()
	db := schematest.New(t)
	im := &importing{db: db, owner: db.Conn(t, ""), t: t, stages: make(chan string, 1000)}
	im.importer = &importer{
		pool: db.Pool(t, "hubn_registry"),
		log:  slog.New(slog.DiscardHandler),
		act: func(ctx context.Context, tx pgx.Tx, _ int64) error {
			_, err := tx.Exec(ctx, sqlActing, "tester", "", "", "a test")
			return err
		},
		stage: func(p client.ImportProgress) { im.stages <- p.Stage },
	}
	return im
}

// request is what a text asks for.
func request(t testing.TB, text string) importRequest {
	t.Helper()
	req := importRequest{actor: "tester"}
	for raw, err := range rpsl.Read("test.rpsl", strings.NewReader(text), new(rpsl.Tally)) {
		if err != nil {
			t.Fatal(err)
		}
		req.add(raw)
	}
	return req
}

func (im *importing) take(text string, change ...func(*importRequest)) *client.ImportResult {
	im.t.Helper()
	req := request(im.t, text)
	for _, c := range change {
		c(&req)
	}
	result, err := im.run(im.t.Context(), req)
	if err != nil {
		im.t.Fatalf("import: %v", err)
	}
	return result
}

func dry(r *importRequest)   { r.dryRun = true }
func prune(r *importRequest) { r.options.Prune = true }

// texts are the rows of a query with one text column.
func (im *importing) texts(sql string, args ...any) []string {
	im.t.Helper()
	rows, err := im.owner.Query(im.t.Context(), sql, args...)
	if err != nil {
		im.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		im.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// events are the events that a function makes, as "prefix 192.0.2.0/24 created".
func (im *importing) events(f func()) []string {
	im.t.Helper()
	var before int64
	const all = `SELECT count(*) FROM registry.outbox_event`
	if err := im.owner.QueryRow(im.t.Context(), all).Scan(&before); err != nil {
		im.t.Fatal(err)
	}
	f()
	return im.texts(`
		SELECT l.agg_type || ' ' || coalesce(
		         (SELECT p.prefix::text FROM registry.prefix p WHERE l.agg_type = 'prefix' AND p.id::text = l.agg_key),
		         (SELECT a.prefix::text FROM registry.anycast_allocation a WHERE l.agg_type = 'anycast' AND a.id::text = l.agg_key),
		         (SELECT o.handle FROM registry.organisation o WHERE l.agg_type = 'organisation' AND o.id::text = l.agg_key),
		         l.agg_key) || ' ' || e.kind || ' ' || coalesce((SELECT string_agg(c, '+' ORDER BY c) FROM jsonb_array_elements_text(e.payload->'changed') c), '')
		FROM (SELECT *, row_number() OVER (ORDER BY created_at, lane_id, seq) AS n FROM registry.outbox_event) e
		JOIN registry.outbox_lane l USING (lane_id)
		WHERE n > $1
		ORDER BY 1`, before)
}

func (im *importing) prefixes() []string {
	return im.texts(`
		SELECT concat_ws(' ', p.prefix, 'in', coalesce(p.parent_prefix::text, 'nothing'), coalesce(o.handle, 'nobody'), p.provenance,
		                 CASE WHEN p.announced THEN 'AS' || p.origin_asn || coalesce('-' || p.max_length, '') END)
		FROM registry.prefix p
		LEFT JOIN registry.organisation o ON o.id = p.organisation_id
		ORDER BY p.prefix`)
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const small = `
inetnum: 192.0.2.0 - 192.0.2.255
netname: OUTER
mnt-by: ONE-MNT
status: ALLOCATED

inetnum: 192.0.2.0/26
mnt-by: TWO-MNT
nserver: ns1.example.net

route: 192.0.2.0/26
origin: AS64496

route: 192.0.2.64/26
origin: AS64497
origin: AS64498
mnt-by: ONE-MNT

aut-num: AS64496
mnt-by: ONE-MNT
`

func TestImportWritesWhatTheObjectsSay(t *testing.T) {
	im := newImporting(t)
	got := im.events(func() { im.take(small) })
	want(t, "prefixes", im.prefixes(), []string{
		"192.0.2.0/24 in nothing ONE-MNT registered",
		"192.0.2.0/26 in 192.0.2.0/24 TWO-MNT registered AS64496",
		"192.0.2.64/26 in 192.0.2.0/24 ONE-MNT implied",
	})
	want(t, "origins", im.texts(`SELECT a.prefix || ' AS' || o.asn FROM registry.anycast_route_origin o JOIN registry.anycast_allocation a ON a.id = o.allocation_id ORDER BY 1`),
		[]string{"192.0.2.64/26 AS64497", "192.0.2.64/26 AS64498"})
	want(t, "events", got, []string{
		"anycast 192.0.2.64/26 changed origins",
		"anycast 192.0.2.64/26 created organisation+prefix+service",
		"asn 64496 created holder",
		"organisation ONE-MNT created organisation",
		"organisation TWO-MNT created organisation",
		"prefix 192.0.2.0/24 created organisation+prefix+reverse+routing+status",
		"prefix 192.0.2.0/26 created organisation+prefix+reverse+routing+status",
		"prefix 192.0.2.64/26 created organisation+prefix+reverse+routing+status",
	})
	want(t, "actors", im.texts(`SELECT DISTINCT actor || ': ' || reason FROM registry.change_log`), []string{"tester: a test"})
}

func TestImportingTheSameAgainChangesNothing(t *testing.T) {
	im := newImporting(t)
	im.take(small)
	for _, change := range []func(*importRequest){func(*importRequest) {}, prune} {
		events := im.events(func() {
			r := im.take(small, change)
			if r.Added+r.Changed+r.Deleted != 0 || r.Unchanged != 5 {
				t.Errorf("the second import adds %d, changes %d, deletes %d, and leaves %d of 5 objects", r.Added, r.Changed, r.Deleted, r.Unchanged)
			}
		})
		want(t, "events", events, []string{})
	}
}

func TestDryRunShowsTheChangesAndLeavesNoTrace(t *testing.T) {
	im := newImporting(t)
	events := im.events(func() {
		r := im.take(small, dry)
		if r.Added != 7 || !r.DryRun {
			t.Errorf("a dry run adds %d resources, not 7", r.Added)
		}
		labels := []string{}
		for _, c := range r.Changes {
			labels = append(labels, fmt.Sprintf("%s %s %s", c.Op, c.Kind, c.Label))
		}
		slices.Sort(labels)
		want(t, "changes", labels, []string{
			"add anycast 192.0.2.64/26", "add asn AS64496", "add organisation ONE-MNT", "add organisation TWO-MNT",
			"add prefix 192.0.2.0/24", "add prefix 192.0.2.0/26", "add prefix 192.0.2.64/26",
		})
	})
	want(t, "events", events, []string{})
	want(t, "prefixes", im.prefixes(), []string{})
	want(t, "jobs", im.texts(`SELECT state || ' ' || dry_run::text || ' ' || (progress->>'added') FROM registry.import_job`), []string{"done true 7"})
}

// A tuple moves from a prefix to an anycast allocation and back, in one
// transaction each, so that consumers can make before they break.
func TestTupleMovesInOneTransaction(t *testing.T) {
	im := newImporting(t)
	im.take("inetnum: 192.0.2.0/24\nmnt-by: ONE-MNT\n\nroute: 192.0.2.0/24\norigin: AS64496\n")
	transactions := `SELECT count(DISTINCT xid)::text FROM registry.outbox_event`
	for _, step := range []struct {
		name, text string
		events     []string
	}{
		{"to anycast", "route: 192.0.2.0/24\norigin: AS64496\norigin: AS64497\n", []string{
			"anycast 192.0.2.0/24 changed origins", "anycast 192.0.2.0/24 created organisation+prefix+service", "prefix 192.0.2.0/24 changed routing"}},
		{"back", "route: 192.0.2.0/24\norigin: AS64496\n", []string{
			"anycast 1 changed origins", "anycast 1 deleted organisation+prefix+service", "prefix 192.0.2.0/24 changed routing"}},
	} {
		before := im.texts(transactions)[0]
		want(t, "events "+step.name, im.events(func() { im.take(step.text) }), step.events)
		if after := im.texts(transactions)[0]; after != fmt.Sprint(atoi(t, before)+1) {
			t.Errorf("%s: the events are of transactions %s to %s, not of one", step.name, before, after)
		}
	}
}

func atoi(t testing.TB, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Records find the smallest prefix around them when one between comes or goes,
// without an event: nothing of theirs changed.
func TestRecordsMoveWhenAPrefixBetweenComesAndGoes(t *testing.T) {
	im := newImporting(t)
	im.take("inetnum: 192.0.2.0/24\nmnt-by: ONE-MNT\n\ninetnum: 192.0.2.0/27\nmnt-by: ONE-MNT\n")
	im.db.Exec(t, `INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.40', 'host.example.net')`)
	im.db.Exec(t, `INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.32/29', 'by hand')`)
	homes := func() []string {
		return im.texts(`SELECT 'ptr in ' || prefix FROM registry.ptr_record
			UNION ALL SELECT 'anycast in ' || a.container || ' of ' || o.handle FROM registry.anycast_allocation a JOIN registry.organisation o ON o.id = a.organisation_id`)
	}
	want(t, "at first", homes(), []string{"ptr in 192.0.2.0/24", "anycast in 192.0.2.0/24 of ONE-MNT"})
	events := im.events(func() { im.take("inetnum: 192.0.2.32/27\nmnt-by: TWO-MNT\n") })
	want(t, "with one between", homes(), []string{"ptr in 192.0.2.32/27", "anycast in 192.0.2.32/27 of TWO-MNT"})
	want(t, "events", events, []string{
		"anycast 192.0.2.32/29 changed organisation",
		"organisation TWO-MNT created organisation",
		"prefix 192.0.2.32/27 created organisation+prefix+reverse+routing+status",
	})
	im.db.Exec(t, `DELETE FROM registry.anycast_allocation`)
	im.take("inetnum: 192.0.2.32/27\ndelete: gone\n")
	want(t, "without it", homes(), []string{"ptr in 192.0.2.0/24"})
	want(t, "prefixes", im.prefixes(), []string{
		"192.0.2.0/24 in nothing ONE-MNT registered", "192.0.2.0/27 in 192.0.2.0/24 ONE-MNT registered"})
}

func TestPrefixIsKeptWhileItsRecordsHaveNoOtherHome(t *testing.T) {
	im := newImporting(t)
	im.take("inetnum: 192.0.2.0/24\nmnt-by: ONE-MNT\n\ninetnum: 192.0.2.0/27\nmnt-by: ONE-MNT\n")
	im.db.Exec(t, `INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.1', 'host.example.net'), ('192.0.2.200', 'other.example.net')`)
	r := im.take("inetnum: 192.0.2.0/24\ndelete: gone\n\ninetnum: 192.0.2.0/27\ndelete: gone\n\ninetnum: 198.51.100.0/24\nmnt-by: ONE-MNT\n")
	if len(r.Refused) != 1 || r.Refused[0].Key != "192.0.2.0/24" || !strings.Contains(r.Refused[0].Reason, "1 PTR record") {
		t.Errorf("refused: %+v; want the prefix with the record that lies in no other", r.Refused)
	}
	want(t, "prefixes", im.prefixes(), []string{"192.0.2.0/24 in nothing ONE-MNT registered", "198.51.100.0/24 in nothing ONE-MNT registered"})
	want(t, "records", im.texts(`SELECT host(address) || ' in ' || prefix FROM registry.ptr_record ORDER BY address`),
		[]string{"192.0.2.1 in 192.0.2.0/24", "192.0.2.200 in 192.0.2.0/24"})
}

// What a rule of the database refuses, and neither parsing nor planning knew,
// costs the one object.
func TestObjectThatTheDatabaseRefusesCostsOnlyItself(t *testing.T) {
	im := newImporting(t)
	im.take("inetnum: 192.0.2.0/24\nnetname: KEPT\n\ninetnum: 203.0.113.0/24\nnetname: PRUNED\n")
	im.db.Exec(t, `ALTER TABLE registry.prefix ADD CONSTRAINT no_forbidden CHECK (name NOT LIKE 'FORBIDDEN%')`)
	var b strings.Builder
	for i := range 40 {
		name := fmt.Sprintf("GOOD-%d", i)
		if i == 17 || i == 31 {
			name = fmt.Sprintf("FORBIDDEN-%d", i)
		}
		fmt.Fprintf(&b, "inetnum: 198.51.100.%d/32\nnetname: %s\n\n", i, name)
	}
	b.WriteString("inetnum: 192.0.2.0/24\nnetname: FORBIDDEN\n")
	r := im.take(b.String(), prune)
	var keys []string
	for _, f := range r.Refused {
		keys = append(keys, fmt.Sprintf("%s:%d %s %s", f.File, f.Line, f.Class, f.Key))
		if !strings.Contains(f.Reason, "no_forbidden") {
			t.Errorf("the reason %q does not name the rule", f.Reason)
		}
	}
	slices.Sort(keys)
	want(t, "refused", keys, []string{
		"test.rpsl:121 inetnum 192.0.2.0/24", "test.rpsl:52 inetnum 198.51.100.17/32", "test.rpsl:94 inetnum 198.51.100.31/32"})
	if r.Added != 38 || r.Deleted != 1 {
		t.Errorf("%d added and %d deleted; want 38 and the one that the input does not name", r.Added, r.Deleted)
	}
	want(t, "kept", im.texts(`SELECT name FROM registry.prefix WHERE prefix = '192.0.2.0/24'`), []string{"KEPT"})
}

func TestImportIsPlannedAgainWhenARowChangesMeanwhile(t *testing.T) {
	im := newImporting(t)
	im.take("inetnum: 192.0.2.0/24\nnetname: OLD\nmnt-by: ONE-MNT\n")
	writer, err := im.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Exec(t.Context(), `UPDATE registry.prefix SET zone_cut = 24, name = 'MEANWHILE'`); err != nil {
		t.Fatal(err)
	}
	done := make(chan *client.ImportResult, 1)
	failed := make(chan error, 1)
	req := request(t, "inetnum: 192.0.2.0/24\nnetname: NEW\nmnt-by: ONE-MNT\n")
	go func() {
		r, err := im.run(t.Context(), req)
		done <- r
		failed <- err
	}()
	im.awaitBlocked()
	if err := writer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.Changed != 1 || r.Changes[0].Old == "" || !strings.Contains(r.Changes[0].Old, "MEANWHILE") {
		t.Errorf("the import changed %+v; want one planned from the other writer's row", r.Changes)
	}
	want(t, "row", im.texts(`SELECT name || ' ' || zone_cut FROM registry.prefix`), []string{"NEW 24"})
}

// awaitBlocked waits until a session of the importer waits for a lock.
func (im *importing) awaitBlocked() {
	im.t.Helper()
	watcher := im.db.Conn(im.t, "")
	ctx, cancel := context.WithTimeout(im.t.Context(), 20*time.Second)
	defer cancel()
	for {
		var blocked bool
		err := watcher.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&blocked)
		if err != nil {
			im.t.Fatalf("no session came to wait for a lock: %v", err)
		}
		if blocked {
			return
		}
	}
}

func TestImportsRunOneAfterTheOther(t *testing.T) {
	im := newImporting(t)
	other, err := im.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('registry.import', 0))`); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	req := request(t, small)
	go func() {
		_, err := im.run(t.Context(), req)
		failed <- err
	}()
	if stage := <-im.stages; stage != "waiting" {
		t.Errorf("the import's first stage is %q while another runs, not waiting", stage)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Errorf("the import that waited failed: %v", err)
	}
}

func TestImportAtTheEdgesOfTheAddressSpace(t *testing.T) {
	im := newImporting(t)
	for _, c := range []struct{ name, object, want string }{
		{"everything", "inetnum: 0.0.0.0 - 255.255.255.255\n", "0.0.0.0/0"},
		{"everything of IPv6", "inet6num: ::/0\n", "::/0"},
		{"/31", "inetnum: 192.0.2.0 - 192.0.2.1\n", "192.0.2.0/31"},
		{"/32", "route: 192.0.2.0/32\norigin: AS64496\n", "192.0.2.0/32"},
		{"/127", "inet6num: 2001:db8::/127\n", "2001:db8::/127"},
		{"/128", "route6: 2001:db8::1/128\norigin: AS64496\nmax-length: 128\n", "2001:db8::1/128"},
		{"a range that is no CIDR", "inetnum: 198.51.100.1 - 198.51.100.3\n", "198.51.100.1/32 198.51.100.2/31"},
		{"host bits", "route: 203.0.113.1/24\norigin: AS64496\n", "refused: 203.0.113.1/24 has host bits set; the prefix is 203.0.113.0/24"},
		{"a mapped prefix", "inet6num: ::ffff:192.0.2.0/120\n", "refused: ::ffff:192.0.2.0/120 is an IPv4-mapped prefix; write 192.0.2.0/24"},
		{"the wrong family", "route6: 203.0.113.0/24\norigin: AS64496\n", "refused: "},
		{"a max-length below the prefix's own", "route: 203.0.113.0/24\norigin: AS64496\nmax-length: 23\n", "refused: "},
		{"a max-length beyond the family's", "route: 203.0.113.0/24\norigin: AS64496\nmax-length: 33\n", "refused: "},
		{"no origin", "route: 203.0.113.0/24\n", "refused: "},
		{"an origin that is no AS number", "route: 203.0.113.0/24\norigin: AS4294967296\n", "refused: "},
		{"a range from end to beginning", "inetnum: 203.0.113.9 - 203.0.113.0\n", "refused: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := im.texts(`SELECT prefix::text FROM registry.prefix`)
			r := im.take(c.object)
			var added []string
			for _, p := range im.texts(`SELECT prefix::text FROM registry.prefix ORDER BY prefix`) {
				if !slices.Contains(before, p) {
					added = append(added, p)
				}
			}
			got := strings.Join(added, " ")
			if len(r.Refused) > 0 {
				got = "refused: " + r.Refused[0].Reason
			}
			if got != c.want && !(c.want == "refused: " && strings.HasPrefix(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A small import reads only what is around it; its plan is the one that the
// whole state gives.
func TestScopedStateGivesTheSamePlan(t *testing.T) {
	im := newImporting(t)
	registry := rpsltest.Generate(7, 400)
	im.take(registry.Text())
	for _, merge := range registry.History {
		for _, edit := range merge.Changes {
			req := request(t, edit.RPSL())
			plans := map[bool]rpsl.Plan{}
			for _, scoped := range []bool{true, false} {
				tx, err := im.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var scope *importScope
				if scoped {
					scope = scopeOf(req.input, false)
				}
				state, err := readImportState(t.Context(), tx, scope)
				if err != nil {
					t.Fatal(err)
				}
				plans[scoped] = rpsl.PlanImport(state.State, req.input, req.options)
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(plans[false], plans[true], cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(rpsl.Refusal{}),
				cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Fatalf("%s %s %s: the scoped plan differs (-whole +scoped):\n%s", edit.Op, edit.Class, edit.Key, diff)
			}
			im.take(edit.RPSL())
		}
	}
}

// The figures of the real registry, where it is at hand.
func TestRealRegistryImports(t *testing.T) {
	folder := os.Getenv("HUBN_REGISTRY_DATA")
	if folder == "" {
		t.Skip("HUBN_REGISTRY_DATA does not name the folder of the real registry")
	}
	im := newImporting(t)
	req := importRequest{actor: "tester"}
	own, err := rpsl.ParseNameServerPattern("*.delegation-servers.dn42")
	if err != nil {
		t.Fatal(err)
	}
	req.options.OwnNameServers = []rpsl.NameServerPattern{own}
	for raw, err := range rpsl.Walk([]string{folder}, nil, new(rpsl.Tally)) {
		if err != nil {
			t.Fatal(err)
		}
		req.add(raw)
	}
	if _, err := im.run(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	want(t, "reverse DNS", im.texts(`
		SELECT reverse_mode || ' ' || count(*) || ' of ' || count(DISTINCT masklen(prefix)) || ' lengths'
		FROM registry.prefix
		WHERE reverse_mode <> 'inherit'
		GROUP BY reverse_mode
		ORDER BY 1`), []string{"delegated 1370 of 23 lengths", "hosted 7 of 2 lengths"})
	for _, again := range []bool{false, true} {
		req.options.Prune = again
		events := im.events(func() {
			r, err := im.run(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if r.Added+r.Changed+r.Deleted != 0 {
				t.Errorf("prune %t: a second import adds %d, changes %d, deletes %d", again, r.Added, r.Changed, r.Deleted)
			}
		})
		want(t, "events", events, []string{})
	}
}
