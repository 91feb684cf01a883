package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hubn/app/problem"
)

// fault is a problem under a name that leaves room for its method Error.
type fault = problem.Error

// document is a problem document in huma's terms: an error with a status.
type document struct {
	*fault
	lineage   string
	requestID string
	retry     string // Retry-After in seconds
}

var (
	_ huma.StatusError       = (*document)(nil)
	_ huma.ContentTypeFilter = (*document)(nil)
	_ huma.HeadersError      = (*document)(nil)
	_ huma.SchemaProvider    = (*document)(nil)
)

// GetStatus implements huma.StatusError.
func (d *document) GetStatus() int { return d.Kind.Status() }

// ContentType implements huma.ContentTypeFilter.
func (d *document) ContentType(string) string { return problem.ContentType }

// GetHeaders implements huma.HeadersError.
func (d *document) GetHeaders() http.Header {
	h := http.Header{}
	if d.retry != "" {
		h.Set("Retry-After", d.retry)
	}
	if etag, ok := d.Extra["etag"].(string); ok {
		h.Set("ETag", etag)
	}
	return h
}

// MarshalJSON is the problem document with lineage and request id.
func (d *document) MarshalJSON() ([]byte, error) {
	e := *d.fault
	e.Extra = map[string]any{}
	for name, value := range d.Extra {
		e.Extra[name] = value
	}
	if _, given := e.Extra["lineage"]; !given && d.lineage != "" {
		e.Extra["lineage"] = d.lineage
	}
	e.Extra["request_id"] = d.requestID
	return json.Marshal(&e)
}

// Schema implements huma.SchemaProvider.
func (d *document) Schema(r huma.Registry) *huma.Schema {
	const name = "Problem"
	if r.Map()[name] == nil {
		text := func(about string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: about} }
		field := &huma.Schema{Type: huma.TypeObject, Required: []string{"location", "message"}, Properties: map[string]*huma.Schema{
			"location": text("Where: body.prefix, query.limit"),
			"message":  text("What is wrong and what to do"),
			"value":    {Description: "The value as it was given"},
		}}
		field.AdditionalProperties = false
		r.Map()[name] = &huma.Schema{
			Type:        huma.TypeObject,
			Description: "A problem document (RFC 9457); some kinds have more members.",
			Required:    []string{"type", "title", "status", "detail"},
			Properties: map[string]*huma.Schema{
				"type":       text("The kind of problem: /problems/stale"),
				"title":      text("The HTTP status in words"),
				"status":     {Type: huma.TypeInteger},
				"detail":     text("What is wrong, with which value, and what to do"),
				"errors":     {Type: huma.TypeArray, Items: field},
				"lineage":    text("The Registry's current lineage"),
				"request_id": text("Under which the server's log has the request"),
			},
			AdditionalProperties: true,
		}
		r.Map()[name].PrecomputeMessages()
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// huma makes its own errors through these variables; the Registry is the one
// user of huma in HubN.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return &document{fault: fromHuma(status, message, errs)}
	}
	huma.NewErrorWithContext = func(h huma.Context, status int, message string, errs ...error) huma.StatusError {
		d := &document{fault: fromHuma(status, message, errs)}
		if c, ok := h.Context().Value(callKey{}).(*call); ok {
			d.requestID, d.lineage = c.requestID, c.service.answerLineage(c)
			c.cause = d.Unwrap()
		}
		return d
	}
	// Lists are never null, neither in requests nor in answers.
	huma.DefaultArrayNullable = false
}

// valueLimit is how much of an offending value an answer repeats.
const valueLimit = 200

// fromHuma is a problem of what huma found wrong with a request.
func fromHuma(status int, message string, errs []error) *problem.Error {
	kind := problem.Internal
	switch {
	case status == http.StatusUnprocessableEntity, holdsCharacters(errs):
		kind = problem.Invalid
	case status == http.StatusRequestEntityTooLarge:
		kind = problem.TooLarge
	case status >= 400 && status < 500:
		kind = problem.Malformed
	}
	if kind == problem.Internal {
		return problem.Of(errors.Join(append([]error{errors.New(message)}, errs...)...))
	}
	e := problem.New(kind, "%s", sentence(kind, message, len(errs)))
	for _, err := range errs {
		var detail *huma.ErrorDetail
		if !errors.As(err, &detail) {
			e.At("request", err.Error(), nil)
			continue
		}
		e.At(detail.Location, detail.Message, shown(detail))
	}
	e.Fields = withoutGeneric(e.Fields)
	return e
}

func sentence(kind problem.Kind, message string, faults int) string {
	switch {
	case kind == problem.Invalid && faults == 1:
		return "one value of the request cannot be taken: see errors"
	case kind == problem.Invalid:
		return "some values of the request cannot be taken: see errors"
	case message == "validation failed":
		return "the request cannot be read: see errors"
	}
	return message
}

// shown is an offending value as far as an answer repeats it; a whole body is not.
func shown(detail *huma.ErrorDetail) any {
	if detail.Location == "body" {
		return nil
	}
	switch v := detail.Value.(type) {
	case string:
		if len(v) > valueLimit {
			return v[:valueLimit] + "…"
		}
		return v
	case map[string]any, []any:
		return nil
	}
	return detail.Value
}

// withoutGeneric leaves out what huma says of a place where a type's own check
// says it better.
func withoutGeneric(fields []problem.Field) []problem.Field {
	own := map[string]bool{}
	generic := func(f problem.Field) bool { return strings.HasPrefix(f.Message, "expected value to match") }
	for _, f := range fields {
		own[f.Location] = own[f.Location] || !generic(f)
	}
	var out []problem.Field
	for _, f := range fields {
		if !generic(f) || !own[f.Location] {
			out = append(out, f)
		}
	}
	return out
}

// document is the answer to a handler's error.
func (s *service) document(ctx context.Context, err error) *document {
	c := callOf(ctx)
	e := problem.Of(databaseProblem(err))
	if cause := e.Unwrap(); e.Kind == problem.Internal || e.Kind == problem.Unavailable {
		c.cause = cause
	}
	d := &document{fault: e, lineage: s.answerLineage(c), requestID: c.requestID}
	if e.Kind == problem.RateLimited || e.Kind == problem.Unavailable {
		d.retry = "1"
	}
	return d
}

// refuse answers a request that no handler gets.
func (s *service) refuse(w http.ResponseWriter, c *call, err error) {
	e := problem.Of(databaseProblem(err))
	if e.Kind == problem.Internal || e.Kind == problem.Unavailable {
		c.cause = e.Unwrap()
	}
	switch e.Kind {
	case problem.Unauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="HubN"`)
	case problem.RateLimited:
		w.Header().Set("Retry-After", "60")
	case problem.Unavailable:
		w.Header().Set("Retry-After", "1")
	}
	problem.Write(w, e, map[string]any{"lineage": s.answerLineage(c), "request_id": c.requestID})
}

func stack() string { return string(debug.Stack()) }

// faults collects everything that is wrong with an input, to say it all at once.
type faults struct{ list []error }

// add records a fault at a location such as "body.prefix"; a nil error is none.
func (f *faults) add(location string, err error, value any) {
	if err != nil {
		f.list = append(f.list, &huma.ErrorDetail{Location: location, Message: err.Error(), Value: value})
	}
}

// problem is all that was found, or nil.
func (f *faults) problem() error {
	if len(f.list) == 0 {
		return nil
	}
	return fromHuma(http.StatusUnprocessableEntity, "", f.list)
}
