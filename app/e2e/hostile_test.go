package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

const elsewhere = "00000000-0000-4000-8000-000000000000"

// onSources lets a lie answer the calls about sources.
func onSources(lie http.HandlerFunc) func(http.Handler) http.Handler {
	return func(truth http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/sources") {
				lie(w, r)
				return
			}
			truth.ServeHTTP(w, r)
		})
	}
}

// rewriting changes the body and the lineage of answers.
func rewriting(change func(r *http.Request, lineage string, body []byte) (string, []byte)) func(http.Handler) http.Handler {
	return func(truth http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			truth.ServeHTTP(rec, r)
			lineage, body := change(r, rec.Header().Get(client.LineageHeader), rec.Body.Bytes())
			for name, values := range rec.Header() {
				w.Header()[name] = values
			}
			w.Header().Del("Content-Length")
			w.Header().Set(client.LineageHeader, lineage)
			w.WriteHeader(rec.Code)
			_, _ = w.Write(body)
		})
	}
}

func isPage(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/sources/") && strings.Count(r.URL.Path, "/") == 3
}

func isIDs(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/ids") }

func isBatch(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, ":get") }

// without takes sources out of the pages and the lists of ids, and lets batches
// say that they are not known.
func without(lost func(client.Resource) bool, batchesToo bool) func(http.Handler) http.Handler {
	return rewriting(func(r *http.Request, lineage string, body []byte) (string, []byte) {
		kind := client.Kind(strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/sources/"), "/")[0])
		switch {
		case isPage(r):
			var page client.SourcePage
			if json.Unmarshal(body, &page) != nil {
				return lineage, body
			}
			page.Items = slices.DeleteFunc(page.Items, func(s client.Source) bool { return lost(s.Resource) })
			body, _ = json.Marshal(page)
		case isIDs(r):
			var out bytes.Buffer
			count := int64(0)
			for line := range bytes.Lines(body) {
				var id client.SourceID
				if json.Unmarshal(line, &id) == nil && id.Key != "" && lost(client.Resource{Kind: kind, Key: id.Key}) {
					continue
				}
				if bytes.Contains(line, []byte(`"complete"`)) {
					line, _ = json.Marshal(client.SourceIDsTail{Complete: true, Count: count})
				} else if id.Key != "" {
					count++
				}
				out.Write(line)
			}
			out.WriteByte('\n')
			body = out.Bytes()
		case isBatch(r) && batchesToo:
			var batch client.SourceBatch
			if json.Unmarshal(body, &batch) != nil {
				return lineage, body
			}
			for i, s := range batch.Items {
				if lost(s.Resource) {
					batch.Items[i] = client.Source{Resource: s.Resource, State: client.SourceForgotten}
				}
			}
			body, _ = json.Marshal(batch)
		}
		return lineage, body
	})
}

// lastPageLost lets a scan end one page early, whatever the lists of ids say.
func lastPageLost() func(http.Handler) http.Handler {
	return rewriting(func(r *http.Request, lineage string, body []byte) (string, []byte) {
		var page client.SourcePage
		if isPage(r) && json.Unmarshal(body, &page) == nil && !page.Complete {
			page.Next, page.Complete = "", true
			body, _ = json.Marshal(page)
		}
		return lineage, body
	})
}

func everything(client.Resource) bool { return true }

func TestHostileRegistryWithdrawsNothing(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	for _, prefix := range []string{"192.0.2.0/26", "192.0.2.64/26", "192.0.2.128/26", "192.0.2.192/26", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/48"} {
		s.announced(prefix, 64496)
	}
	impatient := s.client(mirror.Name)
	impatient, err := client.New(client.Options{URL: impatient.URL(), Token: s.tokens[mirror.Name], Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(impatient.Close)
	m := s.mirror("one", func(o *mirror.Options) {
		o.Registry = impatient
		o.Settings.ScanPage = 2
	})
	s.converges()
	all := s.mirrored()
	cases := []struct {
		name string
		lie  func(http.Handler) http.Handler
	}{
		{"answers 500", onSources(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })},
		{"answers nothing in time", onSources(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the caller left
			<-r.Context().Done()
		})},
		{"answers a bare 404", onSources(http.NotFound)},
		{"answers a bare 410", onSources(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })},
		{"answers another server's page", onSources(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>welcome</html>")) })},
		{"answers empty lists", without(everything, false)},
		{"answers a page less", lastPageLost()},
		{"answers some sources less, in both passes", without(func(r client.Resource) bool { return r.Key >= "3" && r.Key <= "5" }, false)},
		{"answers in a foreign lineage", rewriting(func(_ *http.Request, own string, body []byte) (string, []byte) {
			return elsewhere, bytes.ReplaceAll(body, []byte(own), []byte(elsewhere))
		})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.between(c.lie)
			defer s.between(nil)
			// An event comes meanwhile, whose fetch meets the lie as well.
			s.touch("198.51.100.0/24")
			if c.name != "answers a page less" {
				s.refused(m)
			} else {
				s.reconciled(m) // the second pass names what the first did not have
			}
			if got := s.mirrored(); !slices.Equal(got, all) {
				t.Errorf("the mirror has %v, want all of %v", got, all)
			}
			if strings.Contains(c.name, "foreign") {
				eventtest.Eventually(t, "the status is loudly not ready", func() bool {
					status := m.mirror.Status()
					return !status.Ready && strings.Contains(status.Reason, "adopt-lineage")
				})
			}
			s.between(nil)
			s.reconciled(m)
			s.converges()
			eventtest.Eventually(t, "the status is ready with the Registry back", func() bool { return m.mirror.Status().Ready })
		})
	}
	if gone := s.withdrawn(); len(gone) > 0 {
		t.Errorf("withdrawn were %v", gone)
	}
	if sets := s.texts(`SELECT reason FROM mirror.held_set`); len(sets) > 0 {
		t.Errorf("withdrawals are held: %v", sets)
	}
}

// touch makes a new version of a /24 that wants what the old one wanted.
func (s *stack) touch(prefix string) {
	s.t.Helper()
	s.exec(`UPDATE registry.prefix SET max_length = CASE WHEN max_length IS NULL THEN 24 END WHERE prefix = $1::text::cidr`, prefix)
}

func TestSourcesThatNeverStandStillWithdrawNothing(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	s.announced("192.0.2.0/24", 64496)
	lost := s.announced("198.51.100.0/24", 64496)
	var restless atomic.Bool
	m := s.mirror("one", func(o *mirror.Options) {
		o.Hooks.Scanned = func(context.Context, int) {
			if restless.Load() {
				s.touch("192.0.2.0/24")
			}
		}
	})
	s.converges()
	restless.Store(true)
	s.between(without(func(r client.Resource) bool { return r == lost }, true))
	s.refused(m)
	if word := m.mirror.Status().Detail["reconciliation"].(string); !strings.Contains(word, "did not stand still") {
		t.Errorf("it says %q, want that the sources did not stand still", word)
	}
	restless.Store(false)
	s.between(nil)
	s.reconciled(m)
	s.converges()
	if gone := s.withdrawn(); len(gone) > 0 {
		t.Errorf("withdrawn were %v", gone)
	}
}

// What serves the Registry's answers lags behind: an event is not acknowledged
// before what it spoke of was fetched.
func TestOlderAnswerIsNotTakenForTheEvent(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	source := s.announced("192.0.2.0/24", 64496)
	m := s.mirror("one", func(o *mirror.Options) { o.Settings.Attempts = 1000 })
	s.quiet()
	eventtest.Eventually(t, "everything is acknowledged", func() bool { return s.pending() == 0 })
	old := s.version(source)
	lineages := one[int64](s, `SELECT count(*) FROM registry.lineage`)
	s.between(rewriting(func(r *http.Request, lineage string, body []byte) (string, []byte) {
		var batch client.SourceBatch
		if isBatch(r) && json.Unmarshal(body, &batch) == nil {
			for i := range batch.Items {
				batch.Items[i].Version = old
			}
			body, _ = json.Marshal(batch)
		}
		return lineage, body
	}))
	s.exec(`UPDATE registry.prefix SET origin_asn = 64497`)
	eventtest.Eventually(t, "the old answer is met several times", func() bool {
		return s.metric(m, "hubn_consumer_sources_total", "too_old") >= 3
	})
	if got := s.pending(); got == 0 {
		t.Error("the event was acknowledged on an answer that is older than it")
	}
	if got := s.held(source); got != old {
		t.Errorf("version %d is held, want %d still", got, old)
	}
	s.between(nil)
	s.converges()
	eventtest.Eventually(t, "everything is acknowledged", func() bool { return s.pending() == 0 })
	if n := one[int64](s, `SELECT count(*) FROM registry.lineage`); n != lineages {
		t.Errorf("a new lineage began, there are %d: the Registry was told that it went back, and should have found that it did not", n)
	}
}

func TestLargeWithdrawalsAreHeld(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	var all []client.Resource
	for i := range 16 {
		all = append(all, s.announced(fmt.Sprintf("192.0.2.%d/28", 16*i), 64496))
	}
	m := s.mirror("one")
	s.converges()
	lost := all[:7]
	lie := without(func(r client.Resource) bool { return slices.Contains(lost, r) }, true)
	s.between(lie)
	s.reconciled(m)
	if got := len(s.mirrored()); got != 16 {
		t.Fatalf("the mirror has %d route origins, want all 16 although the scan found 9", got)
	}
	if held := s.metric(m, "hubn_consumer_held_sources"); held != 7 {
		t.Errorf("held are %v sources, want 7", held)
	}
	eventtest.Eventually(t, "the Registry shows the sources as held", func() bool {
		state, err := s.admin.State(t.Context(), lost[0])
		return err == nil && state.Overall == client.OverallHeld
	})

	t.Run("they are released when they are there after all", func(t *testing.T) {
		s.between(nil)
		s.reconciled(m)
		if held := s.metric(m, "hubn_consumer_held_sources"); held != 0 {
			t.Errorf("held are %v sources, want none", held)
		}
		eventtest.Eventually(t, "the Registry shows the sources as applied", func() bool {
			state, err := s.admin.State(t.Context(), lost[0])
			return err == nil && state.Overall == client.OverallApplied
		})
	})
	t.Run("rejected ones stay", func(t *testing.T) {
		s.between(lie)
		s.reconciled(m)
		if answer := s.order("reject", `{}`); answer.State != client.ReportApplied {
			t.Errorf("the answer is %+v", answer)
		}
		s.reconciled(m)
		if got := len(s.mirrored()); got != 16 {
			t.Errorf("the mirror has %d route origins, want all 16", got)
		}
		s.between(nil)
		s.reconciled(m)
	})
	t.Run("approved ones go, on the proof of a new scan", func(t *testing.T) {
		s.between(lie)
		s.reconciled(m)
		id := one[int64](s, `SELECT id FROM mirror.held_set`)
		if answer := s.order("approve", `{"held": 999}`); answer.State != client.ReportFailed || !strings.Contains(answer.Reason, "no held withdrawal 999") {
			t.Errorf("the answer to a wrong number is %+v", answer)
		}
		if answer := s.order("approve", fmt.Sprintf(`{"held": %d}`, id)); answer.State != client.ReportApplied {
			t.Errorf("the answer is %+v", answer)
		}
		eventtest.Eventually(t, "the approved sources are withdrawn", func() bool { return len(s.mirrored()) == 9 })
		eventtest.Eventually(t, "nothing is held any longer", func() bool { return one[int64](s, `SELECT count(*) FROM mirror.held_set`) == 0 })
	})
	t.Run("few are withdrawn at once", func(t *testing.T) {
		s.between(without(func(r client.Resource) bool { return slices.Contains(all[:9], r) }, true))
		s.reconciled(m)
		if got := len(s.mirrored()); got != 7 {
			t.Errorf("the mirror has %d route origins, want 7: two more are within the limit", got)
		}
	})
	t.Run("a wrong withdrawal is repaired by the next scan", func(t *testing.T) {
		s.between(nil)
		s.reconciled(m)
		s.converges()
	})
}
