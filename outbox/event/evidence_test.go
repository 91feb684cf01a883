package event

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"hubn/registry/client"
)

func TestDisagreementIsEverySourceThatDiffers(t *testing.T) {
	first := listing{prefix(1): 1, prefix(2): 2, prefix(3): 3}
	second := listing{prefix(1): 1, prefix(2): 5, prefix(4): 1}
	got := disagreement(first, second, []client.Resource{prefix(1), prefix(9)})
	want := []client.Resource{prefix(1), prefix(2), prefix(3), prefix(4), prefix(9)}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := disagreement(first, first, nil); len(got) != 0 {
		t.Errorf("equal passes differ in %v", got)
	}
}

func rows(from, to int) []Row {
	var out []Row
	for n := from; n <= to; n++ {
		out = append(out, Row{prefix(n), 1})
	}
	return out
}

func resourcesOfRows(rows []Row) []client.Resource {
	var out []client.Resource
	for _, r := range rows {
		out = append(out, r.Resource)
	}
	return out
}

func heldSet(id int64, decision Decision, rows []Row) HeldSet {
	return HeldSet{ID: id, Decision: decision, Resources: resourcesOfRows(rows)}
}

func TestRuleOverAbsentSources(t *testing.T) {
	cases := []struct {
		name      string
		absent    []Row
		sets      []HeldSet
		published int
		withdraw  []Row
		hold      []Row
		release   []client.Resource
	}{
		{"none", nil, nil, 100, nil, nil, nil},
		{"five of ten", rows(1, 5), nil, 10, rows(1, 5), nil, nil},
		{"six of a hundred", rows(1, 6), nil, 100, nil, rows(1, 6), nil},
		{"five per cent of a thousand", rows(1, 50), nil, 1000, rows(1, 50), nil, nil},
		{"more than five per cent of a thousand", rows(1, 51), nil, 1000, nil, rows(1, 51), nil},
		{"all of them, though few", rows(1, 3), nil, 3, nil, rows(1, 3), nil},
		{"the only one", rows(1, 1), nil, 1, nil, rows(1, 1), nil},
		{"approved, though many", rows(1, 60), []HeldSet{heldSet(1, Approved, rows(1, 60))}, 100, rows(1, 60), nil, nil},
		{"rejected ones stay and do not count", rows(1, 13), []HeldSet{heldSet(1, Rejected, rows(1, 10))}, 100, rows(11, 13), nil, nil},
		{"waiting ones stay and count", rows(1, 13), []HeldSet{heldSet(1, Waiting, rows(1, 10))}, 100, nil, rows(11, 13), nil},
		{"waiting ones alone are not held twice", rows(1, 10), []HeldSet{heldSet(1, Waiting, rows(1, 10))}, 100, nil, nil, nil},
		{"one that is there after all", rows(2, 3), []HeldSet{heldSet(1, Waiting, rows(1, 3))}, 100, nil, nil, []client.Resource{prefix(1)}},
		{"approved, but there after all", nil, []HeldSet{heldSet(1, Approved, rows(1, 1))}, 100, nil, nil, []client.Resource{prefix(1)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rule(c.absent, c.sets, c.published)
			if !slices.Equal(r.withdraw, c.withdraw) || !slices.Equal(r.hold, c.hold) || !slices.Equal(r.release, c.release) {
				t.Errorf("withdraws %v, holds %v, releases %v; want %v, %v, %v", r.withdraw, r.hold, r.release, c.withdraw, c.hold, c.release)
			}
			if (len(r.hold) > 0) != (r.reason != "") {
				t.Errorf("holds %d with reason %q: a held withdrawal says why, and only it", len(r.hold), r.reason)
			}
		})
	}
}

// Whatever is absent, held and decided: nothing unapproved goes beyond the
// limit, nothing rejected or waiting goes, and nothing that is there goes.
func TestRuleNeverWithdrawsTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := rapid.IntRange(1, 300).Draw(t, "published")
		absentCount := rapid.IntRange(0, published).Draw(t, "absent")
		var sets []HeldSet
		decided := map[client.Resource]Decision{}
		for i, d := range []Decision{Waiting, Approved, Rejected} {
			from := rapid.IntRange(1, published).Draw(t, "from")
			to := rapid.IntRange(from-1, published).Draw(t, "to")
			var mine []Row
			for _, r := range rows(from, to) {
				if _, taken := decided[r.Resource]; !taken {
					decided[r.Resource] = d
					mine = append(mine, r)
				}
			}
			sets = append(sets, heldSet(int64(i+1), d, mine))
		}
		absent := rows(1, absentCount)
		r := rule(absent, sets, published)
		unapproved := 0
		for _, row := range r.withdraw {
			switch decided[row.Resource] {
			case Waiting, Rejected:
				t.Fatalf("withdraws %s, which an operator did not approve", row.Resource)
			case Approved:
			default:
				unapproved++
			}
			if !slices.Contains(absent, row) {
				t.Fatalf("withdraws %s, which is not absent", row.Resource)
			}
		}
		if unapproved > limit(published) || unapproved >= published {
			t.Fatalf("withdraws %d of %d without approval, the limit is %d", unapproved, published, limit(published))
		}
		for _, row := range r.hold {
			if decided[row.Resource] != "" {
				t.Fatalf("holds %s, which is held already", row.Resource)
			}
		}
	})
}

func TestStandTowardsALineage(t *testing.T) {
	line := client.Lineages{Lineage: "C", Ancestry: []client.Lineage{{ID: "C", Parent: "B"}, {ID: "B", Parent: "A"}, {ID: "A"}}}
	broken := client.Lineages{Lineage: "C", Ancestry: []client.Lineage{{ID: "C"}, {ID: "B", Parent: "A"}, {ID: "A"}}}
	circle := client.Lineages{Lineage: "C", Ancestry: []client.Lineage{{ID: "C", Parent: "B"}, {ID: "B", Parent: "C"}}}
	cases := []struct {
		name         string
		own, allowed string
		served       client.Lineages
		want         stance
	}{
		{"nothing stored yet", "", "", line, firstLineage},
		{"the same", "C", "", line, sameLineage},
		{"the parent's", "B", "", line, newLineage},
		{"the grandparent's", "A", "", line, newLineage},
		{"unknown", "X", "", line, foreignLineage},
		{"unknown, and allowed", "X", "C", line, newLineage},
		{"unknown, and another allowed", "X", "Y", line, foreignLineage},
		{"listed, but no ancestor", "B", "", broken, foreignLineage},
		{"a circle", "X", "", circle, foreignLineage},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := stand(c.own, c.allowed, c.served); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
