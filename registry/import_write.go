package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/jackc/pgx/v5"

	"hubn/registry/rpsl"
)

const sqlImportStage = `
CREATE TEMP TABLE import_prefix (
  op                 text NOT NULL,
  id                 bigint,
  prefix             cidr NOT NULL,
  parent             cidr,
  depth              integer NOT NULL,
  organisation       text NOT NULL,
  route_organisation text NOT NULL,
  name               text NOT NULL,
  kind               text NOT NULL,
  status             text NOT NULL,
  provenance         text NOT NULL,
  announced          boolean NOT NULL,
  origin_asn         bigint,
  max_length         smallint,
  reverse_changed    boolean NOT NULL,
  reverse_mode       text NOT NULL,
  name_servers       text[] NOT NULL,
  ds                 jsonb NOT NULL,
  range_first        inet,
  range_last         inet
) ON COMMIT DROP`

const sqlImportAnalyse = `ANALYZE import_prefix`

// stage copies the planned prefixes into a table of this transaction.
func (w *importWrite) stage(ctx context.Context) error {
	p := w.plan
	if len(p.InsertPrefixes)+len(p.UpdatePrefixes)+len(p.DeletePrefixes) == 0 {
		return nil
	}
	if err := w.exec(ctx, "make the staging table", sqlImportStage); err != nil {
		return err
	}
	rows := make([]stagedPrefix, 0, len(p.InsertPrefixes)+len(p.UpdatePrefixes)+len(p.DeletePrefixes))
	for i := range p.InsertPrefixes {
		rows = append(rows, stagedPrefix{"insert", &p.InsertPrefixes[i], w.depths[p.InsertPrefixes[i].CIDR], true})
	}
	for i := range p.UpdatePrefixes {
		u := &p.UpdatePrefixes[i]
		rows = append(rows, stagedPrefix{"update", &u.Now, 0, u.Changed.Has(rpsl.FieldReverse)})
	}
	for i := range p.DeletePrefixes {
		rows = append(rows, stagedPrefix{"delete", &p.DeletePrefixes[i], 0, false})
	}
	_, err := w.tx.CopyFrom(ctx, pgx.Identifier{"import_prefix"}, stagedPrefixColumns,
		pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) { return rows[i].values() }))
	if err != nil {
		return fmt.Errorf("stage prefixes: %w", err)
	}
	return w.exec(ctx, "analyse the staging table", sqlImportAnalyse)
}

// stagedPrefix is a row of the staging table.
type stagedPrefix struct {
	op             string
	row            *rpsl.Prefix
	depth          int // among the new prefixes
	reverseChanged bool
}

var stagedPrefixColumns = []string{
	"op", "id", "prefix", "parent", "depth", "organisation", "route_organisation", "name", "kind", "status", "provenance",
	"announced", "origin_asn", "max_length", "reverse_changed", "reverse_mode", "name_servers", "ds", "range_first", "range_last",
}

func (s stagedPrefix) values() ([]any, error) {
	p := s.row
	ds, err := json.Marshal(p.Reverse.DS)
	if err != nil {
		return nil, err
	}
	if p.Reverse.DS == nil {
		ds = []byte("[]")
	}
	servers := p.Reverse.NameServers
	if servers == nil {
		servers = []string{}
	}
	var parent *netip.Prefix
	if p.Parent.IsValid() {
		parent = &p.Parent
	}
	var origin *int64
	if p.Routing.Origin != nil {
		n := int64(*p.Routing.Origin)
		origin = &n
	}
	return []any{
		s.op, p.ID, p.CIDR, parent, s.depth, p.Organisation, p.RouteOrganisation, p.Name, string(p.Kind), string(p.Status),
		string(p.Provenance), p.Routing.Announced, origin, p.Routing.MaxLength, s.reverseChanged, string(p.Reverse.Mode),
		servers, ds, host(p.Range.First), host(p.Range.Last),
	}, nil
}

// host is an address, or NULL for none.
func host(a netip.Addr) *netip.Addr {
	if !a.IsValid() {
		return nil
	}
	return &a
}

const sqlImportInsertPrefixes = `
INSERT INTO registry.prefix
  (prefix, parent_id, parent_prefix, organisation_id, route_organisation_id, name, kind, status, provenance,
   announced, origin_asn, max_length, reverse_mode, name_servers, ds, range_first, range_last)
SELECT i.prefix, q.id, q.prefix, o.id, r.id, i.name, i.kind, i.status, i.provenance,
       i.announced, i.origin_asn, i.max_length, i.reverse_mode, i.name_servers, i.ds, i.range_first, i.range_last
FROM import_prefix i
LEFT JOIN registry.prefix q ON q.prefix = i.parent
LEFT JOIN registry.organisation o ON lower(o.handle) = lower(nullif(i.organisation, ''))
LEFT JOIN registry.organisation r ON lower(r.handle) = lower(nullif(i.route_organisation, ''))
WHERE i.op = 'insert'
  AND i.depth = $1
ORDER BY hashtext(i.prefix::text)`

// insertPrefixes inserts parents before children, and those of one depth in no
// order: a sorted load makes the index of the exclusion constraint five times slower.
func (w *importWrite) insertPrefixes(ctx context.Context) error {
	deepest := -1
	for _, depth := range w.depths {
		deepest = max(deepest, depth)
	}
	for depth := range deepest + 1 {
		if err := w.exec(ctx, "insert prefixes", sqlImportInsertPrefixes, depth); err != nil {
			return err
		}
	}
	return nil
}

const sqlImportUpdatePrefixes = `
UPDATE registry.prefix p
SET parent_id = q.id,
    parent_prefix = q.prefix,
    organisation_id = o.id,
    route_organisation_id = r.id,
    name = i.name,
    kind = i.kind,
    status = i.status,
    provenance = i.provenance,
    announced = i.announced,
    origin_asn = i.origin_asn,
    max_length = i.max_length,
    range_first = i.range_first,
    range_last = i.range_last,
    reverse_mode = i.reverse_mode,
    name_servers = CASE WHEN i.reverse_changed THEN i.name_servers ELSE p.name_servers END,
    name_server_set_id = CASE WHEN i.reverse_changed THEN NULL ELSE p.name_server_set_id END,
    ds = CASE WHEN i.reverse_changed THEN i.ds ELSE p.ds END
FROM import_prefix i
LEFT JOIN registry.prefix q ON q.prefix = i.parent
LEFT JOIN registry.organisation o ON lower(o.handle) = lower(nullif(i.organisation, ''))
LEFT JOIN registry.organisation r ON lower(r.handle) = lower(nullif(i.route_organisation, ''))
WHERE i.op = 'update'
  AND p.id = i.id`

// updatePrefixes writes complete rows; the reverse-DNS columns only where they
// change, so that a shared set of name servers stays referred to.
func (w *importWrite) updatePrefixes(ctx context.Context) error {
	if len(w.plan.UpdatePrefixes) == 0 {
		return nil
	}
	return w.exec(ctx, "update prefixes", sqlImportUpdatePrefixes)
}

const sqlImportDeletePrefixes = `
DELETE FROM registry.prefix p
USING import_prefix i
WHERE i.op = 'delete'
  AND p.id = i.id`

func (w *importWrite) deletePrefixes(ctx context.Context) error {
	if len(w.plan.DeletePrefixes) == 0 {
		return nil
	}
	return w.exec(ctx, "delete prefixes", sqlImportDeletePrefixes)
}

const sqlImportDeleteAllocations = `
DELETE FROM registry.anycast_allocation
WHERE id = ANY ($1)`

func (w *importWrite) deleteAllocations(ctx context.Context) error {
	if len(w.plan.DeleteAllocations) == 0 {
		return nil
	}
	ids := make([]int64, len(w.plan.DeleteAllocations))
	for i := range w.plan.DeleteAllocations {
		ids[i] = w.plan.DeleteAllocations[i].ID
	}
	return w.exec(ctx, "delete anycast allocations", sqlImportDeleteAllocations, ids)
}

// rehomed are the prefixes whose PTR records and anycast allocations may belong
// into another: those that go, and those in which a smaller one was inserted.
func (w *importWrite) rehomed() []int64 {
	var ids []int64
	for i := range w.plan.DeletePrefixes {
		ids = append(ids, w.plan.DeletePrefixes[i].ID)
	}
	for i := range w.plan.InsertPrefixes {
		if id, ok := w.state.prefixID[w.plan.InsertPrefixes[i].Parent]; ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

const sqlImportMoveRecords = `
UPDATE registry.ptr_record r
SET prefix_id = moved.prefix_id,
    prefix = moved.prefix
FROM (
  SELECT t.id, c.id AS prefix_id, c.prefix
  FROM registry.ptr_record t
  CROSS JOIN LATERAL registry.prefix_covering(t.address, false) c
  WHERE t.prefix_id = ANY ($1)
    AND c.id <> t.prefix_id
  ORDER BY t.id
  FOR NO KEY UPDATE OF t
) moved
WHERE r.id = moved.id`

const sqlImportMoveAllocations = `
UPDATE registry.anycast_allocation a
SET container_id = moved.container_id,
    container = moved.container,
    organisation_id = moved.organisation_id
FROM (
  SELECT t.id, c.id AS container_id, c.prefix AS container, c.organisation_id
  FROM registry.anycast_allocation t
  CROSS JOIN LATERAL registry.prefix_covering(t.prefix, false) c
  WHERE t.container_id = ANY ($1)
    AND c.id <> t.container_id
  ORDER BY t.id
  FOR NO KEY UPDATE OF t
) moved
WHERE a.id = moved.id`

// rehome moves PTR records and anycast allocations into the smallest prefix that
// covers them now: another than before where a prefix came or went between.
func (w *importWrite) rehome(ctx context.Context) error {
	around := w.rehomed()
	if len(around) == 0 {
		return nil
	}
	if err := w.exec(ctx, "move PTR records", sqlImportMoveRecords, around); err != nil {
		return err
	}
	return w.exec(ctx, "move anycast allocations", sqlImportMoveAllocations, around)
}

const sqlImportInsertASNs = `
INSERT INTO registry.asn (number, organisation_id, name)
SELECT i.number, o.id, i.name
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS i (number, organisation, name)
LEFT JOIN registry.organisation o ON lower(o.handle) = lower(nullif(i.organisation, ''))`

const sqlImportUpdateASNs = `
UPDATE registry.asn n
SET organisation_id = o.id,
    name = i.name
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS i (number, organisation, name)
LEFT JOIN registry.organisation o ON lower(o.handle) = lower(nullif(i.organisation, ''))
WHERE n.number = i.number`

const sqlImportDeleteASNs = `
DELETE FROM registry.asn
WHERE number = ANY ($1)`

func (w *importWrite) writeASNs(ctx context.Context) error {
	columns := func(rows []rpsl.ASN) (numbers []int64, holders, names []string) {
		for _, n := range rows {
			numbers, holders, names = append(numbers, int64(n.Number)), append(holders, n.Organisation), append(names, n.Name)
		}
		return numbers, holders, names
	}
	if numbers, holders, names := columns(w.plan.InsertASNs); len(numbers) > 0 {
		if err := w.exec(ctx, "insert AS numbers", sqlImportInsertASNs,
			numbers, holders, names); err != nil {
			return err
		}
	}
	updated := make([]rpsl.ASN, len(w.plan.UpdateASNs))
	for i := range w.plan.UpdateASNs {
		updated[i] = w.plan.UpdateASNs[i].Now
	}
	if numbers, holders, names := columns(updated); len(numbers) > 0 {
		if err := w.exec(ctx, "update AS numbers", sqlImportUpdateASNs, numbers, holders, names); err != nil {
			return err
		}
	}
	if numbers, _, _ := columns(w.plan.DeleteASNs); len(numbers) > 0 {
		return w.exec(ctx, "delete AS numbers", sqlImportDeleteASNs, numbers)
	}
	return nil
}
