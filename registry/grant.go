package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) grantRoutes() {
	const tag = "grants"
	register(s, operation{
		method: http.MethodGet, path: "/v1/grants", id: "list-grants", tag: tag,
		summary: "List who may do what on which organisation or prefix", needs: readTokens,
	}, s.listGrants)
	register(s, operation{
		method: http.MethodPost, path: "/v1/grants", id: "create-grant", tag: tag,
		summary: "Give a token a role on an organisation or a prefix", needs: manageTokens, status: http.StatusCreated,
		description: "On an organisation it holds for what the organisation holds, on a prefix for it and all that lies in it, whoever holds that.",
		problems:    []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createGrant)
	register(s, operation{
		method: http.MethodGet, path: "/v1/grants/{id}", id: "get-grant", tag: tag,
		summary: "Read a grant", needs: readTokens, problems: []problem.Kind{problem.NotFound},
	}, s.getGrant)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/grants/{id}", id: "delete-grant", tag: tag,
		summary: "Take a grant back", needs: manageTokens, status: http.StatusNoContent,
		description: "It needs no If-Match: a grant never changes.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.deleteGrant)
}

// GrantScope is a role and where it holds: on what an organisation holds, or on a
// prefix with all that lies in it.
type GrantScope struct {
	Role           string  `json:"role" enum:"operator,authority,allocator,member,auditor,viewer"`
	OrganisationID *int64  `json:"organisation_id,omitempty" minimum:"1" doc:"On what this organisation holds, by its id"`
	Organisation   *string `json:"organisation,omitempty" maxLength:"80" doc:"On what this organisation holds, by its handle"`
	Prefix         Prefix  `json:"prefix,omitzero" doc:"On this prefix and all that lies in it"`
}

// check reports what is wrong; at is where the scope stands, with a final dot.
func (g *GrantScope) check(f *faults, at string) {
	if !slices.Contains(grantRoles, role(g.Role)) {
		f.add(at+"role", fmt.Errorf("a grant gives one of the roles %v; others are roles of the token itself", grantRoles), g.Role)
	}
	organisation, prefix := g.OrganisationID != nil || g.Organisation != nil, g.Prefix.text != ""
	switch {
	case organisation && prefix:
		f.add(at+"prefix", errors.New("a grant is on an organisation or on a prefix: give two grants for both"), g.Prefix.text)
	case !organisation && !prefix && g.Prefix.err == nil:
		f.add(at+"organisation", errors.New("name the organisation or the prefix that the grant is on"), nil)
	}
	g.Prefix.check(f, at+"prefix")
}

type grantInput struct {
	TokenID int64 `json:"token_id" minimum:"1" doc:"Whose grant it is"`
	GrantScope
}

func (in *grantInput) check(f *faults) { in.GrantScope.check(f, "body.") }

// Resolve implements huma.Resolver.
func (in *grantInput) Resolve(huma.Context) []error { return checked(in) }

const (
	sqlGrants = `
SELECT g.id,
       g.token_id,
       t.name,
       g.role,
       coalesce(g.organisation_id, 0),
       coalesce(o.handle, ''),
       g.prefix,
       g.created_at
FROM registry.role_grant g
JOIN registry.api_token t ON t.id = g.token_id
LEFT JOIN registry.organisation o ON o.id = g.organisation_id`
	sqlGrant = sqlGrants + ` WHERE g.id = $1`
	// Revoked for good: a grant would say what cannot be.
	sqlLockTokenForGrant = `
SELECT revoked_at IS NOT NULL
FROM registry.api_token
WHERE id = $1
FOR SHARE`
	sqlCreateGrant = `
INSERT INTO registry.role_grant (token_id, role, organisation_id, prefix)
VALUES ($1, $2, $3, $4)
RETURNING id`
	sqlDeleteGrant = `DELETE FROM registry.role_grant WHERE id = $1`
)

func scanGrant(row pgx.CollectableRow) (g client.Grant, err error) {
	var prefix *netip.Prefix
	err = row.Scan(&g.ID, &g.TokenID, &g.Token, &g.Role, &g.OrganisationID, &g.Organisation, &prefix, &g.CreatedAt)
	if prefix != nil {
		g.Prefix = *prefix
	}
	g.CreatedAt = g.CreatedAt.UTC()
	return g, err
}

func oneGrant(ctx context.Context, q querier, id int64) (client.Grant, error) {
	rows, err := q.Query(ctx, sqlGrant, id)
	if err != nil {
		return client.Grant{}, err
	}
	g, err := pgx.CollectExactlyOneRow(rows, scanGrant)
	if errors.Is(err, pgx.ErrNoRows) {
		return g, unknown("grant", strconv.FormatInt(id, 10))
	}
	return g, err
}

// insertGrant gives a token a role; at is where the scope stands in the request.
func insertGrant(ctx context.Context, w *writing, token int64, scope *GrantScope, at string) (client.Grant, error) {
	organisation, err := scope.holder(ctx, w, at)
	if err != nil {
		return client.Grant{}, err
	}
	var prefix *netip.Prefix
	if scope.Prefix.value.IsValid() {
		prefix = &scope.Prefix.value
	}
	var id int64
	if err := w.QueryRow(ctx, sqlCreateGrant, token, scope.Role, organisation, prefix).Scan(&id); err != nil {
		return client.Grant{}, err
	}
	return oneGrant(ctx, w, id)
}

// holder is the organisation that the grant is on, or nil for one on a prefix.
func (g *GrantScope) holder(ctx context.Context, q querier, at string) (*int64, error) {
	id, err := OrganisationRef{g.OrganisationID, g.Organisation}.find(ctx, q)
	if !problem.Is(err, problem.Invalid) {
		return id, err
	}
	if g.Organisation != nil {
		return nil, invalid(at+"organisation", *g.Organisation, "there is no organisation %q: create it first, or name another", *g.Organisation)
	}
	return nil, invalid(at+"organisation_id", *g.OrganisationID, "there is no organisation %d: create it first, or name another", *g.OrganisationID)
}

type listGrantsInput struct {
	PageParams
	Token        int64   `query:"token" minimum:"1" doc:"Those of the token with this id"`
	Role         string  `query:"role" enum:"operator,authority,allocator,member,auditor,viewer"`
	Organisation string  `query:"organisation" maxLength:"80" doc:"Those on this organisation: its id or handle"`
	Covers       Network `query:"covers" doc:"Those on a prefix that contains this prefix or address, or is it"`
}

// Resolve implements huma.Resolver.
func (in *listGrantsInput) Resolve(huma.Context) []error {
	var f faults
	in.Covers.check(&f, "query.covers")
	return f.list
}

func (in *listGrantsInput) query() (*query, error) {
	q := newQuery(sqlGrants)
	var after int64
	if ok, err := in.decode("grants", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`g.id > ?`, after)
	}
	if in.Token != 0 {
		q.and(`g.token_id = ?`, in.Token)
	}
	if in.Role != "" {
		q.and(`g.role = ?`, in.Role)
	}
	if in.Organisation != "" {
		q.heldBy("g.organisation_id", in.Organisation)
	}
	if p := in.Covers.value; p.IsValid() {
		q.and(`g.prefix = ANY(?::cidr[])`, covering(p))
	}
	q.page(`g.id`, in.limit())
	return q, nil
}

func (s *service) listGrants(ctx context.Context, in *listGrantsInput) (*list[client.Grant], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanGrant, func(g client.Grant) string { return cursor("grants", g.ID) })
}

// GrantPath is the path parameter of one grant.
type GrantPath struct {
	ID int64 `path:"id" minimum:"1"`
}

type getGrantInput struct{ GrantPath }

type grantOutput struct {
	Body client.Grant
}

func (s *service) getGrant(ctx context.Context, in *getGrantInput) (*grantOutput, error) {
	out := &grantOutput{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = oneGrant(ctx, tx, in.ID)
		return err
	})
	return out, err
}

type createGrantInput struct {
	CreateParams
	Body grantInput
}

func (s *service) createGrant(ctx context.Context, in *createGrantInput) (*answer[client.Grant], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.Grant], err error) {
		id := in.Body.TokenID
		var revoked bool
		err = w.QueryRow(ctx, sqlLockTokenForGrant, id).Scan(&revoked)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return m, invalid("body.token_id", id, "there is no token %d: `hubn token list` shows them", id)
		case err != nil:
			return m, err
		case revoked:
			return m, problem.New(problem.Conflict, "the token %d was revoked for good: make another (hubn token create)", id)
		}
		g, err := insertGrant(ctx, w, id, &in.Body.GrantScope, "body.")
		return made[client.Grant]{object: g, location: "/v1/grants/" + strconv.FormatInt(g.ID, 10)}, err
	})
}

type deleteGrantInput struct {
	GrantPath
	ChangeParams
}

func (s *service) deleteGrant(ctx context.Context, in *deleteGrantInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		tag, err := w.Exec(ctx, sqlDeleteGrant, in.ID)
		if err == nil && tag.RowsAffected() == 0 {
			return unknown("grant", strconv.FormatInt(in.ID, 10))
		}
		return err
	})
}
