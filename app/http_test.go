package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubn/app/module"
	"hubn/app/problem"
)

func testHouse(units ...*unit) *house {
	h := &house{units: units, started: time.Now(), metrics: prometheus.NewRegistry(), tokens: [][sha256.Size]byte{sha256.Sum256([]byte("secret"))}}
	h.metrics.MustRegister(unitCollector(units))
	return h
}

// request sends a request to a handler and answers the status and the body.
func request(h http.Handler, path, token string) (int, string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the condition does not hold after 10 s")
		}
		<-time.After(time.Millisecond)
	}
}

func TestListenAdviceFitsTheFault(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for address, want := range map[string]string{
		taken.Addr().String():     "stop what has this address",
		"192.0.2.1:0":             "an address of this machine",
		"127.0.0.1:99999":         "a port from 0 to 65535",
		"127.0.0.1":               "a port from 0 to 65535",
		"127.0.0.1:no-such-thing": "a port from 0 to 65535",
	} {
		listener, err := net.Listen("tcp", address)
		if err == nil {
			_ = listener.Close()
			t.Errorf("%s can be listened at", address)
			continue
		}
		if got := listenAdvice(err); !strings.Contains(got, want) {
			t.Errorf("%v: the advice is %q, want it to hold %q", err, got, want)
		}
	}
}

// servingPart is a module with one route.
func servingPart(body string, run func(ctx context.Context, ready func()) error) *part {
	return &part{
		routes: []string{"/v1/", "/openapi.json"},
		run:    run,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
		}),
	}
}

func TestPathsOfAModuleAreUnavailableUntilItIsUp(t *testing.T) {
	open := make(chan struct{})
	u := testUnit("registry", constantly(servingPart("hello", func(ctx context.Context, ready func()) error {
		select {
		case <-open:
		case <-ctx.Done():
			return nil
		}
		return runUntilStopped(ctx, ready)
	})))
	h := testHouse(u)
	if code, body := request(h, "/v1/prefixes", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "starting: registry") {
		t.Errorf("before the start: got %d %s", code, body)
	}
	supervise(t, u)
	for _, path := range []string{"/v1/prefixes", "/openapi.json"} {
		waitFor(t, func() bool { code, _ := request(h, path, ""); return code == http.StatusServiceUnavailable })
	}
	close(open)
	<-u.wasReady
	for _, path := range []string{"/v1/prefixes", "/openapi.json"} {
		if code, body := request(h, path, ""); code != http.StatusOK || body != "hello" {
			t.Errorf("%s: got %d %s, want the module's answer", path, code, body)
		}
	}
	for _, path := range []string{"/v10", "/", "/openapi.json/x"} {
		code, body := request(h, path, "")
		if code != http.StatusNotFound || !strings.Contains(body, problem.TypePrefix) {
			t.Errorf("%s: got %d %s, want a problem document of 404", path, code, body)
		}
	}
}

func TestFailedModuleIsUnavailableAndSaysWhy(t *testing.T) {
	fail := make(chan struct{})
	u := testUnit("registry", constantly(servingPart("hello", func(ctx context.Context, ready func()) error {
		ready()
		select {
		case <-fail:
			return errors.New("the database is gone")
		case <-ctx.Done():
			return nil
		}
	})))
	h := testHouse(u)
	supervise(t, u)
	<-u.wasReady
	close(fail)
	waitFor(t, func() bool {
		code, body := request(h, "/v1/x", "")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "the database is gone")
	})
}

func TestReadinessNamesWhatIsNotReady(t *testing.T) {
	behind := module.Status{Reason: "312 changes behind"}
	good := testUnit("registry", constantly(&part{run: runUntilStopped}))
	bad := testUnit("outbox", constantly(&part{run: runUntilStopped, status: func() module.Status { return behind }}))
	supervise(t, good, bad)
	<-good.wasReady
	<-bad.wasReady

	code, body := request(testHouse(good, bad), "/readyz", "")
	var got readiness
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if code != http.StatusServiceUnavailable || got.Ready || got.Modules["outbox"] != behind.Reason || got.Modules["registry"] != "ready" {
		t.Errorf("one module behind: got %d %s", code, body)
	}
	h := testHouse(good)
	if code, body := request(h, "/readyz", ""); code != http.StatusOK {
		t.Errorf("all ready: got %d %s", code, body)
	}
	h.stopping.Store(true)
	if code, body := request(h, "/readyz", ""); code != http.StatusServiceUnavailable {
		t.Errorf("stopping: got %d %s", code, body)
	}
	if code, body := request(h, "/healthz", ""); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz while stopping: got %d %s, want 200: it is alive", code, body)
	}
}

func TestStatusAndMetricsNeedAToken(t *testing.T) {
	u := testUnit("outbox", constantly(&part{run: runUntilStopped}))
	supervise(t, u)
	<-u.wasReady
	h := testHouse(u)
	for path, want := range map[string]string{
		"/status":  `"name":"outbox","state":"ready","restarts":0,"ready":true`,
		"/metrics": `hubn_module_ready{module="outbox"} 1`,
	} {
		for _, token := range []string{"", "wrong"} {
			if code, body := request(h, path, token); code != http.StatusUnauthorized || strings.Contains(body, "outbox") {
				t.Errorf("%s with token %q: got %d %s, want 401", path, token, code, body)
			}
		}
		if code, body := request(h, path, "secret"); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s with the token: got %d %s, want it to hold %s", path, code, body, want)
		}
	}
}

func TestPanickingRequestIsABare500(t *testing.T) {
	h := recoverPanics(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret cause") }), slog.New(slog.DiscardHandler))
	code, body := request(h, "/v1/x", "")
	if code != http.StatusInternalServerError || strings.Contains(body, "secret cause") {
		t.Errorf("got %d %s, want 500 without the cause", code, body)
	}
}
