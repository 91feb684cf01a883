package client

import (
	"encoding/json"
	"time"
)

// RegressionAnswer answers POST /v1/lineage/regressions.
type RegressionAnswer struct {
	// Lineage is current after the Registry looked into it.
	Lineage string `json:"lineage"`
	// Begun says that the regression was real and made this lineage begin.
	Begun bool `json:"begun"`
	// Version is the resource's version in the Registry, 0 when it has none.
	Version int64 `json:"version"`
}

// Reported is a module's last report on a resource, as the module reads it back.
type Reported struct {
	Resource Resource `json:"resource"`
	Lineage  string   `json:"lineage"` // the one that the report was made in
	AppliedState
}

// ReportedPage answers GET /v1/reports?module=, ordered by kind and key.
type ReportedPage struct {
	Lineage string     `json:"lineage"`
	Items   []Reported `json:"items"`
	Next    string     `json:"next,omitempty"`
}

// ObservationState says whether the world is as requested.
type ObservationState string

// The states of an observation.
const (
	ObservationMatches  ObservationState = "matches"
	ObservationDiverged ObservationState = "diverged"
	ObservationUnknown  ObservationState = "unknown"
)

// ObservationItem is what a module saw for one subject of a resource: a route at
// a collector, a zone at a server.
type ObservationItem struct {
	Resource   Resource         `json:"resource"`
	Subject    string           `json:"subject" minLength:"1" maxLength:"200"`
	State      ObservationState `json:"state,omitempty" enum:"matches,diverged,unknown"`
	Detail     json.RawMessage  `json:"detail,omitempty"`
	ObservedAt time.Time        `json:"observed_at"`
	// Gone removes the observation: the subject is watched no longer.
	Gone bool `json:"gone,omitempty"`
}

// ObservationReport is the body of POST /v1/observations: up to MaxReport items.
type ObservationReport struct {
	Module string            `json:"module"`
	Items  []ObservationItem `json:"items" maxItems:"1000"`
}

// HeartbeatAnswer answers a heartbeat.
type HeartbeatAnswer struct {
	Lineage string `json:"lineage"`
	// Registered says that this heartbeat registered the module.
	Registered bool `json:"registered"`
	// Barriers are the newest barrier of each stream that had one. A module that
	// scans everything after this answer has what stood before them, also where
	// their events are lost.
	Barriers []StreamBarrier `json:"barriers,omitempty"`
}

// StreamBarrier is the newest barrier of one stream.
type StreamBarrier struct {
	Stream   int       `json:"stream"`
	Version  int64     `json:"version"`
	RaisedAt time.Time `json:"raised_at"`
}

// ModuleList answers GET /v1/modules.
type ModuleList struct {
	Items []Module `json:"items"`
}

// CommandOrder is the body of POST /v1/modules/{name}/commands.
type CommandOrder struct {
	Name      string          `json:"name" pattern:"^[a-z][a-z0-9-]{0,39}$"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Reason    string          `json:"reason,omitempty" maxLength:"1000"`
}

// CommandPage answers GET /v1/modules/{name}/commands, newest first.
type CommandPage struct {
	Items []Command `json:"items"`
	Next  string    `json:"next,omitempty"`
}

// LeaseRequest is the body of PUT /v1/leases/{name}.
type LeaseRequest struct {
	Holder          string `json:"holder" minLength:"1" maxLength:"200"`
	TTLMilliseconds int64  `json:"ttl_ms" minimum:"100" maximum:"3600000"`
}

// WorkItem is one resource of the operator's work list.
type WorkItem struct {
	Resource Resource `json:"resource"`
	Label    string   `json:"label,omitempty"`
	Version  int64    `json:"version"`
	Overall  Overall  `json:"overall"`
	// Module is the one that makes it so; empty where the outbox does.
	Module string    `json:"module,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// WorkPage answers GET /v1/state?overall=.
type WorkPage struct {
	Lineage string     `json:"lineage"`
	Overall Overall    `json:"overall"`
	Items   []WorkItem `json:"items"`
	Next    string     `json:"next,omitempty"`
}

// Candidate is one resource that a question may mean.
type Candidate struct {
	Resource Resource `json:"resource"`
	Label    string   `json:"label"`
}

// Resolved answers GET /v1/resolve?q=: the resource that is meant, and every
// other that bears the same name, such as the anycast allocation of a prefix.
type Resolved struct {
	Resource   Resource    `json:"resource"`
	Label      string      `json:"label"`
	Candidates []Candidate `json:"candidates"`
}
