package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/registry/client"
)

// bulkChunk is how many rows one statement writes: few enough that progress is
// seen several times a second, and so many that its own cost does not count.
const bulkChunk = 2000

// bulkWrite is rows on their way into the tables. All rows of one kind are copied,
// with the ids that they get: those that refer to them know these.
type bulkWrite struct {
	tx       pgx.Tx
	rows     *bulkRows
	places   *treePlaces
	made     []int64 // ids of new organisations, by their number
	progress func(done int)
	done     int
}

const (
	sqlBulkPlaced = `SELECT set_config('hubn.placed', 'on', true)`
	sqlBulkIDs    = `SELECT nextval($1::regclass) FROM generate_series(1, $2)`
)

func (w *bulkWrite) write(ctx context.Context) error {
	for _, sql := range []string{sqlImportDefer, sqlBulkPlaced} {
		if _, err := w.tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{
		w.copyOrganisations, w.lockPrefixes, w.lockLanes, w.copyPrefixes, w.adopt, w.copyASNs, w.copyPTRs, w.copyAnycasts,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	_, err := w.tx.Exec(ctx, sqlImportCheck)
	return err
}

// ids takes new ids of a table.
func (w *bulkWrite) ids(ctx context.Context, table string, n int) ([]int64, error) {
	rows, err := w.tx.Query(ctx, sqlBulkIDs, "registry."+table+"_id_seq", n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// copyRow is a row for COPY, and the line that it comes from.
type copyRow struct {
	line   int
	values []any
}

// copyIn copies rows in, a part at a time.
func (w *bulkWrite) copyIn(ctx context.Context, kind client.Kind, table string, columns []string, n int, row func(i int) copyRow, counts bool) error {
	for from := 0; from < n; from += bulkChunk {
		part := make([]copyRow, min(bulkChunk, n-from))
		for i := range part {
			part[i] = row(from + i)
		}
		_, err := w.tx.CopyFrom(ctx, pgx.Identifier{"registry", table}, columns,
			pgx.CopyFromSlice(len(part), func(i int) ([]any, error) { return part[i].values, nil }))
		if err != nil {
			return atLine(err, kind, part)
		}
		if counts {
			w.done += len(part)
			w.progress(w.done)
		}
	}
	return nil
}

// copyLine is in PostgreSQL's context of an error: which of the copied rows it is about.
var copyLine = regexp.MustCompile(`COPY \w+, line (\d+)`)

// rowRefusedError is a row that a rule of the database refuses, which the checks
// should have known.
type rowRefusedError struct {
	line  int
	kind  client.Kind
	cause error
}

func (e *rowRefusedError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.cause) }
func (e *rowRefusedError) Unwrap() error { return e.cause }

// atLine finds the line of the row that an error is about.
func atLine(err error, kind client.Kind, part []copyRow) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err
	}
	m := copyLine.FindStringSubmatch(refused.Where)
	if m == nil {
		return err
	}
	n, parseErr := strconv.Atoi(m[1])
	if parseErr != nil || n < 1 || n > len(part) {
		return err
	}
	return &rowRefusedError{part[n-1].line, kind, err}
}

// holder is the id of a row's holder, or NULL.
func (w *bulkWrite) holder(id int64) any {
	switch {
	case id == 0:
		return nil
	case id < 0:
		return w.made[-1-id]
	}
	return id
}

func (w *bulkWrite) copyOrganisations(ctx context.Context) error {
	rows := kept(w.rows.organisations)
	ids, err := w.ids(ctx, "organisation", len(rows))
	if err != nil {
		return err
	}
	w.made = make([]int64, len(w.rows.organisations))
	for i, row := range rows {
		w.made[-1-row.holder] = ids[i]
	}
	return w.copyIn(ctx, client.KindOrganisation, "organisation", []string{"id", "handle", "name", "contact"}, len(rows), func(i int) copyRow {
		in := &rows[i].in
		return copyRow{rows[i].line, []any{ids[i], in.Handle, in.Name, in.Contact}}
	}, true)
}

// kept are the rows that are to be written.
func kept[T any](rows []bulkRow[T]) []*bulkRow[T] {
	out := make([]*bulkRow[T], 0, len(rows))
	for i := range rows {
		if !rows[i].skip {
			out = append(out, &rows[i])
		}
	}
	return out
}

// lockPrefixes locks the prefixes of the Registry that the rows are put into, and
// refuses if one of them has changed since the places were found.
func (w *bulkWrite) lockPrefixes(ctx context.Context) error {
	relied, read := map[int64]netip.Prefix{}, map[int64]int64{}
	rely := func(n *treeNode) {
		if n != nil && !n.isNew() {
			relied[n.id], read[n.id] = n.prefix, n.revision
		}
	}
	for _, n := range w.places.widened {
		rely(n)
	}
	for _, n := range w.places.adopted {
		rely(n)
	}
	for _, n := range w.places.ptrs {
		rely(n)
	}
	for _, n := range w.places.anycasts {
		rely(n)
	}
	return lockUnchanged(ctx, w.tx, sqlImportLockPrefixes, relied, read, func(p netip.Prefix) string { return "the prefix " + p.String() })
}

const sqlBulkInside = `
SELECT id
FROM registry.anycast_allocation
WHERE container_id = ANY ($1)
ORDER BY id
FOR NO KEY UPDATE`

// lockLanes locks what may have a lane already: natural keys from an earlier life,
// and anycast allocations that move into a new prefix.
func (w *bulkWrite) lockLanes(ctx context.Context) error {
	var kinds, keys []string
	lane := func(kind client.Kind, key string) { kinds, keys = append(kinds, string(kind)), append(keys, key) }
	for _, row := range kept(w.rows.asns) {
		lane(client.KindASN, strconv.FormatUint(uint64(row.in.Number.value), 10))
	}
	for _, row := range kept(w.rows.ptrs) {
		lane(client.KindPTR, row.in.Address.value.String())
	}
	if around := w.around(); len(around) > 0 {
		rows, err := w.tx.Query(ctx, sqlBulkInside, around)
		if err != nil {
			return err
		}
		inside, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		for _, id := range inside {
			lane(client.KindAnycast, strconv.FormatInt(id, 10))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	_, err := w.tx.Exec(ctx, sqlLockLanes, kinds, keys)
	return err
}

// around are the prefixes of the Registry that get new ones inside.
func (w *bulkWrite) around() []int64 {
	ids := make([]int64, 0, len(w.places.widened))
	for id := range w.places.widened {
		ids = append(ids, id)
	}
	return ids
}

var bulkPrefixColumns = []string{
	"id", "prefix", "parent_id", "parent_prefix", "organisation_id", "kind", "status", "name", "announced", "origin_asn", "max_length",
	"reverse_mode", "name_servers", "name_server_set_id", "ds", "rfc2317_style", "zone_cut",
	"provenance", "route_organisation_id", "range_first", "range_last",
}

// copyPrefixes copies parents before children, and those of one depth in no order:
// a sorted load makes the index of the exclusion constraint five times slower.
func (w *bulkWrite) copyPrefixes(ctx context.Context) error {
	all := w.places.inserted
	ids, err := w.ids(ctx, "prefix", len(all))
	if err != nil {
		return err
	}
	for i, n := range all {
		n.id = ids[i]
	}
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].depth == all[from].depth {
			to++
		}
		part := all[from:to]
		rand.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
		from = to
	}
	return w.copyIn(ctx, client.KindPrefix, "prefix", bulkPrefixColumns, len(all), func(i int) copyRow {
		return copyRow{all[i].row.line, w.prefixValues(all[i])}
	}, true)
}

func (w *bulkWrite) prefixValues(n *treeNode) []any {
	in := &n.row.in
	values := make([]any, 0, len(bulkPrefixColumns))
	values = append(values, n.id, n.prefix)
	if n.parent == nil {
		values = append(values, nil, nil)
	} else {
		values = append(values, n.parent.id, n.parent.prefix)
	}
	values = append(values, w.holder(n.row.holder))
	for i, v := range in.columns() {
		if i == 10 && v == "" { // rfc2317_style
			v = nil
		}
		values = append(values, v)
	}
	var routed any
	if in.RouteOrganisation != "" {
		routed = w.holder(w.rows.holders.handle(in.RouteOrganisation))
	}
	return append(values, cmp.Or(in.Provenance, "registered"), routed, in.first, in.last)
}

const (
	sqlBulkAdopt = `
UPDATE registry.prefix p
SET parent_id = a.parent_id,
    parent_prefix = a.parent_prefix
FROM unnest($1::bigint[], $2::bigint[], $3::cidr[]) AS a (id, parent_id, parent_prefix)
WHERE p.id = a.id`
	sqlBulkForeign = `
SELECT t.prefix, t.service, c.id
FROM registry.anycast_allocation t
CROSS JOIN LATERAL registry.prefix_covering(t.prefix, false) c
WHERE t.container_id = ANY ($1)
  AND c.id <> t.container_id
  AND c.organisation_id IS DISTINCT FROM t.organisation_id`
)

// adopt gives the new prefixes what lies in them.
func (w *bulkWrite) adopt(ctx context.Context) error {
	if n := len(w.places.adopted); n > 0 {
		ids, parents, prefixes := make([]int64, n), make([]int64, n), make([]netip.Prefix, n)
		for i, a := range w.places.adopted {
			ids[i], parents[i], prefixes[i] = a.id, a.parent.id, a.parent.prefix
		}
		if _, err := w.tx.Exec(ctx, sqlBulkAdopt, ids, parents, prefixes); err != nil {
			return err
		}
	}
	around := w.around()
	if len(around) == 0 {
		return nil
	}
	if err := w.refuseForeign(ctx, around); err != nil {
		return err
	}
	for _, sql := range []string{sqlImportMoveRecords, sqlImportMoveAllocations} {
		if _, err := w.tx.Exec(ctx, sql, around); err != nil {
			return err
		}
	}
	return nil
}

// errRowsRefused ends an attempt whose rows were found wrong while they were written.
var errRowsRefused = errors.New("rows were refused")

// refuseForeign refuses prefixes that would take over an anycast allocation of
// another organisation.
func (w *bulkWrite) refuseForeign(ctx context.Context, around []int64) error {
	rows, err := w.tx.Query(ctx, sqlBulkForeign, around)
	if err != nil {
		return err
	}
	lines := make(map[int64]*treeNode, len(w.places.inserted))
	for _, n := range w.places.inserted {
		lines[n.id] = n
	}
	var (
		prefix  netip.Prefix
		service string
		id      int64
		found   error
	)
	if _, err := pgx.ForEachRow(rows, []any{&prefix, &service, &id}, func() error {
		if n := lines[id]; n != nil {
			found = errRowsRefused
			w.rows.refuse(client.ImportError{Line: n.row.line, Kind: string(client.KindPrefix), Field: "organisation", Reason: fmt.Sprintf(
				"the anycast allocation %s (%s) lies in %s and belongs to another organisation: give %s the same holder, or delete the allocation first",
				prefix, service, n.prefix, n.prefix)})
		}
		return nil
	}); err != nil {
		return err
	}
	return found
}

func (w *bulkWrite) copyASNs(ctx context.Context) error {
	rows := kept(w.rows.asns)
	return w.copyIn(ctx, client.KindASN, "asn", []string{"number", "organisation_id", "name"}, len(rows), func(i int) copyRow {
		return copyRow{rows[i].line, []any{int64(rows[i].in.Number.value), w.holder(rows[i].holder), rows[i].in.Name}}
	}, true)
}

func (w *bulkWrite) copyPTRs(ctx context.Context) error {
	rows := kept(w.rows.ptrs)
	columns := []string{"address", "prefix_id", "prefix", "target", "target_typed", "ttl"}
	return w.copyIn(ctx, client.KindPTR, "ptr_record", columns, len(rows), func(i int) copyRow {
		in, in2 := &rows[i].in, w.places.ptrs[rows[i]]
		return copyRow{rows[i].line, []any{in.Address.value, in2.id, in2.prefix, in.Target.value, in.Target.text, in.TTL}}
	}, true)
}

func (w *bulkWrite) copyAnycasts(ctx context.Context) error {
	rows := kept(w.rows.anycasts)
	ids, err := w.ids(ctx, "anycast_allocation", len(rows))
	if err != nil {
		return err
	}
	columns := []string{"id", "prefix", "container_id", "container", "service"}
	if err := w.copyIn(ctx, client.KindAnycast, "anycast_allocation", columns, len(rows), func(i int) copyRow {
		in, around := &rows[i].in, w.places.anycasts[rows[i]]
		return copyRow{rows[i].line, []any{ids[i], in.Prefix.value, around.id, around.prefix, in.Service}}
	}, true); err != nil {
		return err
	}
	var origins []copyRow
	for i, row := range rows {
		for _, o := range row.in.Origins {
			origins = append(origins, copyRow{row.line, []any{ids[i], row.in.Prefix.value, int64(o.ASN.value), o.MaxLength, o.Active == nil || *o.Active}})
		}
	}
	return w.copyIn(ctx, client.KindAnycast, "anycast_route_origin", []string{"allocation_id", "prefix", "asn", "max_length", "active"},
		len(origins), func(i int) copyRow { return origins[i] }, false)
}
