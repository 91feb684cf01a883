package registry

import (
	"context"
	"errors"
	"net/netip"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/app/problem"
	"hubn/registry/client"
)

// A prefix that changes place keeps its id, its settings and its history. What lies
// in it stays in it; it never takes over what is not its own.

const (
	sqlOutside = `
SELECT kind,
       key,
       label,
       count(*) OVER ()
FROM (
  SELECT 'prefix' AS kind, id::text AS key, prefix::text AS label
  FROM registry.prefix
  WHERE parent_id = $1
    AND NOT prefix <<= $3::cidr
  UNION ALL
  SELECT 'anycast', id::text, prefix::text || ' ' || service
  FROM registry.anycast_allocation
  WHERE container_id = $1
    AND NOT prefix <<= $3::cidr
  UNION ALL
  SELECT DISTINCT 'ptr', host(address), host(address)
  FROM registry.ptr_record
  WHERE prefix_id = $1
    AND NOT address <<= $3::cidr
) outside
LIMIT $2`
	sqlInTheWay = `
SELECT 'prefix',
       id::text,
       prefix::text,
       count(*) OVER ()
FROM registry.prefix
WHERE prefix BETWEEN $3::cidr AND $4::cidr
  AND id <> $1
  AND NOT prefix << $5::cidr
LIMIT $2`
	sqlNewParent = `
SELECT id,
       prefix
FROM registry.prefix
WHERE prefix = ANY($2::cidr[])
  AND id <> $1
ORDER BY masklen(prefix) DESC
LIMIT 1`
	sqlRelocate = `
UPDATE registry.prefix
SET organisation_id = $2,
    kind = $3,
    status = $4,
    name = $5,
    announced = $6,
    origin_asn = $7,
    max_length = $8,
    reverse_mode = $9,
    name_servers = $10,
    name_server_set_id = $11,
    ds = $12,
    rfc2317_style = nullif($13, ''),
    zone_cut = $14,
    route_organisation_id = CASE WHEN $7::bigint IS NOT NULL THEN route_organisation_id END,
    prefix = $15,
    parent_id = $16,
    parent_prefix = $17
WHERE id = $1`
)

// relocate gives a locked prefix the place and the settings of next.
func relocate(ctx context.Context, w *writing, p client.Prefix, next *prefixInput) error {
	to := next.Prefix.value
	holder, err := next.find(ctx, w)
	if err != nil {
		return err
	}
	// The new space is somebody's already, where it lies in a prefix: 0 asks them.
	if err := w.allowOn(ctx, writeNouns, target{organisations: []int64{p.OrganisationID, holderID(holder), 0}, prefixes: []netip.Prefix{p.Prefix, to}}); err != nil {
		return err
	}
	if to.Addr().Is4() != p.Prefix.Addr().Is4() {
		return invalid("body.prefix", to.String(), "%s and %s are of different families: create the one and delete the other", p.Prefix, to)
	}
	outside, count, err := findDependants(ctx, w, sqlOutside, p.ID, dependantsShown, to)
	if err != nil {
		return err
	}
	if count > 0 {
		return problem.New(problem.Conflict, "%s cannot become %s: %s would lie outside (%s first): move or delete that first",
			p.Prefix, to, counted64(count, "resource"), outside[0].Label).With("dependants", outside).With("dependants_count", count)
	}
	last := netipx.PrefixLastIP(to)
	others, count, err := findDependants(ctx, w, sqlInTheWay, p.ID, dependantsShown, to, netip.PrefixFrom(last, last.BitLen()), p.Prefix)
	if err != nil {
		return err
	}
	if count > 0 {
		return problem.New(problem.Conflict, "%s cannot become %s: that holds %s that %s not its own (%s first)",
			p.Prefix, to, counted64(count, "prefix"), isAre(count), others[0].Label).
			At("body.prefix", "others have space in it", to.String()).With("in_the_way", others).With("in_the_way_count", count)
	}
	return carryOut(ctx, w, p, next, holder)
}

func isAre(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// carryOut does what relocate found possible.
func carryOut(ctx context.Context, w *writing, p client.Prefix, next *prefixInput, holder *int64) error {
	to := next.Prefix.value
	at, err := newParent(ctx, w, p.ID, to)
	if err != nil {
		return err
	}
	if err := next.inParent(at); err != nil {
		return err
	}
	if holderID(holder) != p.OrganisationID {
		if err := lockInside(ctx, w, p.ID); err != nil {
			return err
		}
	}
	args := append([]any{p.ID, holder}, next.columns()...)
	if _, err := w.Exec(ctx, sqlRelocate, append(args, to, at.parent, at.parentPrefix)...); err != nil {
		return err
	}
	return adopt(ctx, w, p.ID, to, holder, at)
}

// newParent is where a prefix that exists would go.
func newParent(ctx context.Context, w *writing, id int64, to netip.Prefix) (place, error) {
	var at place
	around := covering(to)
	err := w.QueryRow(ctx, sqlNewParent, id, around[:len(around)-1]).Scan(&at.parent, &at.parentPrefix)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return at, err
}

// inParent refuses a parent that was asked for and is not the one that the tree has.
func (in *prefixInput) inParent(at place) error {
	if in.ParentID == nil || at.parent != nil && *at.parent == *in.ParentID {
		return nil
	}
	p := in.Prefix.value
	if at.parent == nil {
		return invalid("body.parent_id", *in.ParentID, "no prefix covers %s: leave parent_id out, or name a prefix inside of that parent (POST …/move finds one)", p)
	}
	return invalid("body.parent_id", *in.ParentID, "the parent follows from the prefix: %s lies in %s, which is %d; name a prefix inside of the other parent (POST …/move finds one)",
		p, *at.parentPrefix, *at.parent)
}

// stays refuses a parent that a prefix does not get without another place.
func stays(ctx context.Context, w *writing, p client.Prefix, next *prefixInput) error {
	if next.ParentID == nil || *next.ParentID == p.ParentID {
		return nil
	}
	at, err := newParent(ctx, w, p.ID, p.Prefix)
	if err != nil {
		return err
	}
	return next.inParent(at)
}

// placeInput says where a prefix is to go: one of its members.
type placeInput struct {
	Prefix *Prefix `json:"prefix,omitempty" doc:"The prefix that it becomes"`
	Length *int    `json:"length,omitempty" minimum:"0" maximum:"128" doc:"Or its new length: the prefix of that length around its first address"`
}

// Resolve implements huma.Resolver.
func (in *placeInput) Resolve(huma.Context) []error {
	var f faults
	switch {
	case (in.Prefix == nil) == (in.Length == nil):
		f.add("body.prefix", errors.New("name either the prefix that it becomes or its new length"), nil)
	case in.Prefix != nil:
		in.Prefix.check(&f, "body.prefix")
	}
	return f.list
}

type resizeRequest struct {
	PrefixPath
	AlterParams
	Body placeInput
}

func (s *service) resizePrefix(ctx context.Context, in *resizeRequest) (*answer[client.Prefix], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Prefix], err error) {
		p, err := in.lock(ctx, w, in.IfMatch)
		if err != nil {
			return m, err
		}
		to, err := in.Body.of(p.Prefix)
		if err != nil {
			return m, err
		}
		return relocated(ctx, w, p, to)
	})
}

// of is the prefix that another is resized to.
func (in *placeInput) of(p netip.Prefix) (netip.Prefix, error) {
	if in.Prefix == nil {
		if *in.Length > hostBits(p) {
			return p, invalid("body.length", *in.Length, "a length of %s is 0 to %d", p, hostBits(p))
		}
		return netip.PrefixFrom(p.Addr(), *in.Length).Masked(), nil
	}
	if to := in.Prefix.value; to.Overlaps(p) {
		return to, nil
	}
	return p, invalid("body.prefix", in.Prefix.text, "%s and %s have no address in common: that is a move (POST …/move)", p, in.Prefix.value)
}

// relocated gives a prefix another place with its settings as they are.
func relocated(ctx context.Context, w *writing, p client.Prefix, to netip.Prefix) (m made[client.Prefix], err error) {
	next := prefixInputOf(p)
	next.Prefix = Prefix{given: given{text: to.String()}, value: to}
	var f faults
	next.check(&f)
	if err := f.problem(); err != nil {
		return m, err
	}
	if to != p.Prefix {
		if err := relocate(ctx, w, p, next); err != nil {
			return m, err
		}
	}
	p, err = onePrefix(ctx, w, sqlPrefixByID, p.ID)
	return made[client.Prefix]{object: p, revision: p.Revision}, err
}

// moveInput says where a prefix moves: one of its members.
type moveInput struct {
	Prefix *Prefix `json:"prefix,omitempty" doc:"The prefix that it becomes"`
	Parent string  `json:"parent,omitempty" maxLength:"60" doc:"Or the pool in which it takes the first free prefix of its size: its id or prefix"`
}

// Resolve implements huma.Resolver.
func (in *moveInput) Resolve(huma.Context) []error {
	var f faults
	switch {
	case (in.Prefix == nil) == (in.Parent == ""):
		f.add("body.prefix", errors.New("name either the prefix that it becomes or the parent in which it finds room"), nil)
	case in.Prefix != nil:
		in.Prefix.check(&f, "body.prefix")
	}
	return f.list
}

type moveRequest struct {
	PrefixPath
	AlterParams
	Body moveInput
}

func (s *service) movePrefix(ctx context.Context, in *moveRequest) (*answer[client.Prefix], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Prefix], err error) {
		var pool client.Prefix
		if in.Body.Parent != "" {
			if pool, err = (PrefixPath{ID: in.Body.Parent}).lockPool(ctx, w); err != nil {
				return m, in.Body.explain(err)
			}
		}
		p, err := in.lock(ctx, w, in.IfMatch)
		if err != nil {
			return m, err
		}
		if in.Body.Prefix != nil {
			return relocated(ctx, w, p, in.Body.Prefix.value)
		}
		if pool.ID == p.ID || pool.ID == p.ParentID {
			return m, invalid("body.parent", in.Body.Parent, "%s lies in %s already: name another pool, or the prefix that it becomes", p.Prefix, pool.Prefix)
		}
		if err := w.allowOn(ctx, allocate, target{organisations: []int64{pool.OrganisationID}, prefixes: []netip.Prefix{pool.Prefix}}); err != nil {
			return m, err
		}
		blocks, err := takeFree(ctx, w, pool, p.Prefix.Bits(), 1)
		if err != nil {
			return m, in.Body.explain(err)
		}
		m, err = relocated(ctx, w, p, blocks[0])
		return m, raced(err)
	})
}

// explain says of a fault of the parent where it stands in the request.
func (in *moveInput) explain(err error) error {
	var e *problem.Error
	if !errors.As(err, &e) || e.Kind != problem.Invalid && e.Kind != problem.NotFound && e.Kind != problem.Deleted {
		return err
	}
	return invalid("body.parent", in.Parent, "%s", e.Detail)
}
