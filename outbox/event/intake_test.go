package event

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"hubn/registry/client"
)

func TestIntakePlacesEveryEntry(t *testing.T) {
	lane := changed(prefix(7), 9)
	lane.Kind = Resync
	foreign, ancestor := changed(prefix(1), 1), changed(prefix(1), 1)
	foreign.Lineage, ancestor.Lineage = "F", "A"
	other := changed(client.Resource{Kind: client.KindSession, Key: "1"}, 1)
	barrier := Event{Lineage: "L", Epoch: "L/1", Resource: client.Resource{Kind: client.KindBarrier, Key: "3"}, Version: 2, Kind: Barrier}
	command := func(payload string) Event {
		return Event{Lineage: "L", Epoch: "L/1", Resource: client.Resource{Kind: client.KindCommand, Key: "5"}, Version: 1, Kind: Command, Payload: json.RawMessage(payload)}
	}
	newEpoch := changed(prefix(1), 1)
	newEpoch.Epoch = "L/2"
	cases := []struct {
		name     string
		entry    delivery
		word     string
		acked    bool
		want     string
		queued   int
		commands int
		retries  int
	}{
		{"a change", delivery{event: changed(prefix(1), 1)}, wordQueued, false, "", 1, 0, 0},
		{"a resync of one lane is fetched", delivery{event: lane}, wordQueued, false, "", 1, 0, 0},
		{"a resync of the stream", delivery{event: Event{Lineage: "L", Epoch: "L/1", Kind: Resync}}, wordResync, true, "a resync event", 0, 0, 0},
		{"an entry that was trimmed", delivery{trimmed: true}, wordTrimmed, true, "entries were trimmed before they were handled", 0, 0, 0},
		{"an entry that cannot be read", delivery{err: errors.New("no seq")}, wordUnreadable, true, "an entry could not be read", 0, 0, 0},
		{"another lineage", delivery{event: foreign}, wordLineage, true, "events of lineage F", 0, 0, 0},
		{"a lineage that was left behind", delivery{event: ancestor}, wordLineage, true, "", 0, 0, 0},
		{"a kind that the module does not take", delivery{event: other}, wordIgnored, true, "", 0, 0, 0},
		{"a barrier", delivery{event: barrier}, wordBarrier, false, "", 1, 0, 0},
		{"a command to the module", delivery{event: command(`{"changed":["approve","mirror"]}`)}, wordCommand, false, "", 0, 1, 0},
		{"a command to another module", delivery{event: command(`{"changed":["approve","dns"]}`)}, wordIgnored, true, "", 0, 0, 0},
		{"a command that does not say whose", delivery{event: command(``)}, wordCommand, false, "", 0, 1, 0},
		{"an entry delivered too often", delivery{event: changed(prefix(1), 1), count: maxDeliveries + 1}, wordPoison, false, "", 0, 0, 1},
		{"a new epoch", delivery{event: newEpoch}, wordQueued, false, "a new epoch began", 1, 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := newQueue()
			c.entry.id = "1-0"
			r := rules{module: "mirror", kinds: []client.Kind{client.KindPrefix}, lineage: "L", ancestors: []string{"A"}, epoch: "L/1"}
			in := r.sort(q, []delivery{c.entry}, epochStart)
			if in.counts[c.word] != 1 || len(in.counts) != 1 {
				t.Errorf("counted as %v, want %s", in.counts, c.word)
			}
			if acked := slices.Contains(in.ack, "1-0"); acked != c.acked {
				t.Errorf("acknowledged at once: %v, want %v", acked, c.acked)
			}
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if !slices.Equal(in.wants, want) {
				t.Errorf("wants %v, want %v", in.wants, want)
			}
			if q.entries() != c.queued || len(in.commands) != c.commands || len(in.retry) != c.retries {
				t.Errorf("queued %d, commands %d, retries %d; want %d, %d, %d", q.entries(), len(in.commands), len(in.retry), c.queued, c.commands, c.retries)
			}
		})
	}
}

func TestIntakeTakesNoEntryTwice(t *testing.T) {
	q := newQueue()
	r := rules{module: "mirror", kinds: []client.Kind{client.KindPrefix}, lineage: "L"}
	entries := []delivery{{id: "1-0", event: changed(prefix(1), 1)}}
	r.sort(q, entries, epochStart)
	if in := r.sort(q, entries, epochStart); len(in.counts) != 0 || q.entries() != 1 {
		t.Errorf("the second delivery counted as %v and left %d entries, want nothing and one", in.counts, q.entries())
	}
}

func TestOneWishForManyEventsOfALineage(t *testing.T) {
	r := rules{module: "mirror", kinds: []client.Kind{client.KindPrefix}, lineage: "L"}
	a, b := changed(prefix(1), 1), changed(prefix(2), 1)
	a.Lineage, b.Lineage = "F", "F"
	in := r.sort(newQueue(), []delivery{{id: "1-0", event: a}, {id: "2-0", event: b}}, epochStart)
	if len(in.wants) != 1 || !isLineageWish(in.wants[0]) || len(in.ack) != 2 {
		t.Errorf("wants %v and acknowledges %v, want one wish and both", in.wants, in.ack)
	}
}

func TestJudgeOfAFetch(t *testing.T) {
	in := client.Reading{Lineage: "L", At: epochStart}
	present := func(version int64) client.Fetched {
		return client.PresentSource(prefix(1), version, epochStart, json.RawMessage(`{}`), in)
	}
	deleted := func(version int64) client.Fetched { return client.DeletedSource(prefix(1), version, epochStart, in) }
	foreign := client.UnavailableSource(prefix(1), &client.LineageError{Expected: "L", Served: "F"})
	cases := []struct {
		name    string
		highest int64
		held    int64
		fetched client.Fetched
		want    verdict
	}{
		{"as new as the event", 5, 4, present(5), toApply},
		{"newer than the event", 5, 4, present(9), toApply},
		{"deleted since", 5, 4, deleted(6), toApply},
		{"older than the event", 5, 3, present(4), toWait},
		{"deleted, but in an older version than the event", 5, 3, deleted(4), toWait},
		{"older than what is held", 5, 4, present(3), toReport},
		{"the held version again", 0, 4, present(4), toApply},
		{"not known to the Registry", 5, 4, client.ForgottenSource(prefix(1), in), toLeave},
		{"no answer", 5, 4, client.UnavailableSource(prefix(1), errors.New("timeout")), toRetry},
		{"never fetched", 5, 4, client.Fetched{}, toRetry},
		{"another lineage", 5, 4, foreign, toScan},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := judge(c.highest, Held{Version: c.held}, c.fetched); got != c.want {
				t.Errorf("got verdict %d, want %d", got, c.want)
			}
		})
	}
}

func TestOnlyPresentAndDeletedBecomeChanges(t *testing.T) {
	in := client.Reading{Lineage: "L", At: epochStart}
	for _, f := range []client.Fetched{{}, client.UnavailableSource(prefix(1), nil), client.ForgottenSource(prefix(1), in)} {
		if c, ok := changeOf(f); ok {
			t.Errorf("%s became the change %+v, want none", f.Outcome(), c)
		}
	}
	if c, ok := changeOf(client.DeletedSource(prefix(1), 3, epochStart, in)); !ok || !c.Gone() || c.Version != 3 {
		t.Errorf("a tombstone became %+v (%v), want gone at version 3", c, ok)
	}
	if c, ok := changeOf(client.PresentSource(prefix(1), 3, epochStart, json.RawMessage(`{"a":1}`), in)); !ok || c.Gone() {
		t.Errorf("a present source became %+v (%v), want a body", c, ok)
	}
}

func TestNobodyFilledMeansFailed(t *testing.T) {
	if o := (Outcome{}); o.Result != Failed {
		t.Errorf("an outcome that nobody filled is %s, want failed: it would acknowledge an event", o.Result)
	}
}
