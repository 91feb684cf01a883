// Package problem is the closed list of error kinds that cross a boundary in
// HubN, and their form on the wire: problem documents (RFC 9457). It is a leaf:
// it imports nothing of the project.
//
// A message says what is wrong, with which value, and what to do about it. An
// error that is not a *problem.Error becomes a bare 500 whose cause is logged
// and never shown.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Kind is one of the error kinds below; the list is closed.
type Kind string

// The kinds, each with its one HTTP status.
const (
	// Invalid: the request cannot be carried out as it is written (422).
	Invalid Kind = "invalid"
	// Malformed: the request cannot even be read (400).
	Malformed Kind = "malformed"
	// Unauthenticated: no token, or one that is not valid (401).
	Unauthenticated Kind = "unauthenticated"
	// Forbidden: the token does not allow this (403).
	Forbidden Kind = "forbidden"
	// NotFound: the Registry does not know this resource, or knows it no longer (404).
	NotFound Kind = "not-found"
	// MethodNotAllowed: the path is right, the method is not (405).
	MethodNotAllowed Kind = "method-not-allowed"
	// Deleted: the Registry knows that this resource was deleted (410); the
	// document carries lineage and last version: a tombstone.
	Deleted Kind = "deleted"
	// Conflict: the request contradicts what is stored (409).
	Conflict Kind = "conflict"
	// Stale: the resource changed since the client read it (412).
	Stale Kind = "stale"
	// PreconditionRequired: a change needs If-Match (428).
	PreconditionRequired Kind = "precondition-required"
	// TooLarge: the request exceeds a stated bound (413).
	TooLarge Kind = "too-large"
	// RateLimited: too many requests or failures (429).
	RateLimited Kind = "rate-limited"
	// Unavailable: a part that this needs cannot be reached now (503).
	Unavailable Kind = "unavailable"
	// Internal: a fault of HubN; the cause is in the log only (500).
	Internal Kind = "internal"
)

// TypePrefix begins the "type" member of every problem document of HubN. It is
// a relative reference (RFC 9457 section 3.1.1), so that it names no host.
const TypePrefix = "/problems/"

// ContentType is the media type of a problem document.
const ContentType = "application/problem+json"

var statuses = map[Kind]int{
	Invalid:              http.StatusUnprocessableEntity,
	Malformed:            http.StatusBadRequest,
	Unauthenticated:      http.StatusUnauthorized,
	Forbidden:            http.StatusForbidden,
	NotFound:             http.StatusNotFound,
	MethodNotAllowed:     http.StatusMethodNotAllowed,
	Deleted:              http.StatusGone,
	Conflict:             http.StatusConflict,
	Stale:                http.StatusPreconditionFailed,
	PreconditionRequired: http.StatusPreconditionRequired,
	TooLarge:             http.StatusRequestEntityTooLarge,
	RateLimited:          http.StatusTooManyRequests,
	Unavailable:          http.StatusServiceUnavailable,
	Internal:             http.StatusInternalServerError,
}

// Status is the HTTP status of the kind.
func (k Kind) Status() int {
	if s, ok := statuses[k]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// KindOfStatus is the kind that a problem document's type names, or the kind
// that has the HTTP status; Internal when neither is known.
func KindOfStatus(docType string, status int) Kind {
	k := Kind(strings.TrimPrefix(docType, TypePrefix))
	if s, ok := statuses[k]; ok && s == status {
		return k
	}
	for kind, s := range statuses {
		if s == status {
			return kind
		}
	}
	return Internal
}

// Field is one thing wrong with one part of the input.
type Field struct {
	// Location is where: "body.prefix", "query.limit", "line 12".
	Location string `json:"location"`
	// Message is what is wrong and what to do.
	Message string `json:"message"`
	// Value is the offending value as it was given.
	Value any `json:"value,omitempty"`
}

// Error is an error with a kind.
type Error struct {
	Kind   Kind
	Detail string
	Fields []Field
	// Extra are additional members of the problem document (RFC 9457 section
	// 3.2), such as the dependants of a resource or the current ETag.
	Extra map[string]any
	cause error
}

// New makes an error of a kind; format and args are its detail.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Because returns e with the cause that the log shows and the wire does not.
func (e *Error) Because(cause error) *Error {
	e.cause = cause
	return e
}

// At returns e with one more field.
func (e *Error) At(location, message string, value any) *Error {
	e.Fields = append(e.Fields, Field{Location: location, Message: message, Value: value})
	return e
}

// With returns e with one more member of the problem document.
func (e *Error) With(name string, value any) *Error {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[name] = value
	return e
}

// Error is the detail, the fields and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Detail)
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "; %s: %s", f.Location, f.Message)
		if f.Value != nil {
			fmt.Fprintf(&b, " (got %v)", f.Value)
		}
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.cause }

// Of is the *Error inside err, or an Internal one that hides err as its cause.
// Of(nil) is nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return New(Internal, "internal error; the server's log has the cause under this request id").Because(err)
}

// Is tells whether err is an *Error of the kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}

// MarshalJSON is the problem document, without the cause.
func (e *Error) MarshalJSON() ([]byte, error) {
	doc := map[string]any{}
	for k, v := range e.Extra {
		doc[k] = v
	}
	doc["type"] = TypePrefix + string(e.Kind)
	doc["title"] = http.StatusText(e.Kind.Status())
	doc["status"] = e.Kind.Status()
	doc["detail"] = e.Detail
	if len(e.Fields) > 0 {
		doc["errors"] = e.Fields
	}
	return json.Marshal(doc)
}

// Write answers a request with the problem document of err, and adds the
// members of extra (the lineage, the request id).
func Write(w http.ResponseWriter, err error, extra map[string]any) {
	e := Of(err)
	out := *e
	out.Extra = map[string]any{}
	for k, v := range e.Extra {
		out.Extra[k] = v
	}
	for k, v := range extra {
		out.Extra[k] = v
	}
	body, jsonErr := json.Marshal(&out)
	if jsonErr != nil {
		body = []byte(`{"type":"` + TypePrefix + string(Internal) + `","status":500}`)
		out.Kind = Internal
	}
	w.Header().Set("Content-Type", ContentType)
	w.WriteHeader(out.Kind.Status())
	_, _ = w.Write(append(body, '\n'))
}
