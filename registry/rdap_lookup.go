package registry

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
	"hubn/registry/rdap"
)

// Every statement here reads by a key or a range of an index, and a bounded number
// of rows: what a question costs does not grow with the registry.

const (
	sqlPublicPrefixes = `
SELECT p.prefix,
       p.parent_prefix,
       p.kind,
       p.status,
       p.name,
       p.provenance = 'implied',
       CASE WHEN p.announced AND p.status = 'active' THEN p.origin_asn END,
       p.reverse_mode,
       coalesce(n.servers, p.name_servers),
       p.ds,
       coalesce(p.rfc2317_style, ''),
       coalesce(p.zone_cut, 0),
       p.created_at,
       p.updated_at,
       o.id,
       o.handle,
       o.name,
       o.contact,
       o.created_at,
       o.updated_at
FROM registry.prefix p
LEFT JOIN registry.organisation o ON o.id = p.organisation_id
LEFT JOIN registry.name_server_set n ON n.id = p.name_server_set_id`
	sqlPublicLongest  = sqlPublicPrefixes + ` WHERE p.id = (SELECT id FROM registry.prefix_covering($1, false))`
	sqlPublicCovering = sqlPublicPrefixes + ` WHERE p.prefix = ANY($1::cidr[]) ORDER BY p.prefix DESC`
	sqlPublicWithin   = sqlPublicPrefixes + ` WHERE p.prefix BETWEEN $1::cidr AND $2::cidr ORDER BY p.prefix LIMIT $3`
	// Between, not equal: so the order is that of the index, and the index is read
	// as far as the limit, however many rows there are.
	sqlPublicHeld       = sqlPublicPrefixes + ` WHERE p.organisation_id BETWEEN $1 AND $1 ORDER BY p.organisation_id LIMIT $2`
	sqlAnycastOriginsOf = `
SELECT DISTINCT r.asn
FROM registry.anycast_allocation a
JOIN registry.anycast_route_origin r ON r.allocation_id = a.id
WHERE a.prefix = $1
  AND r.active
ORDER BY r.asn`
	sqlPublicASNs = `
SELECT a.number,
       a.name,
       a.created_at,
       a.updated_at,
       o.id,
       o.handle,
       o.name,
       o.contact,
       o.created_at,
       o.updated_at
FROM registry.asn a
LEFT JOIN registry.organisation o ON o.id = a.organisation_id`
	sqlPublicASN           = sqlPublicASNs + ` WHERE a.number = $1`
	sqlPublicASNsHeld      = sqlPublicASNs + ` WHERE a.organisation_id BETWEEN $1 AND $1 ORDER BY a.organisation_id LIMIT $2`
	sqlPublicOrganisations = `
SELECT o.id,
       o.handle,
       o.name,
       o.contact,
       o.created_at,
       o.updated_at
FROM registry.organisation o`
	sqlPublicOrganisation = sqlPublicOrganisations + ` WHERE lower(o.handle) = lower($1)`
	sqlIsNameServer       = `
SELECT EXISTS (
  SELECT
  FROM registry.prefix p
  WHERE cardinality(p.name_servers) > 0
    AND p.name_servers @> ARRAY[$1::text]
) OR EXISTS (
  SELECT
  FROM registry.name_server_set n
  WHERE n.servers @> ARRAY[$1::text]
)`
)

// publicHolder takes the columns of an organisation that may be missing.
type publicHolder struct {
	id                    *int64
	handle, name, contact *string
	created, updated      *time.Time
}

func (h *publicHolder) into() []any {
	return []any{&h.id, &h.handle, &h.name, &h.contact, &h.created, &h.updated}
}

func (h *publicHolder) organisation() *rdap.Organisation {
	if h.id == nil {
		return nil
	}
	return &rdap.Organisation{ID: *h.id, Handle: *h.handle, Name: *h.name, Contact: *h.contact, Created: *h.created, Updated: *h.updated}
}

func scanPublicPrefix(row pgx.CollectableRow) (p rdap.Prefix, err error) {
	var (
		parent *netip.Prefix
		origin *int64
		ds     []client.DS
		holder publicHolder
	)
	into := []any{&p.Prefix, &parent, &p.Kind, &p.Status, &p.Name, &p.Implied, &origin,
		&p.Mode, &p.NameServers, &ds, &p.Style, &p.ZoneCut, &p.Created, &p.Updated}
	if err := row.Scan(append(into, holder.into()...)...); err != nil {
		return p, err
	}
	if parent != nil {
		p.Parent = *parent
	}
	if origin != nil {
		p.Origins = []uint32{uint32(*origin)}
	}
	for _, d := range ds {
		p.DS = append(p.DS, rdap.ZoneDS{Zone: d.Zone,
			DS: rdap.DS{KeyTag: d.KeyTag, Algorithm: d.Algorithm, Digest: d.Digest, DigestType: d.DigestType}})
	}
	p.Holder = holder.organisation()
	return p, nil
}

func scanPublicASN(row pgx.CollectableRow) (a rdap.ASN, err error) {
	var holder publicHolder
	err = row.Scan(append([]any{&a.Number, &a.Name, &a.Created, &a.Updated}, holder.into()...)...)
	a.Special, a.Holder = specialASN(client.ASN(a.Number)), holder.organisation()
	return a, err
}

func scanPublicOrganisation(row pgx.CollectableRow) (o rdap.Organisation, err error) {
	return o, row.Scan(&o.ID, &o.Handle, &o.Name, &o.Contact, &o.Created, &o.Updated)
}

func collect[T any](ctx context.Context, q querier, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// lookup answers one object.
func (q *asking) lookup(ctx context.Context, query rdap.Query) (document any, err error) {
	find := map[string]func(context.Context, querier, string) (any, error){
		rdap.LookupIP:         q.network,
		rdap.LookupAutnum:     q.autnum,
		rdap.LookupEntity:     q.entity,
		rdap.LookupDomain:     q.domain,
		rdap.LookupNameserver: q.nameserver,
	}[query.Type]
	err = q.service.read(ctx, func(ctx context.Context, tx *reading) error {
		document, err = find(ctx, tx, query.Value)
		return err
	})
	return document, err
}

func (q *asking) network(ctx context.Context, tx querier, value string) (any, error) {
	asked, err := parseNetwork(value)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	found, err := collect(ctx, tx, scanPublicPrefix, sqlPublicLongest, asked)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.New(problem.NotFound, "no network of this registry contains %s", asked)
	}
	if err := anycastOrigins(ctx, tx, &found[0]); err != nil {
		return nil, err
	}
	return q.writer.Network(found[0]), nil
}

// anycastOrigins adds who may originate a prefix as an anycast allocation.
func anycastOrigins(ctx context.Context, tx querier, p *rdap.Prefix) error {
	origins, err := collect(ctx, tx, pgx.RowTo[int64], sqlAnycastOriginsOf, p.Prefix)
	if err != nil {
		return err
	}
	for _, origin := range origins {
		if len(p.Origins) == 0 || p.Origins[0] != uint32(origin) {
			p.Origins = append(p.Origins, uint32(origin))
		}
	}
	return nil
}

func (q *asking) autnum(ctx context.Context, tx querier, value string) (any, error) {
	number, err := client.ParseASN(value)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	found, err := collect(ctx, tx, scanPublicASN, sqlPublicASN, int64(number))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.New(problem.NotFound, "%s is not in this registry", number)
	}
	return q.writer.Autnum(found[0]), nil
}

// entityListed is how many networks and AS numbers an entity's answer lists: an
// answer stays below 100 KiB.
const entityListed = 100

func (q *asking) entity(ctx context.Context, tx querier, handle string) (any, error) {
	found, err := collect(ctx, tx, scanPublicOrganisation, sqlPublicOrganisation, handle)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.New(problem.NotFound, "no organisation of this registry has the handle %q", handle)
	}
	prefixes, err := collect(ctx, tx, scanPublicPrefix, sqlPublicHeld, found[0].ID, entityListed+1)
	if err != nil {
		return nil, err
	}
	asns, err := collect(ctx, tx, scanPublicASN, sqlPublicASNsHeld, found[0].ID, entityListed+1)
	if err != nil {
		return nil, err
	}
	more := len(prefixes) > entityListed || len(asns) > entityListed
	prefixes, asns = prefixes[:min(len(prefixes), entityListed)], asns[:min(len(asns), entityListed)]
	return q.writer.Entity(found[0], rdap.InOrder(prefixes), asns, more), nil
}

func (q *asking) domain(ctx context.Context, tx querier, name string) (any, error) {
	asked, err := rdap.ReversePrefix(name)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	chain, err := collect(ctx, tx, scanPublicPrefix, sqlPublicCovering, covering(asked))
	if err != nil {
		return nil, err
	}
	p := rdap.Delegation(chain)
	if p == nil {
		return nil, problem.New(problem.NotFound, "%s lies in no reverse zone of this registry", name)
	}
	q.ownServers(p)
	return q.writer.Domain(*p, asked), nil
}

// ownServers names HubN's own name servers where it hosts a zone and none are listed.
func (q *asking) ownServers(p *rdap.Prefix) {
	if p.Mode == string(client.ReverseHosted) && len(p.NameServers) == 0 {
		p.NameServers = q.service.namedServers()
	}
}

func (q *asking) nameserver(ctx context.Context, tx querier, typed string) (any, error) {
	name, err := parseHostName(typed)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	known, err := q.service.isNameServer(ctx, tx, name)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, problem.New(problem.NotFound, "%s is no name server of a reverse zone of this registry", name)
	}
	return q.writer.Nameserver(name, unicodeName(name)), nil
}

// isNameServer tells whether a reverse zone names a server.
func (s *service) isNameServer(ctx context.Context, tx querier, name string) (known bool, err error) {
	for _, own := range s.namedServers() {
		if own == name {
			return true, nil
		}
	}
	err = tx.QueryRow(ctx, sqlIsNameServer, name).Scan(&known)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return known, err
}

// namedServers are HubN's own name servers, of which more than a pattern is known.
func (s *service) namedServers() []string {
	var named []string
	for _, pattern := range s.ownNameservers {
		if name, err := parseHostName(pattern); err == nil {
			named = append(named, name)
		}
	}
	return named
}

// unicodeName is a name as people read it, or the name itself.
func unicodeName(name string) string {
	if text, err := names.ToUnicode(name); err == nil {
		return text
	}
	return name
}
