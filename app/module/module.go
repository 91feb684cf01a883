// Package module is the contract between the supervisor in package app and the
// modules that it runs: the interface a module implements and the words in
// which it says how it is. It is a leaf: it imports nothing of the project.
package module

import (
	"context"
	"net/http"
	"time"
)

// Module is one part of HubN that a process may run: registry, outbox, roa,
// dns, lookingglass. A Module value is run once; the supervisor constructs a
// new one for every restart.
type Module interface {
	// Name is the module's name in the module table, in --modules, in metrics
	// and in reports.
	Name() string

	// Run does the module's work and blocks. It calls ready once it can serve,
	// and returns nil only after ctx is done and its work is drained; any other
	// return is a failure after which the supervisor starts a new instance.
	Run(ctx context.Context, ready func()) error

	// Status is cheap: it takes no lock that is held by work in progress, and
	// may be called before, during and after Run.
	Status() Status
}

// Server is implemented by a module that answers HTTP. The supervisor mounts
// the handler of the current instance under every pattern of Routes.
type Server interface {
	Module
	// Routes are ServeMux path prefixes such as "/v1/"; they may not overlap
	// with those of another module, nor with /healthz, /readyz, /status, /metrics.
	Routes() []string
	http.Handler
}

// Status is what a module says of itself at one moment.
type Status struct {
	// Ready is whether the module does its work now.
	Ready bool `json:"ready"`
	// Reason says in one sentence why it is not ready, or what limits it
	// ("312 changes behind", "serving, registry unreachable for 40 s"); empty
	// when there is nothing to say.
	Reason string `json:"reason,omitempty"`
	// Since is when Ready or Reason last changed.
	Since time.Time `json:"since,omitzero"`
	// Detail holds the module's own figures, for `hubn status`.
	Detail map[string]any `json:"detail,omitempty"`
}
