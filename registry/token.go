package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
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
		summary: "List tokens, without their secrets", needs: manageTokens,
	}, s.listTokens)
	register(s, operation{
		method: http.MethodPost, path: "/v1/tokens", id: "create-token", tag: tag,
		summary: "Make a token", needs: manageTokens, status: http.StatusCreated,
		description: "The answer holds the token; it is shown this once.",
		problems:    []problem.Kind{problem.TooLarge},
	}, s.createToken)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/tokens/{id}", id: "revoke-token", tag: tag,
		summary: "Revoke a token", needs: manageTokens, status: http.StatusNoContent,
		problems: []problem.Kind{problem.NotFound},
	}, s.revokeToken)
}

type tokenInput struct {
	Name        string     `json:"name" minLength:"1" maxLength:"200" doc:"The actor in the change log"`
	Roles       []string   `json:"roles" minItems:"1" maxItems:"4" doc:"admin, operator, viewer or module"`
	Module      string     `json:"module,omitempty" maxLength:"40" doc:"With the role module: the one that the token speaks for"`
	SourceCIDRs []Network  `json:"source_cidrs,omitempty" maxItems:"100" doc:"From where it may be used; none is from everywhere"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

var modulePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

func (in *tokenInput) check(f *faults) {
	for i, r := range in.Roles {
		if !slices.Contains(roles, role(r)) {
			f.add(fmt.Sprintf("body.roles[%d]", i), fmt.Errorf("there is no role %q: the roles are %v", r, roles), r)
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
       created_at
FROM registry.api_token`
	sqlToken       = sqlTokens + ` WHERE id = $1`
	sqlCreateToken = `
INSERT INTO registry.api_token (public_id, secret_hash, name, roles, module, source_cidrs, expires_at)
VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7)
RETURNING id`
	sqlRevokeToken = `
UPDATE registry.api_token
SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE id = $1`
)

func scanAPIToken(row pgx.CollectableRow) (t client.Token, err error) {
	var expires, revoked, used *time.Time
	err = row.Scan(&t.ID, &t.PublicID, &t.Name, &t.Roles, &t.Module, &t.SourceCIDRs, &expires, &revoked, &used, &t.CreatedAt)
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

// A token takes no Idempotency-Key: the answer, with the secret, would be kept.
type createTokenInput struct {
	Body tokenInput
}

type createTokenOutput struct {
	Body client.NewToken
}

func (s *service) createToken(ctx context.Context, in *createTokenInput) (*createTokenOutput, error) {
	out := &createTokenOutput{}
	err := s.write(ctx, func(ctx context.Context, w *writing) error {
		secret, publicID := newSecret()
		hash := sha256.Sum256([]byte(secret))
		var sources []string
		for _, n := range in.Body.SourceCIDRs {
			sources = append(sources, n.value.String())
		}
		if sources == nil {
			sources = []string{}
		}
		var id int64
		err := w.QueryRow(ctx, sqlCreateToken, publicID, hash[:], in.Body.Name, in.Body.Roles, in.Body.Module, sources, in.Body.ExpiresAt).Scan(&id)
		if err != nil {
			return err
		}
		rows, err := w.Query(ctx, sqlToken, id)
		if err != nil {
			return err
		}
		out.Body.Token, err = pgx.CollectExactlyOneRow(rows, scanAPIToken)
		out.Body.Secret = secret
		return err
	})
	if err == nil {
		s.log.Info("a token was made", "token", out.Body.PublicID, "name", out.Body.Name,
			"roles", strings.Join(out.Body.Roles, ","), "actor", callOf(ctx).principal.Name)
	}
	return out, err
}

type revokeTokenInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *service) revokeToken(ctx context.Context, in *revokeTokenInput) (*struct{}, error) {
	err := s.write(ctx, func(ctx context.Context, w *writing) error {
		tag, err := w.Exec(ctx, sqlRevokeToken, in.ID)
		if err == nil && tag.RowsAffected() == 0 {
			return unknown("token", strconv.FormatInt(in.ID, 10))
		}
		return err
	})
	if err == nil {
		s.log.Info("a token was revoked", "token", in.ID, "actor", callOf(ctx).principal.Name)
	}
	return nil, err
}
