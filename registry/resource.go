package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const sqlLane = `
SELECT last_seq,
       last_event_at
FROM registry.outbox_lane
WHERE agg_type = $1
  AND agg_key = $2`

// absent is the problem of a resource that has no row: deleted if its lane is
// still there (a tombstone), else not known.
func absent(ctx context.Context, q querier, kind client.Kind, key string) error {
	resource := client.Resource{Kind: kind, Key: key}
	var (
		version int64
		changed time.Time
	)
	err := q.QueryRow(ctx, sqlLane, string(kind), key).Scan(&version, &changed)
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.New(problem.NotFound, "the Registry does not know %s", resource).With("resource", resource)
	}
	if err != nil {
		return err
	}
	return problem.New(problem.Deleted, "%s was deleted at its version %d", resource, version).
		With("resource", resource).With("version", version).With("changed", changed.UTC())
}

// unknown is the problem of a name that stands for no resource.
func unknown(what, name string) error {
	return problem.New(problem.NotFound, "there is no %s %s", what, name)
}

// dependantsShown is how many of a resource's dependants a refusal lists.
const dependantsShown = 20

// dependants refuses a deletion as long as others need the resource. sql answers
// rows of kind, key, label and the number of all rows.
func dependants(ctx context.Context, q querier, label, advice, sql string, id any) error {
	shown, count, err := findDependants(ctx, q, sql, id, dependantsShown)
	if err != nil || count == 0 {
		return err
	}
	first := shown[0]
	return problem.New(problem.Conflict, "%s is still needed by %s (%s first): %s", label, counted64(count, "resource"), first.Label, advice).
		With("dependants", shown).With("dependants_count", count)
}

// findDependants reads rows of kind, key, label and the number of all rows.
func findDependants(ctx context.Context, q querier, sql string, args ...any) (shown []client.Candidate, count int64, err error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, err
	}
	var kind, key, name string
	_, err = pgx.ForEachRow(rows, []any{&kind, &key, &name, &count}, func() error {
		shown = append(shown, client.Candidate{Resource: client.Resource{Kind: client.Kind(kind), Key: key}, Label: name})
		return nil
	})
	return shown, count, err
}

func counted64(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// OrganisationRef is how a noun's input names its holder: by id or by handle.
type OrganisationRef struct {
	OrganisationID *int64  `json:"organisation_id,omitempty" minimum:"1" doc:"Who holds it, by id; null is nobody"`
	Organisation   *string `json:"organisation,omitempty" maxLength:"80" doc:"Who holds it, by handle"`
}

// holderRef is the reference to a holder as a change is merged into.
func holderRef(id int64, handle string) (ref OrganisationRef) {
	if id != 0 {
		ref.OrganisationID, ref.Organisation = &id, &handle
	}
	return ref
}

const sqlFindHolder = `
SELECT id
FROM registry.organisation
WHERE ($1::bigint IS NULL OR id = $1)
  AND ($2::text IS NULL OR lower(handle) = lower($2))`

// find is the id of the organisation, or nil for nobody.
func (r OrganisationRef) find(ctx context.Context, q querier) (*int64, error) {
	if r.OrganisationID == nil && r.Organisation == nil {
		return nil, nil
	}
	var id int64
	err := q.QueryRow(ctx, sqlFindHolder, r.OrganisationID, r.Organisation).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, r.unknown()
	}
	return &id, err
}

func (r OrganisationRef) unknown() error {
	const advice = "create it first, or name another"
	switch {
	case r.Organisation == nil:
		return invalid("body.organisation_id", *r.OrganisationID, "there is no organisation %d: %s", *r.OrganisationID, advice)
	case r.OrganisationID == nil:
		return invalid("body.organisation", *r.Organisation, "there is no organisation %q: %s", *r.Organisation, advice)
	}
	return invalid("body.organisation", *r.Organisation, "the organisation %d is not %q: name it by one of them, or by both alike", *r.OrganisationID, *r.Organisation)
}

// invalid is the problem of one value.
func invalid(location string, value any, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return problem.New(problem.Invalid, "%s", message).At(location, message, value)
}
