package event

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hubn/registry/client"
	"hubn/schema/schematest"
)

func storeNeverGoesBack(t *testing.T, k kept) {
	k.begun(t)
	steps := []struct {
		name   string
		change Change
		want   Result
		body   string
	}{
		{"first", present(1, 2, "two"), Applied, text("two")},
		{"the same again", present(1, 2, "other"), Stale, text("two")},
		{"an older one", present(1, 1, "one"), Stale, text("two")},
		{"a newer one", present(1, 5, "five"), Applied, text("five")},
		{"an older deletion", gone(1, 4), Stale, text("five")},
		{"the deletion", gone(1, 6), Applied, ""},
		{"what was before the deletion", present(1, 5, "five"), Stale, ""},
		{"the deletion's own version", present(1, 6, "six"), Stale, ""},
		{"created again", present(1, 7, "seven"), Applied, text("seven")},
	}
	for _, s := range steps {
		if got := k.results(t, "L", s.change); got[0] != s.want {
			t.Errorf("%s: %s, want %s", s.name, got[0], s.want)
		}
		want := map[client.Resource]string{}
		if s.body != "" {
			want[prefix(1)] = s.body
		}
		k.check(t, want)
	}
}

func storeRefusesAnotherLineage(t *testing.T, k kept) {
	if _, err := k.Apply(t.Context(), "L", []Change{present(1, 1, "one")}); !errors.Is(err, ErrLineage) {
		t.Errorf("applied before there was a lineage: %v, want ErrLineage", err)
	}
	k.begun(t)
	if err := k.Begin(t.Context(), "M"); !errors.Is(err, ErrLineage) {
		t.Errorf("began another lineage: %v, want ErrLineage", err)
	}
	k.results(t, "L", present(1, 1, "one"))
	if _, err := k.Apply(t.Context(), "M", []Change{present(1, 9, "nine")}); !errors.Is(err, ErrLineage) {
		t.Errorf("applied another lineage: %v, want ErrLineage", err)
	}
	if _, err := k.Withdraw(t.Context(), "M", []Row{{prefix(1), 1}}); !errors.Is(err, ErrLineage) {
		t.Errorf("withdrew in another lineage: %v, want ErrLineage", err)
	}
	k.check(t, map[client.Resource]string{prefix(1): text("one")})
}

func storeOneBadChangeStopsNoOther(t *testing.T, k kept) {
	k.begun(t)
	*k.poison = "bad"
	got := k.results(t, "L", present(1, 1, "one"), present(2, 1, "bad"), present(3, 1, "three"), present(4, 1, "bad"))
	if want := []Result{Applied, Failed, Applied, Failed}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	k.check(t, map[client.Resource]string{prefix(1): text("one"), prefix(3): text("three")})
	*k.poison = ""
	if got := k.results(t, "L", present(2, 1, "good")); got[0] != Applied {
		t.Errorf("a change that failed is %s the next time, want applied", got[0])
	}
}

func storeTakesAPanicAsAFailure(t *testing.T, k kept) {
	k.begun(t)
	calls := 0
	*k.hold = func() {
		if calls++; calls == 1 {
			panic("a fault of the module")
		}
	}
	outcomes, err := k.Apply(t.Context(), "L", []Change{present(1, 1, "one")})
	if err != nil || outcomes[0].Result != Failed || !strings.Contains(outcomes[0].Err.Error(), "a fault of the module") {
		t.Errorf("got %+v (%v), want the change to fail with the panic's words", outcomes, err)
	}
	if got := k.results(t, "L", present(1, 1, "one")); got[0] != Applied {
		t.Errorf("the next time it is %s, want applied", got[0])
	}
}

func storeWithdrawsOnlyWhatWasSeen(t *testing.T, k kept) {
	k.begun(t)
	k.results(t, "L", present(1, 1, "one"), present(2, 1, "two"), gone(3, 4))
	k.results(t, "L", present(2, 2, "newer"))
	outcomes, err := k.Withdraw(t.Context(), "L", []Row{{prefix(1), 1}, {prefix(2), 1}, {prefix(3), 4}, {prefix(4), 1}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Outcome{{Result: Applied}, {Result: Stale}, {Result: Stale}, {Result: Stale}}
	if diff := cmp.Diff(want, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	k.check(t, map[client.Resource]string{prefix(2): text("newer")})
	// A proof of absence was wrong if the source is there in its old version.
	if got := k.results(t, "L", present(1, 1, "one")); got[0] != Applied {
		t.Errorf("a source that was withdrawn without a tombstone came back as %s, want applied", got[0])
	}
}

func storeInventoryIsInOrderAndWithoutTheGone(t *testing.T, k kept) {
	k.begun(t)
	anycast := Change{Resource: client.Resource{Kind: client.KindAnycast, Key: "3"}, Version: 1, Body: body("a"), FetchedAt: epochStart}
	k.results(t, "L", present(2, 1, "b"), present(10, 3, "c"), gone(4, 1), anycast)
	var got []Row
	for after := (client.Resource{}); ; {
		page, err := k.Inventory(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Resource
		got = append(got, page...)
	}
	if want := []Row{{anycast.Resource, 1}, {prefix(10), 3}, {prefix(2), 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n, err := k.Published(t.Context()); err != nil || n != 3 {
		t.Errorf("published are %d (%v), want 3", n, err)
	}
	held, err := k.Held(t.Context(), []client.Resource{prefix(4), prefix(10), prefix(99)})
	if want := map[client.Resource]Held{prefix(4): {1, true}, prefix(10): {3, false}}; err != nil || !cmp.Equal(held, want) {
		t.Errorf("held %v (%v), want %v", held, err, want)
	}
}

func storeRetryListIsClaimedAndSettled(t *testing.T, k kept) {
	ctx := t.Context()
	k.begun(t)
	if err := k.Defer(ctx, 0, []Retry{{Resource: prefix(1), Version: 3, Attempts: 6, Reason: "no CA"}, {Resource: prefix(2), Version: 1, Attempts: 6, Reason: "no"}}); err != nil {
		t.Fatal(err)
	}
	due, err := k.Due(ctx, time.Hour, 10)
	if err != nil || len(due) != 2 || due[0].Attempts != 7 {
		t.Fatalf("due are %+v (%v), want both with one attempt more", due, err)
	}
	if due, err = k.Due(ctx, time.Hour, 10); err != nil || len(due) != 0 {
		t.Errorf("due at once again are %+v (%v), want none: a claim holds", due, err)
	}
	k.results(t, "L", present(1, 2, "too old for the list"))
	if n, some, err := k.Retries(ctx, 10); err != nil || n != 2 || len(some) != 2 {
		t.Errorf("the list has %d entries %v (%v), want 2: the version that failed is not there yet", n, some, err)
	}
	k.results(t, "L", present(1, 3, "done"))
	if err := k.Settle(ctx, []client.Resource{prefix(2)}); err != nil {
		t.Fatal(err)
	}
	if n, _, err := k.Retries(ctx, 10); err != nil || n != 0 {
		t.Errorf("the list has %d entries (%v), want none", n, err)
	}
}

func storeHeldWithdrawalsAreDecided(t *testing.T, k kept) {
	ctx := t.Context()
	k.begun(t)
	k.results(t, "L", present(1, 1, "a"), present(2, 1, "b"), present(3, 1, "c"))
	id, err := k.Hold(ctx, "L", "too many", []Row{{prefix(1), 1}, {prefix(2), 1}})
	if err != nil {
		t.Fatal(err)
	}
	items, err := k.Describe(ctx, client.Resource{}, 10, prefix(1), prefix(3))
	if err != nil || len(items) != 2 || items[0].State != client.ReportHeld || items[1].State != client.ReportApplied {
		t.Errorf("reports are %+v (%v), want prefix:1 held and prefix:3 applied", items, err)
	}
	if ok, err := k.Decide(ctx, id, Approved, "ops"); err != nil || !ok {
		t.Errorf("decided %v (%v), want yes", ok, err)
	}
	if ok, err := k.Decide(ctx, id+7, Approved, "ops"); err != nil || ok {
		t.Errorf("decided over a withdrawal that is not held: %v (%v)", ok, err)
	}
	sets, err := k.Holds(ctx)
	want := []HeldSet{{ID: id, Lineage: "L", Reason: "too many", Decision: Approved, DecidedBy: "ops", Resources: []client.Resource{prefix(1), prefix(2)}}}
	if diff := cmp.Diff(want, sets, cmpopts.IgnoreFields(HeldSet{}, "HeldAt", "DecidedAt")); diff != "" || err != nil {
		t.Errorf("held (%v) (-want +got):\n%s", err, diff)
	}
	if _, err := k.Withdraw(ctx, "L", []Row{{prefix(1), 1}}); err != nil {
		t.Fatal(err)
	}
	if err := k.Release(ctx, []client.Resource{prefix(2)}); err != nil {
		t.Fatal(err)
	}
	if sets, err = k.Holds(ctx); err != nil || len(sets) != 0 {
		t.Errorf("still held: %+v (%v), want nothing", sets, err)
	}
	k.check(t, map[client.Resource]string{prefix(2): text("b"), prefix(3): text("c")})
}

func storeReplacementChangesEverythingAtOnce(t *testing.T, k kept) {
	ctx := t.Context()
	k.begun(t)
	k.results(t, "L", present(1, 9, "old"), present(2, 9, "lost"), present(3, 9, "deleted"), gone(4, 9), present(6, 9, "late"))
	if err := k.Defer(ctx, time.Hour, []Retry{{Resource: prefix(1), Version: 10, Attempts: 6, Reason: "old history"}}); err != nil {
		t.Fatal(err)
	}
	r, err := k.Replace(ctx, "M")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stage(ctx, []Change{present(1, 2, "first"), present(4, 1, "new"), present(5, 1, "gone soon")}); err != nil {
		t.Fatal(err)
	}
	if err := r.Stage(ctx, []Change{present(1, 3, "again"), gone(3, 2), gone(5, 0)}); err != nil {
		t.Fatal(err)
	}
	k.check(t, map[client.Resource]string{prefix(1): text("old"), prefix(2): text("lost"), prefix(3): text("deleted"), prefix(6): text("late")})
	if err := r.Commit(ctx, "not known", []Row{{prefix(2), 9}}); err != nil {
		t.Fatal(err)
	}
	k.check(t, map[client.Resource]string{prefix(1): text("again"), prefix(2): text("lost"), prefix(4): text("new"), prefix(6): text("late")})
	state, err := k.State(ctx)
	if err != nil || state.Lineage != "M" {
		t.Errorf("the lineage is %q (%v), want M", state.Lineage, err)
	}
	sets, err := k.Holds(ctx)
	if err != nil || len(sets) != 1 || !slices.Equal(sets[0].Resources, []client.Resource{prefix(2), prefix(6)}) {
		t.Errorf("held are %+v (%v), want prefix:2 and what came after the scan", sets, err)
	}
	if n, _, _ := k.Retries(ctx, 1); n != 0 {
		t.Errorf("%d retries of the old lineage are left, want none", n)
	}
	if got := k.results(t, "M", present(1, 3, "stale"), present(2, 1, "found"), gone(3, 2)); !slices.Equal(got, []Result{Stale, Applied, Stale}) {
		t.Errorf("in the new lineage: %v, want stale, applied (held ones have no version), stale", got)
	}
	if _, err := k.Apply(ctx, "L", []Change{present(1, 100, "from the old lineage")}); !errors.Is(err, ErrLineage) {
		t.Errorf("the old lineage still applies: %v", err)
	}
}

func storeReplacementLosesToAnotherOne(t *testing.T, k kept) {
	ctx := t.Context()
	k.begun(t)
	first, err := k.Replace(ctx, "M")
	if err != nil {
		t.Fatal(err)
	}
	second, err := k.Replace(ctx, "N")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(ctx, "", nil); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(ctx, "", nil); !errors.Is(err, ErrLineage) {
		t.Errorf("two replicas adopted one after the other: %v, want ErrLineage", err)
	}
}

func storeReplacementKeepsWhatCannotBeWritten(t *testing.T, k kept) {
	ctx := t.Context()
	k.begun(t)
	k.results(t, "L", present(1, 9, "old"), present(2, 9, "two"))
	*k.poison = "bad"
	r, err := k.Replace(ctx, "M")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stage(ctx, []Change{present(1, 1, "bad"), present(2, 1, "new")}); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(ctx, "", nil); err != nil {
		t.Fatal(err)
	}
	k.check(t, map[client.Resource]string{prefix(1): text("old"), prefix(2): text("new")})
	if n, some, err := k.Retries(ctx, 1); err != nil || n != 1 || some[0].Resource != prefix(1) {
		t.Errorf("the retry list has %d entries %v (%v), want prefix:1", n, some, err)
	}
	*k.poison = ""
	if got := k.results(t, "M", present(1, 1, "good")); got[0] != Applied {
		t.Errorf("the source that could not be written is %s later, want applied", got[0])
	}
}

func storeWishesAreCounted(t *testing.T, k kept) {
	ctx := t.Context()
	for _, reason := range []string{"one", "two"} {
		if err := k.Want(ctx, reason); err != nil {
			t.Fatal(err)
		}
	}
	before, err := k.State(ctx)
	if err != nil || before.Wanted != 2 || before.Reason != "two" || !before.ReconciledAt.IsZero() {
		t.Errorf("state is %+v (%v), want two wishes and no reconciliation", before, err)
	}
	if err := k.Want(ctx, "while it ran"); err != nil {
		t.Fatal(err)
	}
	if err := k.Reconciled(ctx, before.Wanted); err != nil {
		t.Fatal(err)
	}
	after, err := k.State(ctx)
	if err != nil || after.Wanted != 3 || after.Done != 2 || after.ReconciledAt.IsZero() || after.Now.Before(after.ReconciledAt) {
		t.Errorf("state is %+v (%v), want one wish left of three", after, err)
	}
	if err := k.Allow(ctx, "F"); err != nil {
		t.Fatal(err)
	}
	if after, _ = k.State(ctx); after.Allowed != "F" {
		t.Errorf("allowed is %q, want F", after.Allowed)
	}
}

// Writers of two versions of one source at the same time, in either order: the
// newer one stays.
func storeConcurrentWritersEndWithTheNewest(t *testing.T, k kept) {
	k.begun(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := range 25 {
				version := int64((n*7+worker*13)%100 + 1)
				if _, err := k.Apply(context.Background(), "L", []Change{present(1, version, fmt.Sprint(version)), present(2, version, fmt.Sprint(version))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	held, err := k.Held(t.Context(), []client.Resource{prefix(1), prefix(2)})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []client.Resource{prefix(1), prefix(2)} {
		if got, want := k.bodies()[r], text(fmt.Sprint(held[r].Version)); got != want {
			t.Errorf("%s holds %s, its version says %s", r, got, want)
		}
	}
}

// The store's statements are prepared against the schema as a module's role
// would run them.
func TestEveryStatementFitsTheTables(t *testing.T) {
	db := schematest.New(t)
	db.Migrate(t, testSet("test"))
	conn := db.Conn(t, "")
	if _, err := conn.Exec(t.Context(), `SET ROLE hubn_mirror`); err != nil {
		t.Fatal(err)
	}
	s := NewPostgresStore(PostgresOptions{Schema: "test"})
	for name, sql := range s.sql {
		if _, err := conn.Prepare(t.Context(), name, sql); err != nil {
			t.Errorf("statement %q: %v", name, err)
		}
	}
}
