package e2e

import (
	"fmt"
	"sync"
	"testing"

	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// TestEverythingBehindATransactionPooler runs Registry and workers over a PgBouncer
// that has fewer connections than they.
func TestEverythingBehindATransactionPooler(t *testing.T) {
	db := schematest.New(t)
	s := newStackThrough(t, eventtest.Server(t).Client(), db, db.Pooler(t))
	s.worker()
	s.worker()
	s.mirror("one")
	const clients, prefixes = 8, 10
	var all sync.WaitGroup
	for n := range clients {
		c := s.client("admin")
		all.Go(func() {
			for i := range prefixes {
				prefix := fmt.Sprintf("10.%d.%d.0/24", n, i)
				var made client.Prefix
				_, err := c.Create(t.Context(), "/v1/prefixes", client.Write{Reason: "a test"}, map[string]any{
					"prefix": prefix, "routing": map[string]any{"announced": true, "origin": 64496 + n},
				}, &made)
				if err != nil {
					t.Errorf("create %s: %v", prefix, err)
					continue
				}
				var read client.Prefix
				if _, err := c.Get(t.Context(), fmt.Sprint("/v1/prefixes/", made.ID), &read); err != nil || read.Prefix != made.Prefix {
					t.Errorf("read %s: %v, %v", prefix, read.Prefix, err)
				}
			}
		})
	}
	all.Wait()
	s.waited()
	s.converges()
	if got := len(s.mirrored()); got != clients*prefixes {
		t.Errorf("%d route origins in the mirror, want %d", got, clients*prefixes)
	}
}
