package registry_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"hubn/registry/client"
)

// operations is the part of the OpenAPI document that a client depends on.
type operations struct {
	Paths map[string]map[string]struct {
		Parameters  []parameter `json:"parameters"`
		RequestBody any         `json:"requestBody"`
	} `json:"paths"`
}

type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`
}

// describes tells why the document has no operation for the request; empty when it has.
func (o operations) describes(method, path string, query url.Values, body bool) string {
	why := "there is no such operation"
	segments := strings.Split(path, "/")
	for template, methods := range o.Paths {
		fits := slices.EqualFunc(strings.Split(template, "/"), segments, func(part, segment string) bool {
			return part == segment || strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}")
		})
		op, ok := methods[strings.ToLower(method)]
		if !fits || !ok {
			continue
		}
		// Two templates may fit, as /ids and /{key} do: one is enough.
		if why = o.takes(template, query, body && op.RequestBody == nil, op.Parameters); why == "" {
			return ""
		}
	}
	return why
}

func (o operations) takes(template string, query url.Values, noBody bool, parameters []parameter) string {
	if noBody {
		return template + " takes no body"
	}
	for name := range query {
		if !slices.Contains(parameters, parameter{name, "query"}) {
			return template + " has no query parameter " + name
		}
	}
	return ""
}

// TestTheClientCallsWhatTheDocumentDescribes calls every method of the client
// against a server that only looks, and finds each request in /openapi.json.
func TestTheClientCallsWhatTheDocumentDescribes(t *testing.T) {
	s := serve(t, nil)
	resp, err := http.Get(s.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var document operations
	if err := json.NewDecoder(resp.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	var method string
	seen := 0
	looking := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen++
		b, _ := io.ReadAll(r.Body)
		if why := document.describes(r.Method, r.URL.Path, r.URL.Query(), len(b) > 0); why != "" {
			t.Errorf("%s sends %s %s: %s", method, r.Method, r.URL, why)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer looking.Close()
	c, err := client.New(client.Options{URL: looking.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, key, reported := t.Context(), named("prefix:1"), []client.ReportItem{item("prefix:1", 1, client.ReportApplied)}
	stream := 1
	calls := map[string]func(){
		"SessionPassword": func() { _, _ = c.SessionPassword(ctx, 1) },

		"Fetch":      func() { c.Fetch(ctx, key) },
		"FetchBatch": func() { c.FetchBatch(ctx, client.KindPrefix, []string{"1"}) },
		"ScanPage": func() {
			_, _ = c.ScanPage(ctx, client.KindPrefix, client.PageRequest{Limit: 1, After: "a", Since: "s"})
		},
		"ScanIDs":      func() { _, _, _ = c.ScanIDs(ctx, client.KindPrefix, "s", nil) },
		"TupleSources": func() { _, _ = c.TupleSources(ctx, client.Tuple{Prefix: netip.MustParsePrefix("192.0.2.0/24")}) },
		"Lineage":      func() { _, _ = c.Lineage(ctx) },
		"Regression":   func() { _, _ = c.Regression(ctx, client.Regression{Resource: key}) },
		"Report":       func() { _, _ = c.Report(ctx, client.Report{Items: reported}) },
		"Observe": func() {
			_, _ = c.Observe(ctx, client.ObservationReport{Items: []client.ObservationItem{{Resource: key}}})
		},
		"Reports":       func() { _, _ = c.Reports(ctx, "m", client.KindPrefix, "a", 1) },
		"Heartbeat":     func() { _, _ = c.Heartbeat(ctx, "m", "i", client.Heartbeat{}) },
		"Modules":       func() { _, _ = c.Modules(ctx) },
		"ForgetModule":  func() { _ = c.ForgetModule(ctx, "m", "r") },
		"Order":         func() { _, _ = c.Order(ctx, "m", client.CommandOrder{}) },
		"Commands":      func() { _, _ = c.Commands(ctx, "m", true, "a", 1) },
		"Command":       func() { _, _ = c.Command(ctx, 1) },
		"CreateBarrier": func() { _, _ = c.CreateBarrier(ctx) },
		"Barrier":       func() { _, _ = c.Barrier(ctx, 1) },
		"AcquireLease":  func() { _, _ = c.AcquireLease(ctx, "m", "h", time.Second) },
		"ReleaseLease":  func() { _ = c.ReleaseLease(ctx, "m", "h", 1) },
		"State":         func() { _, _ = c.State(ctx, key) },
		"WorkList":      func() { _, _ = c.WorkList(ctx, client.OverallHeld, "m", "a", 1) },
		"Trace":         func() { _, _ = c.Trace(ctx, key) },
		"Resolve":       func() { _, _ = c.Resolve(ctx, "q") },
		"Changes": func() {
			_, _ = c.Changes(ctx, client.ChangeFilter{Resource: "r", Actor: "a", Token: "t", Request: "r", Op: "insert",
				Since: started, Until: started, After: "a", Limit: 1})
		},
		"Change":       func() { _, _ = c.Change(ctx, 1) },
		"At":           func() { _, _ = c.At(ctx, key, started) },
		"Holders":      func() { _, _ = c.Holders(ctx, key) },
		"StateCounts":  func() { _, _ = c.StateCounts(ctx) },
		"Revert":       func() { _, _, _ = c.Revert(ctx, 1, client.Write{Reason: "r", DryRun: true, IdempotencyKey: "k"}) },
		"OutboxStatus": func() { _, _ = c.OutboxStatus(ctx) },
		"OutboxLanes": func() {
			_, _ = c.OutboxLanes(ctx, client.LaneFilter{State: client.LaneIdle, Kind: client.KindPrefix, Older: time.Second, Limit: 1, After: "a"})
		},
		"OutboxLane":    func() { _, _ = c.OutboxLane(ctx, "prefix:1") },
		"OutboxEvent":   func() { _, _ = c.OutboxEvent(ctx, "e") },
		"OutboxRetry":   func() { _, _ = c.OutboxRetry(ctx, client.OutboxOrder{}) },
		"OutboxPause":   func() { _, _ = c.OutboxPause(ctx, client.OutboxOrder{}) },
		"OutboxResume":  func() { _, _ = c.OutboxResume(ctx, client.OutboxOrder{}) },
		"OutboxSkip":    func() { _, _ = c.OutboxSkip(ctx, client.OutboxSkip{}) },
		"OutboxReplay":  func() { _, _ = c.OutboxReplay(ctx, client.OutboxReplay{}) },
		"OutboxAudit":   func() { _, _ = c.OutboxAudit(ctx, client.OutboxAudit{Stream: &stream}) },
		"OutboxCleanup": func() { _, _ = c.OutboxCleanup(ctx, client.OutboxCleanup{}) },
		"OutboxDoctor":  func() { _, _ = c.OutboxDoctor(ctx) },
		"StartImport": func() {
			_, _ = c.StartImport(ctx, client.BulkImport{CSV: true, Kind: client.KindPrefix, Existing: "skip", DryRun: true, Reason: "r", IdempotencyKey: "k"}, strings.NewReader("prefix"))
		},
		"ImportJob":    func() { _, _ = c.ImportJob(ctx, 1) },
		"ImportJobs":   func() { _, _ = c.ImportJobs(ctx, "a", 1) },
		"CancelImport": func() { _, _ = c.CancelImport(ctx, 1) },
		"Transact": func() {
			_, _, _ = c.Transact(ctx, client.Write{Reason: "r", DryRun: true, IdempotencyKey: "k"}, client.Transaction{})
		},
		"ImportRPSL": func() {
			_, _ = c.ImportRPSL(ctx, client.ImportOptions{}, func(func(client.ImportObject, error) bool) {}, nil)
		},
		"NextFree": func() {
			_, _, _ = c.NextFree(ctx, "1", client.Write{IdempotencyKey: "k"}, map[string]any{"length": 24})
		},
		"Split": func() { _, _, _ = c.Split(ctx, "1", client.Write{IfMatch: "1"}, 24) },
		"Merge": func() { _, _, _ = c.Merge(ctx, "1", client.Write{IfMatch: "1"}, []string{"2"}) },
		"Resize": func() {
			_, _, _ = c.Resize(ctx, "1", client.Write{IfMatch: "1"}, netip.MustParsePrefix("192.0.2.0/24"))
		},
		"ResizeTo":          func() { _, _, _ = c.ResizeTo(ctx, "1", client.Write{IfMatch: "1"}, 24) },
		"Move":              func() { _, _, _ = c.Move(ctx, "1", client.Write{IfMatch: "1"}, netip.MustParsePrefix("192.0.2.0/24")) },
		"MoveInto":          func() { _, _, _ = c.MoveInto(ctx, "1", client.Write{IfMatch: "1"}, "2") },
		"FreeSpace":         func() { _, _ = c.FreeSpace(ctx, "1", 24, "a", 1) },
		"Utilisation":       func() { _, _ = c.Utilisation(ctx, "1") },
		"ReleaseQuarantine": func() { _ = c.ReleaseQuarantine(ctx, 1, client.Write{Reason: "r", DryRun: true}) },
		"Get":               func() { _, _ = c.Get(ctx, "/v1/prefixes/1", nil) },
		"Create": func() {
			_, _ = c.Create(ctx, "/v1/prefixes", client.Write{Reason: "r", DryRun: true, IdempotencyKey: "k"}, client.Prefix{}, nil)
		},
		"Patch": func() {
			_, _ = c.Patch(ctx, "/v1/prefixes/1", client.Write{Reason: "r", DryRun: true, IfMatch: "1"}, client.Prefix{}, nil)
		},
		"Delete": func() { _, _ = c.Delete(ctx, "/v1/prefixes/1", client.Write{Reason: "r", DryRun: true, IfMatch: "1"}) },
	}
	// These send what they are told to.
	told := []string{"In", "URL", "Close", "Raw", "Open", "Download", "RDAP"}
	for m := range reflect.TypeFor[*client.Client]().Methods() {
		call, ok := calls[m.Name]
		if !ok {
			if !slices.Contains(told, m.Name) {
				t.Errorf("the method %s is not tried", m.Name)
			}
			continue
		}
		before := seen
		method = m.Name
		call()
		if seen == before {
			t.Errorf("%s sends nothing", m.Name)
		}
	}
}
