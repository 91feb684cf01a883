// Package event is the event path of HubN: the event type, its form in Redis
// Streams, and the consumer library that modules receive events with. It is all
// that other modules may import from the outbox.
package event

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"hubn/registry/client"
)

// Streams is the number of streams, a constant of the schema (registry.stream_of).
const Streams = 8

// Kind says what an event is about; state is always fetched.
type Kind string

// The kinds of events.
const (
	Created Kind = "created"
	Changed Kind = "changed"
	Deleted Kind = "deleted"
	Replay  Kind = "replay"  // an operator asked for it; nothing changed
	Gap     Kind = "gap"     // an operator skipped events before it
	Command Kind = "command" // command:<id>
	Barrier Kind = "barrier" // barrier:<stream>
	// Resync asks to reconcile: everything, where it names no aggregate and has no
	// version, as an epoch starts; else its aggregate, events of which were lost
	// and can no longer be published again.
	Resync Kind = "resync"
)

// Event is one entry of a stream: which aggregate has which version now, never
// the data.
type Event struct {
	Lineage   string
	Epoch     string
	Stream    int
	Resource  client.Resource // zero for Resync of a whole stream
	Version   int64           // the lane's seq
	Kind      Kind
	EventID   string
	CreatedAt time.Time
	// Payload is the row's payload: {"changed": […]} and, for a barrier, {"barrier": id}.
	Payload json.RawMessage
}

// Names are the keys and the channel that the event path uses in Redis. All
// keys of a stream share a hash tag, so that one script may touch them in
// Redis Cluster.
type Names struct {
	// Prefix begins every name; several installations may share a server.
	Prefix string
}

// Stream is the key of a stream's entries.
func (n Names) Stream(no int) string { return n.tag(no) + ":events" }

// Epoch is the key that holds a stream's current epoch, "<lineage>/<uuid>".
func (n Names) Epoch(no int) string { return n.tag(no) + ":epoch" }

// Fence is the key of the hash lane_id → last published seq of one epoch.
func (n Names) Fence(no int, epoch string) string { return n.tag(no) + ":fence:" + epoch }

// Wake is the pub/sub channel of hints that something was committed.
func (n Names) Wake() string { return n.Prefix + ":wake" }

func (n Names) tag(no int) string { return n.Prefix + ":{" + strconv.Itoa(no) + "}" }

// Fields is the event as the fields of a stream entry.
func (e Event) Fields() []any {
	return []any{
		"lineage", e.Lineage,
		"epoch", e.Epoch,
		"resource", e.Resource.String(),
		"seq", e.Version,
		"kind", string(e.Kind),
		"id", e.EventID,
		"at", e.CreatedAt.UTC().Format(time.RFC3339Nano),
		"payload", string(e.Payload),
	}
}

// Parse reads a stream entry.
func Parse(stream int, fields map[string]any) (Event, error) {
	text := func(name string) string { s, _ := fields[name].(string); return s }
	e := Event{
		Lineage: text("lineage"),
		Epoch:   text("epoch"),
		Stream:  stream,
		Kind:    Kind(text("kind")),
		EventID: text("id"),
		Payload: json.RawMessage(text("payload")),
	}
	var err error
	if e.CreatedAt, err = time.Parse(time.RFC3339Nano, text("at")); err != nil {
		return e, fmt.Errorf("stream entry: field at: %w", err)
	}
	if e.Kind == Resync && (text("resource") == "" || text("resource") == ":") {
		return e, nil
	}
	if e.Resource, err = client.ParseResource(text("resource")); err != nil {
		return e, fmt.Errorf("stream entry: field resource: %w", err)
	}
	if e.Version, err = strconv.ParseInt(text("seq"), 10, 64); err != nil || e.Version < 1 {
		return e, fmt.Errorf("stream entry of %s: field seq: %q is not a version", e.Resource, text("seq"))
	}
	return e, nil
}
