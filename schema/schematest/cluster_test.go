package schematest

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

const addOrganisation = `INSERT INTO registry.organisation (handle) VALUES ($1)`

func TestClusterKeepsCommitsOverRestartAndCrash(t *testing.T) {
	c := StartCluster(t)
	c.Exec(t, addOrganisation, "A")
	c.Restart(t)
	c.Exec(t, addOrganisation, "B")
	c.Crash(t)
	c.Start(t)
	checkHandles(t, c, "A", "B")
}

func TestPromotedStandbyLacksWhatCameAfterTheCut(t *testing.T) {
	primary := StartCluster(t)
	primary.Exec(t, addOrganisation, "BEFORE")
	standby := primary.Standby(t)
	standby.WaitCaughtUp(t, primary)
	standby.CutOff(t)
	primary.Exec(t, addOrganisation, "LOST")
	primary.Stop(t)
	before := lineage(t, standby)
	standby.Promote(t)
	checkHandles(t, standby, "BEFORE")
	standby.Exec(t, `SELECT registry.lineage_check()`)
	if lineage(t, standby) == before {
		t.Error("the promoted standby goes on with the primary's lineage")
	}
}

func TestRestoredDumpHasTheStateOfTheDumpAndANewLineage(t *testing.T) {
	c := StartCluster(t)
	c.Exec(t, addOrganisation, "BEFORE")
	dump := c.Dump(t)
	c.Exec(t, addOrganisation, "AFTER")
	before := lineage(t, c)
	elsewhere := RestoreElsewhere(t, dump)
	c.Restore(t, dump)
	for name, restored := range map[string]*Cluster{"the same server": c, "another server": elsewhere} {
		checkHandles(t, restored, "BEFORE")
		restored.Exec(t, `SELECT registry.lineage_check()`)
		if lineage(t, restored) == before {
			t.Errorf("restored on %s, the lineage goes on", name)
		}
	}
}

func lineage(t *testing.T, c *Cluster) (id string) {
	t.Helper()
	if err := c.Conn(t, "").QueryRow(t.Context(), `SELECT registry.lineage_current()`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

func checkHandles(t *testing.T, c *Cluster, want ...string) {
	t.Helper()
	rows, err := c.Conn(t, "").Query(t.Context(), `SELECT handle FROM registry.organisation ORDER BY handle`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("organisations are %q, want %q", got, want)
	}
}
