package registry

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/jackc/pgx/v5"

	"hubn/registry/rpsl"
)

// scopedObjects is how many objects an import may have and still read only the
// part of the Registry around what they name. Beyond, one pass over everything
// costs less than as many index probes.
const scopedObjects = 500

// importScope is what an import names. All that it can change or depend on is
// that, the prefixes around it and those inside it. A nil scope is everything.
type importScope struct {
	prefixes []netip.Prefix
	asns     []int64
	handles  []string
}

// scopeOf is the scope of an input; everything for one that prunes.
func scopeOf(input rpsl.Input, prune bool) *importScope {
	if prune || len(input.Objects) > scopedObjects {
		return nil
	}
	scope := &importScope{prefixes: []netip.Prefix{}, asns: []int64{}, handles: []string{}}
	for _, object := range input.Objects {
		holder := ""
		switch o := object.(type) {
		case *rpsl.Network:
			scope.prefixes = append(scope.prefixes, o.CIDRs...)
			holder = o.Organisation
		case *rpsl.Route:
			scope.prefixes = append(scope.prefixes, o.Prefix)
			holder = o.Organisation
		case *rpsl.AutNum:
			scope.asns = append(scope.asns, int64(o.Number))
			holder = o.Organisation
		}
		if holder != "" {
			scope.handles = append(scope.handles, holder)
		}
	}
	return scope
}

// importState is what an import planned from, with the revisions of the rows, so
// that one which changed meanwhile is noticed.
type importState struct {
	rpsl.State
	prefixRevision     map[int64]int64
	prefixID           map[netip.Prefix]int64
	asnRevision        map[uint32]int64
	allocationRevision map[int64]int64
	// allocationContainer is the prefix that each anycast allocation lies in.
	allocationContainer map[int64]int64
}

// readImportState reads the part of the Registry in scope. Its statements see
// different snapshots; whatever the plan then relies on is locked and compared
// by revision before anything is written.
func readImportState(ctx context.Context, tx pgx.Tx, scope *importScope) (*importState, error) {
	state := &importState{
		prefixRevision:      map[int64]int64{},
		prefixID:            map[netip.Prefix]int64{},
		asnRevision:         map[uint32]int64{},
		allocationRevision:  map[int64]int64{},
		allocationContainer: map[int64]int64{},
	}
	for _, read := range []func(context.Context, pgx.Tx, *importScope) error{
		state.readPrefixes, state.readAllocations, state.readASNs, state.readOrganisations,
	} {
		if err := read(ctx, tx, scope); err != nil {
			return nil, err
		}
	}
	return state, nil
}

const sqlImportPrefixes = `
SELECT p.id, p.prefix, coalesce(o.handle, ''), coalesce(r.handle, ''), p.name, p.kind, p.status, p.provenance,
       p.announced, p.origin_asn, p.max_length, p.reverse_mode, coalesce(s.servers, p.name_servers), p.ds, p.range_first, p.range_last, p.revision
FROM registry.prefix p
LEFT JOIN registry.organisation o ON o.id = p.organisation_id
LEFT JOIN registry.organisation r ON r.id = p.route_organisation_id
LEFT JOIN registry.name_server_set s ON s.id = p.name_server_set_id`

// sqlImportPrefixesNear keeps to what is inside the named prefixes (in the order
// of cidr, that is what lies between a prefix and its last address) and around them.
const sqlImportPrefixesNear = sqlImportPrefixes + `
WHERE p.id IN (
  SELECT q.id
  FROM unnest($1::cidr[]) AS named (prefix)
  JOIN registry.prefix q
    ON q.prefix >= named.prefix
   AND q.prefix <= set_masklen(broadcast(named.prefix), CASE family(named.prefix) WHEN 4 THEN 32 ELSE 128 END)
  UNION
  SELECT q.id
  FROM unnest($1::cidr[]) AS named (prefix)
  CROSS JOIN LATERAL generate_series(0, masklen(named.prefix) - 1) AS length
  JOIN registry.prefix q ON q.prefix = set_masklen(named.prefix, length)
)`

func (s *importState) readPrefixes(ctx context.Context, tx pgx.Tx, scope *importScope) error {
	sql, args := sqlImportPrefixes, []any(nil)
	if scope != nil {
		sql, args = sqlImportPrefixesNear, []any{scope.prefixes}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("read prefixes: %w", err)
	}
	var (
		p           rpsl.Prefix
		first, last *netip.Addr
		revision    int64
	)
	_, err = pgx.ForEachRow(rows, []any{
		&p.ID, &p.CIDR, &p.Organisation, &p.RouteOrganisation, &p.Name, &p.Kind, &p.Status, &p.Provenance,
		&p.Routing.Announced, &p.Routing.Origin, &p.Routing.MaxLength,
		&p.Reverse.Mode, &p.Reverse.NameServers, &p.Reverse.DS, &first, &last, &revision,
	}, func() error {
		if first != nil && last != nil {
			p.Range = rpsl.Range{First: *first, Last: *last}
		}
		s.Prefixes = append(s.Prefixes, p)
		s.prefixRevision[p.ID] = revision
		s.prefixID[p.CIDR] = p.ID
		p = rpsl.Prefix{} // no pointer or slice is shared with the next row
		return nil
	})
	if err != nil {
		return fmt.Errorf("read prefixes: %w", err)
	}
	return nil
}

const (
	sqlImportAllocationsFrom = `
SELECT a.id, a.prefix, a.container_id, a.service, a.revision + coalesce(l.last_seq, 0), r.id, r.asn, r.max_length, r.active
FROM registry.anycast_allocation a
LEFT JOIN registry.outbox_lane l ON l.agg_type = 'anycast' AND l.agg_key = a.id::text
LEFT JOIN registry.anycast_route_origin r ON r.allocation_id = a.id`
	sqlImportAllocationsOrder = `
ORDER BY a.id, r.asn, r.max_length`
	sqlImportAllocations     = sqlImportAllocationsFrom + sqlImportAllocationsOrder
	sqlImportAllocationsNear = sqlImportAllocationsFrom + `
WHERE a.container_id = ANY ($1)` + sqlImportAllocationsOrder
)

func (s *importState) readAllocations(ctx context.Context, tx pgx.Tx, scope *importScope) error {
	sql, args := sqlImportAllocations, []any(nil)
	if scope != nil {
		sql, args = sqlImportAllocationsNear, []any{slices.Collect(maps.Keys(s.prefixRevision))}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("read anycast allocations: %w", err)
	}
	var (
		a         rpsl.Allocation
		container int64
		revision  int64
		originID  *int64
		asn       *uint32
		maxLength *int
		active    *bool
	)
	_, err = pgx.ForEachRow(rows, []any{&a.ID, &a.Prefix, &container, &a.Service, &revision, &originID, &asn, &maxLength, &active}, func() error {
		if n := len(s.Allocations); n == 0 || s.Allocations[n-1].ID != a.ID {
			s.Allocations = append(s.Allocations, a)
			s.allocationRevision[a.ID] = revision
			s.allocationContainer[a.ID] = container
		}
		if originID != nil {
			last := &s.Allocations[len(s.Allocations)-1]
			last.Origins = append(last.Origins, rpsl.RouteOrigin{ID: *originID, ASN: *asn, MaxLength: maxLength, Active: *active})
		}
		originID, asn, maxLength, active = nil, nil, nil, nil
		return nil
	})
	if err != nil {
		return fmt.Errorf("read anycast allocations: %w", err)
	}
	return nil
}

const (
	sqlImportASNs = `
SELECT n.number, coalesce(o.handle, ''), n.name, n.revision
FROM registry.asn n
LEFT JOIN registry.organisation o ON o.id = n.organisation_id`
	sqlImportASNsNamed = sqlImportASNs + `
WHERE n.number = ANY ($1)`
)

func (s *importState) readASNs(ctx context.Context, tx pgx.Tx, scope *importScope) error {
	sql, args := sqlImportASNs, []any(nil)
	if scope != nil {
		sql, args = sqlImportASNsNamed, []any{scope.asns}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("read AS numbers: %w", err)
	}
	var (
		n        rpsl.ASN
		revision int64
	)
	_, err = pgx.ForEachRow(rows, []any{&n.Number, &n.Organisation, &n.Name, &revision}, func() error {
		s.ASNs = append(s.ASNs, n)
		s.asnRevision[n.Number] = revision
		return nil
	})
	if err != nil {
		return fmt.Errorf("read AS numbers: %w", err)
	}
	return nil
}

const (
	sqlImportHandles = `
SELECT o.handle
FROM registry.organisation o`
	sqlImportHandlesNamed = sqlImportHandles + `
WHERE lower(o.handle) IN (SELECT lower(h) FROM unnest($1::text[]) h)`
)

// readOrganisations reads all organisations that the input names or that hold
// what was read before.
func (s *importState) readOrganisations(ctx context.Context, tx pgx.Tx, scope *importScope) error {
	sql, args := sqlImportHandles, []any(nil)
	if scope != nil {
		handles := scope.handles
		for i := range s.Prefixes {
			handles = append(handles, s.Prefixes[i].Organisation, s.Prefixes[i].RouteOrganisation)
		}
		sql, args = sqlImportHandlesNamed, []any{handles}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("read organisations: %w", err)
	}
	handles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read organisations: %w", err)
	}
	for _, h := range handles {
		s.Organisations = append(s.Organisations, rpsl.Organisation{Handle: h})
	}
	return nil
}

const sqlImportRecords = `
SELECT prefix_id, address
FROM registry.ptr_record
WHERE prefix_id = ANY ($1)`

// lostRecords finds what deleting prefixes would lose: PTR records that no other
// prefix covers, as plan leaves them. It tells each such prefix so, and returns
// whether there was any: then the plan has to be made again.
func (s *importState) lostRecords(ctx context.Context, tx pgx.Tx, plan *rpsl.Plan) (bool, error) {
	if len(plan.DeletePrefixes) == 0 {
		return false, nil
	}
	stays := make(map[netip.Prefix]bool, len(s.Prefixes))
	for i := range s.Prefixes {
		stays[s.Prefixes[i].CIDR] = true
	}
	for i := range plan.InsertPrefixes {
		stays[plan.InsertPrefixes[i].CIDR] = true
	}
	deleted := make([]int64, 0, len(plan.DeletePrefixes))
	for i := range plan.DeletePrefixes {
		delete(stays, plan.DeletePrefixes[i].CIDR)
		deleted = append(deleted, plan.DeletePrefixes[i].ID)
	}
	rows, err := tx.Query(ctx, sqlImportRecords, deleted)
	if err != nil {
		return false, fmt.Errorf("read PTR records: %w", err)
	}
	lost := map[int64]int{}
	var (
		prefixID int64
		address  netip.Addr
	)
	_, err = pgx.ForEachRow(rows, []any{&prefixID, &address}, func() error {
		if !covered(stays, address, address.BitLen()) {
			lost[prefixID]++
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read PTR records: %w", err)
	}
	losing := map[netip.Prefix]bool{}
	for i := range s.Prefixes {
		if lost[s.Prefixes[i].ID] > 0 {
			losing[s.Prefixes[i].CIDR] = true
		}
	}
	for i := range s.Prefixes {
		// An outer prefix that stays gives a home to the records of the inner ones.
		p := s.Prefixes[i].CIDR
		if n := lost[s.Prefixes[i].ID]; n > 0 && (p.Bits() == 0 || !covered(losing, p.Addr(), p.Bits()-1)) {
			s.Prefixes[i].Dependants = append(s.Prefixes[i].Dependants, counted(n, "PTR record", "PTR records"))
		}
	}
	return len(lost) > 0, nil
}

// covered tells whether one of the prefixes, of at most that length, covers the
// address.
func covered(prefixes map[netip.Prefix]bool, address netip.Addr, longest int) bool {
	for bits := longest; bits >= 0; bits-- {
		if p, err := address.Prefix(bits); err == nil && prefixes[p] {
			return true
		}
	}
	return false
}

// counted is a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
