package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

// startJob starts an import and answers its job as it was at first.
func (h *harness) startJob(query, media, body string) client.ImportJob {
	h.t.Helper()
	var job client.ImportJob
	h.post("/v1/imports?"+query, body, header{"Content-Type", media}).want(http.StatusAccepted).decode(&job)
	return job
}

func (h *harness) job(id int64) (job client.ImportJob) {
	h.t.Helper()
	h.get(fmt.Sprintf("/v1/imports/%d", id)).want(http.StatusOK).decode(&job)
	return job
}

// ended waits for the end of a job.
func (h *harness) ended(id int64) client.ImportJob {
	h.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; { // also under the race detector on a busy machine
		job := h.job(id)
		if job.State != client.JobRunning {
			return job
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("the job does not end: %+v", job)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (h *harness) load(query, media, body string) client.ImportJob {
	h.t.Helper()
	return h.ended(h.startJob(query, media, body).ID)
}

func wantDone(t testing.TB, job client.ImportJob) {
	t.Helper()
	if job.State != client.JobDone || job.ErrorsCount > 0 || job.Done != job.Total || job.FinishedAt == nil {
		t.Fatalf("the job is not done: %+v", job)
	}
}

// faults are a job's errors, as "line field: …".
func faultsOf(job client.ImportJob) (all []string) {
	for _, e := range job.Errors {
		all = append(all, fmt.Sprintf("%d %s %s", e.Line, e.Kind, e.Field))
	}
	return all
}

const everyKind = `{"kind":"organisation","body":{"handle":"ONE-ORG","name":"One","contact":"noc@one.example"}}
{"kind":"organisation","body":{"handle":"TWO-ORG"}}
{"kind":"asn","body":{"number":64496,"organisation":"ONE-ORG","name":"ONE-AS"}}
{"kind":"prefix","body":{"prefix":"192.0.2.0/24","organisation":"ONE-ORG","kind":"allocation","status":"active","name":"Größe, \"one\"","routing":{"announced":true,"origin":64496,"max_length":26},"reverse":{"mode":"delegated","name_servers":["ns1.one.example","ns2.one.example"],"ds":[{"zone":"2.0.192.in-addr.arpa","digest":"abababababababababababababababababababab","key_tag":1,"algorithm":13,"digest_type":1}],"zone_cut":24}}}
{"kind":"prefix","body":{"prefix":"192.0.2.0/26","organisation":"TWO-ORG","kind":"assignment","status":"planned","reverse":{"mode":"hosted","rfc2317_style":"dash"},"route_organisation":"ONE-ORG","range":"192.0.2.0-192.0.2.95"}}
{"kind":"prefix","body":{"prefix":"2001:db8::/32","organisation":"ONE-ORG","kind":"container","status":"active"}}
{"kind":"prefix","body":{"prefix":"2001:db8::/48","organisation":"ONE-ORG","kind":"assignment","status":"active","routing":{"announced":true,"origin":0},"provenance":"implied"}}
{"kind":"ptr","body":{"address":"192.0.2.1","target":"a.example"}}
{"kind":"ptr","body":{"address":"192.0.2.1","target":"b.example","ttl":60}}
{"kind":"ptr","body":{"address":"2001:db8::1","target":"bücher.example"}}
{"kind":"anycast","body":{"prefix":"2001:db8:1::/48","service":"dns","organisation":"ONE-ORG","origins":[{"asn":64496},{"asn":64497,"max_length":50,"active":false}]}}
`

func TestEverythingThatIsExportedCanBeImported(t *testing.T) {
	h := newHarness(t)
	wantDone(t, h.load("", ndjson, everyKind))
	want(t, "export", h.exportText("/v1/export/ndjson"), everyKind)

	other := newHarness(t)
	for _, kind := range []string{"organisation", "asn", "prefix", "ptr", "anycast"} {
		rows := h.exportText("/v1/export/csv?kind=" + kind)
		job := other.load("", csvMedia, rows)
		wantDone(t, job)
		if job.Kinds[client.Kind(kind)] == 0 {
			t.Errorf("%s: the header does not tell the kind: %+v", kind, job.Kinds)
		}
		want(t, kind, other.exportText("/v1/export/csv?kind="+kind), rows)
	}
	wantDone(t, other.load("", csvMedia, "prefix,origin,name_servers\n203.0.113.0/24,64496,ns1.example ns2.example\n"))
	if got := other.exportText("/v1/export/csv?kind=prefix"); !strings.Contains(got, "203.0.113.0/24,,assignment,active,,yes,AS64496,,delegated,ns1.example ns2.example,") {
		t.Errorf("an origin is not announced, or name servers not delegated to, by a file without these columns:\n%s", got)
	}
	other.remove("/v1/prefixes/203.0.113.0%2F24").want(http.StatusNoContent)
	want(t, "export of the copy", other.exportText("/v1/export/ndjson"), everyKind)
	want(t, "one kind", h.exportText("/v1/export/ndjson?kind=asn"), strings.SplitAfter(everyKind, "\n")[2])

	again := h.load("existing=skip", ndjson, everyKind)
	wantDone(t, again)
	if again.Skipped != 11 || again.Total != 0 {
		t.Errorf("importing it again skips %d of 11 rows: %+v", again.Skipped, again)
	}
	if again = h.load("", ndjson, everyKind); again.State != client.JobFailed || again.ErrorsCount != 11 {
		t.Errorf("importing it again finds %d of 11 rows there already: %+v", again.ErrorsCount, again)
	}
}

func TestImportedRowsGoWhereTheyBelong(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "ORG-A"}).want(http.StatusCreated)
	for _, p := range []string{"10.0.0.0/8", "10.1.0.0/24", "10.2.0.0/16"} {
		h.post("/v1/prefixes", map[string]any{"prefix": p, "organisation": "ORG-A"}).want(http.StatusCreated)
	}
	h.post("/v1/ptr-records", map[string]any{"address": "10.1.1.1", "target": "old.example"}).want(http.StatusCreated)
	h.post("/v1/anycast", map[string]any{"prefix": "10.1.2.0/24", "service": "dns"}).want(http.StatusCreated)
	wantDone(t, h.load("reason=because", csvMedia, "Prefix;Organisation;Origin;Announced\n10.2.3.0/24;ORG-A;;\n10.1.0.0/16;org-a;AS64496;yes\n10.1.1.0/24;;;\n0.0.0.0/0;;;\n"))
	places := func(sql string) string {
		var out string
		if err := h.db.Conn(t, "").QueryRow(t.Context(), sql).Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want(t, "parents", places(`SELECT string_agg(prefix || '<' || coalesce(parent_prefix::text, ''), ' ' ORDER BY prefix) FROM registry.prefix`),
		"0.0.0.0/0< 10.0.0.0/8<0.0.0.0/0 10.1.0.0/16<10.0.0.0/8 10.1.0.0/24<10.1.0.0/16 10.1.1.0/24<10.1.0.0/16 10.2.0.0/16<10.0.0.0/8 10.2.3.0/24<10.2.0.0/16")
	want(t, "PTR record", places(`SELECT prefix::text FROM registry.ptr_record`), "10.1.1.0/24")
	want(t, "anycast", places(`SELECT container::text FROM registry.anycast_allocation`), "10.1.0.0/16")
	want(t, "events and reason", places(`SELECT count(*) || ' ' || min(c.reason) || ' ' || min(c.actor) FROM registry.change_log c
		JOIN registry.outbox_lane l ON l.agg_type = c.kind AND l.agg_key = c.agg_key AND l.last_seq > 0
		WHERE c.kind = 'prefix' AND c.op = 'insert' AND c.reason <> ''`), "4 because the-admin")
}

func TestImportNamesEveryWrongRowAtOnce(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "ORG-A"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "10.0.0.0/8", "organisation": "ORG-A"}).want(http.StatusCreated)
	job := h.load("", ndjson, `{"kind":"prefix","body":{"prefix":"192.0.2.1/24","kind":"huge"}}
{"kind":"prefix","body":{"prefix":"192.0.2.0/24","organisation":"NOBODY"}}
not json
{"kind":"poem","body":{}}
{"kind":"prefix","body":{"prefix":"10.0.0.0/8"}}
{"kind":"prefix","body":{"prefix":"198.51.100.0/24"}}
{"kind":"prefix","body":{"prefix":"198.51.100.0/24"}}
{"kind":"ptr","body":{"address":"203.0.113.1","target":"a.example"}}
{"kind":"anycast","body":{"prefix":"10.1.0.0/16","service":"x","organisation":"ORG-B"}}
{"kind":"organisation","body":{"handle":"ORG-B","nmae":"x"}}
{"kind":"organisation","body":{"handle":"org-a"}}
{"kind":"prefix","body":{"prefix":"192.0.2.128/25","reverse":{"name_server_set_id":99}}}
{"kind":"asn","body":{"number":0}}
{"kind":"no\u0000ne","body":{}}
{"kind":"prefix","body":{"prefix":["\u0000"]}}
{"kind":"asn","body":{"number":1,"na\u0000me":"x"}}
`)
	if job.State != client.JobFailed {
		t.Fatalf("%+v", job)
	}
	want(t, "faults", faultsOf(job), []string{
		"1 prefix kind", "1 prefix prefix", "2 prefix organisation", "3  ", "4  kind", "5 prefix prefix", "7 prefix prefix",
		"8 ptr address", "9 anycast organisation", "10 organisation nmae", "11 organisation handle", "12 prefix reverse.name_server_set_id", "13 asn number",
		"14  ", "15  ", "16  ",
	})
	nul := h.load("", csvMedia, "number,name,organisation\n1,a\x00b,\nAS\x00,,\n")
	want(t, "text that PostgreSQL cannot keep", faultsOf(nul), []string{"2 asn ", "3 asn "})
	csv := h.load("", csvMedia, "\ufeffprefix,origin,ds,max_length,announced\n192.0.2.0/24,AS64496,1 13 2 AB,x,maybe\n192.0.2.0/25,AS1.x,,,\n192.0.2.0/26,AS1,,33,\n\"192.0.2.0/27,,,,\n")
	want(t, "faults of CSV", faultsOf(csv), []string{"2 prefix ds", "2 prefix max_length", "2 prefix announced", "3 prefix origin", "4 prefix max_length", "5 prefix "})
	if got := h.exportText("/v1/export/csv?kind=prefix"); strings.Count(got, "\n") != 2 {
		t.Errorf("something was written:\n%s", got)
	}
}

func TestImportRefusesWhatCannotBeRead(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct {
		name, query, media, body, token string
		kind                            problem.Kind
		says                            string
	}{
		{"no media type", "", "application/json", "{}", "", problem.Invalid, "text/csv"},
		{"an empty CSV", "", csvMedia, "", "", problem.Malformed, "header"},
		{"a header that tells nothing", "", csvMedia, "a,b\n1,2\n", "", problem.Invalid, "handle for organisation"},
		{"an unknown column", "", csvMedia, "prefix,orign\n1,2\n", "", problem.Invalid, "orign"},
		{"a kind without CSV", "?kind=session", csvMedia, "prefix\n", "", problem.Invalid, "NDJSON"},
		{"a kind of NDJSON", "?kind=prefix", ndjson, "", "", problem.Invalid, "leave kind out"},
		{"a viewer", "", ndjson, "", h.viewer, problem.Forbidden, "operator"},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := c.token
			if secret == "" {
				secret = h.operator
			}
			r := h.post("/v1/imports"+c.query, c.body, header{"Content-Type", c.media}, token(secret))
			r.t = t
			r.wantProblem(c.kind)
			if !strings.Contains(string(r.body), c.says) {
				t.Errorf("it does not speak of %q: %s", c.says, r.body)
			}
		})
	}
	h.get("/v1/imports/4711").wantProblem(problem.NotFound)
	for range 2 * jobsAtOnce { // refused imports hold no slot
		h.post("/v1/imports", "", header{"Content-Type", csvMedia}).wantProblem(problem.Malformed)
	}
}

func TestARepeatedImportAnswersTheFirstJob(t *testing.T) {
	h := newHarness(t)
	const row = `{"kind":"prefix","body":{"prefix":"192.0.2.0/24"}}` + "\n"
	send := func(body string) *response {
		return h.post("/v1/imports", body, header{"Content-Type", ndjson}, idempotent("k"))
	}
	var first, second client.ImportJob
	send(row).want(http.StatusAccepted).decode(&first)
	wantDone(t, h.ended(first.ID))
	send(row).want(http.StatusAccepted).decode(&second)
	if first.ID != second.ID {
		t.Errorf("the same key made the jobs %d and %d", first.ID, second.ID)
	}
	send(row + row).wantProblem(problem.Invalid)
	var page client.Page[client.ImportJob]
	h.get("/v1/imports").want(http.StatusOK).decode(&page)
	if len(page.Items) != 1 || page.Items[0].State != client.JobDone {
		t.Errorf("jobs: %+v", page.Items)
	}
	h.post(fmt.Sprintf("/v1/imports/%d/cancel", first.ID), nil).wantProblem(problem.Conflict)
	dry := h.load("dry_run=true", csvMedia, "prefix\n198.51.100.0/24\n")
	wantDone(t, dry)
	if got := h.exportText("/v1/export/csv?kind=prefix"); strings.Contains(got, "198.51.100.0") || !dry.DryRun {
		t.Errorf("a dry run wrote something:\n%s", got)
	}
}

// manyRows are n prefixes with routing.
func manyRows(n int) string {
	var b strings.Builder
	b.WriteString("prefix,origin,announced,name\n10.0.0.0/8,,,\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "10.%d.%d.%d/28,AS%d,yes,customer %d\n", i>>12, i>>4&255, i&15<<4, 64512+i%1000, i)
	}
	return b.String()
}

func TestThreeWrongRowsOfFiftyThousandAndACancelWriteNothing(t *testing.T) {
	h := newHarness(t)
	const n = 50_000
	good := manyRows(n)
	wrong := strings.Replace(good, "customer 100\n", "customer 100,\n", 1)
	wrong = strings.Replace(wrong, "10.5.5.16/28", "10.5.5.17/28", 1)
	wrong = strings.Replace(wrong, "10.9.9.32/28", "10.9.9.48/28", 1)
	job := h.load("", csvMedia, wrong)
	if job.State != client.JobFailed || job.ErrorsCount != 3 || len(job.Errors) != 3 {
		t.Fatalf("%s with %d errors: %+v", job.State, job.ErrorsCount, job.Errors)
	}
	count := func() (all int) {
		if err := h.db.Conn(t, "").QueryRow(t.Context(), `SELECT (SELECT count(*) FROM registry.prefix) + (SELECT count(*) FROM registry.outbox_event)`).Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := count(); got != 0 {
		t.Errorf("%d rows were written by an import with wrong rows", got)
	}

	id := h.startJob("", csvMedia, good).ID
	for job = h.job(id); job.Done == 0; job = h.job(id) {
		if job.State != client.JobRunning {
			t.Fatalf("it ended before it said how far it was: %+v", job)
		}
	}
	h.post(fmt.Sprintf("/v1/imports/%d/cancel", id), nil).want(http.StatusOK)
	if job = h.ended(id); job.State != client.JobCancelled || job.CancelledBy != "the-admin" {
		t.Errorf("a cancelled job is %+v", job)
	}
	if got := count(); got != 0 {
		t.Errorf("%d rows were written by a cancelled import", got)
	}

	begun := time.Now()
	wantDone(t, h.load("", csvMedia, good))
	t.Logf("%d prefixes with routing in %s", n, time.Since(begun))
	if got := count(); got != 2*n {
		t.Errorf("%d rows and events, want %d", got, 2*n)
	}
}

func TestAuthoritiesAndSessionsAreExportedAndImported(t *testing.T) {
	h := newHarness(t)
	rows := strings.SplitAfter(everyKind, "\n")
	wantDone(t, h.load("", ndjson, rows[0]))
	h.authority(map[string]any{"name": "anchor", "resources": "192.0.2.0/24, AS64496"})
	h.authority(map[string]any{"name": "child", "parent": "anchor", "organisation": "ONE-ORG", "mode": "delegated", "csr": caRequest(rsaKey())})
	certificate := map[string]any{"ca": "anchor", "profile": "bgpsec-router", "csr": routerRequest(newP256(), ""), "resources": "AS64496",
		"not_after": time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)}
	h.post("/v1/certificates", certificate).want(http.StatusCreated)
	certificate["csr"] = routerRequest(newP256(), "")
	revoked := as[client.Certificate](h.post("/v1/certificates", certificate).want(http.StatusCreated))
	h.post("/v1/revocations", map[string]any{"certificate_id": revoked.ID}).want(http.StatusCreated)
	h.post("/v1/sessions", map[string]any{"remote_asn": 64497, "remote_address": "192.0.2.9"}).want(http.StatusCreated)

	exported := h.exportText("/v1/export/ndjson")
	for kind, n := range map[string]int{"organisation": 1, "ca": 2, "certificate": 1, "session": 1} {
		if got := strings.Count(exported, `{"kind":"`+kind+`",`); got != n {
			t.Errorf("%d of kind %s are exported, want %d:\n%s", got, kind, n, exported)
		}
	}
	other := newHarness(t)
	wantDone(t, other.load("", ndjson, exported))
	want(t, "the export of the copy", other.exportText("/v1/export/ndjson"), exported)

	wrong := other.load("", ndjson, `{"kind":"ca","body":{"name":"x","parent":"nobody","resources":"all"}}
{"kind":"ca","body":{"name":"anchor","resources":"all"}}
{"kind":"session","body":{"remote_asn":"AS1x","remote_address":"192.0.2.9"}}
`)
	want(t, "wrong rows", faultsOf(wrong), []string{"3 session remote_asn"})
	wrong = other.load("", ndjson, `{"kind":"ca","body":{"name":"x","parent":"nobody","resources":"all"}}
{"kind":"ca","body":{"name":"anchor","resources":"all"}}
`)
	want(t, "rows that cannot be written", faultsOf(wrong), []string{"1 ca parent", "2 ca name"})
}
