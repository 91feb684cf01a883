package registry

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) tupleRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/sources", id: "get-tuple-sources", tag: "sources",
		summary: "List the active sources of a route origin", needs: readSources, unlogged: true,
		description: "A consumer asks this before it withdraws what it derives from a tuple: another source may state the same.",
	}, s.getTupleSources)
}

type tupleInput struct {
	Tuple string `query:"tuple" required:"true" example:"AS64496,192.0.2.0/24,24"`
}

type tupleOutput struct {
	Body client.TupleSources
}

// An anycast allocation is active as long as it exists; its origins say
// themselves whether they are.
const sqlTupleSources = `
SELECT 'prefix', p.id::text, l.last_seq
FROM registry.prefix p
JOIN registry.outbox_lane l ON l.agg_type = 'prefix' AND l.agg_key = p.id::text
WHERE p.prefix = $1
  AND p.status = 'active'
  AND p.announced
  AND p.origin_asn = $2
  AND coalesce(p.max_length, masklen(p.prefix)) = $3
UNION ALL
SELECT 'anycast', a.id::text, l.last_seq
FROM registry.anycast_allocation a
JOIN registry.outbox_lane l ON l.agg_type = 'anycast' AND l.agg_key = a.id::text
WHERE a.prefix = $1
  AND EXISTS (
    SELECT
    FROM registry.anycast_route_origin o
    WHERE o.allocation_id = a.id
      AND o.active
      AND o.asn = $2
      AND coalesce(o.max_length, masklen(a.prefix)) = $3)
ORDER BY 1 DESC, 2`

func (s *service) getTupleSources(ctx context.Context, in *tupleInput) (*tupleOutput, error) {
	tuple, err := parseTuple(in.Tuple)
	if err != nil {
		return nil, problem.New(problem.Invalid, "the tuple cannot be read").At("query.tuple", err.Error(), in.Tuple)
	}
	var out tupleOutput
	err = s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body = client.TupleSources{Lineage: tx.Lineage, Tuple: tuple}
		rows, err := tx.Query(ctx, sqlTupleSources, tuple.Prefix, int64(tuple.ASN), tuple.MaxLength)
		if err != nil {
			return err
		}
		out.Body.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t client.TupleSource, err error) {
			return t, row.Scan(&t.Resource.Kind, &t.Resource.Key, &t.Version)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// parseTuple reads "AS64496,192.0.2.0/24,24". The maximum length is always given.
func parseTuple(s string) (client.Tuple, error) {
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return client.Tuple{}, tupleError("write ASN,PREFIX,MAXLENGTH, such as AS64496,192.0.2.0/24,24")
	}
	asn, err := client.ParseASN(parts[0])
	if err != nil {
		return client.Tuple{}, err
	}
	prefix, err := netip.ParsePrefix(parts[1])
	if err != nil || prefix.Addr().Is4In6() {
		return client.Tuple{}, tupleError(strconv.Quote(parts[1]) + " is not a prefix")
	}
	if prefix != prefix.Masked() {
		return client.Tuple{}, tupleError(parts[1] + " has host bits; the prefix is " + prefix.Masked().String())
	}
	length, err := strconv.Atoi(parts[2])
	if err != nil || length < prefix.Bits() || length > prefix.Addr().BitLen() {
		return client.Tuple{}, tupleError("the maximum length " + strconv.Quote(parts[2]) + " is not between " +
			strconv.Itoa(prefix.Bits()) + " and " + strconv.Itoa(prefix.Addr().BitLen()))
	}
	return client.Tuple{ASN: asn, Prefix: prefix, MaxLength: length}, nil
}

type tupleError string

func (e tupleError) Error() string { return string(e) }
