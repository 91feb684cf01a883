package event

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
)

func consumers(t *testing.T, rdb *redis.Client, key, group string) []string {
	t.Helper()
	all, err := rdb.XInfoConsumers(t.Context(), key, group).Result()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

func TestHousekeepingKeepsConsumersWithPendingEntries(t *testing.T) {
	rdb := eventtest.Server(t).Client()
	s := streamOf(t, rdb, 3, 2) // "one" was given two entries
	for _, name := range []string{"idle", "me"} {
		if err := rdb.XGroupCreateConsumer(t.Context(), s.key, "mirror", name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.consumer = "me"
	c := &Consumer{o: Options{Module: "mirror", Redis: rdb}, log: slog.New(slog.DiscardHandler)}
	for no := range c.streams {
		c.streams[no] = s
	}
	c.housekeep(t.Context(), forgottenAfter)
	if got, want := consumers(t, rdb, s.key, "mirror"), []string{"idle", "me", "one"}; !slices.Equal(got, want) {
		t.Errorf("of replicas that were just there remain %v, want %v", got, want)
	}
	c.housekeep(t.Context(), 0)
	if got, want := consumers(t, rdb, s.key, "mirror"), []string{"me", "one"}; !slices.Equal(got, want) {
		t.Errorf("of replicas that are gone remain %v, want %v: the caller, and who has entries pending", got, want)
	}
}

func TestHousekeepingRemovesGroupsOfInstancesThatAreGone(t *testing.T) {
	rdb := eventtest.Server(t).Client()
	s := streamOf(t, rdb, 1, 0)
	for _, group := range []string{"lg/old", "lg/me", "dns"} {
		if err := rdb.XGroupCreate(t.Context(), s.key, group, "$").Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.XGroupCreateConsumer(t.Context(), s.key, group, "somebody").Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.group, s.consumer = "lg/me", "me"
	c := &Consumer{o: Options{Module: "lg", Instance: "me", EveryInstance: true, Redis: rdb}, log: slog.New(slog.DiscardHandler)}
	for no := range c.streams {
		c.streams[no] = s
	}
	c.housekeep(t.Context(), 0)
	groups, err := rdb.XInfoGroups(t.Context(), s.key).Result()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	if want := []string{"dns", "lg/me", "mirror"}; !slices.Equal(names, want) {
		t.Errorf("the groups %v remain, want %v", names, want)
	}
}
