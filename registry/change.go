package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) changeRoutes() {
	const tag = "history"
	register(s, operation{
		method: http.MethodGet, path: "/v1/changes", id: "list-changes", tag: tag,
		summary: "List the change log, newest first", needs: readHistory, problems: []problem.Kind{problem.NotFound},
		description: "Each entry is a row that was inserted, updated or deleted, with who did it, why, and the row before and after. " +
			"Who reads by a grant names a resource, and sees the entries of what the grant covers.",
	}, s.listChanges)
	register(s, operation{
		method: http.MethodGet, path: "/v1/changes/{id}", id: "get-change", tag: tag,
		summary: "Read one entry of the change log", needs: readHistory, problems: []problem.Kind{problem.NotFound},
	}, s.getChange)
}

const (
	// A sealed password is nobody's business, not even as ciphertext.
	sqlChangeLog = `
SELECT c.id,
       c.at,
       c.kind,
       c.agg_key,
       coalesce(registry.change_name(c.table_name, coalesce(c.after, c.before)), ''),
       c.table_name,
       c.row_id,
       c.op,
       c.actor,
       coalesce(c.token, ''),
       coalesce(c.request_id, ''),
       coalesce(c.reason, ''),
       (c.before - 'password_sealed')::text,
       (c.after - 'password_sealed')::text
FROM registry.change_log c`
	sqlChange = sqlChangeLog + ` WHERE c.id = $1`
)

func scanChange(row pgx.CollectableRow) (c client.Change, err error) {
	var before, after *string
	err = row.Scan(&c.ID, &c.At, &c.Resource.Kind, &c.Resource.Key, &c.Name, &c.Table, &c.Row, &c.Op, &c.Actor, &c.Token,
		&c.RequestID, &c.Reason, &before, &after)
	if before != nil {
		c.Before = json.RawMessage(*before)
	}
	if after != nil {
		c.After = json.RawMessage(*after)
	}
	if err == nil && c.Op == "update" {
		c.Changed, err = changedMembers(c.Before, c.After)
	}
	return c, err
}

// bookkeeping are the columns that every write changes.
var bookkeeping = []string{"revision", "created_at", "updated_at"}

// changedMembers are the columns that differ, but for those that always do.
func changedMembers(before, after json.RawMessage) ([]string, error) {
	var was, is map[string]json.RawMessage
	if err := json.Unmarshal(before, &was); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return nil, err
	}
	changed := []string{}
	for name, value := range is {
		if !slices.Contains(bookkeeping, name) && !bytes.Equal(was[name], value) {
			changed = append(changed, name)
		}
	}
	for name := range was {
		if _, kept := is[name]; !kept && !slices.Contains(bookkeeping, name) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

type listChangesInput struct {
	PageParams
	Resource string    `query:"resource" maxLength:"300" doc:"Those of a resource, as kind:key or by a name that it has or had; all that had the name" example:"192.0.2.0/24"`
	Actor    string    `query:"actor" maxLength:"300" doc:"Those that this actor made, as the log names it"`
	Token    string    `query:"token" maxLength:"100" doc:"Those made with the token of this public id"`
	Request  string    `query:"request" maxLength:"200" doc:"Those of one request: the X-Request-Id of its answer"`
	Op       string    `query:"op" enum:"insert,update,delete"`
	Since    time.Time `query:"since" doc:"Those at this time or later"`
	Until    time.Time `query:"until" doc:"Those before this time"`
}

// query selects entries of the resources; nil is of all.
func (in *listChangesInput) query(resources []client.Resource, p principal) (*query, error) {
	q := newQuery(sqlChangeLog)
	var (
		at time.Time
		id int64
	)
	if ok, err := in.decode("changes", &at, &id); err != nil {
		return nil, err
	} else if ok {
		q.and(`(c.at, c.id) < (?::timestamptz, ?::bigint)`, at, id)
	}
	if resources != nil {
		kinds, keys := split(resources)
		q.and(`(c.kind, c.agg_key) IN (SELECT k COLLATE "C", a COLLATE "C" FROM unnest(?::text[], ?::text[]) w (k, a))`, kinds, keys)
	}
	for _, f := range []struct{ condition, value string }{
		{`c.actor = ?`, in.Actor}, {`c.token = ?`, in.Token}, {`c.request_id = ?`, in.Request}, {`c.op = ?`, in.Op},
	} {
		if f.value != "" {
			q.and(f.condition, f.value)
		}
	}
	if !in.Since.IsZero() {
		q.and(`c.at >= ?::timestamptz`, in.Since)
	}
	if !in.Until.IsZero() {
		q.and(`c.at < ?::timestamptz`, in.Until)
	}
	if !p.may(readHistory) {
		organisations, prefixes := p.granted(readHistory)
		q.and(`registry.change_granted(c.table_name, c.before, c.after, ?::bigint[], ?::cidr[])`, organisations, prefixes)
	}
	q.page(`c.at DESC, c.id DESC`, in.limit())
	return q, nil
}

// granted is what the principal's grants give a permission on.
func (p principal) granted(needs permission) (organisations []int64, prefixes []netip.Prefix) {
	organisations, prefixes = []int64{}, []netip.Prefix{}
	for _, g := range p.giving(needs) {
		if g.Prefix.IsValid() {
			prefixes = append(prefixes, g.Prefix)
		} else {
			organisations = append(organisations, g.Organisation)
		}
	}
	return organisations, prefixes
}

func (s *service) listChanges(ctx context.Context, in *listChangesInput) (*list[client.Change], error) {
	p := callOf(ctx).principal
	if in.Resource == "" && !p.may(readHistory) {
		return nil, invalid("query.resource", nil, "%s reads the change log by a grant: say of which resource, such as resource=192.0.2.0/24", p.Name)
	}
	out := &list[client.Change]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		var resources []client.Resource
		if in.Resource != "" {
			if resources, err = everCalled(ctx, tx, in.Resource); err != nil {
				return err
			}
		}
		q, err := in.query(resources, p)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		items, err := pgx.CollectRows(rows, scanChange)
		out.Body.Items, out.Body.Next = paged(items, in.limit(), func(c client.Change) string { return cursor("changes", c.At, c.ID) })
		return err
	})
	return out, err
}

// ChangePath is the path parameter of one entry of the change log.
type ChangePath struct {
	ID int64 `path:"id" minimum:"1"`
}

type getChangeInput struct{ ChangePath }

type changeOutput struct {
	Body client.Change
}

func (s *service) getChange(ctx context.Context, in *getChangeInput) (*changeOutput, error) {
	out := &changeOutput{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		if out.Body, err = findChange(ctx, tx, in.ID); err != nil {
			return err
		}
		return readable(ctx, tx, out.Body)
	})
	return out, err
}

func findChange(ctx context.Context, q querier, id int64) (client.Change, error) {
	rows, err := q.Query(ctx, sqlChange, id)
	if err != nil {
		return client.Change{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanChange)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, unknown("change", strconv.FormatInt(id, 10))
	}
	return c, err
}

const sqlChangeGranted = `SELECT coalesce(registry.change_granted($1, $2::text::jsonb, $3::text::jsonb, $4, $5), false)`

// readable is nil or the refusal to show an entry of the log to the caller.
func readable(ctx context.Context, q querier, c client.Change) error {
	p := callOf(ctx).principal
	if p.may(readHistory) {
		return nil
	}
	var granted bool
	organisations, prefixes := p.granted(readHistory)
	err := q.QueryRow(ctx, sqlChangeGranted, c.Table, jsonText(c.Before), jsonText(c.After), organisations, prefixes).Scan(&granted)
	if err == nil && !granted {
		return problem.New(problem.Forbidden, "%s may not %s of %s: that needs a token with %s there", p.Name, readHistory, c.Resource, neededRole(readHistory))
	}
	return err
}

// jsonText is a document as text; nil where there is none.
func jsonText(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	return new(string(raw))
}
