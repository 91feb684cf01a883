package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) leaseRoutes() {
	register(s, operation{
		method: http.MethodPut, path: "/v1/leases/{name}", id: "acquire-lease", tag: "leases",
		summary: "Take or renew a lease", needs: lease, unlogged: true,
		description: "Held says whether the caller has it. The token grows with every change of the holder. " +
			"A module's leases are named like the module, or begin with its name and a colon.",
	}, s.acquireLease)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/leases/{name}", id: "release-lease", tag: "leases",
		summary: "Give a lease back", needs: lease, unlogged: true,
		description: "Changes nothing when another holds it by now.",
	}, s.releaseLease)
}

type acquireLeaseInput struct {
	Name string `path:"name" pattern:"^[a-z0-9][a-z0-9:._-]{0,119}$"`
	Body client.LeaseRequest
}

type leaseOutput struct {
	Body client.Lease
}

// All times are the database's. A lease that ran out may be renewed by its last
// holder under the same token: nobody else had it in between.
const (
	sqlAcquireLease = `
INSERT INTO registry.lease AS l (name, holder, expires_at)
VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3::double precision / 1000))
ON CONFLICT (name) DO UPDATE
SET holder = EXCLUDED.holder,
    token = l.token + CASE WHEN l.holder = EXCLUDED.holder THEN 0 ELSE 1 END,
    expires_at = EXCLUDED.expires_at
WHERE l.holder = EXCLUDED.holder
   OR l.expires_at <= clock_timestamp()
RETURNING l.holder, l.token, l.expires_at`
	sqlLease = `
SELECT l.holder, l.token, l.expires_at
FROM registry.lease l
WHERE l.name = $1`
	// The row stays, so that the token never starts again; nobody is the holder.
	sqlReleaseLease = `
UPDATE registry.lease
SET holder = '',
    expires_at = clock_timestamp()
WHERE name = $1
  AND holder = $2
  AND token = $3`
)

func (s *service) acquireLease(ctx context.Context, in *acquireLeaseInput) (*leaseOutput, error) {
	if err := callOf(ctx).principal.mayLease(in.Name); err != nil {
		return nil, err
	}
	var out leaseOutput
	err := s.record(ctx, func(ctx context.Context, tx *writing) error {
		l := client.Lease{Name: in.Name, Held: true}
		row := tx.QueryRow(ctx, sqlAcquireLease, in.Name, in.Body.Holder, in.Body.TTLMilliseconds)
		err := row.Scan(&l.Holder, &l.Token, &l.ExpiresAt)
		if errors.Is(err, pgx.ErrNoRows) {
			l.Held = false
			err = tx.QueryRow(ctx, sqlLease, in.Name).Scan(&l.Holder, &l.Token, &l.ExpiresAt)
		}
		out.Body = l
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type releaseLeaseInput struct {
	Name   string `path:"name"`
	Holder string `query:"holder" required:"true" minLength:"1"`
	Token  int64  `query:"token" required:"true"`
}

func (s *service) releaseLease(ctx context.Context, in *releaseLeaseInput) (*struct{}, error) {
	if err := callOf(ctx).principal.mayLease(in.Name); err != nil {
		return nil, err
	}
	return nil, s.record(ctx, func(ctx context.Context, tx *writing) error {
		_, err := tx.Exec(ctx, sqlReleaseLease, in.Name, in.Holder, in.Token)
		return err
	})
}

// mayLease guards the leases of one module against the others.
func (p principal) mayLease(name string) error {
	owner, _, _ := strings.Cut(name, ":")
	if slices.Contains(p.Roles, roleAdmin) || slices.Contains(p.Roles, roleModule) && p.Module == owner {
		return nil
	}
	return problem.New(problem.Forbidden, "%s may not hold the lease %q: a module's leases are named %s or %s:…", p.Name, name, p.Module, p.Module)
}
