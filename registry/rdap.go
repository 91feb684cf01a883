package registry

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"hubn/app/problem"
	"hubn/registry/rdap"
)

// RDAP (RFC 9082, RFC 9083) and whois (RFC 3912) answer without a token: what they
// say of networks is public. A token that may read the registry shows how to reach
// the holders as well, and may search.

// rdapPath is where RDAP answers. It is no part of the OpenAPI document: RFC 9082
// and RFC 9083 describe it.
const rdapPath = "/rdap/"

func (s *service) rdapRoutes() {
	if s.settings.RDAP {
		s.mux.HandleFunc(rdapPath, s.serveRDAP)
	}
}

// asking is one question to RDAP or whois.
type asking struct {
	service *service
	writer  *rdap.Writer
	// trusted callers have a token that may read the registry.
	trusted bool
}

// serveRDAP answers one request.
func (s *service) serveRDAP(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	c.operation = "rdap"
	q := &asking{service: s, writer: &rdap.Writer{Base: s.rdapBase(r), Terms: s.settings.RDAPTerms}}
	q.writer.Request = q.writer.Base + strings.TrimPrefix(r.URL.EscapedPath(), rdapPath)
	w.Header().Set("Access-Control-Allow-Origin", "*") // RFC 7480 section 5.6
	status := http.StatusOK
	var document any
	err := q.admit(w, r)
	if err == nil {
		document, err = q.answer(r)
	}
	if err != nil {
		e := problem.Of(databaseProblem(err))
		if e.Kind == problem.Internal || e.Kind == problem.Unavailable {
			c.cause = e.Unwrap()
		}
		status = rdapStatus(e)
		rdapHeaders(w.Header(), e)
		document = q.writer.Error(status, e.Detail)
	}
	writeRDAP(w, c, status, document)
}

func writeRDAP(w http.ResponseWriter, c *call, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		c.cause, status = err, http.StatusInternalServerError
		body = []byte(`{"rdapConformance":["rdap_level_0"],"errorCode":500,"title":"Internal Server Error","description":[]}`)
	}
	w.Header().Set("Content-Type", rdap.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// rdapBase is the URL that the paths of RDAP's objects are below.
func (s *service) rdapBase(r *http.Request) string {
	if s.settings.RDAPURL != "" {
		return strings.TrimRight(s.settings.RDAPURL, "/") + "/"
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host + rdapPath
}

// rdapStatus is the HTTP status of a problem (RFC 7480 section 5): what cannot be
// asked is 400, and what nobody answers here 501 (RFC 9082 section 3).
func rdapStatus(e *problem.Error) int {
	switch {
	case e.Extra["unsupported"] == true:
		return http.StatusNotImplemented
	case e.Kind == problem.Invalid:
		return http.StatusBadRequest
	case e.Kind == problem.Deleted:
		return http.StatusNotFound
	}
	return e.Kind.Status()
}

func rdapHeaders(h http.Header, e *problem.Error) {
	switch e.Kind {
	case problem.Unauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="HubN"`)
	case problem.RateLimited:
		h.Set("Retry-After", "60")
	case problem.Unavailable:
		h.Set("Retry-After", "1")
	}
}

// admit takes the caller's token, if there is one, and counts the questions of
// callers without.
func (q *asking) admit(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return problem.New(problem.MethodNotAllowed, "RDAP takes GET and HEAD, not %s", r.Method)
	}
	if r.Header.Get("Authorization") != "" || holdsSecret(r.URL) {
		p, err := q.service.authenticate(r)
		if err != nil {
			return err
		}
		callOf(r.Context()).principal = p
		q.trusted = p.may(readNouns)
		q.writer.Contacts = func(organisation int64) bool {
			return p.mayOn(readContacts, target{organisations: []int64{organisation}})
		}
		if q.trusted {
			return nil
		}
	}
	return q.service.publicQueries.admit(remoteAddress(r))
}

// answer is the document of the path (RFC 9082 section 3).
func (q *asking) answer(r *http.Request) (any, error) {
	kind, value, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, rdapPath), "/")
	switch kind {
	case "", "help":
		return q.help(), nil
	case rdap.LookupIP, rdap.LookupAutnum, rdap.LookupEntity, rdap.LookupDomain, rdap.LookupNameserver:
		if value == "" {
			return nil, problem.New(problem.Invalid, "%s%s names nothing: write %s%s/ and what you look for", rdapPath, kind, rdapPath, kind)
		}
		return q.lookup(r.Context(), rdap.Query{Type: kind, Value: value})
	case "domains", "nameservers", "entities":
		return q.search(r.Context(), kind, r.URL.Query())
	}
	return nil, unsupported("there is no lookup of %q here: %shelp says what there is", kind, rdapPath)
}

// unsupported is the problem of a question that RDAP knows and this service does not.
func unsupported(format string, args ...any) error {
	return problem.New(problem.Invalid, format, args...).With("unsupported", true)
}

func (q *asking) help() any {
	base := q.writer.Base
	return q.writer.Help(
		rdap.Notice{Title: "Lookups", Description: []string{
			base + "ip/ADDRESS or PREFIX: the most specific network that contains it",
			base + "autnum/NUMBER",
			base + "entity/HANDLE: an organisation, with the networks and AS numbers that it holds",
			base + "domain/NAME: the reverse zone that the name lies in (in-addr.arpa, ip6.arpa)",
			base + "nameserver/NAME: a name server of reverse zones",
		}, Links: []rdap.Link{{Value: q.writer.Request, Rel: "describedby", Href: "https://www.rfc-editor.org/rfc/rfc9082", Type: "text/html"}}},
		rdap.Notice{Title: "Searches", Description: []string{
			"With a token that may read the registry, as Authorization: Bearer hubn_…:",
			base + "entities?handle=PATTERN or entities?fn=PATTERN, with * at the end",
			base + "domains?name=NAME or *.NAME, and domains?nsLdhName=NAME",
			base + "nameservers?name=NAME",
		}},
		rdap.Notice{Title: "Redaction", Description: []string{
			"How to reach a holder is left out (RFC 9537) for callers without such a token."}},
		rdap.Notice{Title: "Limits", Description: []string{
			"Callers without such a token may ask " + strconv.Itoa(q.service.settings.PublicQueriesPerMinute) + " times a minute."}},
	)
}
