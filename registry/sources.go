package registry

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// source is how the aggregates of one kind are read as sources. A body holds
// only columns of its own aggregate, and comes out of PostgreSQL as the JSON of
// the kind's XxxSource, nulls left out; the version is the lane's last sequence
// number, joined in the very statement that reads the body.
type source struct {
	kind client.Kind
	// batch answers (key, version, changed, body) for each of the keys $1, in
	// their order; version is null without a lane, body without a row.
	batch string
	// page answers the same for the present ones after the key $1, at most $2.
	page string
	// ids answers (key, version) of all present ones, in the order of the pages.
	ids string
	// first is a value of $1 below every key.
	first string
	// parse reads a key and answers it in the form that lanes use.
	parse func(string) (string, error)
}

const (
	organisationBody = `json_build_object(
	  'id', r.id, 'handle', r.handle, 'name', r.name, 'contact', r.contact)`

	asnBody = `json_build_object(
	  'number', r.number, 'organisation_id', r.organisation_id)`

	prefixBody = `json_build_object(
	  'prefix', r.prefix, 'organisation_id', r.organisation_id, 'status', r.status,
	  'routing', json_build_object(
	    'announced', r.announced, 'origin', r.origin_asn, 'max_length', r.max_length),
	  'reverse', json_build_object(
	    'mode', r.reverse_mode, 'name_servers', r.name_servers, 'name_server_set_id', r.name_server_set_id,
	    'ds', r.ds, 'rfc2317_style', r.rfc2317_style, 'zone_cut', r.zone_cut))`

	ptrBody = `json_build_object(
	  'address', host(r.address),
	  'records', (
	    SELECT json_agg(json_build_object('target', t.target, 'ttl', t.ttl) ORDER BY t.target COLLATE "C")
	    FROM registry.ptr_record t
	    WHERE t.address = r.address))`

	anycastBody = `json_build_object(
	  'prefix', r.prefix, 'organisation_id', r.organisation_id, 'service', r.service,
	  'origins', (
	    SELECT coalesce(json_agg(json_build_object('asn', o.asn, 'max_length', o.max_length, 'active', o.active)
	                             ORDER BY o.asn, o.max_length NULLS FIRST), '[]')
	    FROM registry.anycast_route_origin o
	    WHERE o.allocation_id = r.id))`

	caBody = `json_build_object(
	  'id', r.id, 'name', r.name, 'parent_id', r.parent_id, 'organisation_id', r.organisation_id, 'mode', r.mode,
	  'csr', translate(encode(r.csr, 'base64'), E'\n', ''), 'resources', r.resources, 'prefixes', r.prefixes,
	  'asns', (
	    SELECT coalesce(json_agg(json_build_object('first', lower(a), 'last', upper(a) - 1)), '[]')
	    FROM unnest(r.asns) a),
	  'state', r.state,
	  'certificates', (
	    SELECT coalesce(json_agg(json_build_object(
	      'id', c.id, 'profile', c.profile, 'csr', translate(encode(c.csr, 'base64'), E'\n', ''), 'prefixes', c.prefixes,
	      'asns', (
	        SELECT coalesce(json_agg(json_build_object('first', lower(a), 'last', upper(a) - 1)), '[]')
	        FROM unnest(c.asns) a),
	      'not_before', c.not_before, 'not_after', c.not_after,
	      'revocation', CASE WHEN v.id IS NOT NULL
	        THEN json_build_object('reason', v.reason, 'revoked_at', v.revoked_at) END) ORDER BY c.id), '[]')
	    FROM registry.certificate c
	    LEFT JOIN registry.revocation v ON v.certificate_id = c.id
	    WHERE c.ca_id = r.id))`

	sessionBody = `json_build_object(
	  'id', r.id, 'collector', r.collector, 'local_asn', r.local_asn, 'local_address', host(r.local_address),
	  'remote_asn', r.remote_asn, 'remote_address', host(r.remote_address), 'families', r.families,
	  'password_set', r.password_sealed IS NOT NULL, 'max_prefixes', r.max_prefixes, 'wanted', r.wanted)`

	nameServersBody = `json_build_object(
	  'id', r.id, 'name', r.name, 'servers', r.servers)`
)

// rowSource is a kind whose aggregates are the rows of one table by a number.
func rowSource(kind client.Kind, table, id, body string) source {
	lane := ` LEFT JOIN registry.outbox_lane l ON l.agg_type = '` + string(kind) + `' AND l.agg_key = `
	return source{
		kind:  kind,
		first: "-1",
		parse: parseNumber,
		batch: `
SELECT k.key, l.last_seq, l.last_event_at, CASE WHEN r.` + id + ` IS NOT NULL THEN json_strip_nulls(` + body + `) END
FROM unnest($1::text[]) WITH ORDINALITY AS k (key, n)` + lane + `k.key COLLATE "C"
LEFT JOIN ` + table + ` r ON r.` + id + ` = k.key::bigint
ORDER BY k.n`,
		page: `
SELECT r.` + id + `::text, l.last_seq, l.last_event_at, json_strip_nulls(` + body + `)
FROM ` + table + ` r` + lane + `r.` + id + `::text
WHERE r.` + id + ` > $1::text::bigint
ORDER BY r.` + id + `
LIMIT $2::bigint`,
		ids: `
SELECT r.` + id + `::text, l.last_seq
FROM ` + table + ` r` + lane + `r.` + id + `::text
ORDER BY r.` + id,
	}
}

// sources is how each kind is read.
var sources = map[client.Kind]source{
	client.KindOrganisation: rowSource(client.KindOrganisation, "registry.organisation", "id", organisationBody),
	client.KindASN:          rowSource(client.KindASN, "registry.asn", "number", asnBody),
	client.KindPrefix:       rowSource(client.KindPrefix, "registry.prefix", "id", prefixBody),
	client.KindAnycast:      rowSource(client.KindAnycast, "registry.anycast_allocation", "id", anycastBody),
	client.KindCA:           rowSource(client.KindCA, "registry.certificate_authority", "id", caBody),
	client.KindSession:      rowSource(client.KindSession, "registry.bgp_session", "id", sessionBody),
	client.KindNameServers:  rowSource(client.KindNameServers, "registry.name_server_set", "id", nameServersBody),
	// An address with its PTR records is an aggregate without a row of its own.
	client.KindPTR: {
		kind:  client.KindPTR,
		first: "0.0.0.0/0", // sorts below every host address
		parse: parseHost,
		batch: `
SELECT k.key, l.last_seq, l.last_event_at, CASE WHEN r.address IS NOT NULL THEN json_strip_nulls(` + ptrBody + `) END
FROM unnest($1::text[]) WITH ORDINALITY AS k (key, n)
LEFT JOIN registry.outbox_lane l ON l.agg_type = 'ptr' AND l.agg_key = host(k.key::inet)
LEFT JOIN LATERAL (
  SELECT p.address
  FROM registry.ptr_record p
  WHERE p.address = k.key::inet
  LIMIT 1
) r ON true
ORDER BY k.n`,
		page: `
SELECT host(r.address), l.last_seq, l.last_event_at, json_strip_nulls(` + ptrBody + `)
FROM (
  SELECT DISTINCT p.address
  FROM registry.ptr_record p
  WHERE p.address > $1::text::inet
  ORDER BY p.address
  LIMIT $2::bigint
) r
LEFT JOIN registry.outbox_lane l ON l.agg_type = 'ptr' AND l.agg_key = host(r.address)
ORDER BY r.address`,
		ids: `
SELECT host(r.address), l.last_seq
FROM (
  SELECT DISTINCT p.address
  FROM registry.ptr_record p
) r
LEFT JOIN registry.outbox_lane l ON l.agg_type = 'ptr' AND l.agg_key = host(r.address)
ORDER BY r.address`,
	},
}

func parseNumber(key string) (string, error) {
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil || n < 0 {
		return "", problem.New(problem.Invalid, "%q is not a number", key)
	}
	return strconv.FormatInt(n, 10), nil
}

func parseHost(key string) (string, error) {
	a, err := netip.ParseAddr(key)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return "", problem.New(problem.Invalid, "%q is not an IPv4 or IPv6 address", key)
	}
	return a.String(), nil
}

// sourceOf is the source of a kind that a request names.
func sourceOf(kind client.Kind) (source, error) {
	s, ok := sources[kind]
	if !ok {
		return source{}, problem.New(problem.Invalid, "there are no sources of this kind; the kinds are %v", client.SourceKinds).
			At("path.kind", "is not a kind of sources", string(kind))
	}
	return s, nil
}

func (s *service) sourceRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/sources/{batch}", id: "get-sources", tag: "sources",
		summary: "Fetch up to 500 sources by key", needs: readSources, unlogged: true,
		description: "The path is /v1/sources/{kind}:get. Every key is answered as present, deleted (a tombstone) or forgotten.",
	}, s.getSources)
	register(s, operation{
		method: http.MethodGet, path: "/v1/sources/{kind}/{key}", id: "get-source", tag: "sources",
		summary: "Fetch one source", needs: readSources, unlogged: true,
		problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getSource)
}

type sourcesInput struct {
	Batch string `path:"batch" doc:"kind:get" example:"prefix:get"`
	Body  client.SourceKeys
}

type sourcesOutput struct {
	Body client.SourceBatch
}

func (s *service) getSources(ctx context.Context, in *sourcesInput) (*sourcesOutput, error) {
	name, ok := strings.CutSuffix(in.Batch, ":get")
	kind := client.Kind(name)
	if !ok {
		return nil, problem.New(problem.Malformed, "POST /v1/sources/%s is not an operation: write /v1/sources/{kind}:get", in.Batch)
	}
	src, err := sourceOf(kind)
	if err != nil {
		return nil, err
	}
	var out sourcesOutput
	err = s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body.Lineage, out.Body.ReadAt = tx.Lineage, tx.At
		out.Body.Items, err = src.fetch(ctx, tx, in.Body.Keys)
		return err
	})
	return &out, err
}

type sourceInput struct {
	Kind client.Kind `path:"kind"`
	Key  string      `path:"key"`
}

type sourceOutput struct {
	Body client.SourceAnswer
}

func (s *service) getSource(ctx context.Context, in *sourceInput) (*sourceOutput, error) {
	src, err := sourceOf(in.Kind)
	if err != nil {
		return nil, err
	}
	var out sourceOutput
	err = s.read(ctx, func(ctx context.Context, tx *reading) error {
		items, err := src.fetch(ctx, tx, []string{in.Key})
		if err != nil {
			return err
		}
		out.Body = client.SourceAnswer{Lineage: tx.Lineage, ReadAt: tx.At, Source: items[0]}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, absence(out.Body)
}

// absence is the problem that a source which is not present is answered with.
func absence(a client.SourceAnswer) error {
	var e *problem.Error
	switch a.State {
	case client.SourceDeleted:
		e = problem.New(problem.Deleted, "%s was deleted; that was its version %d", a.Resource, a.Version).
			With("version", a.Version).With("changed", a.Changed.Format(time.RFC3339Nano))
	case client.SourceForgotten:
		e = problem.New(problem.NotFound, "the Registry does not know %s (any more)", a.Resource)
	default:
		return nil
	}
	return e.With("lineage", a.Lineage).With("resource", a.Resource).With("read_at", a.ReadAt.Format(time.RFC3339Nano))
}

// fetch reads sources by key, in the order of keys.
func (src source) fetch(ctx context.Context, q querier, keys []string) ([]client.Source, error) {
	parsed := make([]string, len(keys))
	var bad *problem.Error
	for i, key := range keys {
		var err error
		if parsed[i], err = src.parse(key); err != nil {
			if bad == nil {
				bad = problem.New(problem.Invalid, "not every key is one of kind %s", src.kind)
			}
			bad.At("body.keys["+strconv.Itoa(i)+"]", "is not a key of kind "+string(src.kind), key)
		}
	}
	if bad != nil {
		return nil, bad
	}
	rows, err := q.Query(ctx, src.batch, parsed)
	if err != nil {
		return nil, err
	}
	items, err := src.collect(rows, len(keys))
	for i := range items {
		items[i].Resource.Key = keys[i]
	}
	return items, err
}

// collect reads rows of (key, version, changed, body).
func (src source) collect(rows pgx.Rows, n int) ([]client.Source, error) {
	items := make([]client.Source, 0, n)
	var (
		key     string
		version *int64
		changed *time.Time
		body    []byte
	)
	_, err := pgx.ForEachRow(rows, []any{&key, &version, &changed, &body}, func() error {
		item := client.Source{Resource: client.Resource{Kind: src.kind, Key: key}}
		switch {
		case version == nil && body == nil:
			item.State = client.SourceForgotten
		case version == nil:
			return errNoLane(item.Resource)
		case body == nil:
			item.State, item.Version, item.Changed = client.SourceDeleted, *version, *changed
		default:
			item.State, item.Version, item.Changed, item.Body = client.SourcePresent, *version, *changed, body
		}
		items = append(items, item)
		return nil
	})
	return items, err
}
