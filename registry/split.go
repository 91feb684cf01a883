package registry

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// Between its steps a division has prefixes that overlap as siblings.
	sqlDividing = `
SET CONSTRAINTS registry.prefix_siblings_disjoint, registry.prefix_parent_fkey,
  registry.ptr_record_prefix_fkey, registry.anycast_allocation_container_fkey DEFERRED`
	sqlAcrossParts = `
SELECT kind,
       key,
       label,
       count(*) OVER ()
FROM (
  SELECT 'prefix' AS kind, id::text AS key, prefix::text AS label
  FROM registry.prefix
  WHERE parent_id = $1
    AND masklen(prefix) <= $3
  UNION ALL
  SELECT 'anycast', id::text, prefix::text || ' ' || service
  FROM registry.anycast_allocation
  WHERE container_id = $1
    AND masklen(prefix) < $3
) across
LIMIT $2`
	sqlInsertParts = `
INSERT INTO registry.prefix
  (prefix, parent_id, parent_prefix, organisation_id, kind, status, provenance, name, announced, origin_asn, max_length,
   route_organisation_id, reverse_mode, name_servers, name_server_set_id, rfc2317_style, zone_cut)
SELECT part, p.parent_id, p.parent_prefix, p.organisation_id, p.kind, p.status, p.provenance, p.name, p.announced, p.origin_asn,
       CASE WHEN p.max_length >= masklen(part) THEN p.max_length END,
       p.route_organisation_id, p.reverse_mode, p.name_servers, p.name_server_set_id, p.rfc2317_style,
       CASE WHEN p.zone_cut >= masklen(part) THEN p.zone_cut END
FROM registry.prefix p
CROSS JOIN unnest($2::cidr[]) AS part
WHERE p.id = $1
RETURNING id`
	// A new prefix without a parent finds the one that is being divided.
	sqlLiftParts = `
UPDATE registry.prefix
SET parent_id = NULL,
    parent_prefix = NULL
WHERE id = ANY($1)
  AND parent_id = $2`
	sqlSplitChildren = `
UPDATE registry.prefix c
SET parent_id = n.id,
    parent_prefix = n.prefix
FROM registry.prefix n
WHERE c.parent_id = $1
  AND n.id = ANY($2)
  AND c.prefix << n.prefix`
	sqlSplitPTR = `
UPDATE registry.ptr_record r
SET prefix_id = n.id,
    prefix = n.prefix
FROM registry.prefix n
WHERE r.prefix_id = $1
  AND n.id = ANY($2)
  AND r.address <<= n.prefix`
	sqlSplitAnycast = `
UPDATE registry.anycast_allocation a
SET container_id = n.id,
    container = n.prefix
FROM registry.prefix n
WHERE a.container_id = $1
  AND n.id = ANY($2)
  AND a.prefix <<= n.prefix`
	sqlShrink = `
UPDATE registry.prefix
SET prefix = $2,
    max_length = CASE WHEN max_length >= masklen($2::cidr) THEN max_length END,
    zone_cut = CASE WHEN zone_cut >= masklen($2::cidr) THEN zone_cut END
WHERE id = $1`
)

type splitInput struct {
	Length int `json:"length" minimum:"1" maximum:"128" doc:"The length of the parts; at most 256 of them"`
}

type splitRequest struct {
	PrefixPath
	AlterParams
	Body splitInput
}

func (s *service) splitPrefix(ctx context.Context, in *splitRequest) (*answer[client.Prefixes], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Prefixes], err error) {
		p, err := in.lock(ctx, w, in.IfMatch)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, writeNouns, target{organisations: []int64{p.OrganisationID}, prefixes: []netip.Prefix{p.Prefix}}); err != nil {
			return m, err
		}
		if err := divisible(ctx, w, p, in.Body.Length); err != nil {
			return m, err
		}
		ids, err := divide(ctx, w, p, parts(p.Prefix, in.Body.Length))
		if err != nil {
			return m, err
		}
		m.object.Items, err = prefixesByID(ctx, w, ids)
		return m, err
	})
}

// divisible refuses what cannot be divided into parts of a length.
func divisible(ctx context.Context, w *writing, p client.Prefix, bits int) error {
	longest := min(hostBits(p.Prefix), p.Prefix.Bits()+8) // maxAtOnce parts
	switch {
	case p.Prefix.Bits() == hostBits(p.Prefix):
		return invalid("body.length", bits, "%s is a single address: there is nothing to divide", p.Prefix)
	case bits <= p.Prefix.Bits() || bits > longest:
		return invalid("body.length", bits, "%s is divided into parts of length %d to %d (at most %d of them), not %d",
			p.Prefix, p.Prefix.Bits()+1, longest, maxAtOnce, bits)
	case len(p.Reverse.DS) > 0:
		return ofWholeZone(p)
	}
	across, count, err := findDependants(ctx, w, sqlAcrossParts, p.ID, dependantsShown, bits)
	if err != nil || count == 0 {
		return err
	}
	return problem.New(problem.Conflict, "%s cannot be divided into parts of length %d: %s in it %s not smaller than a part (%s first)",
		p.Prefix, bits, counted64(count, "resource"), isAre(count), across[0].Label).With("dependants", across).With("dependants_count", count)
}

// ofWholeZone refuses to carry a DS record over to another zone: there it would make
// every answer bogus.
func ofWholeZone(p client.Prefix) error {
	return problem.New(problem.Conflict, "the DS records of %s are those of its reverse zone as it is: remove them first, and add those of the new zones after", p.Prefix)
}

// divide makes the prefix the first of the parts, and the others new.
func divide(ctx context.Context, w *writing, p client.Prefix, parts []netip.Prefix) ([]int64, error) {
	w.deferred = true
	if _, err := w.Exec(ctx, sqlDividing); err != nil {
		return nil, err
	}
	rows, err := w.Query(ctx, sqlInsertParts, p.ID, parts[1:])
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	if len(ids) != len(parts)-1 {
		return nil, fmt.Errorf("%d parts of %s were made, not %d", len(ids), p.Prefix, len(parts)-1)
	}
	for _, step := range []string{sqlSplitChildren, sqlSplitPTR, sqlSplitAnycast} {
		if _, err := w.Exec(ctx, step, p.ID, ids); err != nil {
			return nil, err
		}
	}
	if p.ParentID == 0 {
		if _, err := w.Exec(ctx, sqlLiftParts, ids, p.ID); err != nil {
			return nil, err
		}
	}
	_, err = w.Exec(ctx, sqlShrink, p.ID, parts[0])
	return append([]int64{p.ID}, ids...), err
}
