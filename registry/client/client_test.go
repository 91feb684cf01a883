package client

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hubn/app/problem"
)

const (
	ours    = "11111111-1111-1111-1111-111111111111"
	theirs  = "22222222-2222-2222-2222-222222222222"
	readAt  = "2030-01-02T03:04:05.6Z"
	oneGood = `{"lineage":"` + ours + `","read_at":"` + readAt + `","resource":"prefix:17","state":"present","version":3,"body":{"prefix":"192.0.2.0/24"}}`
)

func quick(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL, Token: "hubn_secret", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// says is a handler that answers everything with one status, media type, lineage
// header and body.
func says(status int, media, lineage, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		if lineage != "" {
			w.Header().Set(LineageHeader, lineage)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func hangs(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func breaksOff(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(LineageHeader, ours)
	w.Header().Set("Content-Length", "100000")
	fmt.Fprint(w, oneGood)
}

func huge(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(LineageHeader, ours)
	chunk := []byte(strings.Repeat(" ", 1<<20))
	for range 4 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func TestFetchEndsInOneOutcome(t *testing.T) {
	const json, doc = "application/json", problem.ContentType
	problemDoc := func(kind, lineage, more string) string {
		return `{"type":"/problems/` + kind + `","status":1,"detail":"d","lineage":"` + lineage + `"` + more + `}`
	}
	named := `,"resource":"prefix:17","read_at":"` + readAt + `"`
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		outcome Outcome
		version int64
		reason  Reason
	}{
		{"present", says(200, json, ours, oneGood), Present, 3, ""},
		{"tombstone", says(410, doc, ours, problemDoc("deleted", ours, named+`,"version":9`)), Deleted, 9, ""},
		{"the Registry's own 404", says(404, doc, ours, problemDoc("not-found", ours, named)), Forgotten, 0, ""},

		{"tombstone without version", says(410, doc, ours, problemDoc("deleted", ours, named)), Unavailable, 0, NotRegistry},
		{"tombstone of another resource", says(410, doc, ours, problemDoc("deleted", ours, `,"resource":"prefix:18","version":9,"read_at":"`+readAt+`"`)), Unavailable, 0, NotRegistry},
		{"tombstone with a kind that is not its status", says(410, doc, ours, `{"type":"about:blank","lineage":"`+ours+`"}`), Unavailable, 0, NotRegistry},
		{"tombstone of a foreign lineage", says(410, doc, theirs, problemDoc("deleted", theirs, named+`,"version":9`)), Unavailable, 0, ForeignLineage},
		{"bare 404", says(404, "text/plain", "", "404 page not found"), Unavailable, 0, NotRegistry},
		{"bare 404 behind a header", says(404, "text/plain", ours, "404 page not found"), Unavailable, 0, NotRegistry},
		{"404 problem without lineage header", says(404, doc, "", problemDoc("not-found", ours, named)), Unavailable, 0, NotRegistry},
		{"404 problem without lineage member", says(404, doc, ours, `{"type":"/problems/not-found","resource":"prefix:17"}`), Unavailable, 0, NotRegistry},
		{"404 of another path of the Registry", says(404, doc, ours, problemDoc("not-found", ours, "")), Unavailable, 0, NotRegistry},
		{"404 problem of a foreign lineage", says(404, doc, theirs, problemDoc("not-found", theirs, named)), Unavailable, 0, ForeignLineage},
		{"500", says(500, doc, ours, problemDoc("internal", ours, "")), Unavailable, 0, Failing},
		{"503 without lineage", says(503, doc, "", `{"type":"/problems/unavailable","detail":"no database"}`), Unavailable, 0, Failing},
		{"502 of a proxy", says(502, "text/html", "", "<html>bad gateway"), Unavailable, 0, NotRegistry},
		{"401", says(401, doc, ours, problemDoc("unauthenticated", ours, "")), Unavailable, 0, Refused},
		{"a proxy's HTML with 200", says(200, "text/html", "", "<html>log in"), Unavailable, 0, NotRegistry},
		{"HTML with 200 and a lineage", says(200, "text/html", ours, "<html>"), Unavailable, 0, NotRegistry},
		{"redirect to a login page", says(302, "text/html", "", ""), Unavailable, 0, NotRegistry},
		{"200 without lineage header", says(200, json, "", oneGood), Unavailable, 0, NotRegistry},
		{"200 without lineage member", says(200, json, ours, strings.Replace(oneGood, `"lineage"`, `"x"`, 1)), Unavailable, 0, NotRegistry},
		{"200 of a foreign lineage", says(200, json, theirs, strings.Replace(oneGood, ours, theirs, 1)), Unavailable, 0, ForeignLineage},
		{"200 with two lineages", says(200, json, ours, strings.Replace(oneGood, ours, theirs, 1)), Unavailable, 0, NotRegistry},
		{"empty object", says(200, json, ours, `{}`), Unavailable, 0, NotRegistry},
		{"empty list", says(200, json, ours, `[]`), Unavailable, 0, NotRegistry},
		{"null", says(200, json, ours, `null`), Unavailable, 0, NotRegistry},
		{"no content", says(204, json, ours, ``), Unavailable, 0, NotRegistry},
		{"half a body", says(200, json, ours, oneGood[:60]), Unavailable, 0, NotRegistry},
		{"body breaks off", breaksOff, Unavailable, 0, Unreachable},
		{"present without body", says(200, json, ours, strings.Replace(oneGood, `{"prefix":"192.0.2.0/24"}`, "null", 1)), Unavailable, 0, NotRegistry},
		{"present without version", says(200, json, ours, strings.Replace(oneGood, `"version":3`, `"version":0`, 1)), Unavailable, 0, NotRegistry},
		{"another source", says(200, json, ours, strings.Replace(oneGood, "prefix:17", "prefix:18", 1)), Unavailable, 0, NotRegistry},
		{"unknown state", says(200, json, ours, strings.Replace(oneGood, `"present"`, `"gone"`, 1)), Unavailable, 0, NotRegistry},
		{"timeout", hangs, Unavailable, 0, Unreachable},
		{"huge body", huge, Unavailable, 0, NotRegistry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := quick(t, tt.handler)
			switch tt.name {
			case "timeout":
				c.timeout = 50 * time.Millisecond
			case "huge body":
				c.maxBody = 2 << 20
			}
			f := c.In(ours).Fetch(t.Context(), Resource{KindPrefix, "17"})
			if f.Outcome() != tt.outcome || f.Version() != tt.version || ReasonOf(f.Err()) != tt.reason {
				t.Errorf("got %s version %d reason %q (%v), want %s version %d reason %q",
					f.Outcome(), f.Version(), ReasonOf(f.Err()), f.Err(), tt.outcome, tt.version, tt.reason)
			}
			var foreign *LineageError
			if errors.As(f.Err(), &foreign) != (tt.reason == ForeignLineage) {
				t.Errorf("error %v: a *LineageError inside should be there exactly for a foreign lineage", f.Err())
			}
			if (f.Err() == nil) == (tt.outcome == Unavailable) {
				t.Errorf("outcome %s with error %v", f.Outcome(), f.Err())
			}
			if f.Outcome() != Unavailable && (f.Lineage() != ours || f.ReadAt().IsZero()) {
				t.Errorf("outcome %s read in lineage %q at %s", f.Outcome(), f.Lineage(), f.ReadAt())
			}
		})
	}
}

func TestFetchOfNobodyIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := New(Options{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	f := c.Fetch(t.Context(), Resource{KindPrefix, "17"})
	if f.Outcome() != Unavailable || ReasonOf(f.Err()) != Unreachable {
		t.Errorf("got %s, %v", f.Outcome(), f.Err())
	}
}

func TestZeroFetchedProvesNothing(t *testing.T) {
	var f Fetched
	if f.Outcome() != Unavailable || f.Err() == nil {
		t.Errorf("the zero Fetched is %s with error %v", f.Outcome(), f.Err())
	}
	called := ""
	err := f.Match(
		func(int64, json.RawMessage) error { called = "present"; return nil },
		func(int64) error { called = "deleted"; return nil },
		func() error { called = "forgotten"; return nil },
		func(err error) error { called = "unavailable"; return err })
	if called != "unavailable" || err == nil {
		t.Errorf("Match called %q and answered %v", called, err)
	}
}

// batchServer answers batches truthfully: even keys are present with the key as
// version, odd ones deleted, "0" is forgotten.
func batchServer(lineageOf func(request int) string) http.HandlerFunc {
	requests := 0
	return func(w http.ResponseWriter, r *http.Request) {
		var keys SourceKeys
		_ = json.NewDecoder(r.Body).Decode(&keys)
		lineage := lineageOf(requests)
		requests++
		at, _ := time.Parse(time.RFC3339Nano, readAt)
		batch := SourceBatch{Lineage: lineage, ReadAt: at}
		for _, key := range keys.Keys {
			s := Source{Resource: Resource{KindPrefix, key}}
			var n int64
			fmt.Sscan(key, &n)
			switch {
			case n == 0:
				s.State = SourceForgotten
			case n%2 == 1:
				s.State, s.Version = SourceDeleted, n
			default:
				s.State, s.Version, s.Body = SourcePresent, n, json.RawMessage(`{}`)
			}
			batch.Items = append(batch.Items, s)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set(LineageHeader, lineage)
		_ = json.NewEncoder(w).Encode(batch)
	}
}

func keysTo(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(i))
	}
	return keys
}

func TestBatchIsChunkedAndInOrder(t *testing.T) {
	requests := 0
	c := quick(t, batchServer(func(int) string { requests++; return ours }))
	keys := keysTo(2*MaxBatch + 3)
	got := c.FetchBatch(t.Context(), KindPrefix, keys)
	if len(got) != len(keys) || requests != 3 {
		t.Fatalf("%d outcomes for %d keys in %d requests, want 3 requests", len(got), len(keys), requests)
	}
	for i, f := range got {
		want := Present
		if i == 0 {
			want = Forgotten
		} else if i%2 == 1 {
			want = Deleted
		}
		if f.Resource().Key != keys[i] || f.Outcome() != want || f.Version() != int64(i) {
			t.Fatalf("outcome %d is %s of %s version %d, want %s", i, f.Outcome(), f.Resource(), f.Version(), want)
		}
	}
}

func TestBatchOfTwoLineagesTakesTheFirst(t *testing.T) {
	c := quick(t, batchServer(func(n int) string { return []string{ours, theirs}[min(n, 1)] }))
	got := c.FetchBatch(t.Context(), KindPrefix, keysTo(MaxBatch+1))
	if o := got[1].Outcome(); o != Deleted {
		t.Errorf("the first chunk is %s, want deleted", o)
	}
	if last := got[MaxBatch]; ReasonOf(last.Err()) != ForeignLineage {
		t.Errorf("the chunk of another lineage is %s: %v", last.Outcome(), last.Err())
	}
}

func TestBatchWithALineLessIsUnavailable(t *testing.T) {
	whole := batchServer(func(int) string { return ours })
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.NoBody
		whole(w, r)
	})
	for _, f := range c.FetchBatch(t.Context(), KindPrefix, keysTo(3)) {
		if ReasonOf(f.Err()) != NotRegistry {
			t.Errorf("%s is %s: %v", f.Resource(), f.Outcome(), f.Err())
		}
	}
}

func TestScanPageRefusesWhatProvesNothing(t *testing.T) {
	item := `{"resource":"prefix:17","state":"present","version":3,"body":{}}`
	page := func(lineage, rest string) string {
		return `{"lineage":"` + lineage + `","token":"t","read_at":"` + readAt + `",` + rest + `}`
	}
	for _, tt := range []struct {
		name, body string
		ok         bool
	}{
		{"last page", page(ours, `"items":[`+item+`],"complete":true`), true},
		{"page with a next", page(ours, `"items":[`+item+`],"next":"n"`), true},
		{"empty registry", page(ours, `"items":[],"complete":true`), true},
		{"empty list", `[]`, false},
		{"empty object", `{}`, false},
		{"neither last nor next", page(ours, `"items":[`+item+`]`), false},
		{"both", page(ours, `"items":[],"complete":true,"next":"n"`), false},
		{"other lineage in the body", page(theirs, `"items":[],"complete":true`), false},
		{"item of another kind", page(ours, `"items":[`+strings.Replace(item, "prefix:", "asn:", 1)+`],"complete":true`), false},
		{"deleted item", page(ours, `"items":[{"resource":"prefix:17","state":"deleted","version":3}],"complete":true`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := quick(t, says(200, "application/json", ours, tt.body))
			got, err := c.ScanPage(t.Context(), KindPrefix, PageRequest{})
			if (err == nil) != tt.ok {
				t.Errorf("got %+v, %v", got, err)
			}
			if err != nil && ReasonOf(err) != NotRegistry {
				t.Errorf("reason %q", ReasonOf(err))
			}
		})
	}
}

func TestScanIDsNeedsTheTail(t *testing.T) {
	head := `{"lineage":"` + ours + `","token":"t","read_at":"` + readAt + `"}` + "\n"
	two := `{"key":"1","version":4}` + "\n" + `{"key":"2","version":5}` + "\n"
	for _, tt := range []struct {
		name, body string
		reason     Reason
	}{
		{"whole", head + two + `{"complete":true,"count":2}` + "\n", ""},
		{"nothing at all", "", Unreachable},
		{"no tail", head + two, Unreachable},
		{"half a line", head + two + `{"complete":tr`, Unreachable},
		{"tail counts more", head + two + `{"complete":true,"count":3}` + "\n", NotRegistry},
		{"tail says incomplete", head + two + `{"complete":false,"count":2}` + "\n", NotRegistry},
		{"no head", two + `{"complete":true,"count":2}` + "\n", NotRegistry},
		{"id without version", head + `{"key":"1"}` + "\n", NotRegistry},
		{"not JSON", head + "<html>\n", NotRegistry},
		{"endless line", head + strings.Repeat("x", maxLine+100<<10), NotRegistry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := quick(t, says(200, "application/x-ndjson", ours, tt.body))
			var ids []SourceID
			_, count, err := c.ScanIDs(t.Context(), KindPrefix, "", func(id SourceID) error {
				ids = append(ids, id)
				return nil
			})
			if ReasonOf(err) != tt.reason || (err == nil) != (tt.reason == "") {
				t.Fatalf("got error %v, want reason %q", err, tt.reason)
			}
			if want := []SourceID{{"1", 4}, {"2", 5}}; err == nil && (count != 2 || !cmp.Equal(ids, want)) {
				t.Errorf("got %d ids %v, want %v", count, ids, want)
			}
		})
	}
}

func TestScanIDsEndsASilentStream(t *testing.T) {
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set(LineageHeader, ours)
		fmt.Fprintf(w, `{"lineage":"%s","token":"t","read_at":"%s"}`+"\n", ours, readAt)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c.silence = 50 * time.Millisecond
	_, _, err := c.ScanIDs(t.Context(), KindPrefix, "", func(SourceID) error { return nil })
	if ReasonOf(err) != Unreachable || !strings.Contains(err.Error(), "silent") {
		t.Errorf("got %v", err)
	}
}

func TestTupleSourcesRefusesAnotherTuple(t *testing.T) {
	tuple := Tuple{64496, netip.MustParsePrefix("192.0.2.0/24"), 24}
	body := func(asn int, items string) string {
		return fmt.Sprintf(`{"lineage":"%s","tuple":{"asn":%d,"prefix":"192.0.2.0/24","max_length":24}%s}`, ours, asn, items)
	}
	for _, tt := range []struct {
		name, body string
		ok         bool
	}{
		{"none", body(64496, `,"items":[]`), true},
		{"one", body(64496, `,"items":[{"resource":"prefix:1","version":2}]`), true},
		{"no list", body(64496, ``), false},
		{"another tuple", body(64497, `,"items":[]`), false},
		{"empty object", `{}`, false},
	} {
		c := quick(t, says(200, "application/json", ours, tt.body))
		if _, err := c.TupleSources(t.Context(), tuple); (err == nil) != tt.ok {
			t.Errorf("%s: got error %v", tt.name, err)
		}
	}
}

func TestProblemDocumentComesBackAsItWas(t *testing.T) {
	sent := problem.New(problem.Stale, "the prefix changed").
		At("header.If-Match", "is not the current ETag", `"3"`).
		With("etag", `"4"`).With("lineage", ours)
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(LineageHeader, ours)
		problem.Write(w, sent, nil)
	})
	_, err := c.Patch(t.Context(), "/v1/prefixes/17", Write{IfMatch: `"3"`}, map[string]any{}, nil)
	var got *problem.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want a *problem.Error", err)
	}
	if got.Kind != sent.Kind || got.Detail != sent.Detail || !cmp.Equal(got.Fields, sent.Fields) || !cmp.Equal(got.Extra, sent.Extra) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}

func TestProblemThatEndsAnImportComesBackAsItWas(t *testing.T) {
	sent := problem.New(problem.Invalid, "the import cannot be taken").
		At("query.own_nameserver[0]", "is not a pattern", "a b").With("job", float64(3))
	document := httptest.NewRecorder()
	problem.Write(document, sent, nil)
	c := quick(t, says(http.StatusOK, ndjson, ours,
		`{"stage":"planning"}`+"\n"+`{"problem":`+strings.TrimSpace(document.Body.String())+"}\n"))
	none := func(func(ImportObject, error) bool) {}
	_, err := c.ImportRPSL(t.Context(), ImportOptions{}, none, nil)
	var got *problem.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want a *problem.Error", err)
	}
	if got.Kind != sent.Kind || got.Detail != sent.Detail || !cmp.Equal(got.Fields, sent.Fields) || !cmp.Equal(got.Extra, sent.Extra) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}

func TestWriteSendsItsConditionsAndReadsWhatWasProduced(t *testing.T) {
	var seen *http.Request
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(context.Background())
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(LineageHeader, ours)
		w.Header().Set("ETag", `"4"`)
		w.Header().Set(ProducedHeader, "prefix:17@4, ptr:2001:db8::1@2")
		fmt.Fprint(w, `{"id":17}`)
	})
	var out Prefix
	got, err := c.Patch(t.Context(), "/v1/prefixes/17", Write{IfMatch: `"3"`, Reason: "moved", DryRun: true, IdempotencyKey: "k"},
		map[string]any{"name": "x"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	want := Written{`"4"`, ours, []Produced{{Resource{KindPrefix, "17"}, 4}, {Resource{KindPTR, "2001:db8::1"}, 2}}}
	if !cmp.Equal(got, want) || out.ID != 17 {
		t.Errorf("got %+v and id %d, want %+v and 17", got, out.ID, want)
	}
	if back := FormatProduced(got.Produced); back != "prefix:17@4, ptr:2001:db8::1@2" {
		t.Errorf("FormatProduced gives %q", back)
	}
	for name, want := range map[string]string{
		"If-Match": `"3"`, "Idempotency-Key": "k", "Authorization": "Bearer hubn_secret",
		"Content-Type": "application/merge-patch+json", "User-Agent": "hubn",
	} {
		if seen.Header.Get(name) != want {
			t.Errorf("header %s is %q, want %q", name, seen.Header.Get(name), want)
		}
	}
	if q := seen.URL.Query(); q.Get("reason") != "moved" || q.Get("dry_run") != "true" {
		t.Errorf("query is %s", seen.URL.RawQuery)
	}
}

func TestListGoesThroughAllPages(t *testing.T) {
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(LineageHeader, ours)
		pages := map[string]string{"": `{"items":[{"id":1},{"id":2}],"next":"b"}`, "b": `{"items":[],"next":"c"}`, "c": `{"items":[{"id":3}]}`}
		fmt.Fprint(w, pages[r.URL.Query().Get("after")])
	})
	var ids []int64
	for p, err := range List[Prefix](t.Context(), c, "/v1/prefixes", nil) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, p.ID)
	}
	if want := []int64{1, 2, 3}; !cmp.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

func TestReportIsChunked(t *testing.T) {
	var sizes []int
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		var report Report
		_ = json.NewDecoder(r.Body).Decode(&report)
		sizes = append(sizes, len(report.Items))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(LineageHeader, ours)
		fmt.Fprintf(w, `{"stored":%d,"ignored":0}`, len(report.Items))
	})
	items := make([]ReportItem, 2*MaxReport+1)
	for i := range items {
		items[i].Resource = Resource{KindPrefix, fmt.Sprint(i)}
	}
	got, err := c.Report(t.Context(), Report{Module: "mirror", Items: items})
	if err != nil || got.Stored != 2*MaxReport+1 || !cmp.Equal(sizes, []int{MaxReport, MaxReport, 1}) {
		t.Errorf("got %+v in requests of %v, %v", got, sizes, err)
	}
}

func TestNewRefusesWhatIsNoRegistry(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{
		{URL: ""}, {URL: "127.0.0.1:8080"}, {URL: "ftp://example.net"}, {URL: "http://example.net/v1"},
		{URL: "https://example.net", CAFile: empty}, {URL: "https://example.net", CAFile: empty + ".missing"},
	} {
		if c, err := New(o); err == nil {
			t.Errorf("New(%+v) made a client of %s", o, c.URL())
		}
	}
}

func TestCAFileDecidesWhomToTrust(t *testing.T) {
	s := httptest.NewTLSServer(says(200, "application/json", ours, oneGood))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pemOf(s), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file string
		want Outcome
	}{{file, Present}, {"", Unavailable}} {
		c, err := New(Options{URL: s.URL, CAFile: tt.file})
		if err != nil {
			t.Fatal(err)
		}
		if f := c.Fetch(t.Context(), Resource{KindPrefix, "17"}); f.Outcome() != tt.want {
			t.Errorf("with CA file %q: %s (%v), want %s", tt.file, f.Outcome(), f.Err(), tt.want)
		}
		c.Close()
	}
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
