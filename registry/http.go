package registry

// How an operation is added to the API.
//
// A file of one noun has a function such as
//
//	func (s *service) prefixRoutes() {
//		register(s, operation{
//			method: http.MethodGet, path: "/v1/prefixes/{id}", id: "get-prefix", tag: "prefixes",
//			summary: "Read a prefix", needs: readNouns,
//			problems: []problem.Kind{problem.NotFound, problem.Deleted},
//		}, s.getPrefix)
//	}
//
// which newService calls. The handler has huma's form, func(ctx, *Input) (*Output,
// error): Input's fields have the tags path, query, header or the name Body;
// embedded structs must be exported to be seen. It returns a *problem.Error for
// what the client did, and any other error for what went wrong inside; register
// adds lineage and request id, logs what is internal, and documents it all.
//
// Inside of a handler:
//
//   - s.read(ctx, func(ctx, tx) error) gives one REPEATABLE READ snapshot; its
//     tx.Lineage and tx.At (the database's clock) belong to that snapshot.
//   - s.write(ctx, func(ctx, tx) error) gives a transaction whose actor, token and
//     request id the triggers see. It runs again when PostgreSQL asks for it, so
//     the function keeps nothing from an earlier try. Several aggregates: first
//     tx.lockLanes, then rows in id order. Errors of constraints come back as
//     problem errors (constraints.go).
//   - mutate (mutate.go) is write with the conventions of nouns: reason, dry_run,
//     Idempotency-Key, ETag, HubN-Produced.
//   - callOf(ctx).principal is who asks; principal.mayActAs(module) guards what a
//     module does in its own name.
//   - SQL that does not vary is a const: statements_test.go prepares each of them.
//
// Types for input that is parsed once are in values.go (Prefix, Network, Address,
// ASN, HostName); they never fail to decode, so that check can list every bad field.

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/redis/go-redis/v9"

	"hubn/app/problem"
	"hubn/app/seal"
	"hubn/outbox/event"
	"hubn/registry/client"
)

// defaultBodyTimeout bounds how long a request's body may take to come: 4 MiB over
// a line of 1 Mbit/s.
const defaultBodyTimeout = 35 * time.Second

// service is the HTTP API over the database.
type service struct {
	settings       Settings
	databaseURL    string
	redis          redis.UniversalClient
	names          event.Names
	seal           *seal.Keyring
	ownNameservers []string
	eventRetention time.Duration // of the outbox
	importSlots    chan struct{} // one taken for each import whose objects are in memory
	log            *slog.Logger
	clock          func() time.Time
	metrics        *metrics

	db      atomic.Pointer[database] // nil while it does not run
	lineage text                     // the newest that this process has seen
	trouble text                     // what maintenance could not do; empty when all is well
	wake    *wake
	static  staticTokens
	logins  *loginLimiter
	counter stateCounter

	publicQueries *queryLimiter
	whoisAddress  text // where whois listens

	mux   *http.ServeMux
	api   huma.API
	needs map[string]permission // of every operation

	jobs      *bulkJobs
	nounTable map[client.Kind]noun

	bodyTimeout time.Duration
}

func newService(o Options) *service {
	s := &service{
		settings:       o.Settings,
		databaseURL:    o.DatabaseURL,
		redis:          o.Redis,
		names:          o.Names,
		seal:           o.Seal,
		ownNameservers: o.OwnNameservers,
		eventRetention: o.OutboxRetention,
		importSlots:    make(chan struct{}, importsAtOnce),
		log:            o.Log,
		clock:          o.Clock,
		metrics:        newMetrics(o.Metrics),
		static:         newStaticTokens(o.StaticTokens),
		logins:         newLoginLimiter(o.Settings.LoginFailuresPerMinute, o.Clock),
		publicQueries:  newQueryLimiter(o.Settings.PublicQueriesPerMinute, o.Clock),
		mux:            http.NewServeMux(),
		needs:          map[string]permission{},
		bodyTimeout:    defaultBodyTimeout,
	}
	s.wake = newWake(o.Redis, o.Names.Wake(), o.Log, s.metrics.hints)
	s.api = newAPI(s.mux, o.Version)
	for _, routes := range s.routes() {
		routes()
	}
	s.serveDocuments()
	return s
}

// routes is the one table of what the API consists of.
func (s *service) routes() []func() {
	return []func(){
		s.organisationRoutes,
		s.asnRoutes,
		s.prefixRoutes,
		s.allocationRoutes,
		s.ptrRoutes,
		s.anycastRoutes,
		s.authorityRoutes,
		s.certificateRoutes,
		s.revocationRoutes,
		s.sessionRoutes,
		s.passwordRoutes,
		s.tokenRoutes,
		s.grantRoutes,
		s.sourceRoutes,
		s.scanRoutes,
		s.tupleRoutes,
		s.lineageRoutes,
		s.reportRoutes,
		s.observationRoutes,
		s.moduleRoutes,
		s.commandRoutes,
		s.barrierRoutes,
		s.leaseRoutes,
		s.stateRoutes,
		s.traceRoutes,
		s.changeRoutes,
		s.historyRoutes,
		s.revertRoutes,
		s.countRoutes,
		s.resolveRoutes,
		s.outboxRoutes,
		s.importRoutes,
		s.exportRoutes,
		s.rdapRoutes,
		s.rpslRoutes,
		s.bulkRoutes,
		s.bulkExportRoutes,
		s.transactionRoutes,
	}
}

// newAPI makes the API without what huma would add: pages that load scripts
// from elsewhere, and a $schema member in every body.
func newAPI(mux *http.ServeMux, version string) huma.API {
	if version == "" {
		version = "development"
	}
	config := huma.DefaultConfig("HubN Registry", version)
	config.CreateHooks = nil
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	config.RejectUnknownQueryParameters = true
	config.Info.Description = "Allocations and what ought to be true of them. Errors are problem documents (RFC 9457); " +
		"every answer carries the lineage in the header " + client.LineageHeader + ". " +
		"What is public of it is answered at /rdap as well, without a token, by RFC 9082 and RFC 9083."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token of HubN: hubn_…"},
	}
	types := config.Components.Schemas
	types.RegisterTypeAlias(reflect.TypeFor[netip.Prefix](), reflect.TypeFor[Prefix]())
	types.RegisterTypeAlias(reflect.TypeFor[netip.Addr](), reflect.TypeFor[Address]())
	types.RegisterTypeAlias(reflect.TypeFor[client.ASN](), reflect.TypeFor[asNumber]())
	return humago.New(mux, config)
}

// operation describes one operation of the API.
type operation struct {
	method, path string
	id, summary  string // id is OpenAPI's operationId
	description  string
	tag          string
	// needs is the permission that the caller must have.
	needs permission
	// status is that of success; 0 is 200, or 204 where the output has no body.
	status int
	// problems are the kinds that this operation answers, besides those that
	// every operation may answer.
	problems []problem.Kind
	// maxBody bounds the request's body; 0 is the setting, -1 no bound.
	maxBody int64
	// bodyTimeout bounds reading the body; 0 is the usual bound, -1 none.
	bodyTimeout time.Duration
	// unlogged operations are so frequent that only their failures are logged.
	unlogged bool
	// body describes a request's body that the handler decodes itself.
	body *huma.RequestBody
}

// everywhere are the kinds of problem that every operation may answer.
var everywhere = []problem.Kind{problem.Malformed, problem.Unauthenticated, problem.Forbidden, problem.Invalid,
	problem.RateLimited, problem.Internal, problem.Unavailable}

// register adds an operation to the API.
func register[I, O any](s *service, o operation, handler func(context.Context, *I) (*O, error)) {
	if _, known := access[o.needs]; !known {
		panic("registry: operation " + o.id + " needs no known permission")
	}
	s.needs[o.id] = o.needs
	if o.maxBody == 0 {
		o.maxBody = s.settings.MaxBodyBytes
	}
	var codes []int
	for _, kind := range slices.Concat(o.problems, everywhere) {
		codes = append(codes, kind.Status())
	}
	op := huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Summary: o.summary, Description: o.description,
		DefaultStatus: o.status, MaxBodyBytes: o.maxBody, BodyReadTimeout: -1, // entry bounds it
		Errors: codes, RequestBody: o.body, SkipValidateBody: o.body != nil,
		Security:    []map[string][]string{{"token": {}}},
		Extensions:  map[string]any{"x-hubn-permission": string(o.needs)},
		Middlewares: huma.Middlewares{s.entry(o)},
	}
	if o.tag != "" {
		op.Tags = []string{o.tag}
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, s.document(ctx, err)
		}
		return out, nil
	})
}

// entry admits callers that have the operation's permission.
func (s *service) entry(o operation) func(huma.Context, func(huma.Context)) {
	return func(h huma.Context, next func(huma.Context)) {
		c := callOf(h.Context())
		c.operation, c.unlogged = o.id, o.unlogged
		if err := c.principal.allow(o.needs); err != nil {
			_, w := humago.Unwrap(h)
			s.refuse(w, c, err)
			return
		}
		r, w := humago.Unwrap(h)
		if err := checkCharacters(r.URL); err != nil {
			s.refuse(w, c, err)
			return
		}
		s.boundBody(w, r, o.bodyTimeout)
		next(h)
	}
}

// boundBody ends a request whose body does not come. The deadline is the
// connection's: it is lifted when the body is read, or it would end a handler that
// works longer than that.
func (s *service) boundBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if timeout == 0 {
		timeout = s.bodyTimeout
	}
	if timeout < 0 || r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = &timedBody{ReadCloser: r.Body, connection: http.NewResponseController(w), timeout: timeout}
}

// timedBody sets the connection's deadline when the body is first read, after huma
// has lifted every other, and lifts it at the body's end.
type timedBody struct {
	io.ReadCloser
	connection *http.ResponseController
	timeout    time.Duration
	begun      bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	// A writer without deadlines is that of a test, which needs none.
	if !b.begun {
		b.begun = true
		_ = b.connection.SetReadDeadline(time.Now().Add(b.timeout))
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// serveDocuments adds the OpenAPI document and its page.
func (s *service) serveDocuments() {
	document, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		panic("registry: the OpenAPI document: " + err.Error()) // a type without a JSON form
	}
	serve := func(pattern, media string, content []byte) {
		s.mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			_, _ = w.Write(content)
		})
	}
	serve("/openapi.json", "application/openapi+json", document)
	serve("/docs", "text/html; charset=utf-8", docsPage)
}

// text is a string that one goroutine sets and others read.
type text struct{ p atomic.Pointer[string] }

func (t *text) set(s string) { t.p.Store(&s) }
func (t *text) get() string {
	if s := t.p.Load(); s != nil {
		return *s
	}
	return ""
}
