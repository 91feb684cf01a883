package registry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

func (s *service) bulkExportRoutes() {
	const tag = "import and export"
	register(s, operation{
		method: http.MethodGet, path: "/v1/export/ndjson", id: "export-ndjson", tag: tag,
		summary: "Export nouns as NDJSON", needs: exportData,
		description: `Lines of {"kind", "body"} that an import takes, of one snapshot, in an order in which each names only what came before: ` +
			"organisations, AS numbers, prefixes in tree order, PTR records, anycast allocations, CAs, " +
			"certificates that are neither revoked nor over, BGP sessions without their passwords.",
	}, s.exportNDJSON)
	register(s, operation{
		method: http.MethodGet, path: "/v1/export/csv", id: "export-csv", tag: tag,
		summary: "Export the nouns of one kind as CSV", needs: exportData,
		description: "A header and a row for each, as an import takes them (RFC 4180).",
	}, s.exportCSV)
}

// exportedKind is a kind of noun in an export. sql answers the address or prefix
// that the body begins with, or NULL, and the rest of the body: Go writes addresses
// in the form of RFC 5952.
type exportedKind struct {
	kind   client.Kind
	member string // of the address or prefix
	sql    string
	// read passes the bodies of a kind that is written by its own input instead.
	read func(ctx context.Context, tx pgx.Tx, write func(body []byte) error) error
}

const (
	sqlExportOrganisations = `
SELECT NULL::cidr, json_strip_nulls(json_build_object(
         'handle', o.handle, 'name', nullif(o.name, ''), 'contact', nullif(o.contact, '')))::text
FROM registry.organisation o
ORDER BY o.id`
	sqlExportASNs = `
SELECT NULL::cidr, json_strip_nulls(json_build_object(
         'number', n.number, 'organisation', o.handle, 'name', nullif(n.name, '')))::text
FROM registry.asn n
LEFT JOIN registry.organisation o ON o.id = n.organisation_id
ORDER BY n.number`
	sqlExportAllPrefixes = `
SELECT p.prefix, json_strip_nulls(json_build_object(
         'organisation', o.handle,
         'kind', p.kind,
         'status', p.status,
         'name', nullif(p.name, ''),
         'routing', CASE WHEN p.origin_asn IS NOT NULL THEN json_build_object(
           'announced', p.announced, 'origin', p.origin_asn, 'max_length', p.max_length) END,
         'reverse', CASE WHEN p.reverse_mode <> 'inherit' OR cardinality(p.name_servers) > 0 OR p.name_server_set_id IS NOT NULL
                           OR p.ds <> '[]' OR p.rfc2317_style IS NOT NULL OR p.zone_cut IS NOT NULL
           THEN json_build_object(
             'mode', p.reverse_mode,
             -- A set that prefixes share comes out as its servers: its id is
             -- another registry's other set.
             'name_servers', CASE WHEN cardinality(coalesce(s.servers, p.name_servers)) > 0 THEN to_json(coalesce(s.servers, p.name_servers)) END,
             'ds', nullif(p.ds, '[]'),
             'rfc2317_style', p.rfc2317_style,
             'zone_cut', p.zone_cut) END,
         'provenance', nullif(p.provenance, 'registered'),
         'route_organisation', r.handle,
         'range', host(p.range_first) || '-' || host(p.range_last)))::text
FROM registry.prefix p
LEFT JOIN registry.organisation o ON o.id = p.organisation_id
LEFT JOIN registry.organisation r ON r.id = p.route_organisation_id
LEFT JOIN registry.name_server_set s ON s.id = p.name_server_set_id
ORDER BY p.prefix`
	sqlExportPTRs = `
SELECT r.address::cidr, json_strip_nulls(json_build_object('target', r.target_typed, 'ttl', r.ttl))::text
FROM registry.ptr_record r
ORDER BY r.address, r.target`
	sqlExportAnycasts = `
SELECT a.prefix, json_strip_nulls(json_build_object(
         'service', a.service,
         'organisation', o.handle,
         'origins', (
           SELECT json_agg(json_build_object('asn', w.asn, 'max_length', w.max_length, 'active', nullif(w.active, true))
                           ORDER BY w.asn, w.max_length NULLS FIRST)
           FROM registry.anycast_route_origin w
           WHERE w.allocation_id = a.id)))::text
FROM registry.anycast_allocation a
LEFT JOIN registry.organisation o ON o.id = a.organisation_id
ORDER BY a.prefix, a.service`
)

// exportedKinds are in an order in which each names only what came before.
var exportedKinds = []exportedKind{
	{client.KindOrganisation, "", sqlExportOrganisations, nil},
	{client.KindASN, "", sqlExportASNs, nil},
	{client.KindPrefix, "prefix", sqlExportAllPrefixes, nil},
	{client.KindPTR, "address", sqlExportPTRs, nil},
	{client.KindAnycast, "prefix", sqlExportAnycasts, nil},
	{client.KindCA, "", "", bodiesOf(sqlExportAuthorities, scanAuthority, exportedAuthority)},
	{kindCertificate, "", "", bodiesOf(sqlExportCertificates, scanCertificate, exportedCertificate)},
	{client.KindSession, "", "", bodiesOf(sqlExportSessions, scanSession, exportedSession)},
}

// each passes the body of every noun of the kind.
func (k exportedKind) each(ctx context.Context, tx pgx.Tx, write func(body []byte) error) error {
	if k.read != nil {
		return k.read(ctx, tx, write)
	}
	rows, err := tx.Query(ctx, k.sql)
	if err != nil {
		return err
	}
	var (
		prefix *netip.Prefix
		rest   string
		body   bytes.Buffer
	)
	_, err = pgx.ForEachRow(rows, []any{&prefix, &rest}, func() error {
		body.Reset()
		if prefix == nil {
			return write([]byte(rest))
		}
		text := prefix.String()
		if k.member == "address" {
			text = prefix.Addr().String()
		}
		body.WriteString(`{"` + k.member + `":"` + text + `",`)
		body.WriteString(strings.TrimPrefix(rest, "{"))
		return write(body.Bytes())
	})
	return err
}

type exportNDJSONInput struct {
	Kind []string `query:"kind,explode" maxItems:"10" doc:"Those of this kind alone (may be repeated)" enum:"organisation,asn,prefix,ptr,anycast,ca,certificate,session"`
}

func (s *service) exportNDJSON(ctx context.Context, in *exportNDJSONInput) (*huma.StreamResponse, error) {
	return s.export(ctx, ndjson, func(ctx context.Context, tx *reading, out *bufio.Writer) error {
		for _, k := range exportedKinds {
			if len(in.Kind) > 0 && !slices.Contains(in.Kind, string(k.kind)) {
				continue
			}
			head := `{"kind":"` + string(k.kind) + `","body":`
			if err := k.each(ctx, tx, func(body []byte) error {
				_, _ = out.WriteString(head)
				_, _ = out.Write(body)
				_, err := out.WriteString("}\n")
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

type exportCSVInput struct {
	Kind string `query:"kind" required:"true" enum:"organisation,asn,prefix,ptr,anycast" doc:"Of what"`
}

func (s *service) exportCSV(ctx context.Context, in *exportCSVInput) (*huma.StreamResponse, error) {
	kind := client.Kind(in.Kind)
	columns := csvKinds[slices.IndexFunc(csvKinds, func(k csvKind) bool { return k.kind == kind })].columns
	exported := exportedKinds[slices.IndexFunc(exportedKinds, func(k exportedKind) bool { return k.kind == kind })]
	return s.export(ctx, csvMedia+"; charset=utf-8; header=present", func(ctx context.Context, tx *reading, out *bufio.Writer) error {
		rows := csv.NewWriter(out)
		record := make([]string, len(columns))
		for i, c := range columns {
			record[i] = c.name
		}
		if err := rows.Write(record); err != nil {
			return err
		}
		if err := exported.each(ctx, tx, func(body []byte) error {
			if err := fillRecord(record, columns, body); err != nil {
				return err
			}
			return rows.Write(record)
		}); err != nil {
			return err
		}
		rows.Flush()
		return rows.Error()
	}), nil
}

// fillRecord writes a body's members into their columns.
func fillRecord(record []string, columns []csvColumn, body []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var members map[string]any
	if err := decoder.Decode(&members); err != nil {
		return err
	}
	for i, c := range columns {
		from := members
		if c.group != "" {
			from, _ = members[c.group].(map[string]any)
		}
		record[i] = ""
		if value, ok := from[c.member]; ok {
			record[i] = c.write(value)
		}
	}
	return nil
}
