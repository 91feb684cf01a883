package registry

import (
	"context"
	"net/netip"
	"slices"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/registry/client"
)

// space is what a prefix holds right inside.
type space struct {
	pool netip.Prefix
	// children and anycast are taken; children has the retired ones too.
	children, anycast []netip.Prefix
	retired           []retiredPrefix
	held              []heldSpace
}

// retiredPrefix is a retired child in which nothing lies. It gives way to others when
// no module is waited for.
type retiredPrefix struct {
	id      int64
	prefix  netip.Prefix
	waiting []string
}

// heldSpace is in quarantine.
type heldSpace struct {
	prefix  netip.Prefix
	waiting []string
}

const (
	sqlSpaceChildren = `
SELECT coalesce(array_agg(c.prefix), '{}')
FROM (
  SELECT prefix
  FROM registry.prefix
  WHERE parent_id = $1
  ORDER BY prefix
) c`
	sqlSpaceAnycast = `
SELECT coalesce(array_agg(prefix), '{}')
FROM registry.anycast_allocation
WHERE container_id = $1`
	// A retired prefix is still there: modules that came later have seen it too, and
	// they withdraw at the version that it has, not at one to come.
	sqlSpaceRetired = `
SELECT p.id,
       p.prefix,
       registry.withdrawal_missing('prefix', p.id::text, l.last_seq + 1, registry.lineage_current(), 'infinity')
FROM registry.prefix p
JOIN registry.outbox_lane l ON l.agg_type = 'prefix' AND l.agg_key = p.id::text
WHERE p.parent_id = $1
  AND p.status = 'retired'
  AND NOT EXISTS (SELECT FROM registry.prefix c WHERE c.parent_id = p.id)
  AND NOT EXISTS (SELECT FROM registry.anycast_allocation a WHERE a.container_id = p.id)
  AND NOT EXISTS (SELECT FROM registry.ptr_record r WHERE r.prefix_id = p.id)
ORDER BY p.prefix`
	// Whoever made a pool of quarantined space by its name has decided on all of it.
	sqlSpaceHeld = `
SELECT q.prefix,
       q.waiting
FROM (
  SELECT q.prefix,
         registry.withdrawal_missing(q.agg_type, q.agg_key, q.version, q.lineage, q.since) AS waiting
  FROM registry.quarantine q
  WHERE q.prefix BETWEEN $1::cidr AND $2::cidr
    AND q.prefix <> $1::cidr
) q
WHERE cardinality(q.waiting) > 0
ORDER BY q.prefix`
)

// batcher sends several statements in one round trip.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// readSpace reads what lies right inside a prefix.
func readSpace(ctx context.Context, q batcher, pool client.Prefix) (*space, error) {
	sp := &space{pool: pool.Prefix}
	last := netipx.PrefixLastIP(pool.Prefix)
	b := &pgx.Batch{}
	b.Queue(sqlSpaceChildren, pool.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&sp.children) })
	b.Queue(sqlSpaceAnycast, pool.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&sp.anycast) })
	b.Queue(sqlSpaceRetired, pool.ID).Query(func(rows pgx.Rows) (err error) {
		sp.retired, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r retiredPrefix, err error) {
			return r, row.Scan(&r.id, &r.prefix, &r.waiting)
		})
		return err
	})
	b.Queue(sqlSpaceHeld, pool.Prefix, netip.PrefixFrom(last, last.BitLen())).Query(func(rows pgx.Rows) (err error) {
		sp.held, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h heldSpace, err error) {
			return h, row.Scan(&h.prefix, &h.waiting)
		})
		return err
	})
	return sp, q.SendBatch(ctx, b).Close()
}

// used is what is not free whatever modules report, sorted.
func (sp *space) used() []netip.Prefix {
	gone := map[netip.Prefix]bool{}
	for _, r := range sp.retired {
		if len(r.waiting) == 0 {
			gone[r.prefix] = true
		}
	}
	if len(gone) == 0 && len(sp.anycast) == 0 {
		return sp.children // in order already
	}
	used := slices.DeleteFunc(slices.Clone(sp.children), func(p netip.Prefix) bool { return gone[p] })
	used = append(used, sp.anycast...)
	sortSpace(used)
	return used
}

// taken is what next-free does not offer, sorted.
func (sp *space) taken() []netip.Prefix {
	used := sp.used()
	if len(sp.held) == 0 {
		return used
	}
	taken := slices.Clone(used)
	for _, h := range sp.held {
		taken = append(taken, h.prefix)
	}
	sortSpace(taken)
	return taken
}

// free is what next-free offers.
func (sp *space) free() []netip.Prefix { return left(sp.pool, sp.taken()) }

// waiting is the space that modules hold back, and which modules they are.
func (sp *space) waiting() (held []netip.Prefix, modules []string) {
	for _, h := range sp.held {
		held = append(held, h.prefix)
		modules = append(modules, h.waiting...)
	}
	for _, r := range sp.retired {
		if len(r.waiting) > 0 {
			held = append(held, r.prefix)
			modules = append(modules, r.waiting...)
		}
	}
	slices.Sort(modules)
	return held, slices.Compact(modules)
}
