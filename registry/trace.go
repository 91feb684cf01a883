package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// traced is how many events and changes a trace shows, newest first.
const traced = 50

func (s *service) traceRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/trace/{kind}/{key}", id: "get-trace", tag: "state",
		summary: "Read the state of a resource with the history behind it", needs: readState,
		problems: []problem.Kind{problem.NotFound},
	}, s.getTrace)
}

type traceOutput struct {
	Body client.Trace
}

const (
	sqlLaneEvents = `
SELECT e.seq, e.event_id::text, e.kind, e.payload, e.created_at, e.published_at, e.state
FROM registry.outbox_row_state e
WHERE e.lane_id = $1
ORDER BY e.seq DESC
LIMIT $2`
	// A sealed password is nobody's business, not even as ciphertext.
	sqlChanges = `
SELECT c.id, c.at, c.table_name, c.op, c.actor, coalesce(c.request_id, ''), coalesce(c.reason, ''),
       (c.before - 'password_sealed')::text, (c.after - 'password_sealed')::text
FROM registry.change_log c
WHERE c.kind = $1
  AND c.agg_key = $2
ORDER BY c.id DESC
LIMIT $3`
)

func (s *service) getTrace(ctx context.Context, in *resourceInput) (*traceOutput, error) {
	r, err := in.resource()
	if err != nil {
		return nil, err
	}
	var out traceOutput
	err = s.read(ctx, func(ctx context.Context, tx *reading) error {
		var lane int64
		if out.Body.State, lane, err = readResourceState(ctx, tx, r); err != nil {
			return err
		}
		if out.Body.Events, err = readEvents(ctx, tx, lane); err != nil {
			return err
		}
		if out.Body.Changes, err = readChanges(ctx, tx, r); err != nil || r.Kind != client.KindOrganisation {
			return err
		}
		id, err := numbered(r.Key)
		if err != nil || callOf(ctx).principal.mayOn(readContacts, target{organisations: []int64{id}}) {
			return err
		}
		return hideContacts(out.Body.Changes)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// hideContacts takes the contact out of rows of organisations: it is often a person.
func hideContacts(changes []client.TraceChange) error {
	for i := range changes {
		for _, row := range []*json.RawMessage{&changes[i].Before, &changes[i].After} {
			members := map[string]json.RawMessage{}
			if *row == nil {
				continue
			}
			if err := json.Unmarshal(*row, &members); err != nil {
				return err
			}
			delete(members, "contact")
			var err error
			if *row, err = json.Marshal(members); err != nil {
				return err
			}
		}
	}
	return nil
}

func readEvents(ctx context.Context, q querier, lane int64) ([]client.TraceEvent, error) {
	rows, err := q.Query(ctx, sqlLaneEvents, lane, traced)
	if err != nil {
		return nil, err
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (client.TraceEvent, error) {
		e, _, err := scanEvent(row)
		return e, err
	})
	if events == nil {
		events = []client.TraceEvent{}
	}
	return events, err
}

// scanEvent reads a row of sqlLaneEvents, more columns after it; it answers the
// payload too.
func scanEvent(row pgx.CollectableRow, more ...any) (client.TraceEvent, json.RawMessage, error) {
	var e client.TraceEvent
	var published *time.Time
	var payload []byte
	err := row.Scan(append([]any{&e.Version, &e.EventID, &e.Kind, &payload, &e.CreatedAt, &published, &e.State}, more...)...)
	if err != nil {
		return e, nil, err
	}
	var p struct {
		Changed []string `json:"changed"`
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return e, nil, err
	}
	e.Changed, e.PublishedAt = p.Changed, value(published)
	return e, payload, nil
}

func readChanges(ctx context.Context, q querier, r client.Resource) ([]client.TraceChange, error) {
	rows, err := q.Query(ctx, sqlChanges, string(r.Kind), r.Key, traced)
	if err != nil {
		return nil, err
	}
	changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c client.TraceChange, err error) {
		var before, after *string
		err = row.Scan(&c.ID, &c.At, &c.Table, &c.Op, &c.Actor, &c.RequestID, &c.Reason, &before, &after)
		if before != nil {
			c.Before = json.RawMessage(*before)
		}
		if after != nil {
			c.After = json.RawMessage(*after)
		}
		return c, err
	})
	if changes == nil {
		changes = []client.TraceChange{}
	}
	return changes, err
}
