package registry

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

// labels answers (key, what people call it) for those of the keys $1 that exist.
var labels = map[client.Kind]string{
	client.KindOrganisation: `SELECT r.id::text, r.handle FROM registry.organisation r WHERE r.id = ANY ($1::text[]::bigint[])`,
	client.KindASN:          `SELECT r.number::text, 'AS' || r.number FROM registry.asn r WHERE r.number = ANY ($1::text[]::bigint[])`,
	client.KindPrefix:       `SELECT r.id::text, r.prefix::text FROM registry.prefix r WHERE r.id = ANY ($1::text[]::bigint[])`,
	client.KindPTR:          `SELECT DISTINCT host(r.address), host(r.address) FROM registry.ptr_record r WHERE r.address = ANY ($1::text[]::inet[])`,
	client.KindAnycast: `SELECT r.id::text, r.prefix || ' ' || r.service
FROM registry.anycast_allocation r
WHERE r.id = ANY ($1::text[]::bigint[])`,
	client.KindCA: `SELECT r.id::text, r.name FROM registry.certificate_authority r WHERE r.id = ANY ($1::text[]::bigint[])`,
	client.KindSession: `SELECT r.id::text, host(r.remote_address) || ' AS' || r.remote_asn
FROM registry.bgp_session r
WHERE r.id = ANY ($1::text[]::bigint[])`,
	client.KindNameServers: `SELECT r.id::text, r.name FROM registry.name_server_set r WHERE r.id = ANY ($1::text[]::bigint[])`,
}

// readLabels answers what people call the resources; those that do not exist
// (any more) have none.
func readLabels(ctx context.Context, q querier, resources []client.Resource) (map[client.Resource]string, error) {
	keys := map[client.Kind][]string{}
	for _, r := range resources {
		keys[r.Kind] = append(keys[r.Kind], r.Key)
	}
	out := map[client.Resource]string{}
	for kind, keys := range keys {
		sql, ok := labels[kind]
		if !ok {
			continue
		}
		rows, err := q.Query(ctx, sql, keys)
		if err != nil {
			return nil, err
		}
		r := client.Resource{Kind: kind}
		var label string
		if _, err := pgx.ForEachRow(rows, []any{&r.Key, &label}, func() error { out[r] = label; return nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// The newest change of the aggregate's own table has the row as it was.
const sqlFormerLabel = `
SELECT coalesce(CASE c.table_name
         WHEN 'organisation' THEN c.before ->> 'handle'
         WHEN 'asn' THEN 'AS' || (c.before ->> 'number')
         WHEN 'prefix' THEN c.before ->> 'prefix'
         WHEN 'ptr_record' THEN c.before ->> 'address'
         WHEN 'anycast_allocation' THEN concat_ws(' ', c.before ->> 'prefix', c.before ->> 'service')
         WHEN 'certificate_authority' THEN c.before ->> 'name'
         WHEN 'bgp_session' THEN concat_ws(' AS', c.before ->> 'remote_address', c.before ->> 'remote_asn')
         WHEN 'name_server_set' THEN c.before ->> 'name' END, '')
FROM registry.change_log c
WHERE c.kind = $1
  AND c.agg_key = $2
  AND c.op = 'delete'
  AND c.table_name NOT IN ('anycast_route_origin', 'certificate', 'revocation')
ORDER BY c.id DESC
LIMIT 1`

// formerLabel is what a deleted resource was called; empty when the change log
// does not say.
func formerLabel(ctx context.Context, q querier, r client.Resource) (label string, err error) {
	err = q.QueryRow(ctx, sqlFormerLabel, string(r.Kind), r.Key).Scan(&label)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return label, err
}
