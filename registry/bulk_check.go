package registry

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

const (
	sqlBulkHolders = `
SELECT id, lower(handle)
FROM registry.organisation
WHERE lower(handle) = ANY ($1)
   OR id = ANY ($2)`
	sqlBulkASNs = `
SELECT number
FROM registry.asn
WHERE number = ANY ($1)`
	sqlBulkPTRs = `
SELECT r.address, r.target
FROM unnest($1::inet[], $2::text[]) AS named (address, target)
JOIN registry.ptr_record r USING (address, target)`
	sqlBulkAnycasts = `
SELECT a.prefix, a.service
FROM unnest($1::cidr[], $2::text[]) AS named (prefix, service)
JOIN registry.anycast_allocation a USING (prefix, service)`
	sqlBulkNameServerSets = `
SELECT id
FROM registry.name_server_set
WHERE id = ANY ($1)`
)

// bulkHolders are the organisations that rows name, by id and by handle in lower
// case; those that the import makes have ids of -1 and less.
type bulkHolders struct {
	ids     map[int64]bool
	handles map[string]int64
}

// check finds every row that the Registry as it is cannot take, and gives the
// others their places. All faults are noted; the error is one of reading.
func (b *bulkRows) check(ctx context.Context, tx pgx.Tx) (*treePlaces, error) {
	if err := b.checkOrganisations(ctx, tx); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, pgx.Tx) error{b.checkASNs, b.checkPTRs, b.checkAnycasts, b.checkNameServerSets} {
		if err := check(ctx, tx); err != nil {
			return nil, err
		}
	}
	return b.place(ctx, tx)
}

// checkOrganisations finds the holder of every row.
func (b *bulkRows) checkOrganisations(ctx context.Context, tx pgx.Tx) error {
	holders := &bulkHolders{ids: map[int64]bool{}, handles: map[string]int64{}}
	var (
		ids     []int64
		handles []string
	)
	b.eachRef(func(_ int, _ client.Kind, ref OrganisationRef, routed string, _ *int64) {
		if ref.OrganisationID != nil {
			holders.ids[*ref.OrganisationID] = false
		}
		if ref.Organisation != nil {
			holders.handles[strings.ToLower(*ref.Organisation)] = 0
		}
		if routed != "" {
			holders.handles[strings.ToLower(routed)] = 0
		}
	})
	for i := range b.organisations {
		holders.handles[strings.ToLower(b.organisations[i].in.Handle)] = 0
	}
	for id := range holders.ids {
		ids = append(ids, id)
	}
	for handle := range holders.handles {
		handles = append(handles, handle)
	}
	rows, err := tx.Query(ctx, sqlBulkHolders, handles, ids)
	if err != nil {
		return err
	}
	var (
		id     int64
		handle string
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &handle}, func() error {
		holders.ids[id], holders.handles[handle] = true, id
		return nil
	}); err != nil {
		return err
	}
	b.newOrganisations(holders)
	b.eachRef(func(line int, kind client.Kind, ref OrganisationRef, routed string, holder *int64) {
		*holder = b.holderOf(line, kind, ref, holders)
		if routed != "" && holders.handles[strings.ToLower(routed)] == 0 {
			b.refuse(client.ImportError{Line: line, Kind: string(kind), Field: "route_organisation", Value: routed,
				Reason: fmt.Sprintf("there is no organisation %q: create it first, or name another", routed)})
		}
	})
	b.holders = holders
	return nil
}

// newOrganisations numbers the organisations that the import makes.
func (b *bulkRows) newOrganisations(holders *bulkHolders) {
	lines := map[string]int{}
	for i := range b.organisations {
		row := &b.organisations[i]
		key := strings.ToLower(row.in.Handle)
		row.holder = int64(-1 - i)
		e := client.ImportError{Line: row.line, Kind: string(client.KindOrganisation), Field: "handle", Value: row.in.Handle, Reason: existsAlready}
		switch {
		case lines[key] != 0:
			e.Reason = fmt.Sprintf("it is in line %d already", lines[key])
			b.refuse(e)
		case holders.handles[key] > 0 && b.skipExisting:
			row.skip = true
			b.skipped++
		case holders.handles[key] > 0:
			b.refuse(e)
		default:
			holders.handles[key] = row.holder
		}
		lines[key] = row.line
	}
}

// eachRef passes every reference of a row to its holder, and where the holder is
// kept.
func (b *bulkRows) eachRef(each func(line int, kind client.Kind, ref OrganisationRef, routed string, holder *int64)) {
	for i := range b.asns {
		each(b.asns[i].line, client.KindASN, b.asns[i].in.OrganisationRef, "", &b.asns[i].holder)
	}
	for i := range b.prefixes {
		each(b.prefixes[i].line, client.KindPrefix, b.prefixes[i].in.OrganisationRef, b.prefixes[i].in.RouteOrganisation, &b.prefixes[i].holder)
	}
	for i := range b.anycasts {
		each(b.anycasts[i].line, client.KindAnycast, b.anycasts[i].in.OrganisationRef, "", &b.anycasts[i].holder)
	}
}

// holderOf is the organisation that a row names; a row that names none that there
// is, is refused.
func (b *bulkRows) holderOf(line int, kind client.Kind, ref OrganisationRef, holders *bulkHolders) int64 {
	var byID, byHandle int64
	if ref.OrganisationID != nil && holders.ids[*ref.OrganisationID] {
		byID = *ref.OrganisationID
	}
	if ref.Organisation != nil {
		byHandle = holders.handles[strings.ToLower(*ref.Organisation)]
	}
	missing := ref.OrganisationID != nil && byID == 0 || ref.Organisation != nil && byHandle == 0
	differ := ref.OrganisationID != nil && ref.Organisation != nil && byID != byHandle
	if missing || differ {
		b.refuseProblem(line, kind, ref.unknown())
		return 0
	}
	if byID != 0 {
		return byID
	}
	return byHandle
}

func (b *bulkRows) checkASNs(ctx context.Context, tx pgx.Tx) error {
	return checkKeys(ctx, b, tx, client.KindASN, "number", b.asns,
		func(in *asnInput) client.ASN { return in.Number.value },
		func(n client.ASN) string { return n.String() },
		func(keys []client.ASN) (pgx.Rows, error) {
			numbers := make([]int64, len(keys))
			for i, n := range keys {
				numbers[i] = int64(n)
			}
			return tx.Query(ctx, sqlBulkASNs, numbers)
		},
		func(row pgx.CollectableRow) (n client.ASN, err error) { return n, row.Scan((*uint32)(&n)) })
}

// ptrKey and anycastKey are natural keys.
type ptrKey struct {
	address netip.Addr
	target  string
}

type anycastKey struct {
	prefix  netip.Prefix
	service string
}

func (b *bulkRows) checkPTRs(ctx context.Context, tx pgx.Tx) error {
	return checkKeys(ctx, b, tx, client.KindPTR, "target", b.ptrs,
		func(in *ptrInput) ptrKey { return ptrKey{in.Address.value, in.Target.value} },
		func(k ptrKey) string { return k.address.String() + " " + k.target },
		func(keys []ptrKey) (pgx.Rows, error) {
			addresses, targets := make([]netip.Addr, len(keys)), make([]string, len(keys))
			for i, k := range keys {
				addresses[i], targets[i] = k.address, k.target
			}
			return tx.Query(ctx, sqlBulkPTRs, addresses, targets)
		},
		func(row pgx.CollectableRow) (k ptrKey, err error) { return k, row.Scan(&k.address, &k.target) })
}

func (b *bulkRows) checkAnycasts(ctx context.Context, tx pgx.Tx) error {
	return checkKeys(ctx, b, tx, client.KindAnycast, "service", b.anycasts,
		func(in *anycastInput) anycastKey { return anycastKey{in.Prefix.value, in.Service} },
		func(k anycastKey) string { return k.prefix.String() + " " + k.service },
		func(keys []anycastKey) (pgx.Rows, error) {
			prefixes, services := make([]netip.Prefix, len(keys)), make([]string, len(keys))
			for i, k := range keys {
				prefixes[i], services[i] = k.prefix, k.service
			}
			return tx.Query(ctx, sqlBulkAnycasts, prefixes, services)
		},
		func(row pgx.CollectableRow) (k anycastKey, err error) { return k, row.Scan(&k.prefix, &k.service) })
}

// checkKeys refuses rows whose natural key is in the Registry or in an earlier row.
func checkKeys[T any, K comparable](ctx context.Context, b *bulkRows, tx pgx.Tx, kind client.Kind, field string, rows []bulkRow[T],
	key func(*T) K, text func(K) string, find func([]K) (pgx.Rows, error), scan func(pgx.CollectableRow) (K, error)) error {
	if len(rows) == 0 {
		return nil
	}
	first, keys := make(map[K]*bulkRow[T], len(rows)), make([]K, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		k := key(&row.in)
		if other := first[k]; other != nil {
			b.refuse(client.ImportError{Line: row.line, Kind: string(kind), Field: field, Value: text(k),
				Reason: fmt.Sprintf("it is in line %d already", other.line)})
			continue
		}
		first[k] = row
		keys = append(keys, k)
	}
	found, err := find(keys)
	if err != nil {
		return err
	}
	present, err := pgx.CollectRows(found, scan)
	if err != nil {
		return err
	}
	for _, k := range present {
		row := first[k]
		if row == nil {
			continue
		}
		if b.skipExisting {
			row.skip = true
			b.skipped++
			continue
		}
		b.refuse(client.ImportError{Line: row.line, Kind: string(kind), Field: field, Value: text(k), Reason: existsAlready})
	}
	return nil
}

func (b *bulkRows) checkNameServerSets(ctx context.Context, tx pgx.Tx) error {
	wanted := map[int64]bool{}
	for i := range b.prefixes {
		if id := b.prefixes[i].in.Reverse.NameServerSetID; id != nil {
			wanted[*id] = false
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var ids []int64
	for id := range wanted {
		ids = append(ids, id)
	}
	rows, err := tx.Query(ctx, sqlBulkNameServerSets, ids)
	if err != nil {
		return err
	}
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { wanted[id] = true; return nil }); err != nil {
		return err
	}
	for i := range b.prefixes {
		if id := b.prefixes[i].in.Reverse.NameServerSetID; id != nil && !wanted[*id] {
			b.refuse(client.ImportError{Line: b.prefixes[i].line, Kind: string(client.KindPrefix), Field: "reverse.name_server_set_id", Value: *id,
				Reason: fmt.Sprintf("there is no name server set %d: create it first, or write name_servers", *id)})
		}
	}
	return nil
}

// handle is the organisation with a handle; 0 for none.
func (h *bulkHolders) handle(handle string) int64 { return h.handles[strings.ToLower(handle)] }
