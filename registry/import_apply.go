package registry

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
	"hubn/registry/rpsl"
)

// A planned import is written by one statement for each table and operation, so
// that each changed aggregate gets one event of it. Every step locks in the
// order that all writers use: rows by id, then lanes by key.

// importChangedError says that a row that the plan relied on changed after it
// was read: the import has to be planned again.
type importChangedError struct{ what string }

func (e *importChangedError) Error() string { return e.what + " changed while the import was planned" }

const sqlImportDefer = `
SET CONSTRAINTS registry.prefix_parent_fkey, registry.prefix_siblings_disjoint,
  registry.ptr_record_prefix_fkey, registry.anycast_allocation_container_fkey DEFERRED`

const sqlImportCheck = `SET CONSTRAINTS ALL IMMEDIATE`

// applyImport writes a plan. All constraints hold when it returns.
func applyImport(ctx context.Context, tx pgx.Tx, state *importState, plan *rpsl.Plan) error {
	if _, err := tx.Exec(ctx, sqlImportDefer); err != nil {
		return fmt.Errorf("defer constraints: %w", err)
	}
	w := &importWrite{tx: tx, state: state, plan: plan, depths: depthsOf(plan.InsertPrefixes)}
	for _, step := range []func(context.Context) error{
		w.insertOrganisations,
		w.lockASNs, w.lockPrefixes, w.lockAllocations, w.lockLanes,
		w.stage,
		// Before others take their place, so that nothing new is put into them.
		w.deleteAllocations, w.deletePrefixes,
		w.insertPrefixes, w.updatePrefixes, w.rehome,
		w.updateOrigins, w.insertAllocations,
		w.writeASNs,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, sqlImportCheck); err != nil {
		return fmt.Errorf("check constraints: %w", err)
	}
	return nil
}

// publishedFields are the columns of a prefix that the world should see: a change
// of any of them is an event.
const publishedFields = rpsl.FieldOrganisation | rpsl.FieldStatus | rpsl.FieldRouting | rpsl.FieldReverse

// importWrite is one plan on its way into the tables.
type importWrite struct {
	tx    pgx.Tx
	state *importState
	plan  *rpsl.Plan
	// depths of the new prefixes, counted from the first new one: those of one
	// depth are inserted by one statement.
	depths map[netip.Prefix]int
}

// depthsOf counts how many of the new prefixes lie around each of them, in one
// chain of parents. They come in tree order, parents first.
func depthsOf(inserted []rpsl.Prefix) map[netip.Prefix]int {
	depths := make(map[netip.Prefix]int, len(inserted))
	for i := range inserted {
		depth := 0
		if above, isNew := depths[inserted[i].Parent]; isNew {
			depth = above + 1
		}
		depths[inserted[i].CIDR] = depth
	}
	return depths
}

func (w *importWrite) exec(ctx context.Context, what, sql string, args ...any) error {
	if _, err := w.tx.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

const sqlImportOrganisations = `
INSERT INTO registry.organisation (handle)
SELECT h
FROM unnest($1::text[]) h
ORDER BY lower(h)
ON CONFLICT ((lower(handle))) DO NOTHING`

func (w *importWrite) insertOrganisations(ctx context.Context) error {
	if len(w.plan.InsertOrganisations) == 0 {
		return nil
	}
	handles := make([]string, len(w.plan.InsertOrganisations))
	for i, o := range w.plan.InsertOrganisations {
		handles[i] = o.Handle
	}
	return w.exec(ctx, "insert organisations", sqlImportOrganisations, handles)
}

const sqlImportLockPrefixes = `
SELECT id, revision
FROM registry.prefix
WHERE id = ANY ($1)
ORDER BY id
FOR NO KEY UPDATE`

// lockPrefixes locks the prefixes that the plan changes or puts something into,
// in id order.
func (w *importWrite) lockPrefixes(ctx context.Context) error {
	relied := map[int64]netip.Prefix{}
	rely := func(p netip.Prefix) {
		if id, ok := w.state.prefixID[p]; ok {
			relied[id] = p
		}
	}
	for i := range w.plan.InsertPrefixes {
		rely(w.plan.InsertPrefixes[i].Parent)
	}
	for i := range w.plan.UpdatePrefixes {
		rely(w.plan.UpdatePrefixes[i].Now.CIDR)
		rely(w.plan.UpdatePrefixes[i].Now.Parent)
	}
	for i := range w.plan.DeletePrefixes {
		rely(w.plan.DeletePrefixes[i].CIDR)
	}
	for i := range w.plan.InsertAllocations {
		rely(w.plan.InsertAllocations[i].Prefix)
	}
	return lockUnchanged(ctx, w.tx, sqlImportLockPrefixes, relied, w.state.prefixRevision, func(p netip.Prefix) string { return "the prefix " + p.String() })
}

const sqlImportLockAllocations = `
SELECT id
FROM registry.anycast_allocation
WHERE id = ANY ($1)
ORDER BY id
FOR NO KEY UPDATE`

const sqlImportAllocationRevisions = `
SELECT a.id, a.revision + coalesce(l.last_seq, 0)
FROM registry.anycast_allocation a
LEFT JOIN registry.outbox_lane l ON l.agg_type = 'anycast' AND l.agg_key = a.id::text
WHERE a.id = ANY ($1)`

func (w *importWrite) lockAllocations(ctx context.Context) error {
	relied := map[int64]netip.Prefix{}
	for i := range w.plan.UpdateAllocations {
		relied[w.plan.UpdateAllocations[i].Was.ID] = w.plan.UpdateAllocations[i].Was.Prefix
	}
	for i := range w.plan.DeleteAllocations {
		relied[w.plan.DeleteAllocations[i].ID] = w.plan.DeleteAllocations[i].Prefix
	}
	if len(relied) == 0 {
		return nil
	}
	if err := w.exec(ctx, "lock anycast allocations", sqlImportLockAllocations, slices.Collect(maps.Keys(relied))); err != nil {
		return err
	}
	// A change of the origins alone raises the lane only. It is read after the
	// lock, which whoever changes origins holds.
	return lockUnchanged(ctx, w.tx, sqlImportAllocationRevisions, relied, w.state.allocationRevision,
		func(p netip.Prefix) string { return "the anycast allocation of " + p.String() })
}

const sqlImportLockASNs = `
SELECT number, revision
FROM registry.asn
WHERE number = ANY ($1)
ORDER BY number
FOR NO KEY UPDATE`

func (w *importWrite) lockASNs(ctx context.Context) error {
	relied := map[uint32]uint32{}
	for i := range w.plan.UpdateASNs {
		relied[w.plan.UpdateASNs[i].Was.Number] = w.plan.UpdateASNs[i].Was.Number
	}
	for i := range w.plan.DeleteASNs {
		relied[w.plan.DeleteASNs[i].Number] = w.plan.DeleteASNs[i].Number
	}
	return lockUnchanged(ctx, w.tx, sqlImportLockASNs, relied, w.state.asnRevision, func(n uint32) string { return client.ASN(n).String() })
}

// lockUnchanged locks rows and refuses if one is no longer of the revision that
// was read.
func lockUnchanged[K comparable, V any](ctx context.Context, tx pgx.Tx, sql string,
	relied map[K]V, read map[K]int64, name func(V) string) error {
	if len(relied) == 0 {
		return nil
	}
	ids := make([]K, 0, len(relied))
	for id := range relied {
		ids = append(ids, id)
	}
	rows, err := tx.Query(ctx, sql, ids)
	if err != nil {
		return fmt.Errorf("lock rows: %w", err)
	}
	var (
		id       K
		revision int64
		changed  error
		found    int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &revision}, func() error {
		found++
		if revision != read[id] && changed == nil {
			changed = &importChangedError{name(relied[id])}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("lock rows: %w", err)
	case changed == nil && found < len(relied):
		return &importChangedError{"one of the resources"}
	}
	return changed
}

// lockLanes locks the lanes of all aggregates that the plan is to give a new
// version, in key order, whichever statement raises them. Natural keys may have
// a lane from an earlier life.
func (w *importWrite) lockLanes(ctx context.Context) error {
	var types, keys []string
	lane := func(kind client.Kind, key int64) {
		types, keys = append(types, string(kind)), append(keys, strconv.FormatInt(key, 10))
	}
	for i := range w.plan.UpdatePrefixes {
		if w.plan.UpdatePrefixes[i].Changed.Has(publishedFields) {
			lane(client.KindPrefix, w.plan.UpdatePrefixes[i].Was.ID)
		}
	}
	for i := range w.plan.DeletePrefixes {
		lane(client.KindPrefix, w.plan.DeletePrefixes[i].ID)
	}
	for _, id := range w.touchedAllocations() {
		lane(client.KindAnycast, id)
	}
	for _, n := range slices.Concat(w.plan.InsertASNs, w.plan.DeleteASNs) {
		lane(client.KindASN, int64(n.Number))
	}
	for i := range w.plan.UpdateASNs {
		lane(client.KindASN, int64(w.plan.UpdateASNs[i].Was.Number))
	}
	if len(keys) == 0 {
		return nil
	}
	return w.exec(ctx, "lock lanes", sqlLockLanes, types, keys)
}

// touchedAllocations are the allocations that change, and those that may follow
// the prefix around them to another holder.
func (w *importWrite) touchedAllocations() []int64 {
	var ids []int64
	for i := range w.plan.UpdateAllocations {
		ids = append(ids, w.plan.UpdateAllocations[i].Was.ID)
	}
	for i := range w.plan.DeleteAllocations {
		ids = append(ids, w.plan.DeleteAllocations[i].ID)
	}
	moving := map[int64]bool{}
	for _, id := range w.rehomed() {
		moving[id] = true
	}
	for i := range w.plan.UpdatePrefixes {
		if u := &w.plan.UpdatePrefixes[i]; u.Changed.Has(rpsl.FieldOrganisation) {
			moving[u.Was.ID] = true
		}
	}
	for id, container := range w.state.allocationContainer {
		if moving[container] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
