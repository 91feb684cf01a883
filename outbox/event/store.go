package event

import (
	"context"
	"errors"
	"time"

	"hubn/registry/client"
)

// ErrLineage says that a store belongs to another lineage than the caller
// thought: nothing was changed.
var ErrLineage = errors.New("the store holds versions of another lineage")

// ErrAgain is what a handler's Write answers when what Prepare found no longer
// holds: both are done again.
var ErrAgain = errors.New("the changes have to be prepared again")

// Store is what a module holds of its sources, and the consumer's own notes. A
// module does not write one: NewPostgresStore and NewMemoryStore are stores
// around the module's handler.
//
// Every method is safe for concurrent use, also by several replicas of a module
// on one database. An error of a method means that the store cannot be reached
// now; it says nothing about a change.
type Store interface {
	// State reads the consumer's notes.
	State(ctx context.Context) (State, error)
	// Begin makes lineage the store's, if it has none yet; ErrLineage if it has another.
	Begin(ctx context.Context, lineage string) error
	// Held answers what is held of the resources; those of which nothing is
	// known are absent from the map.
	Held(ctx context.Context, resources []client.Resource) (map[client.Resource]Held, error)
	// Apply applies each change whose version is newer than the one held, the
	// check and the change in one conditional write, and answers one outcome
	// for each. ErrLineage: the store is of another lineage, nothing was done.
	Apply(ctx context.Context, lineage string, changes []Change) ([]Outcome, error)
	// Withdraw applies that the sources are gone, where the store still holds
	// exactly the version of the row.
	Withdraw(ctx context.Context, lineage string, rows []Row) ([]Outcome, error)
	// Published is how many sources the store holds as present.
	Published(ctx context.Context) (int, error)
	// Inventory answers up to limit sources that the store holds as present,
	// ordered by kind and key (by bytes) and after the given one.
	Inventory(ctx context.Context, after client.Resource, limit int) ([]Row, error)
	// Replace begins the adoption of a new lineage.
	Replace(ctx context.Context, lineage string) (Replacement, error)
	// Describe says what is to be reported of up to limit sources in the same
	// order as Inventory, those that are gone included; with resources, of those.
	Describe(ctx context.Context, after client.Resource, limit int, resources ...client.Resource) ([]client.ReportItem, error)

	// Want notes durably that a full reconciliation is needed.
	Want(ctx context.Context, reason string) error
	// Reconciled notes that a full reconciliation is complete which began when
	// State.Wanted was wanted.
	Reconciled(ctx context.Context, wanted int64) error
	// Allow notes that an operator lets the module adopt a foreign lineage.
	Allow(ctx context.Context, lineage string) error

	// Defer puts sources on the retry list, or notes their new state there; they
	// are due after pause.
	Defer(ctx context.Context, pause time.Duration, retries []Retry) error
	// Due claims up to limit sources of the retry list whose time has come: counts
	// an attempt and makes them due again after pause.
	Due(ctx context.Context, pause time.Duration, limit int) ([]Retry, error)
	// Settle takes sources off the retry list.
	Settle(ctx context.Context, resources []client.Resource) error
	// Retries answers the retry list's length and up to limit of its entries.
	Retries(ctx context.Context, limit int) (int, []Retry, error)

	// Hold notes a held withdrawal and answers its number.
	Hold(ctx context.Context, lineage, reason string, rows []Row) (int64, error)
	// Release takes sources out of held withdrawals, and removes those that are empty.
	Release(ctx context.Context, resources []client.Resource) error
	// Holds answers the held withdrawals with their sources.
	Holds(ctx context.Context) ([]HeldSet, error)
	// Decide notes an operator's decision on a held withdrawal; false when there is none of that number.
	Decide(ctx context.Context, id int64, decision Decision, by string) (bool, error)
}

// State is the consumer's notes in its store.
type State struct {
	// Lineage is the one that the stored versions belong to; empty before the first scan.
	Lineage string
	// Allowed is a foreign lineage that an operator lets the module adopt.
	Allowed string
	// Wanted counts the wishes for a full reconciliation, Done those that a
	// complete one has answered.
	Wanted, Done int64
	// Reason is that of the last wish.
	Reason string
	// ReconciledAt is when a full reconciliation was last complete; zero before the first.
	ReconciledAt time.Time
	// Now is the store's clock, which the other times are of.
	Now time.Time
}

// Replacement is the adoption of a new lineage: sources are staged while the
// scan goes on, and replace what is stored in one transaction at its end.
type Replacement interface {
	// Stage notes sources as the new lineage states them; a later one of the same
	// resource replaces an earlier one.
	Stage(ctx context.Context, changes []Change) error
	// Commit replaces all stored versions by the staged ones and makes the
	// lineage the store's. Sources that were not staged are those of hold: they
	// keep what they have, without a version, in a held withdrawal. ErrLineage:
	// another replica adopted a lineage meanwhile.
	Commit(ctx context.Context, reason string, hold []Row) error
	// Discard drops what was staged; after Commit it does nothing.
	Discard(ctx context.Context) error
}

// Retry is one source of the retry list.
type Retry struct {
	Resource client.Resource
	// Version is the newest that an event spoke of.
	Version  int64
	Attempts int
	Reason   string
	Since    time.Time
	// Next is when it is tried again, by the store's clock.
	Next time.Time
}

// Decision is what an operator decided about a held withdrawal.
type Decision string

// The decisions.
const (
	// Waiting: nobody decided yet.
	Waiting Decision = "waiting"
	// Approved: the next reconciliation that proves the sources absent withdraws them.
	Approved Decision = "approved"
	// Rejected: what the module derived from the sources stays.
	Rejected Decision = "rejected"
)

// HeldSet is one held withdrawal: sources that a complete scan did not find,
// and that stay until an operator approves.
type HeldSet struct {
	ID       int64     `json:"id"`
	Lineage  string    `json:"lineage"`
	Reason   string    `json:"reason"`
	Decision Decision  `json:"decision"`
	HeldAt   time.Time `json:"held_at"`
	// DecidedBy and DecidedAt are empty while it waits.
	DecidedBy string            `json:"decided_by,omitempty"`
	DecidedAt time.Time         `json:"decided_at,omitzero"`
	Resources []client.Resource `json:"resources"`
}
