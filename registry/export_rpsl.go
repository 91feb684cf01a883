package registry

import (
	"bufio"
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
	"hubn/registry/rpsl"
)

func (s *service) rpslRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/export/rpsl", id: "export-rpsl", tag: "import and export",
		summary: "Export RPSL objects", needs: exportData,
		description: "The aut-num, inetnum, inet6num, route and route6 objects that an import makes the Registry of again: " +
			"what is active, in the order of prefixes, an object's routes behind it. Prefixes that are there for their route only, " +
			"anycast allocations that were made by hand, and DS records of one zone among several have no object.",
	}, s.exportRPSL)
}

func (s *service) exportRPSL(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	return s.export(ctx, "text/plain; charset=utf-8", s.writeRPSL), nil
}

const (
	sqlExportRanges = `
SELECT range_first, range_last
FROM registry.prefix
WHERE range_first IS NOT NULL
GROUP BY range_first, range_last`
	sqlExportRegistered = `
SELECT prefix
FROM registry.prefix
WHERE prefix = ANY ($1)
  AND status = 'active'
  AND provenance = 'registered'`
	// The routes of a prefix whose allocation lies in a larger one, since someone
	// made it by hand under an import's name, have no row of a prefix.
	sqlExportPrefixes = `
SELECT coalesce(p.prefix, a.prefix),
       coalesce(o.handle, ''), coalesce(r.handle, ''), coalesce(p.name, ''), coalesce(p.kind, 'assignment'),
       coalesce(p.status, 'active'), coalesce(p.provenance, 'implied'),
       coalesce(p.announced, false), p.origin_asn, p.max_length,
       coalesce(p.reverse_mode, 'inherit'), coalesce(s.servers, p.name_servers, '{}'), coalesce(p.ds, '[]'),
       p.range_first, p.range_last,
       coalesce(a.origins, '[]')
FROM registry.prefix p
LEFT JOIN registry.organisation o ON o.id = p.organisation_id
LEFT JOIN registry.organisation r ON r.id = p.route_organisation_id
LEFT JOIN registry.name_server_set s ON s.id = p.name_server_set_id
FULL JOIN (
  SELECT l.prefix, jsonb_agg(jsonb_build_object('asn', w.asn, 'max_length', w.max_length, 'active', w.active)) AS origins
  FROM registry.anycast_allocation l
  JOIN registry.anycast_route_origin w ON w.allocation_id = l.id
  WHERE l.service = 'route-' || l.prefix::text
  GROUP BY l.prefix
) a ON a.prefix = p.prefix
ORDER BY 1`
)

// writeRPSL writes all objects of a snapshot.
func (s *service) writeRPSL(ctx context.Context, tx *reading, out *bufio.Writer) error {
	whole, err := wholeRanges(ctx, tx)
	if err != nil {
		return err
	}
	w := rpsl.NewWriter(out, s.namedNameServers(), whole)
	rows, err := tx.Query(ctx, sqlImportASNs+` ORDER BY n.number`)
	if err != nil {
		return err
	}
	var (
		n        rpsl.ASN
		revision int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&n.Number, &n.Organisation, &n.Name, &revision}, func() error { return w.ASN(n) }); err != nil {
		return err
	}
	if err := eachRPSLPrefix(ctx, tx, w.Prefix); err != nil {
		return err
	}
	_, err = w.Flush()
	return err
}

// namedNameServers are HubN's own name servers, as far as the configuration names
// each: a pattern names none.
func (s *service) namedNameServers() (named []string) {
	for _, server := range s.ownNameservers {
		if !strings.HasPrefix(server, "*") {
			named = append(named, strings.ToLower(strings.TrimSuffix(server, ".")))
		}
	}
	return named
}

// wholeRanges are the ranges of which every prefix is registered and active.
func wholeRanges(ctx context.Context, tx pgx.Tx) ([]rpsl.Range, error) {
	rows, err := tx.Query(ctx, sqlExportRanges)
	if err != nil {
		return nil, err
	}
	ranges, err := pgx.CollectRows(rows, pgx.RowToStructByPos[rpsl.Range])
	if err != nil || len(ranges) == 0 {
		return nil, err
	}
	var parts []netip.Prefix
	for _, r := range ranges {
		parts = append(parts, r.CIDRs()...)
	}
	rows, err = tx.Query(ctx, sqlExportRegistered, parts)
	if err != nil {
		return nil, err
	}
	there := map[netip.Prefix]bool{}
	var p netip.Prefix
	if _, err = pgx.ForEachRow(rows, []any{&p}, func() error { there[p] = true; return nil }); err != nil {
		return nil, err
	}
	return rpsl.WholeRanges(ranges, func(p netip.Prefix) bool { return there[p] }), nil
}

// routeOrigin is a row of sqlExportPrefixes' origins.
type routeOrigin struct {
	ASN       uint32 `json:"asn"`
	MaxLength *int   `json:"max_length"`
	Active    bool   `json:"active"`
}

// eachRPSLPrefix passes all prefixes in tree order with the origins of the anycast
// allocation that stands for their routes.
func eachRPSLPrefix(ctx context.Context, tx pgx.Tx, each func(*rpsl.Prefix, []rpsl.RouteOrigin) error) error {
	rows, err := tx.Query(ctx, sqlExportPrefixes)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			p           rpsl.Prefix
			ds          []client.DS
			first, last *netip.Addr
			stated      []routeOrigin
			origins     []rpsl.RouteOrigin
		)
		if err := rows.Scan(&p.CIDR, &p.Organisation, &p.RouteOrganisation, &p.Name, &p.Kind, &p.Status, &p.Provenance,
			&p.Routing.Announced, &p.Routing.Origin, &p.Routing.MaxLength,
			&p.Reverse.Mode, &p.Reverse.NameServers, &ds, &first, &last, &stated); err != nil {
			return err
		}
		for _, d := range ds {
			if d.Zone == "" { // ds-rdata knows no zone
				p.Reverse.DS = append(p.Reverse.DS, rpsl.DS{KeyTag: d.KeyTag, Algorithm: d.Algorithm, DigestType: d.DigestType, Digest: d.Digest})
			}
		}
		if first != nil && last != nil {
			p.Range = rpsl.Range{First: *first, Last: *last}
		}
		for _, o := range stated {
			origins = append(origins, rpsl.RouteOrigin{ASN: o.ASN, MaxLength: o.MaxLength, Active: o.Active})
		}
		if err := each(&p, origins); err != nil {
			return err
		}
	}
	return rows.Err()
}
