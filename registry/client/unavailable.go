package client

import (
	"errors"
	"fmt"
)

// Reason says why the Registry counts as unavailable.
type Reason string

// The reasons.
const (
	// Unreachable: no connection, no answer in time, or one that broke off.
	Unreachable Reason = "unreachable"
	// Failing: the Registry answers, and says that it cannot serve (5xx).
	Failing Reason = "failing"
	// NotRegistry: what answers does not prove to be the Registry: no lineage,
	// another media type, a body that the Registry would not write.
	NotRegistry Reason = "not the registry"
	// ForeignLineage: the Registry serves another history than the one asked for.
	ForeignLineage Reason = "foreign lineage"
	// Refused: the Registry refuses the call (a token, an argument); it states
	// nothing about the resource.
	Refused Reason = "refused"
)

// UnavailableError says that nothing is known: absence of an answer is never
// the absence of a resource. With ForeignLineage, errors.As finds a *LineageError.
type UnavailableError struct {
	Reason Reason
	Detail string
	cause  error
}

func (e *UnavailableError) Error() string {
	return "the Registry is unavailable (" + string(e.Reason) + "): " + e.Detail
}

// Unwrap is the cause.
func (e *UnavailableError) Unwrap() error { return e.cause }

func (e *UnavailableError) because(cause error) *UnavailableError {
	e.cause = cause
	return e
}

func unavailable(reason Reason, call call, format string, args ...any) *UnavailableError {
	return &UnavailableError{Reason: reason, Detail: call.method + " " + call.path + ": " + fmt.Sprintf(format, args...)}
}

// LineageError says that the Registry serves another lineage than the one that
// the caller's versions belong to: it must scan before it takes anything.
type LineageError struct {
	Expected string
	Served   string
}

func (e *LineageError) Error() string {
	return "the Registry serves lineage " + e.Served + ", not " + e.Expected
}

func foreign(call call, expected, served string) error {
	err := &LineageError{Expected: expected, Served: served}
	return unavailable(ForeignLineage, call, "%v", err).because(err)
}

// ReasonOf is the reason of an *UnavailableError inside err, else empty.
func ReasonOf(err error) Reason {
	var e *UnavailableError
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}
