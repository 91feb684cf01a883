package event

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
)

func TestEventSurvivesTheStream(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := context.Background()
		s := stream{redis: rdb, no: 3, key: Names{Prefix: "hubn"}.Stream(3), group: "mirror", consumer: "one"}
		if _, err := s.create(ctx, "0"); err != nil {
			t.Fatal(err)
		}
		want := changed(prefix(17), 4)
		want.Stream, want.EventID, want.Payload = 3, "id", json.RawMessage(`{"changed":["routing"]}`)
		add := func(fields []any) {
			t.Helper()
			if err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: s.key, Values: fields}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		add(want.Fields())
		add([]any{"lineage", "L", "at", "yesterday"})
		got, err := s.read(ctx, 10, -1)
		if err != nil || len(got) != 2 {
			t.Fatalf("read %d entries (%v), want 2", len(got), err)
		}
		if diff := cmp.Diff(want, got[0].event); diff != "" || got[0].err != nil {
			t.Errorf("the event came out as (%v):\n%s", got[0].err, diff)
		}
		if got[1].err == nil {
			t.Errorf("an entry that nobody can read came out as %+v", got[1].event)
		}
		if again, err := s.read(ctx, 10, -1); err != nil || len(again) != 0 {
			t.Errorf("read %d entries again (%v), want none", len(again), err)
		}
		own, err := s.own(ctx, "0", 10)
		if err != nil || len(own) != 2 || own[0].id != got[0].id {
			t.Errorf("own pending is %v (%v), want both entries", own, err)
		}
		if err := s.ack(ctx, []string{got[0].id}); err != nil {
			t.Fatal(err)
		}
		if own, err = s.own(ctx, "0", 10); err != nil || len(own) != 1 {
			t.Errorf("own pending after one acknowledgement is %v (%v), want one entry", own, err)
		}
	})
}

func TestClaimTakesOverFromTheDead(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := context.Background()
		s := streamOf(t, rdb, 5, 3)
		heir := s
		heir.consumer = "two"
		if got, _, err := heir.claim(ctx, time.Hour, "0-0", 10); err != nil || len(got) != 0 {
			t.Errorf("claimed %d entries of a consumer that was just there (%v), want none", len(got), err)
		}
		got, next, err := heir.claim(ctx, 0, "0-0", 2)
		if err != nil || len(got) != 2 || next == "0-0" {
			t.Fatalf("claimed %d entries, next %s (%v); want 2 and more to come", len(got), next, err)
		}
		if got, next, err = heir.claim(ctx, 0, next, 10); err != nil || len(got) != 1 || next != "0-0" {
			t.Errorf("claimed %d entries, next %s (%v); want the last one", len(got), next, err)
		}
		counts, err := heir.counts(ctx, "1-0", "3-0", 10)
		if err != nil || len(counts) != 3 || counts["1-0"] < 2 {
			t.Errorf("delivery counts are %v (%v), want 2 of each of the three", counts, err)
		}
	})
}

func TestClaimSaysWhatWasTrimmedWhilePending(t *testing.T) {
	// Only a real server reports the entries that are gone.
	rdb := eventtest.Server(t).Client()
	ctx := context.Background()
	s := streamOf(t, rdb, 3, 3)
	if err := rdb.XTrimMinID(ctx, s.key, "3-0").Err(); err != nil {
		t.Fatal(err)
	}
	own, err := s.own(ctx, "0", 10)
	if err != nil || len(own) != 3 || !own[0].trimmed || own[2].trimmed {
		t.Errorf("own pending is %+v (%v), want three, the first two trimmed", own, err)
	}
	got, _, err := s.claim(ctx, 0, "0-0", 10)
	trimmed := 0
	for _, d := range got {
		if d.trimmed {
			trimmed++
		}
	}
	if err != nil || trimmed != 2 || len(got) != 3 {
		t.Errorf("claimed %+v (%v), want one entry and two that are gone", got, err)
	}
}
