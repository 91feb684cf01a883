package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

const lineageOne, lineageTwo = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

// answers are what a Registry says to one request after the other; the last one is
// repeated.
type answers []func(w http.ResponseWriter, r *http.Request)

// waitOn waits for everything on a server that gives the answers, and answers the
// requests that it got.
func waitOn(t *testing.T, ctx context.Context, given answers) (w *waiter, notes string, asked []string, err error) {
	t.Helper()
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		next := given[min(len(asked), len(given)-1)]
		asked = append(asked, r.Method+" "+r.URL.Path)
		next(rw, r)
	}))
	defer server.Close()
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	w = &waiter{client: c, url: server.URL, notes: &out, bar: newProgress(&out, "waiting"), begun: time.Now()}
	err = w.everything(ctx)
	w.bar.end()
	return w, out.String(), asked, err
}

func barrier(b client.Barrier) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(client.LineageHeader, lineageTwo)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(b)
	}
}

func refusing(kind problem.Kind) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(client.LineageHeader, lineageTwo)
		problem.Write(w, problem.New(kind, "so it is"), map[string]any{"lineage": lineageTwo})
	}
}

// breakOff ends the connection without an answer, as a Registry that is killed.
func breakOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func proxyWithoutIt(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "bad gateway", http.StatusBadGateway)
}

func TestWaitOutlivesAnAbsentRegistry(t *testing.T) {
	w, notes, asked, err := waitOn(t, t.Context(), answers{
		breakOff, refusing(problem.Unavailable),
		barrier(client.Barrier{ID: 1, Lineage: lineageTwo, Ahead: 3}),
		breakOff, refusing(problem.Unavailable), proxyWithoutIt,
		barrier(client.Barrier{ID: 1, Lineage: lineageTwo, Raised: true, Done: true}),
	})
	if err != nil {
		t.Fatalf("the wait ended with %v after %q", err, asked)
	}
	want := "POST /v1/barriers POST /v1/barriers POST /v1/barriers GET /v1/barriers/1 GET /v1/barriers/1 GET /v1/barriers/1 GET /v1/barriers/1"
	if got := strings.Join(asked, " "); got != want {
		t.Errorf("it asked %s, want %s", got, want)
	}
	if strings.Count(notes, "does not answer") != 1 {
		t.Errorf("what it said of the absence, which it says once: %q", notes)
	}
	if len(w.result.Blocked) != 0 {
		t.Errorf("done, and blocked by %q", w.result.Blocked)
	}
}

func TestWaitMakesALostBarrierAgain(t *testing.T) {
	_, _, asked, err := waitOn(t, t.Context(), answers{
		barrier(client.Barrier{ID: 1, Lineage: lineageOne}),
		barrier(client.Barrier{ID: 1, Lineage: lineageOne, Superseded: lineageTwo}),
		barrier(client.Barrier{ID: 7, Lineage: lineageTwo}),
		refusing(problem.NotFound), // a restore that has lost it
		barrier(client.Barrier{ID: 8, Lineage: lineageTwo, Raised: true, Done: true}),
	})
	want := "POST /v1/barriers GET /v1/barriers/1 POST /v1/barriers GET /v1/barriers/7 POST /v1/barriers"
	if got := strings.Join(asked, " "); err != nil || got != want {
		t.Errorf("it asked %s (%v), want %s", got, err, want)
	}
}

func TestWaitSaysThatTheRegistryWasAwayAtItsEnd(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errWaited)
	defer cancel()
	w, _, _, err := waitOn(t, ctx, answers{refusing(problem.Unavailable)})
	if !errors.Is(err, errWaited) {
		t.Fatalf("the wait ended with %v, want its timeout", err)
	}
	err = testShell().endWait(&Connection{}, &Output{}, w, 200*time.Millisecond, err)
	for _, part := range []string{"not in effect after 200ms", "does not answer", "so it is"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("it ends with %v, which lacks %q", err, part)
		}
	}
}

func TestWaitEndsOnWhatDoesNotPass(t *testing.T) {
	for name, given := range map[string]answers{
		"a refused token":       {refusing(problem.Unauthenticated)},
		"a fault":               {refusing(problem.Internal)},
		"another server at all": {proxyWithoutIt},
	} {
		if _, _, asked, err := waitOn(t, t.Context(), given); err == nil || len(asked) != 1 {
			t.Errorf("%s: %v after %q, want an error after one request", name, err, asked)
		}
	}
}

func TestWaitRefusesATimeInThePast(t *testing.T) {
	wrong := errors.New("wrong use")
	s := &shell{Wiring{Usage: func(err error) error { return errors.Join(wrong, err) }}}
	cmd := s.waitCommand()
	cmd.SetArgs([]string{"--timeout", "-5s"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); !errors.Is(err, wrong) || !strings.Contains(err.Error(), "-5s") {
		t.Errorf("--timeout -5s: %v, want wrong use that names it", err)
	}
}

func TestReplayTakesAKindAndNoKey(t *testing.T) {
	s := &shell{Wiring{Usage: func(err error) error { return err }}}
	for text, want := range map[string]string{
		"": "", "organisation": "", "organisation:3854": "write organisation:3854 instead of the flag", "frob": `--agg "frob" is no kind`,
	} {
		err := s.aggregateKind(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--agg %s: %v, want %q", text, err, want)
		}
	}
}
