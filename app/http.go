package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hubn/app/module"
	"hubn/app/problem"
)

const (
	// readHeaderTimeout ends connections that open a request and do not go on.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout is longer than the pause between two polls of any client of ours.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is far above any request of the API: a token, an ETag.
	maxHeaderBytes = 32 << 10
	// closeTimeout is how long requests in progress may take once the listener
	// is closed; they are cut off after that.
	closeTimeout = 5 * time.Second
)

// front is the one HTTP server of a process, as a module: its own endpoints, and
// the handlers of the modules that are up.
type front struct {
	address     func() (string, error)
	certificate *certificate
	house       *house
	log         *slog.Logger
	// listening is told the address once it listens.
	listening func(net.Addr)
}

// Name is the front's name in the table of modules.
func (f *front) Name() string { return nameHTTP }

// Status says that it listens; a front that does not is not ready at all.
func (f *front) Status() module.Status { return module.Status{Ready: true} }

// Run listens until ctx is done, then lets requests in progress end.
func (f *front) Run(ctx context.Context, ready func()) error {
	address, err := f.address()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w: %s", err, listenAdvice(err))
	}
	f.listening(listener.Addr())
	server := &http.Server{
		Handler:           recoverPanics(f.house, f.log),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(f.log.Handler(), slog.LevelDebug), // clients that went away, failed handshakes
	}
	ended := make(chan error, 1)
	go func() {
		if f.certificate != nil {
			server.TLSConfig = f.certificate.config()
			ended <- server.ServeTLS(listener, "", "")
			return
		}
		ended <- server.Serve(listener)
	}()
	ready()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		f.log.Warn("requests were cut off at the end", "after", closeTimeout)
		return server.Close()
	}
	return nil
}

// listenAdvice is what to do about an address that cannot be listened at.
func listenAdvice(err error) string {
	var unresolved *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what has this address, or choose another with --listen HOST:PORT (one that was chosen before is kept in the data folder's " + portsFile + ")"
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, &unresolved) && !strings.HasPrefix(unresolved.Name, "tcp/"): // which is a port
		return "choose an address of this machine with --listen HOST:PORT; 127.0.0.1 is reached from here alone, 0.0.0.0 or [::] from everywhere"
	case errors.Is(err, syscall.EACCES):
		return "choose a port above 1023 with --listen HOST:PORT, or give hubn the capability CAP_NET_BIND_SERVICE"
	}
	return "write --listen HOST:PORT with a port from 0 to 65535, such as " + DefaultListen
}

// recoverPanics turns a handler's panic into a bare 500 and a line in the log.
func recoverPanics(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // a handler's way to cut the connection
			}
			log.Error("a request panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			problem.Write(w, fmt.Errorf("panic: %v", p), nil)
		}()
		next.ServeHTTP(w, r)
	})
}

// house answers HTTP for the whole process.
type house struct {
	units   []*unit
	started time.Time
	// stopping is set when the process begins to shut down: not ready, whatever
	// the modules say.
	stopping atomic.Bool
	metrics  *prometheus.Registry
	tokens   [][sha256.Size]byte
}

// ServeHTTP answers the process's own paths, and passes the rest to the module
// that has the path.
func (h *house) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		_, _ = w.Write([]byte("ok\n"))
	case "/readyz":
		h.readyz(w)
	case "/status":
		h.guarded(w, r, h.status)
	case "/metrics":
		h.guarded(w, r, promhttp.HandlerFor(h.gatherers(), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP)
	default:
		h.passOn(w, r)
	}
}

// passOn gives a request to the module that has its path: 503 while that is not
// up, since a 404 would say that there is no such resource.
func (h *house) passOn(w http.ResponseWriter, r *http.Request) {
	var starting []string
	for _, u := range h.units {
		current := u.instance.Load()
		if current == nil {
			starting = append(starting, u.name)
			continue
		}
		server, ok := current.module.(module.Server)
		if !ok || !hasRoute(server.Routes(), r.URL.Path) {
			continue
		}
		if !current.serving.Load() {
			unavailable(w, fmt.Sprintf("module %s is not up: %s", u.name, u.status().Reason))
			return
		}
		server.ServeHTTP(w, r)
		return
	}
	if len(starting) > 0 {
		unavailable(w, "starting: "+strings.Join(starting, ", "))
		return
	}
	problem.Write(w, problem.New(problem.NotFound, "no module of this process answers %s", r.URL.Path), nil)
}

func unavailable(w http.ResponseWriter, reason string) {
	w.Header().Set("Retry-After", "1")
	problem.Write(w, problem.New(problem.Unavailable, "%s", reason), nil)
}

// hasRoute tells whether a path is one of the routes, or below one that ends in "/".
func hasRoute(routes []string, path string) bool {
	for _, route := range routes {
		if path == route || strings.HasSuffix(route, "/") && strings.HasPrefix(path, route) {
			return true
		}
	}
	return false
}

// readiness is the body of /readyz.
type readiness struct {
	Ready bool `json:"ready"`
	// Modules holds "ready" for each module, or why it is not.
	Modules map[string]string `json:"modules"`
}

func (h *house) readiness() readiness {
	all := readiness{Ready: !h.stopping.Load(), Modules: map[string]string{}}
	for _, u := range h.units {
		st := u.status()
		all.Ready = all.Ready && st.Ready
		switch {
		case !st.Ready:
			all.Modules[u.name] = cmp.Or(st.Reason, "not ready")
		case st.Reason != "":
			all.Modules[u.name] = "ready: " + st.Reason
		default:
			all.Modules[u.name] = "ready"
		}
	}
	return all
}

func (h *house) readyz(w http.ResponseWriter) {
	all := h.readiness()
	status := http.StatusOK
	if !all.Ready {
		status = http.StatusServiceUnavailable
	}
	writeBody(w, status, all)
}

// ProcessStatus is the body of /status.
type ProcessStatus struct {
	Version string         `json:"version"`
	Started time.Time      `json:"started"`
	Ready   bool           `json:"ready"`
	Modules []ModuleStatus `json:"modules"`
}

// ModuleStatus is one module in ProcessStatus, in the order of their start.
type ModuleStatus struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Restarts int64  `json:"restarts"`
	module.Status
}

func (h *house) status(w http.ResponseWriter, _ *http.Request) {
	body := ProcessStatus{Version: version(), Started: h.started, Ready: h.readiness().Ready}
	for _, u := range h.units {
		body.Modules = append(body.Modules, ModuleStatus{
			Name: u.name, State: string(u.now().state), Restarts: u.restarts.Load(), Status: u.status(),
		})
	}
	writeBody(w, http.StatusOK, body)
}

func writeBody(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that went away
}

// guarded lets a request through that carries one of the process's tokens.
func (h *house) guarded(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	known := 0
	for _, t := range h.tokens {
		known |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	if !strings.EqualFold(scheme, "Bearer") || known == 0 { // in any case (RFC 9110 section 11.1)
		w.Header().Set("WWW-Authenticate", "Bearer")
		problem.Write(w, problem.New(problem.Unauthenticated,
			"%s needs the token in admin_token_file or metrics_token_file, as Authorization: Bearer TOKEN", r.URL.Path), nil)
		return
	}
	next(w, r)
}

// gatherers are the process's metrics and those of every module's current instance.
func (h *house) gatherers() prometheus.Gatherers {
	all := prometheus.Gatherers{h.metrics}
	for _, u := range h.units {
		if m := u.metrics.Load(); m != nil {
			all = append(all, m)
		}
	}
	return all
}
