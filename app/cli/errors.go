package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"hubn/app/problem"
	"hubn/registry/client"
)

// explain turns an error of a call into what the person at the terminal is
// told: what is wrong, with which value, and what to do.
func (c *Connection) explain(err error) error { return explain(c.url, err) }

func explain(url string, err error) error {
	var p *problem.Error
	var already explained
	switch {
	case err == nil || errors.As(err, &already):
		return err
	case client.ReasonOf(err) == client.Unreachable:
		return explained{fmt.Sprintf("no Registry answers at %s: %s\nStart one with `hubn dev` or `hubn serve`, or name another with --url.", url, causeOf(err)), err}
	case client.ReasonOf(err) == client.NotRegistry:
		return explained{fmt.Sprintf("what answers at %s is not a Registry of HubN: %v\nCheck --url.", url, err), err}
	case client.ReasonOf(err) == client.Failing:
		return explained{fmt.Sprintf("the Registry at %s cannot serve now: %s\nIts log and `hubn status` say more.", url, causeOf(err)), err}
	case errors.As(err, &p):
		return explained{problemText(p), err}
	}
	return err
}

// causeOf is the innermost text of an unavailable Registry.
func causeOf(err error) string {
	var u *client.UnavailableError
	if errors.As(err, &u) {
		return u.Detail
	}
	return err.Error()
}

// explained is an error with a text for people.
type explained struct {
	text string
	error
}

// Error is the text.
func (e explained) Error() string { return e.text }

// Unwrap is the error behind it.
func (e explained) Unwrap() error { return e.error }

// problemText is a problem document in lines: the detail, then each field at
// fault with its value, then what else it says.
func problemText(p *problem.Error) string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(p.Detail, ": see errors"))
	for _, f := range p.Fields {
		if f.Message == p.Detail && (f.Value == nil || strings.Contains(p.Detail, fmt.Sprint(f.Value))) {
			continue
		}
		fmt.Fprintf(&b, "\n  %s: %s", fieldName(f.Location), f.Message)
		if f.Value != nil && !strings.Contains(f.Message, fmt.Sprint(f.Value)) {
			fmt.Fprintf(&b, " (got %v)", f.Value)
		}
	}
	if dependants, ok := p.Extra["dependants"].([]any); ok {
		for _, d := range dependants {
			fmt.Fprintf(&b, "\n  %s", dependantText(d))
		}
	}
	if advice := adviceOf(p.Kind); advice != "" {
		b.WriteString("\n" + advice)
	}
	if id, ok := p.Extra["request_id"].(string); ok && p.Kind == problem.Internal {
		fmt.Fprintf(&b, "\nThe Registry's log has the cause under request id %s.", id)
	}
	return b.String()
}

// fieldName is a location as the flag's user knows it: without "body.".
func fieldName(location string) string {
	for _, prefix := range []string{"body.", "query.", "path.", "header."} {
		if name, ok := strings.CutPrefix(location, prefix); ok {
			return name
		}
	}
	return location
}

// dependantText is one resource that hangs on another.
func dependantText(d any) string {
	members, ok := d.(map[string]any)
	if !ok {
		return fmt.Sprint(d)
	}
	if label, ok := members["label"]; ok && members["resource"] != nil {
		return fmt.Sprintf("%v (%v)", members["resource"], label)
	}
	var parts []string
	for name, value := range members {
		parts = append(parts, fmt.Sprintf("%s %v", name, value))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// adviceOf is the way out that holds for every problem of a kind.
func adviceOf(kind problem.Kind) string {
	switch kind {
	case problem.Unauthenticated:
		return "Give a token with --token or HUBN_TOKEN; `hubn token create` makes one."
	case problem.Stale:
		return "Somebody changed it meanwhile: look at it again, then repeat the command."
	}
	return ""
}
