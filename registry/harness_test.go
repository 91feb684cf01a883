package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// harness is a Registry that runs on a database of its own behind a real HTTP server.
type harness struct {
	t        testing.TB
	db       *schematest.DB
	registry *Registry
	url      string
	log      *logCapture
	// The tokens of the process, one for each role.
	admin, operator, viewer, module string
}

// newHarness starts a Registry; change may alter its options first.
func newHarness(t testing.TB, change ...func(*Options)) *harness {
	t.Helper()
	h := &harness{t: t, db: schematest.New(t), log: capturedLog,
		admin: NewSecret(), operator: NewSecret(), viewer: NewSecret(), module: NewSecret()}
	capturedLog.secrets(h.admin, h.operator, h.viewer, h.module)
	o := Options{
		Settings:    DefaultSettings(),
		DatabaseURL: h.db.URL(databaseRole),
		Names:       event.Names{Prefix: "hubn"},
		StaticTokens: []StaticToken{
			{Token: h.admin, Name: "the-admin", Roles: []string{"admin"}},
			{Token: h.operator, Name: "the-operator", Roles: []string{"operator"}},
			{Token: h.viewer, Name: "the-viewer", Roles: []string{"viewer"}},
			{Token: h.module, Name: "module:mirror", Roles: []string{"module"}, Module: "mirror"},
		},
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&o)
	}
	h.registry = run(t, o)
	server := httptest.NewServer(h.registry)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// run runs a Registry until the test ends.
func run(t testing.TB, o Options) *Registry {
	t.Helper()
	r := New(o)
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- r.Run(ctx, func() { close(ready) }) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run does not end")
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("Run ended before it was ready: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the Registry is not ready after 30 s")
	}
	return r
}

// response is what a request was answered with.
type response struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// header is a header of a request; token replaces the admin's token.
type header struct{ name, value string }

func token(secret string) header   { return header{"Authorization", "Bearer " + secret} }
func ifMatch(etag string) header   { return header{"If-Match", etag} }
func idempotent(key string) header { return header{"Idempotency-Key", key} }

// do makes a request as the admin unless a header says otherwise. body is sent as
// it is when it is a string, else as JSON.
func (h *harness) do(method, path string, body any, headers ...header) *response {
	h.t.Helper()
	r, err := h.try(method, path, body, headers...)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// try is do for other goroutines than the test's own.
func (h *harness) try(method, path string, body any, headers ...header) (*response, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, h.url+path, reader)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+h.admin)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", mergePatch)
		}
	}
	for _, x := range headers {
		req.Header.Del(x.name)
		if x.value != "" && x.value != "Bearer " {
			req.Header.Set(x.name, x.value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	return &response{t: h.t, what: method + " " + path, status: resp.StatusCode, header: resp.Header, body: content}, err
}

func (h *harness) get(path string, headers ...header) *response {
	h.t.Helper()
	return h.do(http.MethodGet, path, nil, headers...)
}

func (h *harness) post(path string, body any, headers ...header) *response {
	h.t.Helper()
	return h.do(http.MethodPost, path, body, headers...)
}

// change patches an object with the ETag that it has now.
func (h *harness) change(path string, patch any) *response {
	h.t.Helper()
	return h.do(http.MethodPatch, path, patch, ifMatch(h.etag(path)))
}

// remove deletes an object with the ETag that it has now.
func (h *harness) remove(path string) *response {
	h.t.Helper()
	return h.do(http.MethodDelete, path, nil, ifMatch(h.etag(path)))
}

func (h *harness) etag(path string) string {
	h.t.Helper()
	return h.get(path).want(http.StatusOK).header.Get("ETag")
}

// want checks the status, and what every answer of the Registry has.
func (r *response) want(status int) *response {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: got %d, want %d: %s", r.what, r.status, status, r.body)
	}
	for _, name := range []string{client.LineageHeader, "X-Request-Id"} {
		if r.header.Get(name) == "" {
			r.t.Errorf("%s: the answer has no header %s", r.what, name)
		}
	}
	if bytes.Contains(r.body, []byte("SQLSTATE")) || bytes.Contains(r.body, []byte("constraint")) {
		r.t.Errorf("%s: the answer repeats what the database said: %s", r.what, r.body)
	}
	return r
}

// wantProblem checks the status and the form of a problem document, and answers it.
func (r *response) wantProblem(kind problem.Kind) problemDocument {
	r.t.Helper()
	r.want(kind.Status())
	var d problemDocument
	r.decode(&d)
	if got, want := r.header.Get("Content-Type"), problem.ContentType; got != want {
		r.t.Errorf("%s: Content-Type is %q, want %q", r.what, got, want)
	}
	if d.Type != problem.TypePrefix+string(kind) || d.Status != kind.Status() || d.Detail == "" || d.Title == "" {
		r.t.Errorf("%s: not a problem document of kind %s: %s", r.what, kind, r.body)
	}
	if d.Lineage == "" || d.Lineage != r.header.Get(client.LineageHeader) {
		r.t.Errorf("%s: the document's lineage is %q, the header's %q", r.what, d.Lineage, r.header.Get(client.LineageHeader))
	}
	return d
}

// problemDocument is a problem document as a client reads it.
type problemDocument struct {
	Type, Title, Detail, Lineage string
	Status                       int
	Errors                       []problem.Field
	Dependants                   []client.Candidate
	Count                        int64 `json:"dependants_count"`
	Version                      int64
	Resource                     string
	ETag                         string
}

// says checks that the document says something of a location.
func (d problemDocument) says(t testing.TB, location, part string) {
	t.Helper()
	for _, f := range d.Errors {
		if f.Location == location && strings.Contains(f.Message, part) {
			return
		}
	}
	t.Errorf("no error at %s contains %q: %s %+v", location, part, d.Detail, d.Errors)
}

func (r *response) decode(out any) {
	r.t.Helper()
	if err := json.Unmarshal(r.body, out); err != nil {
		r.t.Fatalf("%s: %v: %s", r.what, err, r.body)
	}
}

// as decodes the body of an answer.
func as[T any](r *response) (out T) {
	r.t.Helper()
	r.decode(&out)
	return out
}

func check(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// waitFor waits for what another goroutine or process brings about.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited 20 s for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// logCapture collects the log of every Registry of the tests.
type logCapture struct {
	mu    sync.Mutex
	text  bytes.Buffer
	known []string
}

// capturedLog is what TestMain searches for secrets in the end.
var capturedLog = &logCapture{}

func (l *logCapture) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// secrets are what may never be in the log.
func (l *logCapture) secrets(s ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = append(l.known, s...)
}

func (l *logCapture) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// leaked is the first secret that is in the log.
func (l *logCapture) leaked() string {
	text := l.String()
	for _, secret := range l.known {
		// The part after the public id is what is secret.
		if strings.Contains(text, secret[len(tokenPrefix)+publicIDLength:][:20]) {
			return secret
		}
	}
	return ""
}

func TestMain(m *testing.M) {
	code := m.Run()
	if secret := capturedLog.leaked(); secret != "" {
		println("a token is in the log of the tests:", secret)
		code = 1
	}
	os.Exit(code)
}
