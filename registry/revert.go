package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) revertRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/changes/{id}/revert", id: "revert-change", tag: "history",
		summary: "Undo one change by a new one", needs: writeNouns, problems: changeProblems,
		description: "The new change is made by the operation of the noun and checked like any: an update is patched back, what was created is deleted, " +
			"what was deleted is created anew under another id. It is refused as stale when later changes touched the same members.",
	}, s.revertChange)
}

type revertInput struct {
	ChangePath
	CreateParams
}

func (s *service) revertChange(ctx context.Context, in *revertInput) (*answer[client.Reverted], error) {
	params := in.CreateParams
	params.Reason = fmt.Sprintf("revert of change %d", in.ID)
	if in.Reason != "" {
		params.Reason += ": " + in.Reason
	}
	return mutate(ctx, s, params, in.ID, func(ctx context.Context, w *writing) (m made[client.Reverted], err error) {
		c, err := findChange(ctx, w, in.ID)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, writeNouns, changeTarget(c)); err != nil {
			return m, err
		}
		r := reverting{s: s, w: w, change: c}
		if r.noun, err = s.nounOf(c); err != nil {
			return m, err
		}
		m.object = client.Reverted{Change: c.ID, Resource: c.Resource}
		err = r.run(joining(ctx, w), &m.object)
		return m, err
	})
}

// nounOf is what writes the rows of a change.
func (s *service) nounOf(c client.Change) (noun, error) {
	n, writable := s.nouns()[c.Resource.Kind]
	_, known := revertible[c.Table]
	if !writable || !known && c.Table != originTable {
		return noun{}, problem.New(problem.Conflict, "a change of a %s cannot be reverted: change it by hand", strings.ReplaceAll(c.Table, "_", " "))
	}
	return n, nil
}

// changeTarget is whom and what a change was about, for grants.
func changeTarget(c client.Change) (t target) {
	for _, raw := range []json.RawMessage{c.Before, c.After} {
		var row pastRow
		if raw == nil || json.Unmarshal(raw, &row) != nil {
			continue
		}
		holder, space := row.OrganisationID, row.Prefix
		switch {
		case c.Table == "organisation":
			holder = row.ID
		case row.Address.IsValid():
			space = netip.PrefixFrom(row.Address, row.Address.BitLen())
		}
		t.organisations = append(t.organisations, holder)
		if space.IsValid() {
			t.prefixes = append(t.prefixes, space)
		}
	}
	return t
}

// reverting is one change on its way back.
type reverting struct {
	s      *service
	w      *writing
	noun   noun
	change client.Change
	// was and is are the row before and after the change, now what it is today, as
	// a client would write them; nil where there is none.
	was, is, now map[string]any
}

// The tables' names and keys are those of mainTables.
var rowsNow = map[string]string{
	"organisation":       `SELECT to_jsonb(r)::text FROM registry.organisation r WHERE r.id = $1::text::bigint FOR NO KEY UPDATE`,
	"asn":                `SELECT to_jsonb(r)::text FROM registry.asn r WHERE r.number = $1::text::bigint FOR NO KEY UPDATE`,
	"prefix":             `SELECT to_jsonb(r)::text FROM registry.prefix r WHERE r.id = $1::text::bigint FOR NO KEY UPDATE`,
	"ptr_record":         `SELECT to_jsonb(r)::text FROM registry.ptr_record r WHERE r.id = $1::text::bigint FOR NO KEY UPDATE`,
	"anycast_allocation": `SELECT to_jsonb(r)::text FROM registry.anycast_allocation r WHERE r.id = $1::text::bigint FOR NO KEY UPDATE`,
	"name_server_set":    `SELECT to_jsonb(r)::text FROM registry.name_server_set r WHERE r.id = $1::text::bigint FOR NO KEY UPDATE`,
}

func (r *reverting) run(ctx context.Context, out *client.Reverted) error {
	c := r.change
	if c.Table == originTable {
		return r.origin(ctx, out)
	}
	var row *string
	err := r.w.QueryRow(ctx, rowsNow[c.Table], c.Row).Scan(&row)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	var now json.RawMessage
	if row != nil {
		now = json.RawMessage(*row)
	}
	for _, form := range []struct {
		into *map[string]any
		row  json.RawMessage
	}{{&r.was, c.Before}, {&r.is, c.After}, {&r.now, now}} {
		if *form.into, err = writtenForm(c.Table, form.row); err != nil {
			return err
		}
	}
	switch c.Op {
	case "insert":
		return r.uncreate(ctx, out)
	case "delete":
		return r.recreate(ctx, out)
	}
	return r.patchBack(ctx, out)
}

// patchBack undoes an update.
func (r *reverting) patchBack(ctx context.Context, out *client.Reverted) error {
	patch := backPatch(r.was, r.is)
	if len(patch) == 0 {
		return problem.New(problem.Conflict, "change %d changed only what follows from other changes (%s): revert those", r.change.ID, strings.Join(r.change.Changed, ", "))
	}
	if r.now == nil {
		return r.stale(ctx, "it is deleted since", nil)
	}
	if touched := differing(patch, r.is, r.now); len(touched) > 0 {
		return r.stale(ctx, "later changes touched "+strings.Join(touched, ", "), touched)
	}
	return r.apply(ctx, patch, out)
}

func (r *reverting) apply(ctx context.Context, patch map[string]any, out *client.Reverted) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	key := r.change.Row
	if r.change.Table == originTable {
		key = r.change.Resource.Key
	}
	answer, err := r.noun.change(ctx, key, "*", text)
	if err != nil {
		return err
	}
	out.Did, out.Patch = "changed", text
	out.Object, err = json.Marshal(answer.body)
	return err
}

const sqlLaterOrigins = `
SELECT EXISTS (
  SELECT
  FROM registry.change_log c
  WHERE c.kind = 'anycast'
    AND c.agg_key = $1
    AND c.table_name = 'anycast_route_origin'
    AND c.xid <> (SELECT f.xid FROM registry.change_log f WHERE f.id = $2))`

// uncreate deletes what a change created, as long as it is what was created.
func (r *reverting) uncreate(ctx context.Context, out *client.Reverted) error {
	if r.now == nil {
		return r.stale(ctx, "it is deleted already", nil)
	}
	if touched := differing(r.is, r.is, r.now); len(touched) > 0 {
		return r.stale(ctx, "later changes touched "+strings.Join(touched, ", "), touched)
	}
	if r.change.Table == "anycast_allocation" {
		var later bool
		if err := r.w.QueryRow(ctx, sqlLaterOrigins, r.change.Resource.Key, r.change.ID).Scan(&later); err != nil {
			return err
		}
		if later {
			return r.stale(ctx, "later changes touched its origins", nil)
		}
	}
	_, err := r.noun.remove(ctx, r.change.Row, "*")
	out.Did = "deleted"
	return err
}

const sqlOriginsDeletedWith = `
SELECT o.before::text
FROM registry.change_log o
JOIN registry.change_log c ON c.xid = o.xid AND c.lineage = o.lineage
WHERE c.id = $1
  AND o.kind = 'anycast'
  AND o.agg_key = c.agg_key
  AND o.table_name = 'anycast_route_origin'
  AND o.op = 'delete'
ORDER BY o.id`

// recreate creates what a change deleted.
func (r *reverting) recreate(ctx context.Context, out *client.Reverted) error {
	if r.now != nil {
		return r.stale(ctx, "it exists again", nil)
	}
	document := withoutNulls(r.was)
	if r.change.Table == "anycast_allocation" {
		rows, err := r.w.Query(ctx, sqlOriginsDeletedWith, r.change.ID)
		if err != nil {
			return err
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		origins := []any{}
		for _, text := range texts {
			o, err := originOf(json.RawMessage(text))
			if err != nil {
				return err
			}
			origins = append(origins, o)
		}
		document["origins"] = origins
	}
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	answer, err := r.noun.create(ctx, body)
	if err != nil {
		return err
	}
	if r.change.Resource.Kind != client.KindPTR {
		out.Resource.Key = answer.key()
	}
	out.Did = "created"
	out.Object, err = json.Marshal(answer.body)
	return err
}

const originTable = "anycast_route_origin"

// origin is a route origin as an anycast allocation's input names it.
type origin struct {
	ASN       client.ASN `json:"asn"`
	MaxLength *int       `json:"max_length,omitempty"`
	Active    bool       `json:"active"`
}

func originOf(row json.RawMessage) (o origin, err error) { return o, json.Unmarshal(row, &o) }

func (o origin) same(other origin) bool {
	return o.ASN == other.ASN && value(o.MaxLength) == value(other.MaxLength) && (o.MaxLength == nil) == (other.MaxLength == nil)
}

// origin undoes a change of one route origin: the allocation's set without it, or
// with it as it was.
func (r *reverting) origin(ctx context.Context, out *client.Reverted) error {
	id, err := numbered(r.change.Resource.Key)
	if err != nil {
		return err
	}
	a, err := oneAnycast(ctx, r.w, sqlLockAnycast, id)
	if err != nil {
		return err
	}
	set := []origin{}
	for _, o := range a.Origins {
		set = append(set, origin{o.ASN, o.MaxLength, o.Active})
	}
	if r.change.After != nil {
		is, err := originOf(r.change.After)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(set, is.same)
		if at < 0 || set[at].Active != is.Active {
			return r.stale(ctx, "later changes touched this origin", nil)
		}
		set = slices.Delete(set, at, at+1)
	}
	if r.change.Before != nil {
		was, err := originOf(r.change.Before)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(set, was.same) {
			return r.stale(ctx, "the allocation has this origin again", nil)
		}
		set = append(set, was)
	}
	return r.apply(ctx, map[string]any{"origins": set}, out)
}

const sqlLaterChanges = sqlChangeLog + `
WHERE c.kind = $1
  AND c.agg_key = $2
  AND c.id > $3
ORDER BY c.id
LIMIT 20`

// laterChange is what a refusal says of a change that came after.
type laterChange struct {
	ID      int64    `json:"id"`
	At      string   `json:"at"`
	Op      string   `json:"op"`
	Actor   string   `json:"actor"`
	Changed []string `json:"changed,omitempty"`
}

// stale refuses to revert what others changed since, and says which changes those are.
func (r *reverting) stale(ctx context.Context, why string, members []string) error {
	rows, err := r.w.Query(ctx, sqlLaterChanges, string(r.change.Resource.Kind), r.change.Resource.Key, r.change.ID)
	if err != nil {
		return err
	}
	changes, err := pgx.CollectRows(rows, scanChange)
	if err != nil {
		return err
	}
	later, numbers := []laterChange{}, []string{}
	for _, c := range changes {
		later = append(later, laterChange{c.ID, c.At.UTC().Format("2006-01-02T15:04:05Z"), c.Op, c.Actor, c.Changed})
		numbers = append(numbers, fmt.Sprint(c.ID))
	}
	advice := "look at it, and change it by hand"
	if len(numbers) > 0 {
		advice = "revert the later ones first (" + strings.Join(numbers, ", ") + "), or change it by hand"
	}
	e := problem.New(problem.Stale, "change %d of %s cannot be reverted: %s; %s", r.change.ID, r.change.Resource, why, advice).
		With("later", later)
	if members != nil {
		e.With("members", members)
	}
	return e
}
