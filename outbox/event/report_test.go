package event

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"hubn/app/problem"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

// recorder takes reports as a Registry would, or refuses them.
type recorder struct {
	mu      sync.Mutex
	calls   []int
	stored  map[client.Resource]client.ReportItem
	refuses func(client.Report) error
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(client.LineageHeader, "L")
	var report client.Report
	if err := json.NewDecoder(req.Body).Decode(&report); err != nil || req.URL.Path != "/v1/reports" {
		problem.Write(w, problem.New(problem.Malformed, "%s %v", req.URL.Path, err), nil)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, len(report.Items))
	if r.refuses != nil {
		if err := r.refuses(report); err != nil {
			problem.Write(w, err, nil)
			return
		}
	}
	for _, item := range report.Items {
		r.stored[item.Resource] = item
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(client.ReportResult{Stored: len(report.Items)})
}

func (r *recorder) of(resource client.Resource) (client.ReportItem, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	item, ok := r.stored[resource]
	return item, ok
}

// reporting is a consumer of which only the reports run.
func reporting(t *testing.T, r *recorder, settings Settings) (*Consumer, kept) {
	t.Helper()
	r.stored = map[client.Resource]client.ReportItem{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	registry, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	_, rdb := eventtest.InProcess(t)
	k := memoryKept(t).begun(t)
	settings.FirstPause, settings.LongestPause, settings.ReportEvery = 10*time.Millisecond, 50*time.Millisecond, time.Millisecond
	c, err := New(Options{
		Module: "mirror", Instance: "one", Kinds: []client.Kind{client.KindPrefix}, Redis: rdb, Names: Names{Prefix: "hubn"},
		Registry: registry, Store: k, Settings: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, k
}

func (c *Consumer) runReports(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.reports.run(ctx, context.Background()) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestReportSaysWhatTheStoreHoldsWhenItIsSent(t *testing.T) {
	r := &recorder{}
	c, k := reporting(t, r, Settings{})
	k.results(t, "L", present(1, 1, "a"))
	c.Report(prefix(1), prefix(1), prefix(9))
	k.results(t, "L", present(1, 2, "b"))
	c.runReports(t)
	if err := c.reports.flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	item, ok := r.of(prefix(1))
	if !ok || item.Version != 2 || item.State != client.ReportApplied {
		t.Errorf("reported %+v (%v), want version 2 applied", item, ok)
	}
	if !slices.Equal(r.calls, []int{1}) {
		t.Errorf("calls had %v items, want one call with one: a resource is queued once, and what the store does not know is not reported", r.calls)
	}
}

func TestReportsComeInBatchesAndAgainAfterFailures(t *testing.T) {
	failures := 2
	r := &recorder{refuses: func(client.Report) error {
		if failures--; failures >= 0 {
			return problem.New(problem.Unavailable, "not now")
		}
		return nil
	}}
	c, k := reporting(t, r, Settings{})
	var changes []Change
	for n := range 1500 {
		changes = append(changes, present(n+1, 1, "x"))
	}
	k.results(t, "L", changes...)
	for _, change := range changes {
		c.Report(change.Resource)
	}
	c.runReports(t)
	if err := c.reports.flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []int{1000, 1000, 1000, 500}; !slices.Equal(r.calls, want) {
		t.Errorf("calls had %v items, want %v", r.calls, want)
	}
	if len(r.stored) != 1500 {
		t.Errorf("%d resources are reported, want 1500", len(r.stored))
	}
}

func TestRefusedReportStopsNoOther(t *testing.T) {
	r := &recorder{refuses: func(report client.Report) error {
		if slices.ContainsFunc(report.Items, func(i client.ReportItem) bool { return i.Resource == prefix(3) }) {
			return problem.New(problem.Invalid, "prefix:3 is not to the Registry's taste")
		}
		return nil
	}}
	c, k := reporting(t, r, Settings{})
	for n := range 8 {
		k.results(t, "L", present(n+1, 1, "x"))
		c.Report(prefix(n + 1))
	}
	c.runReports(t)
	if err := c.reports.flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, there := r.of(prefix(3)); there || len(r.stored) != 7 {
		t.Errorf("%d resources are reported, prefix:3 is %v; want the seven others", len(r.stored), there)
	}
}

func TestDroppedReportsAreScannedFor(t *testing.T) {
	r := &recorder{}
	c, k := reporting(t, r, Settings{ReportQueue: 2})
	for n := range 3 {
		k.results(t, "L", present(n+1, 1, "x"))
		c.Report(prefix(n + 1))
	}
	c.runReports(t)
	eventtest.Eventually(t, "a full reconciliation is wanted", func() bool {
		state, err := k.State(t.Context())
		return err == nil && state.Wanted == 1
	})
	if len(r.stored) != 2 {
		t.Errorf("%d resources are reported, want the two that had room", len(r.stored))
	}
}

func TestFailureIsReportedUntilItIsOver(t *testing.T) {
	r := &recorder{}
	c, k := reporting(t, r, Settings{})
	c.reports.fail(prefix(1), 4, epochStart, "no CA", epochStart.Add(time.Minute))
	c.runReports(t)
	if err := c.reports.flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if item, _ := r.of(prefix(1)); item.State != client.ReportFailed || item.Reason != "no CA" || item.Version != 4 {
		t.Errorf("reported %+v, want the failure", item)
	}
	k.results(t, "L", present(1, 4, "x"))
	c.reports.fail(prefix(1), 4, epochStart, "no CA", epochStart.Add(time.Minute))
	c.Report(prefix(1))
	if err := c.reports.flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventtest.Eventually(t, "it is reported as applied", func() bool {
		item, _ := r.of(prefix(1))
		return item.State == client.ReportApplied
	})
}
