package registry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

// call is what is known of one request.
type call struct {
	service   *service
	requestID string
	principal principal
	operation string
	unlogged  bool
	// lineage is that of the snapshot which the answer was read in.
	lineage string
	// cause is the internal error behind a 500, for the log.
	cause error
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		panic("registry: no call in this context")
	}
	return c
}

// ServeHTTP answers one request: it gives it an id, authenticates it, and logs it.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := s.clock()
	c := &call{service: s, requestID: requestID(r)}
	out := &answerWriter{ResponseWriter: w, service: s, call: c}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { // a stream that cannot be ended well
				s.logRequest(r, out, s.clock().Sub(begun))
				panic(p)
			}
			c.cause = fmt.Errorf("panic: %v", p)
			s.log.Error("a handler panicked", "panic", p, "request_id", c.requestID, "stack", stack())
			if out.status == 0 {
				s.refuse(out, c, c.cause)
			}
		}
		s.logRequest(r, out, s.clock().Sub(begun))
	}()
	s.serve(out, r, c)
}

func (s *service) serve(w http.ResponseWriter, r *http.Request, c *call) {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		if s.db.Load() == nil {
			s.refuse(w, c, starting())
			return
		}
		p, err := s.authenticate(r)
		if err != nil {
			s.refuse(w, c, err)
			return
		}
		c.principal = p
	}
	handler, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.refuse(w, c, unrouted(handler, w, r))
		return
	}
	// Handler is asked for the pattern only: it does not set path values.
	s.mux.ServeHTTP(w, r)
}

// unrouted is the problem of a request that no operation takes: ServeMux's own
// answer tells a wrong method from a wrong path.
func unrouted(handler http.Handler, w http.ResponseWriter, r *http.Request) *problem.Error {
	probe := &statusProbe{header: http.Header{}}
	handler.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		return problem.New(problem.MethodNotAllowed, "%s takes %s, not %s", redact(r.URL.Path), allow, r.Method)
	}
	return problem.New(problem.NotFound, "there is nothing at %s; /openapi.json lists what there is", redact(r.URL.Path))
}

// statusProbe takes the status and headers of an answer that is not sent.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }

// answerWriter adds the headers of every answer when it begins.
type answerWriter struct {
	http.ResponseWriter
	service *service
	call    *call
	status  int
	bytes   int64
}

func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		h := w.Header()
		h.Set(client.LineageHeader, w.service.answerLineage(w.call))
		h.Set("X-Request-Id", w.call.requestID)
		h.Set("X-Content-Type-Options", "nosniff")
		if h.Get("Cache-Control") == "" {
			h.Set("Cache-Control", "no-store")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach deadlines and Flush.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush sends what a stream has written so far; the headers of every answer too
// where that is nothing yet.
func (w *answerWriter) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// answerLineage is the lineage of the answer's snapshot, or the newest known.
func (s *service) answerLineage(c *call) string {
	if c.lineage != "" {
		return c.lineage
	}
	return s.lineage.get()
}

func (s *service) logRequest(r *http.Request, w *answerWriter, took time.Duration) {
	c := w.call
	s.metrics.request(c.operation, w.status, took)
	level := slog.LevelDebug
	switch {
	case w.status >= 500:
		level = slog.LevelError
	case w.status >= 400 || r.Method != http.MethodGet && !c.unlogged:
		level = slog.LevelInfo
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []any{"method", r.Method, "path", redact(r.URL.Path), "status", w.status, "bytes", w.bytes,
		"took", took, "actor", c.principal.Name, "remote", r.RemoteAddr, "request_id", c.requestID}
	if c.cause != nil {
		attrs = append(attrs, "error", redact(c.cause.Error()))
	}
	s.log.Log(r.Context(), level, "request", attrs...)
}

// redact removes whatever looks like a token of HubN: people paste them
// everywhere. Query strings are never logged.
func redact(s string) string {
	if !strings.Contains(s, tokenPrefix) {
		return s
	}
	return secretPattern.ReplaceAllString(s, tokenPrefix+"[redacted]")
}

var (
	secretPattern    = regexp.MustCompile(tokenPrefix + `[A-Za-z0-9]+`)
	requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)
)

// requestID is the one that the client gave, or a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDPattern.MatchString(id) {
		return redact(id)
	}
	return newRequestID()
}

func newRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
