package registry

import (
	"context"
	"net/netip"

	"hubn/registry/rpsl"
)

// originRows are route origins as columns, for unnest.
type originRows struct {
	ids, asns  []int64
	maxLengths []*int
	actives    []bool
	prefixes   []netip.Prefix
	services   []string
	parents    []int64
}

func (r *originRows) add(a *rpsl.Allocation, o rpsl.RouteOrigin) {
	r.ids = append(r.ids, o.ID)
	r.asns = append(r.asns, int64(o.ASN))
	r.maxLengths = append(r.maxLengths, o.MaxLength)
	r.actives = append(r.actives, o.Active)
	r.prefixes = append(r.prefixes, a.Prefix)
	r.services = append(r.services, a.Service)
	r.parents = append(r.parents, a.ID)
}

const sqlImportDeleteOrigins = `
DELETE FROM registry.anycast_route_origin
WHERE id = ANY ($1)`

const sqlImportUpdateOrigins = `
UPDATE registry.anycast_route_origin r
SET asn = c.asn,
    max_length = c.max_length,
    active = c.active
FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::boolean[]) AS c (id, asn, max_length, active)
WHERE r.id = c.id`

const sqlImportInsertOrigins = `
INSERT INTO registry.anycast_route_origin (allocation_id, prefix, asn, max_length, active)
SELECT *
FROM unnest($1::bigint[], $2::cidr[], $3::bigint[], $4::smallint[], $5::boolean[])`

// updateOrigins turns the origins of allocations that stay into the new ones.
// Rows go before others change into what they were.
func (w *importWrite) updateOrigins(ctx context.Context) error {
	var gone []int64
	var changed, added originRows
	for i := range w.plan.UpdateAllocations {
		u := &w.plan.UpdateAllocations[i]
		for _, o := range u.DeleteOrigins {
			gone = append(gone, o.ID)
		}
		for _, o := range u.UpdateOrigins {
			changed.add(&u.Now, o)
		}
		for _, o := range u.InsertOrigins {
			added.add(&u.Now, o)
		}
	}
	if len(gone) > 0 {
		if err := w.exec(ctx, "delete route origins", sqlImportDeleteOrigins, gone); err != nil {
			return err
		}
	}
	if len(changed.ids) > 0 {
		if err := w.exec(ctx, "update route origins", sqlImportUpdateOrigins, changed.ids, changed.asns, changed.maxLengths, changed.actives); err != nil {
			return err
		}
	}
	if len(added.ids) == 0 {
		return nil
	}
	return w.exec(ctx, "insert route origins", sqlImportInsertOrigins,
		added.parents, added.prefixes, added.asns, added.maxLengths, added.actives)
}

const sqlImportInsertAllocations = `
INSERT INTO registry.anycast_allocation (prefix, service)
SELECT *
FROM unnest($1::cidr[], $2::text[])`

const sqlImportInsertAllocationOrigins = `
INSERT INTO registry.anycast_route_origin (allocation_id, prefix, asn, max_length, active)
SELECT a.id, a.prefix, o.asn, o.max_length, o.active
FROM unnest($1::cidr[], $2::text[], $3::bigint[], $4::smallint[], $5::boolean[])
  AS o (prefix, service, asn, max_length, active)
JOIN registry.anycast_allocation a USING (prefix, service)`

func (w *importWrite) insertAllocations(ctx context.Context) error {
	if len(w.plan.InsertAllocations) == 0 {
		return nil
	}
	var prefixes []netip.Prefix
	var services []string
	var origins originRows
	for i := range w.plan.InsertAllocations {
		a := &w.plan.InsertAllocations[i]
		prefixes, services = append(prefixes, a.Prefix), append(services, a.Service)
		for _, o := range a.Origins {
			origins.add(a, o)
		}
	}
	if err := w.exec(ctx, "insert anycast allocations", sqlImportInsertAllocations, prefixes, services); err != nil {
		return err
	}
	return w.exec(ctx, "insert route origins", sqlImportInsertAllocationOrigins,
		origins.prefixes, origins.services, origins.asns, origins.maxLengths, origins.actives)
}
