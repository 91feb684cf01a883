package event

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
)

func TestIDsCompareAsNumbers(t *testing.T) {
	for _, pair := range [][2]string{{"9-0", "10-0"}, {"5-9", "5-10"}, {"0-0", "0-1"}, {"0", "1-0"}} {
		if !idLess(pair[0], pair[1]) || idLess(pair[1], pair[0]) {
			t.Errorf("%s should be before %s", pair[0], pair[1])
		}
	}
	if idLess("5-1", "5-1") {
		t.Error("an id is before itself")
	}
}

// streamOf fills a stream with the ids 1-0 to n-0 and reads some of it.
func streamOf(t *testing.T, rdb *redis.Client, n, read int) stream {
	t.Helper()
	ctx := context.Background()
	s := stream{redis: rdb, key: Names{Prefix: "hubn"}.Stream(0), group: "mirror", consumer: "one"}
	if _, err := s.create(ctx, "0"); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= n; i++ {
		args := &redis.XAddArgs{Stream: s.key, ID: fmt.Sprintf("%d-0", i), Values: changed(prefix(i), 1).Fields()}
		if err := rdb.XAdd(ctx, args).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if read > 0 {
		if got, err := s.read(ctx, read, -1); err != nil || len(got) != read {
			t.Fatalf("read %d entries (%v), want %d", len(got), err, read)
		}
	}
	return s
}

func TestPositionCountsAndFindsTrimmedEntries(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		cases := []struct {
			name            string
			added, read     int
			trimTo          string
			lag             int64
			trimmed, unsure bool
		}{
			{"nothing read, nothing trimmed", 10, 0, "", 10, false, false},
			{"half read", 10, 5, "", 5, false, false},
			{"all read", 10, 10, "", 0, false, false},
			{"what was read is trimmed", 10, 5, "4-0", 5, false, false},
			// Without counts, that the first entry is the next one cannot be told
			// from a loss.
			{"exactly what was read is trimmed", 10, 5, "6-0", 5, false, true},
			{"one unread entry is trimmed", 10, 5, "7-0", 4, true, false},
			{"everything is trimmed after it was read", 10, 10, "11-0", 0, false, false},
			{"everything is trimmed before it was read", 10, 5, "11-0", 0, true, false},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				ctx := context.Background()
				if err := rdb.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				s := streamOf(t, rdb, c.added, c.read)
				if c.trimTo != "" {
					if err := rdb.XTrimMinID(ctx, s.key, c.trimTo).Err(); err != nil {
						t.Fatal(err)
					}
				}
				at, err := s.position(ctx)
				if err != nil {
					t.Fatal(err)
				}
				counts := at.added > 0
				if counts && c.trimTo != "11-0" && at.lag != c.lag {
					t.Errorf("lag is %d, want %d", at.lag, c.lag)
				}
				if got := at.trimmed(); got != c.trimmed && (counts || !c.unsure) {
					t.Errorf("trimmed is %v, want %v (%+v)", got, c.trimmed, at)
				}
			})
		}
	})
}

func TestPositionOfAGroupThatIsGone(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := context.Background()
		s := stream{redis: rdb, key: "hubn:{0}:events", group: "mirror", consumer: "one"}
		if _, err := s.position(ctx); !isNoGroup(err) {
			t.Errorf("no stream: got %v, want to be told that the group is gone", err)
		}
		if _, err := s.read(ctx, 1, -1); !isNoGroup(err) {
			t.Errorf("read without a stream: got %v, want NOGROUP", err)
		}
		if err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: s.key, Values: []any{"a", "b"}}).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.position(ctx); !isNoGroup(err) {
			t.Errorf("no group: got %v, want to be told that it is gone", err)
		}
		if made, err := s.create(ctx, "0"); err != nil || !made {
			t.Errorf("the group was made: %v (%v), want yes", made, err)
		}
		if made, err := s.create(ctx, "0"); err != nil || made {
			t.Errorf("the group was made again: %v (%v), want no", made, err)
		}
	})
}
