package event

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"hubn/registry/client"
)

var epochStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func prefix(n int) client.Resource {
	return client.Resource{Kind: client.KindPrefix, Key: strconv.Itoa(n)}
}

func changed(r client.Resource, version int64) Event {
	return Event{Lineage: "L", Epoch: "L/1", Resource: r, Version: version, Kind: Changed, CreatedAt: epochStart}
}

func TestEventsOfOneSourceBecomeOneWork(t *testing.T) {
	q := newQueue()
	q.add("1-0", changed(prefix(1), 4), epochStart)
	q.add("2-0", changed(prefix(2), 1), epochStart)
	q.add("3-0", changed(prefix(1), 6), epochStart)
	q.add("4-0", changed(prefix(1), 5), epochStart)
	due := q.due(epochStart, 10)
	if len(due) != 2 || due[0].resource != prefix(1) || due[1].resource != prefix(2) {
		t.Fatalf("got %d works %+v, want prefix:1 and prefix:2 in the order of their first entries", len(due), due)
	}
	w := due[0]
	if w.lowest != 4 || w.highest != 6 || !slices.Equal(w.ids, []string{"1-0", "3-0", "4-0"}) {
		t.Errorf("got versions %d to %d and entries %v, want 4 to 6 and all three entries", w.lowest, w.highest, w.ids)
	}
	if got := q.done(w); !slices.Equal(got, []string{"1-0", "3-0", "4-0"}) || q.has("3-0") || q.entries() != 1 {
		t.Errorf("done answered %v, leaving %d entries; want the three, leaving one", got, q.entries())
	}
}

func TestWorkWaitsForItsTime(t *testing.T) {
	q := newQueue()
	q.add("1-0", changed(prefix(1), 1), epochStart)
	q.due(epochStart, 1)[0].due = epochStart.Add(time.Second)
	if due := q.due(epochStart, 10); len(due) != 0 {
		t.Errorf("got %d works before their time, want none", len(due))
	}
	if next, ok := q.nextDue(); !ok || !next.Equal(epochStart.Add(time.Second)) {
		t.Errorf("next is due at %s (%v), want in a second", next, ok)
	}
}

// A barrier passes exactly when no entry before it is unsettled, whatever the
// order in which works are settled.
func TestBarrierPassesWhenNothingStandsBeforeIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		type placed struct {
			barrier bool
			source  int
		}
		var line []placed
		for i, n := range rapid.SliceOfN(rapid.IntRange(-2, 5), 1, 30).Draw(t, "entries") {
			id := strconv.Itoa(i+1) + "-0"
			if n < 0 {
				q.addBarrier(id, Event{Resource: client.Resource{Kind: client.KindBarrier, Key: "0"}, Version: int64(i + 1), Kind: Barrier})
				line = append(line, placed{barrier: true})
				continue
			}
			q.add(id, changed(prefix(n), int64(i+1)), epochStart)
			line = append(line, placed{source: n})
		}
		var passed []int64
		check := func() {
			for _, m := range q.passed() {
				passed = append(passed, m.version)
			}
			var want []int64
			for i, p := range line {
				blocked := slices.ContainsFunc(line[:i], func(b placed) bool { return !b.barrier && q.works[prefix(b.source)] != nil })
				if p.barrier && !blocked {
					want = append(want, int64(i+1))
				}
			}
			if !slices.Equal(passed, want) {
				t.Fatalf("passed %v, want %v", passed, want)
			}
		}
		check()
		for _, n := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "settled") {
			if w := q.works[prefix(n)]; w != nil {
				q.done(w)
			}
			check()
		}
		if q.entries() != 0 {
			t.Fatalf("%d entries are left after all were settled", q.entries())
		}
	})
}

func TestDropAnswersEveryEntry(t *testing.T) {
	q := newQueue()
	q.add("1-0", changed(prefix(1), 1), epochStart)
	q.addBarrier("2-0", Event{Resource: client.Resource{Kind: client.KindBarrier, Key: "0"}, Version: 1})
	ids := q.drop()
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"1-0", "2-0"}) || q.entries() != 0 || len(q.passed()) != 0 {
		t.Errorf("drop answered %v and left %d entries, want both and none", ids, q.entries())
	}
}

func TestPauseGrowsToItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(0, 200).Draw(t, "attempt")
		first, longest := time.Second, 15*time.Second
		want := longest
		if attempt < 5 {
			want = min(first<<max(attempt-1, 0), longest)
		}
		if got := pause(attempt, first, longest); got < want/2 || got > want {
			t.Fatalf("attempt %d waits %s, want between %s and %s", attempt, got, want/2, want)
		}
	})
}

func TestMergedMarkKeepsTheStreamOfItsEntries(t *testing.T) {
	command := client.Resource{Kind: client.KindCommand, Key: "7"}
	listed := mark{resource: command, version: 1, lineage: "L"}
	read := mark{resource: command, version: 1, lineage: "L", stream: 5, ids: []string{"1-0"}}
	for _, m := range []mark{merged(listed, read), merged(read, listed)} {
		if m.stream != 5 || !slices.Equal(m.ids, []string{"1-0"}) {
			t.Errorf("got stream %d and entries %v, want stream 5 and its entry", m.stream, m.ids)
		}
	}
	newer := mark{resource: command, version: 2, lineage: "L", stream: 5, ids: []string{"2-0"}}
	if m := merged(newer, read); m.version != 2 || len(m.ids) != 2 {
		t.Errorf("got version %d and entries %v, want 2 and both", m.version, m.ids)
	}
}
