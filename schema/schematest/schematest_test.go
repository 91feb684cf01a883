package schematest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewDatabaseIsMigratedAndItsOwn(t *testing.T) {
	one, other := New(t), New(t)
	one.Exec(t, `INSERT INTO registry.organisation (handle) VALUES ('EXAMPLE')`)
	for db, want := range map[*DB]int{one: 1, other: 0} {
		var got int
		if err := db.Conn(t, "hubn_registry").QueryRow(t.Context(), `SELECT count(*) FROM registry.organisation`).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s has %d organisations, want %d", db.Name, got, want)
		}
	}
}

func TestLineageOfACloneHasBegun(t *testing.T) {
	db := New(t)
	var before, after string
	if err := db.Conn(t, "").QueryRow(t.Context(), `SELECT registry.lineage_current()`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := db.Conn(t, "hubn_registry").QueryRow(t.Context(), `SELECT registry.lineage_check()`).Scan(&after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the first connection began another lineage:\n%s", diff)
	}
}

func TestRoleOfAURLIsTheSessionsUser(t *testing.T) {
	db := New(t)
	var got string
	if err := db.Conn(t, "hubn_outbox").QueryRow(t.Context(), `SELECT current_user`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != "hubn_outbox" {
		t.Errorf("current_user is %q, want hubn_outbox", got)
	}
}

func TestManyTestsAtOnceGetDifferentDatabases(t *testing.T) {
	var (
		mu    sync.Mutex
		names = map[string]bool{}
	)
	t.Run("at once", func(t *testing.T) {
		for range 6 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				db := New(t)
				db.Exec(t, `INSERT INTO registry.asn (number) VALUES (64496)`)
				mu.Lock()
				defer mu.Unlock()
				names[db.Name] = true
			})
		}
	})
	if len(names) != 6 {
		t.Errorf("6 tests got %d databases", len(names))
	}
}

func TestServerIsStoppedWhenItsLastUserIsKilled(t *testing.T) {
	hash, err := schemaHash()
	if err != nil {
		t.Fatal(err)
	}
	dir := reachableDir(t)
	users, err := lockFile(filepath.Join(dir, usersLock), syscall.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	url, err := startGuard(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := server{admin: string(url), trusting: true, suffix: hash}
	if !answers(t.Context(), s.admin) {
		t.Fatal("the server does not answer while it is used")
	}
	// What the kernel does when a process is killed.
	if err := users.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the guard to stop the server and remove its data", func() bool {
		_, err := os.Stat(filepath.Join(dir, "data"))
		return errors.Is(err, fs.ErrNotExist)
	})
	if answers(t.Context(), s.admin) {
		t.Error("the server still answers after its last user is gone")
	}
}
