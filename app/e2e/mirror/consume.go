package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"hubn/outbox/event"
	"hubn/registry/client"
)

// askers bounds the questions that one batch asks the Registry at a time.
const askers = 4

// others are, for each tuple that a change would drop, the other sources that
// the Registry knows to need it.
type others map[need][]client.TupleSource

// prepare asks the Registry about every tuple that a change would drop: make
// before break. A tuple that moves from a prefix to an anycast allocation arrives
// as two events, in any order.
func (m *Mirror) prepare(ctx context.Context, lineage string, changes []event.Change) (any, error) {
	stored, err := m.stored(ctx, changes)
	if err != nil {
		return nil, err
	}
	d, err := compare(stored, changes)
	if err != nil {
		return nil, err
	}
	versions := map[client.Resource]int64{}
	for _, c := range changes {
		versions[c.Resource] = c.Version
	}
	answers := make([][]client.TupleSource, len(d.drop))
	var g errgroup.Group
	g.SetLimit(askers)
	for i, n := range d.drop {
		g.Go(func() (err error) {
			answers[i], err = event.StillNeeded(ctx, m.o.Registry, lineage, n.tuple, n.source, versions[n.source])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := others{}
	for i, n := range d.drop {
		found[n] = answers[i]
	}
	return found, nil
}

func (m *Mirror) stored(ctx context.Context, changes []event.Change) ([]need, error) {
	kinds, keys := sourceColumns(changes)
	rows, err := m.db.Query(ctx, sqlStored, kinds, keys)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanNeed)
}

// write makes the sources need what they state. New tuples come before old ones
// go, in one transaction; a tuple goes only if nobody needs it.
func (m *Mirror) write(ctx context.Context, tx pgx.Tx, changes []event.Change, prepared any) error {
	kinds, keys := sourceColumns(changes)
	rows, err := tx.Query(ctx, sqlStored, kinds, keys)
	if err != nil {
		return err
	}
	stored, err := pgx.CollectRows(rows, scanNeed)
	if err != nil {
		return err
	}
	d, err := compare(stored, changes)
	if err != nil {
		return err
	}
	if prepared != nil {
		kept, err := m.kept(ctx, tx, d.drop, prepared.(others))
		if err != nil {
			return err
		}
		d = withKept(d, kept)
	}
	return apply(ctx, tx, d)
}

// kept are the needs of other sources whose events are on the way: until those
// come, the tuple is kept in their name.
func (m *Mirror) kept(ctx context.Context, tx pgx.Tx, drop []need, found others) ([]need, error) {
	var sources []client.TupleSource
	for _, n := range drop {
		answer, asked := found[n]
		if !asked {
			return nil, event.ErrAgain // the source changed since
		}
		sources = append(sources, answer...)
	}
	if len(sources) == 0 {
		return nil, nil
	}
	expected, err := m.store.Expected(ctx, tx, sources)
	if err != nil {
		return nil, err
	}
	var kept []need
	for _, n := range drop {
		for _, s := range found[n] {
			if expected[s.Resource] {
				kept = append(kept, need{s.Resource, n.tuple})
			}
		}
	}
	return kept, nil
}

// withKept adds needs to a difference; one that it would drop stays.
func withKept(d difference, kept []need) difference {
	stays := map[need]bool{}
	for _, n := range kept {
		stays[n] = true
	}
	out := difference{add: d.add}
	for _, n := range d.drop {
		if stays[n] {
			delete(stays, n)
			continue
		}
		out.drop = append(out.drop, n)
	}
	for _, n := range d.add {
		delete(stays, n)
	}
	for n := range stays {
		out.add = append(out.add, n)
	}
	return out
}

const (
	sqlStored = `
SELECT s.kind, s.key, s.asn, s.prefix, s.max_length
FROM unnest($1::text[], $2::text[]) AS w (kind, key)
JOIN mirror.route_origin_source s ON s.kind = w.kind AND s.key = w.key`

	// Every tuple that is touched is locked first, in one order: who then asks
	// whether anybody needs it sees all that was decided before.
	sqlLock = `
INSERT INTO mirror.route_origin AS t (prefix, asn, max_length)
SELECT prefix, asn, max_length
FROM unnest($1::cidr[], $2::bigint[], $3::smallint[]) WITH ORDINALITY AS c (prefix, asn, max_length, n)
ORDER BY n
ON CONFLICT (prefix, asn, max_length) DO UPDATE
SET since = t.since`

	sqlAdd = `
INSERT INTO mirror.route_origin_source (kind, key, prefix, asn, max_length)
SELECT kind, key, prefix, asn, max_length
FROM unnest($1::text[], $2::text[], $3::cidr[], $4::bigint[], $5::smallint[]) AS c (kind, key, prefix, asn, max_length)
ON CONFLICT DO NOTHING`

	sqlDrop = `
DELETE FROM mirror.route_origin_source s
USING unnest($1::text[], $2::text[], $3::cidr[], $4::bigint[], $5::smallint[]) AS c (kind, key, prefix, asn, max_length)
WHERE s.kind = c.kind AND s.key = c.key
  AND s.prefix = c.prefix AND s.asn = c.asn AND s.max_length = c.max_length`

	sqlSweep = `
DELETE FROM mirror.route_origin t
USING unnest($1::cidr[], $2::bigint[], $3::smallint[]) AS c (prefix, asn, max_length)
WHERE t.prefix = c.prefix AND t.asn = c.asn AND t.max_length = c.max_length
  AND NOT EXISTS (
    SELECT
    FROM mirror.route_origin_source s
    WHERE s.prefix = t.prefix AND s.asn = t.asn AND s.max_length = t.max_length)`

	sqlOrigins = `
SELECT s.kind, s.key, s.asn, s.prefix, s.max_length
FROM unnest($1::text[], $2::text[]) AS w (kind, key)
JOIN mirror.route_origin_source s ON s.kind = w.kind AND s.key = w.key
ORDER BY s.kind, s.key, s.prefix, s.asn, s.max_length`
)

func apply(ctx context.Context, tx pgx.Tx, d difference) error {
	batch := &pgx.Batch{}
	if touched := tuplesOf(d.add, d.drop); len(touched) > 0 {
		prefixes, asns, lengths := tupleColumns(touched)
		batch.Queue(sqlLock, prefixes, asns, lengths)
	}
	if len(d.add) > 0 {
		batch.Queue(sqlAdd, needColumns(d.add)...)
	}
	if len(d.drop) > 0 {
		batch.Queue(sqlDrop, needColumns(d.drop)...)
		prefixes, asns, lengths := tupleColumns(tuplesOf(d.drop))
		batch.Queue(sqlSweep, prefixes, asns, lengths)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

// describe adds the route origins that each source needs to its report.
func describe(ctx context.Context, db event.Querier, items []client.ReportItem) error {
	kinds, keys := make([]string, len(items)), make([]string, len(items))
	for i, item := range items {
		kinds[i], keys[i] = string(item.Resource.Kind), item.Resource.Key
	}
	rows, err := db.Query(ctx, sqlOrigins, kinds, keys)
	if err != nil {
		return err
	}
	needs, err := pgx.CollectRows(rows, scanNeed)
	if err != nil {
		return err
	}
	origins := map[client.Resource][]string{}
	for _, n := range needs {
		origins[n.source] = append(origins[n.source], n.tuple.String())
	}
	for i := range items {
		detail, err := json.Marshal(map[string]any{"route_origins": origins[items[i].Resource]})
		if err != nil {
			return err
		}
		items[i].Detail = detail
	}
	return nil
}

func scanNeed(row pgx.CollectableRow) (n need, err error) {
	var asn int64
	if err := row.Scan(&n.source.Kind, &n.source.Key, &asn, &n.tuple.Prefix, &n.tuple.MaxLength); err != nil {
		return n, fmt.Errorf("read a route origin: %w", err)
	}
	n.tuple.ASN = client.ASN(asn)
	return n, nil
}

func sourceColumns(changes []event.Change) (kinds, keys []string) {
	kinds, keys = make([]string, len(changes)), make([]string, len(changes))
	for i, c := range changes {
		kinds[i], keys[i] = string(c.Resource.Kind), c.Resource.Key
	}
	return kinds, keys
}

func tupleColumns(tuples []client.Tuple) (prefixes []netip.Prefix, asns []int64, lengths []int16) {
	for _, t := range tuples {
		prefixes, asns, lengths = append(prefixes, t.Prefix), append(asns, int64(t.ASN)), append(lengths, int16(t.MaxLength))
	}
	return prefixes, asns, lengths
}

func needColumns(needs []need) []any {
	var kinds, keys []string
	var prefixes []netip.Prefix
	var asns []int64
	var lengths []int16
	for _, n := range needs {
		kinds, keys = append(kinds, string(n.source.Kind)), append(keys, n.source.Key)
		prefixes, asns, lengths = append(prefixes, n.tuple.Prefix), append(asns, int64(n.tuple.ASN)), append(lengths, int16(n.tuple.MaxLength))
	}
	return []any{kinds, keys, prefixes, asns, lengths}
}
