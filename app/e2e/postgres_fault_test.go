package e2e

import (
	"testing"

	"hubn/outbox/event/eventtest"
	"hubn/schema/schematest"
)

// TestPostgresRestartsInTheMiddleOfABurst has the mirror on the same server, as a
// small installation does: everybody is without a database at once.
func TestPostgresRestartsInTheMiddleOfABurst(t *testing.T) {
	t.Parallel()
	cluster, redis := schematest.StartCluster(t), eventtest.Server(t)
	s := newSite(t, cluster, redis.URL(), func(s *site) { s.shareDatabase(cluster) })
	s.workers(2)
	s.mirror("one")
	s.mirror("two")
	b := newBurst(s)

	b.goesOn(5)
	cluster.Restart(t)
	b.goesOn(5)
	cluster.Crash(t)
	cluster.Start(t)
	b.goesOn(5)
	b.kept(t)

	s.settled()
	s.complete()
	s.noVersionWentBack()
	if got := len(s.lineages().Ancestry); got != 1 {
		t.Errorf("there are %d lineages, want 1: a restart does not change history", got)
	}
}
