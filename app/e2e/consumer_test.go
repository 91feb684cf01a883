package e2e

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

func TestMirrorFollowsTheRegistry(t *testing.T) {
	eventtest.Both(t, func(t *testing.T, rdb *redis.Client) {
		s := newStack(t, rdb)
		s.announced("192.0.2.0/24", 64496)
		s.worker()
		s.mirror("one")
		s.converges()

		second := s.announced("198.51.100.0/24", 64497)
		s.exec(`INSERT INTO registry.prefix (prefix) VALUES ('203.0.113.0/24')`)
		s.exec(`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('203.0.113.0/24', 'dns')`)
		s.exec(`INSERT INTO registry.anycast_route_origin (allocation_id, asn, max_length, active) VALUES (1, 64498, 32, true), (1, 64499, NULL, false)`)
		s.waited()
		if got, want := s.mirrored(), []string{"AS64496,192.0.2.0/24,24", "AS64497,198.51.100.0/24,24", "AS64498,203.0.113.0/24,32"}; !slices.Equal(got, want) {
			t.Errorf("after the barrier the mirror has %v, want %v", got, want)
		}

		s.exec(`UPDATE registry.prefix SET origin_asn = 64500 WHERE id = $1::text::bigint`, second.Key)
		s.exec(`UPDATE registry.anycast_route_origin SET active = NOT active`)
		s.exec(`DELETE FROM registry.prefix WHERE prefix = '192.0.2.0/24'`)
		s.waited()
		if got, want := s.mirrored(), []string{"AS64499,203.0.113.0/24,24", "AS64500,198.51.100.0/24,24"}; !slices.Equal(got, want) {
			t.Errorf("after the barrier the mirror has %v, want %v", got, want)
		}

		state, err := s.admin.State(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		if state.Overall != client.OverallApplied || len(state.Consumers) != 1 || state.Consumers[0].Version != state.Version {
			t.Errorf("state of %s: overall %s, consumers %+v; want applied at version %d", second, state.Overall, state.Consumers, state.Version)
		}
	})
}
