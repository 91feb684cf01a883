package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"hubn/app/problem"
)

// MaxBatch is how many sources one batch request may name.
const MaxBatch = 500

// Outcome is the one way in which a fetch ended.
type Outcome int

// The outcomes (DESIGN: absent is not unreachable). Only Present and Deleted
// may change anything.
const (
	// Unavailable: nothing is known. It is the zero value, so that a Fetched
	// which nobody filled proves nothing.
	Unavailable Outcome = iota
	// Present: the source is there, with version and body.
	Present
	// Deleted: the Registry itself states that it was deleted, with the deletion's version.
	Deleted
	// Forgotten: the Registry itself states that it does not know the source
	// (any more); acknowledge, and leave it to the scan.
	Forgotten
)

func (o Outcome) String() string {
	return [...]string{"unavailable", "present", "deleted", "forgotten"}[o]
}

// Fetched is how the fetch of one source ended. Its fields are read through
// methods, each of which says in which outcome it means something; Match makes
// a caller think of all four.
type Fetched struct {
	resource Resource
	outcome  Outcome
	version  int64
	changed  time.Time
	body     json.RawMessage
	lineage  string
	readAt   time.Time
	err      error
}

// Reading is where and when the Registry read what it answers.
type Reading struct {
	Lineage string
	At      time.Time // by the database's clock
}

// PresentSource is a fetch that found the source.
func PresentSource(r Resource, version int64, changed time.Time, body json.RawMessage, in Reading) Fetched {
	return Fetched{resource: r, outcome: Present, version: version, changed: changed, body: body, lineage: in.Lineage, readAt: in.At}
}

// DeletedSource is a fetch that found a tombstone.
func DeletedSource(r Resource, version int64, changed time.Time, in Reading) Fetched {
	return Fetched{resource: r, outcome: Deleted, version: version, changed: changed, lineage: in.Lineage, readAt: in.At}
}

// ForgottenSource is a fetch of something that the Registry does not know.
func ForgottenSource(r Resource, in Reading) Fetched {
	return Fetched{resource: r, outcome: Forgotten, lineage: in.Lineage, readAt: in.At}
}

// UnavailableSource is a fetch that proved nothing.
func UnavailableSource(r Resource, err error) Fetched {
	if err == nil {
		err = errors.New("no reason given")
	}
	return Fetched{resource: r, err: err}
}

// Resource is what was fetched.
func (f Fetched) Resource() Resource { return f.resource }

// Outcome is how it ended.
func (f Fetched) Outcome() Outcome { return f.outcome }

// Version is the version of the state, or of the deletion; 0 in the other outcomes.
func (f Fetched) Version() int64 { return f.version }

// Changed is when that version was made, by the database's clock.
func (f Fetched) Changed() time.Time { return f.changed }

// Body is the XxxSource of the kind as JSON; empty unless Present.
func (f Fetched) Body() json.RawMessage { return f.body }

// Lineage is the lineage that the version belongs to; empty when Unavailable.
func (f Fetched) Lineage() string { return f.lineage }

// ReadAt is when the Registry read it, by the database's clock.
func (f Fetched) ReadAt() time.Time { return f.readAt }

// Err is why nothing is known; nil unless Unavailable.
func (f Fetched) Err() error {
	if f.outcome == Unavailable && f.err == nil {
		return errors.New("this source was never fetched")
	}
	return f.err
}

// Decode reads the body into out; an error unless Present.
func (f Fetched) Decode(out any) error {
	if f.outcome != Present {
		return fmt.Errorf("%s is %s: it has no body", f.resource, f.outcome)
	}
	if err := json.Unmarshal(f.body, out); err != nil {
		return fmt.Errorf("%s version %d: the body cannot be read: %w", f.resource, f.version, err)
	}
	return nil
}

// Match calls the one function that stands for the outcome.
func (f Fetched) Match(
	present func(version int64, body json.RawMessage) error,
	deleted func(version int64) error,
	forgotten func() error,
	unavailable func(err error) error,
) error {
	switch f.outcome {
	case Present:
		return present(f.version, f.body)
	case Deleted:
		return deleted(f.version)
	case Forgotten:
		return forgotten()
	default:
		return unavailable(f.Err())
	}
}

// Fetch fetches one source.
func (c *Client) Fetch(ctx context.Context, r Resource) Fetched {
	path := "/v1/sources/" + url.PathEscape(string(r.Kind)) + "/" + url.PathEscape(r.Key)
	call := call{method: http.MethodGet, path: path}
	var one SourceAnswer
	got, err := c.do(ctx, call, &one)
	var p *problem.Error
	switch {
	case err == nil:
		return fetched(call, r, one.Source, Reading{one.Lineage, one.ReadAt}, got.lineage)
	case errors.As(err, &p) && ReasonOf(err) == "":
		return stated(call, r, p)
	default:
		return UnavailableSource(r, err)
	}
}

// stated reads a problem document that the Registry answers a single fetch with.
func stated(call call, r Resource, p *problem.Error) Fetched {
	lineage, _ := p.Extra["lineage"].(string)
	at, _ := p.Extra["read_at"].(string)
	readAt, err := time.Parse(time.RFC3339Nano, at)
	in := Reading{lineage, readAt}
	named, _ := p.Extra["resource"].(string)
	switch {
	case p.Kind != problem.Deleted && p.Kind != problem.NotFound:
		return UnavailableSource(r, unavailable(Refused, call, "%v", p).because(p))
	case named != r.String() || err != nil:
		// A 404 or 410 of another part of the API says nothing of this source.
		return UnavailableSource(r, unavailable(NotRegistry, call, "the answer does not name %s with read_at: %v", r, p).because(p))
	case p.Kind == problem.NotFound:
		return ForgottenSource(r, in)
	}
	version, ok := p.Extra["version"].(float64)
	if !ok || version < 1 {
		return UnavailableSource(r, unavailable(NotRegistry, call, "the tombstone of %s has no version", r))
	}
	changed, _ := p.Extra["changed"].(string)
	when, _ := time.Parse(time.RFC3339Nano, changed)
	return DeletedSource(r, int64(version), when, in)
}

// FetchBatch fetches sources of one kind, and answers one Fetched for each key,
// in the order of keys. Requests carry up to MaxBatch keys; one that fails makes
// its own keys unavailable, not the others'. All that is not unavailable is of
// one lineage.
func (c *Client) FetchBatch(ctx context.Context, kind Kind, keys []string) []Fetched {
	out := make([]Fetched, 0, len(keys))
	in := c
	for start := 0; start < len(keys); start += MaxBatch {
		chunk := keys[start:min(start+MaxBatch, len(keys))]
		got, lineage := in.fetchChunk(ctx, kind, chunk)
		out = append(out, got...)
		if lineage != "" {
			in = c.In(lineage)
		}
	}
	return out
}

func (c *Client) fetchChunk(ctx context.Context, kind Kind, keys []string) ([]Fetched, string) {
	call := call{
		method: http.MethodPost,
		path:   "/v1/sources/" + url.PathEscape(string(kind)) + ":get",
		body:   SourceKeys{Keys: keys},
	}
	out := make([]Fetched, len(keys))
	fail := func(err error) ([]Fetched, string) {
		for i, key := range keys {
			out[i] = UnavailableSource(Resource{kind, key}, err)
		}
		return out, ""
	}
	var batch SourceBatch
	got, err := c.do(ctx, call, &batch)
	var p *problem.Error
	if errors.As(err, &p) && ReasonOf(err) == "" {
		err = unavailable(Refused, call, "%v", p).because(p)
	}
	if err != nil {
		return fail(err)
	}
	if len(batch.Items) != len(keys) {
		return fail(unavailable(NotRegistry, call, "%d sources in the answer to %d keys", len(batch.Items), len(keys)))
	}
	for i, key := range keys {
		out[i] = fetched(call, Resource{kind, key}, batch.Items[i], Reading{batch.Lineage, batch.ReadAt}, got.lineage)
	}
	return out, got.lineage
}

// fetched turns one Source of an answer into an outcome, and takes nothing on
// trust that a Registry would always write.
func fetched(call call, r Resource, s Source, in Reading, header string) Fetched {
	switch {
	case in.Lineage == "" || in.Lineage != header:
		return UnavailableSource(r, unavailable(NotRegistry, call, "the body's lineage is %q and the header's %q", in.Lineage, header))
	case in.At.IsZero():
		return UnavailableSource(r, unavailable(NotRegistry, call, "the answer does not say when it was read"))
	case s.Resource != r:
		return UnavailableSource(r, unavailable(NotRegistry, call, "the answer speaks of %s instead of %s", s.Resource, r))
	case s.State == SourceForgotten && s.Version == 0 && len(s.Body) == 0:
		return ForgottenSource(r, in)
	case s.State == SourceDeleted && s.Version >= 1 && len(s.Body) == 0:
		return DeletedSource(r, s.Version, s.Changed, in)
	case s.State == SourcePresent && s.Version >= 1 && isObject(s.Body):
		return PresentSource(r, s.Version, s.Changed, s.Body, in)
	default:
		return UnavailableSource(r, unavailable(NotRegistry, call, "%s with state %q, version %d and a body of %d bytes", r, s.State, s.Version, len(s.Body)))
	}
}

func isObject(b json.RawMessage) bool { return len(b) > 1 && b[0] == '{' }
