package registry

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// The conditions are those of the index of former names.
const sqlFormerlyCalled = `
SELECT c.kind, c.agg_key
FROM registry.change_log c
WHERE registry.change_name(c.table_name, c.before) = ANY ($1)
  AND c.op <> 'insert'
  AND registry.change_name(c.table_name, c.before) IS DISTINCT FROM registry.change_name(c.table_name, c.after)
GROUP BY c.kind, c.agg_key
ORDER BY max(c.id) DESC
LIMIT 100`

// formerly is every resource that had a name and lost it, by deletion or by a
// change, the last one first.
func formerly(ctx context.Context, q querier, text string) ([]client.Resource, error) {
	names := []string{text} // those of CAs keep their case
	if prefix, err := netip.ParsePrefix(text); err == nil {
		names = append(names, prefix.String())
	} else if address, err := netip.ParseAddr(text); err == nil {
		names = append(names, address.String())
	} else {
		names = append(names, strings.ToLower(text))
	}
	rows, err := q.Query(ctx, sqlFormerlyCalled, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r client.Resource, err error) {
		return r, row.Scan(&r.Kind, &r.Key)
	})
}

// resolveFormer is what was called so, as far as its lane is a tombstone still.
func resolveFormer(ctx context.Context, q querier, text string) ([]client.Candidate, error) {
	resources, err := formerly(ctx, q, text)
	if asn, asnErr := client.ParseASN(text); asnErr == nil {
		resources = append(resources, client.Resource{Kind: client.KindASN, Key: strconv.FormatUint(uint64(asn), 10)})
	}
	if err != nil {
		return nil, err
	}
	var candidates []client.Candidate
	for _, r := range resources {
		named, err := resolveNamed(ctx, q, r)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		candidates = append(candidates, named...)
	}
	return candidates, nil
}

// everCalled is every resource that a text names or named: the present ones
// first. None is a problem.
func everCalled(ctx context.Context, q querier, text string) ([]client.Resource, error) {
	text = strings.TrimSpace(text)
	if kind, key, ok := strings.Cut(text, ":"); ok && slices.Contains(client.SourceKinds, client.Kind(kind)) {
		return resourcesOf(ctx, q, client.Kind(kind), key)
	}
	var resources []client.Resource
	present, err := resolvePresent(ctx, q, text)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	missing := err
	address, notAddress := netip.ParseAddr(text)
	for _, c := range present {
		// An address stands for itself, not for the prefix around it.
		if notAddress != nil || c.Resource.Kind == client.KindPTR {
			resources = append(resources, c.Resource)
		}
	}
	if notAddress == nil {
		resources = append(resources, client.Resource{Kind: client.KindPTR, Key: address.String()})
	} else if asn, err := client.ParseASN(text); err == nil {
		resources = append(resources, client.Resource{Kind: client.KindASN, Key: strconv.FormatUint(uint64(asn), 10)})
	}
	former, err := formerly(ctx, q, text)
	if err != nil {
		return nil, err
	}
	for _, r := range former {
		if !slices.Contains(resources, r) {
			resources = append(resources, r)
		}
	}
	if len(resources) == 0 {
		return nil, missing
	}
	return resources, nil
}

// resourcesOf is the resource of a kind with a key, or all of the kind that have
// or had it as their name.
func resourcesOf(ctx context.Context, q querier, kind client.Kind, key string) ([]client.Resource, error) {
	src, err := sourceOf(kind)
	if err != nil {
		return nil, err
	}
	if asn, err := client.ParseASN(key); kind == client.KindASN && err == nil {
		key = strconv.FormatUint(uint64(asn), 10)
	}
	parsed, keyErr := src.parse(key)
	if keyErr == nil {
		return []client.Resource{{Kind: kind, Key: parsed}}, nil
	}
	if kind == client.KindASN || kind == client.KindPTR {
		return nil, keyErr
	}
	named, err := everCalled(ctx, q, key)
	if err != nil {
		return nil, err
	}
	named = slices.DeleteFunc(named, func(r client.Resource) bool { return r.Kind != kind })
	if len(named) == 0 {
		return nil, problem.New(problem.NotFound, "no %s is or was called %s", kind, key)
	}
	return named, nil
}
