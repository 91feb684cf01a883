package registry

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

// Where the rows of an import go in the tree of prefixes is found in one walk: the
// Registry's prefixes come in tree order, and the rows' are merged into them.

// scopedRows is how many prefixes and addresses an import may name and still read
// only the prefixes around and inside of them.
const scopedRows = 1000

// treeNode is a prefix of the tree: the Registry's, or one that a row makes.
type treeNode struct {
	prefix   netip.Prefix
	id       int64 // 0 while it is new
	revision int64
	holder   int64
	depth    int // among the new ones, from the first that is new
	row      *bulkRow[prefixRow]
	parent   *treeNode
}

func (n *treeNode) isNew() bool { return n.row != nil }

// treePlaces are where the rows go.
type treePlaces struct {
	// inserted are the new prefixes, parents first.
	inserted []*treeNode
	// adopted are prefixes of the Registry that get a new parent.
	adopted []*treeNode
	// containers of PTR records and anycast allocations, by row; nil where no
	// prefix covers it.
	ptrs     map[*bulkRow[ptrInput]]*treeNode
	anycasts map[*bulkRow[anycastInput]]*treeNode
	// widened are prefixes of the Registry in which a new one is put.
	widened map[int64]*treeNode
}

const (
	sqlTree = `
SELECT p.id, p.prefix, p.revision, coalesce(p.organisation_id, 0)
FROM registry.prefix p`
	sqlTreeOrder = `
ORDER BY p.prefix`
	sqlWholeTree = sqlTree + sqlTreeOrder
	// In tree order what lies in a prefix is between it and its last address.
	sqlTreeNear = sqlTree + `
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
)` + sqlTreeOrder
)

// named is a row's place in tree order.
type named struct {
	prefix  netip.Prefix
	order   int // of what has the same prefix: a prefix is before what lies in it
	row     *bulkRow[prefixRow]
	ptr     *bulkRow[ptrInput]
	anycast *bulkRow[anycastInput]
}

// names are all prefixes and addresses of the rows, in tree order.
func (b *bulkRows) names() []named {
	all := make([]named, 0, len(b.prefixes)+len(b.ptrs)+len(b.anycasts))
	for i := range b.prefixes {
		all = append(all, named{prefix: b.prefixes[i].in.Prefix.value, row: &b.prefixes[i]})
	}
	for i := range b.ptrs {
		a := b.ptrs[i].in.Address.value
		all = append(all, named{prefix: netip.PrefixFrom(a, a.BitLen()), order: 1, ptr: &b.ptrs[i]})
	}
	for i := range b.anycasts {
		all = append(all, named{prefix: b.anycasts[i].in.Prefix.value, order: 1, anycast: &b.anycasts[i]})
	}
	slices.SortStableFunc(all, func(x, y named) int {
		return cmp.Or(x.prefix.Compare(y.prefix), cmp.Compare(x.order, y.order))
	})
	return all
}

// place finds the places of all rows, and refuses those that have none.
func (b *bulkRows) place(ctx context.Context, tx pgx.Tx) (*treePlaces, error) {
	walk := &treeWalk{rows: b, names: b.names(), places: &treePlaces{
		ptrs:     make(map[*bulkRow[ptrInput]]*treeNode, len(b.ptrs)),
		anycasts: make(map[*bulkRow[anycastInput]]*treeNode, len(b.anycasts)),
		widened:  map[int64]*treeNode{},
	}}
	sql, args := sqlWholeTree, []any(nil)
	switch n := len(walk.names); {
	case n == 0:
		return walk.places, nil
	case n <= scopedRows:
		prefixes := make([]netip.Prefix, n)
		for i := range walk.names {
			prefixes[i] = walk.names[i].prefix
		}
		sql, args = sqlTreeNear, []any{slices.Compact(prefixes)}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	var (
		id, revision, holder int64
		prefix               netip.Prefix
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &prefix, &revision, &holder}, func() error {
		walk.until(prefix)
		walk.present(id, prefix, revision, holder)
		return nil
	}); err != nil {
		return nil, err
	}
	walk.until(netip.Prefix{})
	slices.SortStableFunc(walk.places.inserted, func(x, y *treeNode) int { return cmp.Compare(x.depth, y.depth) })
	return walk.places, nil
}

// treeWalk is a walk through the tree in order, with the chain of prefixes around
// where it is.
type treeWalk struct {
	rows   *bulkRows
	names  []named
	chain  []*treeNode
	places *treePlaces
}

// around leaves what does not cover p, and answers the nearest that does; p itself
// where it is there.
func (w *treeWalk) around(p netip.Prefix) *treeNode {
	for len(w.chain) > 0 && !covers(w.chain[len(w.chain)-1].prefix, p) {
		w.chain = w.chain[:len(w.chain)-1]
	}
	if len(w.chain) == 0 {
		return nil
	}
	return w.chain[len(w.chain)-1]
}

// until places the rows that come before a prefix of the Registry; all that are
// left for the zero Prefix.
func (w *treeWalk) until(next netip.Prefix) {
	for len(w.names) > 0 {
		n := w.names[0]
		if next.IsValid() && n.prefix.Compare(next) >= 0 {
			return
		}
		w.names = w.names[1:]
		w.take(n)
	}
}

func (w *treeWalk) take(n named) {
	around := w.around(n.prefix)
	switch {
	case n.ptr != nil:
		if around == nil {
			w.rows.refuse(client.ImportError{Line: n.ptr.line, Kind: string(client.KindPTR), Field: "address", Value: n.ptr.in.Address.value.String(),
				Reason: "no prefix of the registry or of this import covers it: create the prefix first"})
			return
		}
		w.places.ptrs[n.ptr] = around
	case n.anycast != nil:
		w.placeAnycast(n.anycast, around)
	case around != nil && around.prefix == n.prefix:
		w.twice(n.row, around)
	default:
		node := &treeNode{prefix: n.prefix, holder: n.row.holder, row: n.row, parent: around}
		if around != nil && around.isNew() {
			node.depth = around.depth + 1
		} else if around != nil {
			w.places.widened[around.id] = around
		}
		w.chain = append(w.chain, node)
		w.places.inserted = append(w.places.inserted, node)
	}
}

// twice is a row whose prefix is there already, in the Registry or in another row.
func (w *treeWalk) twice(row *bulkRow[prefixRow], node *treeNode) {
	e := client.ImportError{Line: row.line, Kind: string(client.KindPrefix), Field: "prefix", Value: node.prefix.String(), Reason: existsAlready}
	if node.isNew() {
		e.Reason = fmt.Sprintf("it is in line %d already", node.row.line)
	} else if w.rows.skipExisting {
		row.skip = true
		w.rows.skipped++
		return
	}
	w.rows.refuse(e)
}

const existsAlready = "it is in the registry already: leave the row out, or skip what exists"

func (w *treeWalk) placeAnycast(row *bulkRow[anycastInput], around *treeNode) {
	e := client.ImportError{Line: row.line, Kind: string(client.KindAnycast), Field: "prefix", Value: row.in.Prefix.value.String()}
	switch {
	case around == nil:
		e.Reason = "no prefix of the registry or of this import covers it: create the prefix first"
		w.rows.refuse(e)
	case row.holder != 0 && row.holder != around.holder:
		e.Field, e.Value = "organisation", nil
		e.Reason = fmt.Sprintf("%s, which it lies in, is held by another organisation: nobody may originate others' address space", around.prefix)
		w.rows.refuse(e)
	default:
		w.places.anycasts[row] = around
	}
}

// present goes on to a prefix of the Registry.
func (w *treeWalk) present(id int64, prefix netip.Prefix, revision, holder int64) {
	around := w.around(prefix)
	node := &treeNode{prefix: prefix, id: id, revision: revision, holder: holder, parent: around}
	if around != nil && around.isNew() {
		w.places.adopted = append(w.places.adopted, node)
	}
	w.chain = append(w.chain, node)
}
