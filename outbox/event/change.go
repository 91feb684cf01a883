package event

import (
	"encoding/json"
	"fmt"
	"time"

	"hubn/registry/client"
)

// Change is one source as a module is to know it from now on.
type Change struct {
	Resource client.Resource
	// Version is the aggregate's version that Body was read with, or the
	// version of its deletion.
	Version int64
	// Body is the XxxSource of the kind as JSON. It is nil when the source is
	// gone: the Registry stated its deletion, or a complete scan proved that it
	// is not there.
	Body json.RawMessage
	// FetchedAt is when the Registry read it, by the Registry's database's clock.
	FetchedAt time.Time
}

// Gone tells whether the source is no longer there.
func (c Change) Gone() bool { return c.Body == nil }

// Decode reads the body into out, which is the XxxSource of the kind; it is an
// error when the source is gone.
func (c Change) Decode(out any) error {
	if c.Gone() {
		return fmt.Errorf("%s version %d is gone: it has no body", c.Resource, c.Version)
	}
	if err := json.Unmarshal(c.Body, out); err != nil {
		return fmt.Errorf("%s version %d: the body cannot be read: %w", c.Resource, c.Version, err)
	}
	return nil
}

// changeOf is a fetch as a change; ok is false for the outcomes that may change
// nothing (forgotten, unavailable).
func changeOf(f client.Fetched) (c Change, ok bool) {
	c = Change{Resource: f.Resource(), Version: f.Version(), FetchedAt: f.ReadAt()}
	switch f.Outcome() {
	case client.Present:
		c.Body = f.Body()
		return c, true
	case client.Deleted:
		return c, true
	default:
		return Change{}, false
	}
}

// Result is how the application of one change ended.
type Result int

// The results. Applied and Stale are durable: what the change says, or
// something newer, is in the module's store.
const (
	// Failed: the change could not be applied, and Outcome.Err says why. It is
	// the zero value, so that an outcome which nobody filled acknowledges nothing.
	Failed Result = iota
	// Applied: the change is in the store.
	Applied
	// Stale: the store held this version or a newer one already.
	Stale
)

func (r Result) String() string { return [...]string{"failed", "applied", "stale"}[r] }

// Outcome is how the application of one change ended.
type Outcome struct {
	Result Result
	// Err is why it failed, else nil.
	Err error
}

// Held is what a store holds of one source.
type Held struct {
	Version int64
	// Gone tells whether the store knows that the source is no longer there.
	Gone bool
}

// Row is one source that a store holds as present.
type Row struct {
	Resource client.Resource
	Version  int64
}
