package registry

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) prefixRoutes() {
	const tag = "prefixes"
	register(s, operation{
		method: http.MethodGet, path: "/v1/prefixes", id: "list-prefixes", tag: tag,
		summary: "List prefixes in tree order: parents before their children, IPv4 before IPv6", needs: readNouns,
	}, s.listPrefixes)
	register(s, operation{
		method: http.MethodPost, path: "/v1/prefixes", id: "create-prefix", tag: tag,
		summary: "Create a prefix", needs: writeNouns, status: http.StatusCreated,
		description: "It is placed under the longest prefix that covers it; more specific prefixes there become its children.",
		problems:    []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createPrefix)
	register(s, operation{
		method: http.MethodGet, path: "/v1/prefixes/{id}", id: "get-prefix", tag: tag,
		summary: "Read a prefix", needs: readNouns, problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getPrefix)
	register(s, operation{
		method: http.MethodPatch, path: "/v1/prefixes/{id}", id: "change-prefix", tag: tag,
		summary: "Change a prefix's holder, kind, status, routing, reverse DNS or place", needs: writeNouns, problems: changeProblems,
		body: patchBody[*prefixInput](s),
	}, s.changePrefix)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/prefixes/{id}", id: "delete-prefix", tag: tag,
		summary: "Delete a prefix in which nothing lies", needs: writeNouns, problems: changeProblems,
		status: http.StatusNoContent,
	}, s.deletePrefix)
}

const (
	sqlPrefixes = `
SELECT p.id,
       p.prefix,
       coalesce(p.parent_id, 0),
       coalesce(p.organisation_id, 0),
       coalesce(o.handle, ''),
       p.kind,
       p.status,
       p.provenance,
       p.name,
       p.announced,
       p.origin_asn,
       p.max_length,
       p.reverse_mode,
       p.name_servers,
       coalesce(p.name_server_set_id, 0),
       p.ds,
       coalesce(p.rfc2317_style, ''),
       p.zone_cut,
       p.revision
FROM registry.prefix p
LEFT JOIN registry.organisation o ON o.id = p.organisation_id`
	sqlPrefixByID     = sqlPrefixes + ` WHERE p.id = $1`
	sqlPrefixByPrefix = sqlPrefixes + ` WHERE p.prefix = $1`
	sqlLockPrefix     = sqlPrefixByID + ` FOR NO KEY UPDATE OF p`
	sqlCreatePrefix   = `
INSERT INTO registry.prefix
  (prefix, parent_id, parent_prefix, organisation_id, kind, status, name, announced, origin_asn, max_length,
   reverse_mode, name_servers, name_server_set_id, ds, rfc2317_style, zone_cut)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, ''), $16)
RETURNING id`
	sqlChangePrefix = `
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
    -- Whom a route names goes with the route.
    route_organisation_id = CASE WHEN $7::bigint IS NOT NULL THEN route_organisation_id END
WHERE id = $1`
	sqlDeletePrefix     = `DELETE FROM registry.prefix WHERE id = $1`
	sqlPrefixDependants = `
SELECT kind,
       key,
       label,
       count(*) OVER ()
FROM (
  SELECT 'prefix' AS kind, id::text AS key, prefix::text AS label
  FROM registry.prefix
  WHERE parent_id = $1
  UNION ALL
  SELECT 'anycast', id::text, prefix::text || ' ' || service
  FROM registry.anycast_allocation
  WHERE container_id = $1
  UNION ALL
  SELECT DISTINCT 'ptr', host(address), host(address)
  FROM registry.ptr_record
  WHERE prefix_id = $1
) inside
LIMIT $2`
	sqlAnycastInside = `
SELECT id::text
FROM registry.anycast_allocation
WHERE container_id = $1`
)

func scanPrefix(row pgx.CollectableRow) (p client.Prefix, err error) {
	var origin *int64
	r := &p.Reverse
	err = row.Scan(&p.ID, &p.Prefix, &p.ParentID, &p.OrganisationID, &p.Organisation, &p.Kind, &p.Status, &p.Provenance, &p.Name,
		&p.Routing.Announced, &origin, &p.Routing.MaxLength,
		&r.Mode, &r.NameServers, &r.NameServerSetID, &r.DS, &r.RFC2317Style, &r.ZoneCut, &p.Revision)
	if origin != nil {
		p.Routing.Origin = new(client.ASN(*origin))
	}
	return p, err
}

func onePrefix(ctx context.Context, q querier, sql string, arg any) (client.Prefix, error) {
	rows, err := q.Query(ctx, sql, arg)
	if err != nil {
		return client.Prefix{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanPrefix)
}

// PrefixPath is the path parameter of one prefix.
type PrefixPath struct {
	ID string `path:"id" maxLength:"60" doc:"The id, or the prefix itself: 17, 192.0.2.0%2F24"`
}

// find reads the prefix that the path names.
func (in PrefixPath) find(ctx context.Context, q querier) (client.Prefix, error) {
	if !strings.ContainsAny(in.ID, "/:.") {
		id, err := strconv.ParseInt(in.ID, 10, 64)
		if err != nil {
			return client.Prefix{}, invalid("path.id", in.ID, "%q is neither an id nor a prefix: write 17 or 192.0.2.0%%2F24", in.ID)
		}
		p, err := onePrefix(ctx, q, sqlPrefixByID, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return p, absent(ctx, q, client.KindPrefix, strconv.FormatInt(id, 10))
		}
		return p, err
	}
	prefix, err := parsePrefix(in.ID)
	if err != nil {
		return client.Prefix{}, invalid("path.id", in.ID, "%v", err)
	}
	p, err := onePrefix(ctx, q, sqlPrefixByPrefix, prefix)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, unknown("prefix", prefix.String())
	}
	return p, err
}

// lock reads the prefix and holds off other changes of it.
func (in PrefixPath) lock(ctx context.Context, w *writing, ifMatch string) (client.Prefix, error) {
	p, err := in.find(ctx, w)
	if err != nil {
		return p, err
	}
	id := p.ID
	p, err = onePrefix(ctx, w, sqlLockPrefix, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, absent(ctx, w, client.KindPrefix, strconv.FormatInt(id, 10))
	}
	if err != nil {
		return p, err
	}
	return p, matches(ifMatch, p.Revision, p)
}

func (s *service) getPrefix(ctx context.Context, in *getPrefixInput) (*found[client.Prefix], error) {
	out := &found[client.Prefix]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = in.find(ctx, tx)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type getPrefixInput struct{ PrefixPath }

type createPrefixInput struct {
	CreateParams
	Body prefixInput
}

func (s *service) createPrefix(ctx context.Context, in *createPrefixInput) (*answer[client.Prefix], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.Prefix], err error) {
		holder, err := in.Body.find(ctx, w)
		if err != nil {
			return m, err
		}
		// The space is somebody's already, where it lies in a prefix: 0 asks them.
		if err := w.allowOn(ctx, writeNouns, target{[]int64{0, holderID(holder)}, []netip.Prefix{in.Body.Prefix.value}}); err != nil {
			return m, err
		}
		id, err := insertPrefix(ctx, w, &in.Body)
		if err != nil {
			return m, err
		}
		p, err := onePrefix(ctx, w, sqlPrefixByID, id)
		return made[client.Prefix]{p, p.Revision, "/v1/prefixes/" + strconv.FormatInt(id, 10)}, err
	})
}

type changePrefixInput struct {
	PrefixPath
	AlterParams
	PatchBody
}

func (s *service) changePrefix(ctx context.Context, in *changePrefixInput) (*answer[client.Prefix], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Prefix], err error) {
		p, err := in.lock(ctx, w, in.IfMatch)
		if err != nil {
			return m, err
		}
		next, err := patched(s, prefixInputOf(p), in.RawBody)
		if err != nil {
			return m, err
		}
		if next.Prefix.value != p.Prefix {
			err = relocate(ctx, w, p, next)
		} else if err = stays(ctx, w, p, next); err == nil {
			err = updatePrefix(ctx, w, p, next)
		}
		if err != nil {
			return m, err
		}
		p, err = onePrefix(ctx, w, sqlPrefixByID, p.ID)
		return made[client.Prefix]{object: p, revision: p.Revision}, err
	})
}

func updatePrefix(ctx context.Context, w *writing, p client.Prefix, next *prefixInput) error {
	holder, err := next.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.allowOn(ctx, writeNouns, target{[]int64{p.OrganisationID, holderID(holder)}, []netip.Prefix{p.Prefix}}); err != nil {
		return err
	}
	if holder == nil && p.OrganisationID != 0 || holder != nil && *holder != p.OrganisationID {
		if err := lockInside(ctx, w, p.ID); err != nil {
			return err
		}
	}
	_, err = w.Exec(ctx, sqlChangePrefix, append([]any{p.ID, holder}, next.columns()...)...)
	return err
}

// lockInside takes the lanes of a prefix and of the anycast allocations in it, which
// change hands with it.
func lockInside(ctx context.Context, w *writing, id int64) error {
	rows, err := w.Query(ctx, sqlAnycastInside, id)
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	lanes := []client.Resource{{Kind: client.KindPrefix, Key: strconv.FormatInt(id, 10)}}
	for _, key := range keys {
		lanes = append(lanes, client.Resource{Kind: client.KindAnycast, Key: key})
	}
	return w.lockLanes(ctx, lanes...)
}

type deletePrefixInput struct {
	PrefixPath
	AlterParams
}

func (s *service) deletePrefix(ctx context.Context, in *deletePrefixInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		p, err := in.lock(ctx, w, in.IfMatch)
		if err != nil {
			return err
		}
		if err := w.allowOn(ctx, writeNouns, target{[]int64{p.OrganisationID}, []netip.Prefix{p.Prefix}}); err != nil {
			return err
		}
		if err := dependants(ctx, w, p.Prefix.String(), "delete what lies in it first", sqlPrefixDependants, p.ID); err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeletePrefix, p.ID)
		return err
	})
}

// hostBits is the length of a single address of the prefix's family.
func hostBits(p netip.Prefix) int { return p.Addr().BitLen() }
