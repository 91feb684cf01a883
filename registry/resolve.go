package registry

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) resolveRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/resolve", id: "resolve", tag: "state",
		summary: "Find the resource that a person means", needs: readNouns,
		description: "Takes a prefix, an address, an AS number, the handle of an organisation, the name of a CA or name server set, or kind:key.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.resolve)
}

type resolveInput struct {
	Q string `query:"q" required:"true" minLength:"1" maxLength:"300" example:"192.0.2.0/24"`
}

type resolveOutput struct {
	Body client.Resolved
}

// The statements answer (kind, key, label), the likeliest first.
const (
	sqlResolvePrefix = `
SELECT 'prefix', p.id::text, p.prefix::text, 1
FROM registry.prefix p
WHERE p.prefix = $1
UNION ALL
SELECT 'anycast', a.id::text, a.prefix || ' ' || a.service, 2
FROM registry.anycast_allocation a
WHERE a.prefix = $1
ORDER BY 4, 2`
	sqlResolveAddress = `
(SELECT 'ptr', host(r.address), host(r.address)
 FROM registry.ptr_record r
 WHERE r.address = $1
 LIMIT 1)
UNION ALL
SELECT 'prefix', c.id::text, c.prefix::text
FROM registry.prefix_covering($1, false) c
WHERE c.id IS NOT NULL`
	sqlResolveASN = `
SELECT 'asn', r.number::text, 'AS' || r.number
FROM registry.asn r
WHERE r.number = $1`
	sqlResolveName = `
SELECT 'organisation', r.id::text, r.handle, 1
FROM registry.organisation r
WHERE lower(r.handle) = lower($1)
UNION ALL
SELECT 'ca', r.id::text, r.name, 2
FROM registry.certificate_authority r
WHERE r.name = $1
UNION ALL
SELECT 'nsset', r.id::text, r.name, 3
FROM registry.name_server_set r
WHERE r.name = $1
ORDER BY 4`
	sqlCovering = `
SELECT c.id::text, c.prefix::text
FROM registry.prefix_covering($1, true) c
WHERE c.id IS NOT NULL`
)

func (s *service) resolve(ctx context.Context, in *resolveInput) (*resolveOutput, error) {
	q := strings.TrimSpace(in.Q)
	var out resolveOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		candidates, err := resolve(ctx, tx, q)
		if err != nil {
			return err
		}
		out.Body = client.Resolved{Resource: candidates[0].Resource, Label: candidates[0].Label, Candidates: candidates}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// resolve answers what q may mean, the likeliest first; never none. What nothing
// is called any more is what was called so last.
func resolve(ctx context.Context, q querier, text string) ([]client.Candidate, error) {
	candidates, err := resolvePresent(ctx, q, text)
	if !problem.Is(err, problem.NotFound) {
		return candidates, err
	}
	former, formerErr := resolveFormer(ctx, q, text)
	if formerErr != nil || len(former) > 0 {
		return former, formerErr
	}
	return nil, err
}

// resolvePresent answers what is called q now.
func resolvePresent(ctx context.Context, q querier, text string) ([]client.Candidate, error) {
	if kind, key, ok := strings.Cut(text, ":"); ok && slices.Contains(client.SourceKinds, client.Kind(kind)) {
		return resolveNamed(ctx, q, client.Resource{Kind: client.Kind(kind), Key: key})
	}
	if strings.Contains(text, "/") {
		return resolvePrefix(ctx, q, text)
	}
	if address, err := netip.ParseAddr(text); err == nil {
		if address.Zone() != "" || address.Is4In6() {
			return nil, problem.New(problem.Invalid, "%q has a zone or is an IPv4-mapped address: write the plain address", text)
		}
		return candidatesOf(ctx, q, "no PTR record and no prefix is registered for "+text, sqlResolveAddress, netip.PrefixFrom(address, address.BitLen()))
	}
	if asn, err := client.ParseASN(text); err == nil {
		return candidatesOf(ctx, q, asn.String()+" is not registered", sqlResolveASN, int64(asn))
	}
	return candidatesOf(ctx, q, "nothing is called "+text+
		": write a prefix, an address, an AS number, the handle of an organisation, or kind:key such as prefix:17", sqlResolveName, text)
}

// resolveNamed takes a resource by its name, also one that is deleted and not
// yet forgotten.
func resolveNamed(ctx context.Context, q querier, r client.Resource) ([]client.Candidate, error) {
	src, err := sourceOf(r.Kind)
	if err != nil {
		return nil, err
	}
	key, err := src.parse(r.Key)
	if err != nil {
		return resolveNamedOtherwise(ctx, q, r)
	}
	r.Key = key
	items, err := src.fetch(ctx, q, []string{r.Key})
	if err != nil {
		return nil, err
	}
	if items[0].State == client.SourceForgotten {
		return nil, problem.New(problem.NotFound, "the Registry does not know %s (any more)", r)
	}
	labels, err := readLabels(ctx, q, []client.Resource{r})
	if err != nil {
		return nil, err
	}
	label, ok := labels[r]
	if !ok {
		label, err = formerLabel(ctx, q, r)
	}
	return []client.Candidate{{Resource: r, Label: label}}, err
}

// resolveNamedOtherwise finds what is called by its kind and its name, such as
// organisation:EXAMPLE.
func resolveNamedOtherwise(ctx context.Context, q querier, r client.Resource) ([]client.Candidate, error) {
	found, err := resolve(ctx, q, r.Key)
	if known := problem.Is(err, problem.NotFound) || problem.Is(err, problem.Invalid); err != nil && !known {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(c client.Candidate) bool { return c.Resource.Kind != r.Kind })
	if len(found) == 0 {
		return nil, problem.New(problem.NotFound, "there is no %s called %q: write its id, or a name that it has", r.Kind, r.Key)
	}
	return found, nil
}

func resolvePrefix(ctx context.Context, q querier, text string) ([]client.Candidate, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return nil, problem.New(problem.Invalid, "%q is not a prefix", text)
	}
	if prefix != prefix.Masked() {
		return nil, problem.New(problem.Invalid, "%s has host bits; the prefix is %s", text, prefix.Masked())
	}
	candidates, err := candidatesOf(ctx, q, "", sqlResolvePrefix, prefix)
	if err != nil || len(candidates) > 0 {
		return candidates, err
	}
	missing := problem.New(problem.NotFound, "the prefix %s is not registered", prefix)
	var id, covering string
	switch err := q.QueryRow(ctx, sqlCovering, prefix).Scan(&id, &covering); err {
	case nil:
		missing = problem.New(problem.NotFound, "the prefix %s is not registered; it lies in %s (prefix:%s)", prefix, covering, id)
	case pgx.ErrNoRows:
	default:
		return nil, err
	}
	return nil, missing
}

// candidatesOf reads rows of (kind, key, label); none is a problem, unless
// missing is empty.
func candidatesOf(ctx context.Context, q querier, missing, sql string, args ...any) ([]client.Candidate, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c client.Candidate, err error) {
		into := []any{&c.Resource.Kind, &c.Resource.Key, &c.Label}
		for range len(row.FieldDescriptions()) - len(into) {
			into = append(into, nil) // the order column
		}
		return c, row.Scan(into...)
	})
	if err == nil && len(out) == 0 && missing != "" {
		return nil, problem.New(problem.NotFound, "%s", missing)
	}
	return out, err
}
