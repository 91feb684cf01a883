package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) tokenRoutes() {
	const tag = "tokens"
	register(s, operation{
		method: http.MethodGet, path: "/v1/tokens", id: "list-tokens", tag: tag,
		summary: "List tokens, without their secrets", needs: readTokens,
	}, s.listTokens)
	register(s, operation{
		method: http.MethodPost, path: "/v1/tokens", id: "create-token", tag: tag,
		summary: "Make a token", needs: manageTokens, status: http.StatusCreated,
		description: "The answer holds the token; it is shown this once, so it takes no Idempotency-Key.",
		problems:    []problem.Kind{problem.TooLarge, problem.Conflict},
	}, s.createToken)
	register(s, operation{
		method: http.MethodGet, path: "/v1/self", id: "get-self", tag: tag,
		summary: "Tell whom the caller's token stands for, and what it may", needs: readNouns,
	}, s.getSelf)
	register(s, operation{
		method: http.MethodGet, path: "/v1/tokens/{id}", id: "get-token", tag: tag,
		summary: "Read a token, without its secret", needs: readTokens, problems: []problem.Kind{problem.NotFound},
	}, s.getToken)
	register(s, operation{
		method: http.MethodPatch, path: "/v1/tokens/{id}", id: "change-token", tag: tag,
		summary: "Change what a token may, from where and until when", needs: manageTokens, problems: changeProblems,
		body: patchBody[*TokenSettings](s),
	}, s.changeToken)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/tokens/{id}", id: "revoke-token", tag: tag,
		summary: "Revoke a token", needs: manageTokens, status: http.StatusNoContent,
		description: "It needs no If-Match: whatever became of a token meanwhile, its revocation is what is wanted.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.revokeToken)
}

// TokenSettings are what may be changed of a token.
type TokenSettings struct {
	Name        string     `json:"name" minLength:"1" maxLength:"200" doc:"The actor in the change log"`
	Roles       []string   `json:"roles,omitempty" maxItems:"6" doc:"What it may everywhere: admin, operator, authority, auditor, viewer or module"`
	Module      string     `json:"module,omitempty" maxLength:"40" doc:"With the role module: the one that the token speaks for"`
	SourceCIDRs []Network  `json:"source_cidrs,omitempty" maxItems:"100" doc:"From where it may be used; none is from everywhere"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

var modulePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

func (in *TokenSettings) check(f *faults) {
	for i, r := range in.Roles {
		switch {
		case slices.Contains(wholeRoles, role(r)):
		case slices.Contains(roles, role(r)):
			f.add(fmt.Sprintf("body.roles[%d]", i), fmt.Errorf("the role %s is one of an organisation or a prefix: give it there, as a grant", r), r)
		default:
			f.add(fmt.Sprintf("body.roles[%d]", i), fmt.Errorf("there is no role %q: the roles are %v", r, wholeRoles), r)
		}
	}
	isModule := slices.Contains(in.Roles, string(roleModule))
	switch {
	case isModule && !modulePattern.MatchString(in.Module):
		f.add("body.module", errors.New("a token with the role module names its module: lower-case letters, digits, dashes and underscores"), in.Module)
	case !isModule && in.Module != "":
		f.add("body.module", errors.New("only a token with the role module names a module"), in.Module)
	}
	for i, n := range in.SourceCIDRs {
		n.check(f, fmt.Sprintf("body.source_cidrs[%d]", i))
	}
}

// sources are the source CIDRs as the database takes them.
func (in *TokenSettings) sources() []netip.Prefix {
	sources := []netip.Prefix{}
	for _, n := range in.SourceCIDRs {
		sources = append(sources, n.value)
	}
	return sources
}

// roleNames are the roles, none twice; never null.
func (in *TokenSettings) roleNames() []string {
	names := append([]string{}, in.Roles...)
	slices.Sort(names)
	return slices.Compact(names)
}

type tokenInput struct {
	TokenSettings
	Grants []GrantScope `json:"grants,omitempty" maxItems:"100" doc:"What it may on a part of the Registry"`
}

func (in *tokenInput) check(f *faults) {
	in.TokenSettings.check(f)
	if len(in.Roles) == 0 && len(in.Grants) == 0 {
		f.add("body.roles", errors.New("a token may something: give it a role, or a grant on an organisation or a prefix"), in.Roles)
	}
	for i := range in.Grants {
		in.Grants[i].check(f, fmt.Sprintf("body.grants[%d].", i))
	}
}

// Resolve implements huma.Resolver.
func (in *tokenInput) Resolve(huma.Context) []error { return checked(in) }

const (
	sqlTokens = `
SELECT id,
       public_id,
       name,
       roles,
       coalesce(module, ''),
       source_cidrs,
       expires_at,
       revoked_at,
       last_used_at,
       created_at,
       revision
FROM registry.api_token`
	sqlToken       = sqlTokens + ` WHERE id = $1`
	sqlLockToken   = sqlToken + ` FOR NO KEY UPDATE`
	sqlCreateToken = `
INSERT INTO registry.api_token (public_id, secret_hash, name, roles, module, source_cidrs, expires_at)
VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7)
RETURNING id`
	sqlChangeToken = `
UPDATE registry.api_token
SET name = $2,
    roles = $3,
    module = nullif($4, ''),
    source_cidrs = $5,
    expires_at = $6
WHERE id = $1`
	sqlRevokeToken = `
UPDATE registry.api_token
SET revoked_at = clock_timestamp()
WHERE id = $1
  AND revoked_at IS NULL`
)

func scanAPIToken(row pgx.CollectableRow) (t client.Token, err error) {
	var expires, revoked, used *time.Time
	err = row.Scan(&t.ID, &t.PublicID, &t.Name, &t.Roles, &t.Module, &t.SourceCIDRs, &expires, &revoked, &used, &t.CreatedAt, &t.Revision)
	t.ExpiresAt, t.RevokedAt, t.LastUsedAt = orZero(expires), orZero(revoked), orZero(used)
	t.CreatedAt = t.CreatedAt.UTC()
	return t, err
}

// orZero is a time of the database in UTC, or the zero time.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func oneToken(ctx context.Context, q querier, sql string, id int64) (client.Token, error) {
	rows, err := q.Query(ctx, sql, id)
	if err != nil {
		return client.Token{}, err
	}
	t, err := pgx.CollectExactlyOneRow(rows, scanAPIToken)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, unknown("token", strconv.FormatInt(id, 10))
	}
	return t, err
}

type listTokensInput struct{ PageParams }

func (in *listTokensInput) query() (*query, error) {
	q := newQuery(sqlTokens)
	var after int64
	if ok, err := in.decode("tokens", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`id > ?`, after)
	}
	q.page(`id`, in.limit())
	return q, nil
}

func (s *service) listTokens(ctx context.Context, in *listTokensInput) (*list[client.Token], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanAPIToken, func(t client.Token) string { return cursor("tokens", t.ID) })
}

// TokenPath is the path parameter of one token.
type TokenPath struct {
	ID int64 `path:"id" minimum:"1"`
}

type getTokenInput struct{ TokenPath }

func (s *service) getToken(ctx context.Context, in *getTokenInput) (*found[client.Token], error) {
	out := &found[client.Token]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = oneToken(ctx, tx, sqlToken, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type selfOutput struct {
	Body client.Self
}

func (s *service) getSelf(ctx context.Context, _ *struct{}) (*selfOutput, error) {
	p := callOf(ctx).principal
	self := client.Self{Name: p.Name, PublicID: p.TokenID, Module: p.Module, Roles: []string{}, Grants: []client.Scope{}}
	for _, r := range p.Roles {
		self.Roles = append(self.Roles, string(r))
	}
	for _, g := range p.Grants {
		self.Grants = append(self.Grants, client.Scope{Role: string(g.Role), OrganisationID: g.Organisation, Prefix: g.Prefix})
	}
	return &selfOutput{Body: self}, nil
}

// A token takes no Idempotency-Key: the answer, with the secret, would be kept.
type createTokenInput struct {
	ChangeParams
	Body tokenInput
}

func (s *service) createToken(ctx context.Context, in *createTokenInput) (*answer[client.NewToken], error) {
	out, err := mutate(ctx, s, CreateParams{ChangeParams: in.ChangeParams}, nil, func(ctx context.Context, w *writing) (m made[client.NewToken], err error) {
		secret, publicID := newSecret()
		hash := sha256.Sum256([]byte(secret))
		b := &in.Body
		var id int64
		err = w.QueryRow(ctx, sqlCreateToken, publicID, hash[:], b.Name, b.roleNames(), b.Module, b.sources(), b.ExpiresAt).Scan(&id)
		if err != nil {
			return m, err
		}
		t := client.NewToken{Secret: secret, Grants: []client.Grant{}}
		for i := range b.Grants {
			g, err := insertGrant(ctx, w, id, &b.Grants[i], fmt.Sprintf("body.grants[%d].", i))
			if err != nil {
				return m, err
			}
			t.Grants = append(t.Grants, g)
		}
		t.Token, err = oneToken(ctx, w, sqlToken, id)
		return made[client.NewToken]{t, t.Revision, "/v1/tokens/" + strconv.FormatInt(id, 10)}, err
	})
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		out.Body.Secret = "" // it would never be good for anything
		return out, nil
	}
	s.log.Info("a token was made", "token", out.Body.PublicID, "name", out.Body.Name,
		"roles", strings.Join(out.Body.Roles, ","), "grants", len(out.Body.Grants), "actor", callOf(ctx).principal.Name)
	return out, nil
}

type changeTokenInput struct {
	TokenPath
	AlterParams
	PatchBody
}

func (s *service) changeToken(ctx context.Context, in *changeTokenInput) (*answer[client.Token], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Token], err error) {
		t, err := oneToken(ctx, w, sqlLockToken, in.ID)
		if err != nil {
			return m, err
		}
		if err := matches(in.IfMatch, t.Revision, t); err != nil {
			return m, err
		}
		if !t.RevokedAt.IsZero() {
			return m, problem.New(problem.Conflict, "the token %s was revoked for good: make another (hubn token create)", t.PublicID)
		}
		next, err := patched(s, settingsOf(t), in.RawBody)
		if err != nil {
			return m, err
		}
		if _, err := w.Exec(ctx, sqlChangeToken, t.ID, next.Name, next.roleNames(), next.Module, next.sources(), next.ExpiresAt); err != nil {
			return m, err
		}
		t, err = oneToken(ctx, w, sqlToken, t.ID)
		return made[client.Token]{object: t, revision: t.Revision}, err
	})
}

func settingsOf(t client.Token) *TokenSettings {
	in := &TokenSettings{Name: t.Name, Roles: t.Roles, Module: t.Module}
	for _, p := range t.SourceCIDRs {
		in.SourceCIDRs = append(in.SourceCIDRs, Network{value: p})
	}
	if !t.ExpiresAt.IsZero() {
		in.ExpiresAt = &t.ExpiresAt
	}
	return in
}

type revokeTokenInput struct {
	TokenPath
	ChangeParams
}

func (s *service) revokeToken(ctx context.Context, in *revokeTokenInput) (*gone, error) {
	out, err := remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		if _, err := oneToken(ctx, w, sqlLockToken, in.ID); err != nil {
			return err
		}
		_, err := w.Exec(ctx, sqlRevokeToken, in.ID)
		return err
	})
	if err == nil && !in.DryRun {
		s.log.Info("a token was revoked", "token", in.ID, "actor", callOf(ctx).principal.Name)
	}
	return out, err
}
