package registry

import (
	"context"
	"errors"
	"net/netip"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/app/problem"
)

// Prefixes nest. A new one goes under the longest that covers it, and takes over
// what lies in it: more specific prefixes, PTR records, anycast allocations. Two
// that are created at once and overlap are told apart by the exclusion constraint;
// the loser runs again and finds the other as its parent or child.

const (
	sqlParent = `
SELECT id,
       prefix
FROM registry.prefix_covering($1::cidr, true)
WHERE id IS NOT NULL`
	// Its conditions are the columns of the exclusion's index.
	sqlChildren = `
SELECT id
FROM registry.prefix
WHERE coalesce(parent_id, 0) = coalesce($1::bigint, 0)
  AND network(prefix) << $2::cidr
ORDER BY id
FOR NO KEY UPDATE`
	// Between the INSERT and the new parents of its children, a prefix overlaps
	// what are its siblings still.
	sqlPlacingDeferred = `SET CONSTRAINTS registry.prefix_siblings_disjoint, registry.prefix_parent_fkey DEFERRED`
	sqlAdoptPrefixes   = `
UPDATE registry.prefix
SET parent_id = $1,
    parent_prefix = $2
WHERE id = ANY($3)`
	sqlAdoptPTR = `
UPDATE registry.ptr_record
SET prefix_id = $1,
    prefix = $2
WHERE prefix_id = $3
  AND address BETWEEN $4 AND $5`
	sqlForeignAnycast = `
SELECT prefix,
       service
FROM registry.anycast_allocation
WHERE container_id = $1
  AND prefix <<= $2::cidr
  AND organisation_id IS DISTINCT FROM $3
LIMIT 1`
	sqlAdoptAnycast = `
UPDATE registry.anycast_allocation
SET container_id = $1,
    container = $2
WHERE container_id = $3
  AND prefix <<= $2::cidr`
)

// place is where a prefix goes in the tree.
type place struct {
	parent       *int64
	parentPrefix *netip.Prefix
	children     []int64
}

func findPlace(ctx context.Context, w *writing, p netip.Prefix) (place, error) {
	var at place
	err := w.QueryRow(ctx, sqlParent, p).Scan(&at.parent, &at.parentPrefix)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return at, err
	}
	rows, err := w.Query(ctx, sqlChildren, at.parent, p)
	if err != nil {
		return at, err
	}
	at.children, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return at, err
}

// insertPrefix creates a prefix in its place and answers its id.
func insertPrefix(ctx context.Context, w *writing, in *prefixInput) (id int64, err error) {
	holder, err := in.find(ctx, w)
	if err != nil {
		return 0, err
	}
	p := in.Prefix.value
	at, err := findPlace(ctx, w, p)
	if err != nil {
		return 0, err
	}
	if err := in.inParent(at); err != nil {
		return 0, err
	}
	if len(at.children) > 0 {
		w.deferred = true
		if _, err := w.Exec(ctx, sqlPlacingDeferred); err != nil {
			return 0, err
		}
	}
	args := append([]any{p, at.parent, at.parentPrefix, holder}, in.columns()...)
	if err := w.QueryRow(ctx, sqlCreatePrefix, args...).Scan(&id); err != nil {
		return 0, err
	}
	return id, adopt(ctx, w, id, p, holder, at)
}

// adopt makes a new prefix the one that holds what lies in it.
func adopt(ctx context.Context, w *writing, id int64, p netip.Prefix, holder *int64, at place) error {
	if len(at.children) > 0 {
		if _, err := w.Exec(ctx, sqlAdoptPrefixes, id, p, at.children); err != nil {
			return err
		}
	}
	if at.parent == nil {
		return nil // what lies in a prefix lay in its parent before
	}
	if err := adoptPTR(ctx, w, id, p, *at.parent); err != nil {
		return err
	}
	var (
		foreign netip.Prefix
		service string
	)
	err := w.QueryRow(ctx, sqlForeignAnycast, at.parent, p, holder).Scan(&foreign, &service)
	if err == nil {
		return problem.New(problem.Conflict,
			"the anycast allocation %s (%s) lies in %s and belongs to another organisation: give %s the same holder, or delete the allocation first",
			foreign, service, p, p)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	_, err = w.Exec(ctx, sqlAdoptAnycast, id, p, at.parent)
	return err
}

// adoptPTR takes over the PTR records that lay right inside the parent.
func adoptPTR(ctx context.Context, w *writing, id int64, p netip.Prefix, parent int64) error {
	_, err := w.Exec(ctx, sqlAdoptPTR, id, p, parent, p.Addr(), netipx.PrefixLastIP(p))
	return err
}
