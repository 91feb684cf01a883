// Package schema holds the numbered SQL of HubN, one set for each database
// schema, and applies it. It knows nothing of what the tables mean.
package schema

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

//go:embed registry/*.sql
var files embed.FS

// Set is the numbered SQL of one database schema.
type Set struct {
	// Schema is the name of the database schema that the set owns.
	Schema string
	// Roles are the PostgreSQL roles that the set's grants name; they are made
	// where they do not exist.
	Roles []string
	// Files holds NNNN_name.sql, applied once each in order of their numbers,
	// and grants.sql, applied at every migration.
	Files fs.FS
}

// Registry is the schema of the Registry, the outbox tables included.
var Registry = Set{Schema: "registry", Roles: []string{"hubn_registry", "hubn_outbox"}, Files: sub("registry")}

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err)
	}
	return f
}

// Applied is one numbered file that a migration applied.
type Applied struct {
	Version int
	Name    string
}

var numbered = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

type step struct {
	version        int
	name, checksum string
	sql            string
}

func (s Set) steps() ([]step, error) {
	names, err := fs.Glob(s.Files, "*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var steps []step
	for _, name := range names {
		m := numbered.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		sql, err := fs.ReadFile(s.Files, name)
		if err != nil {
			return nil, err
		}
		version, _ := strconv.Atoi(m[1])
		if version != len(steps)+1 {
			return nil, fmt.Errorf("schema %s: file %s should have number %04d", s.Schema, name, len(steps)+1)
		}
		sum := sha256.Sum256(sql)
		steps = append(steps, step{version, m[2], hex.EncodeToString(sum[:]), string(sql)})
	}
	return steps, nil
}

// Migrate brings a database to the newest version of the set, and answers what
// it applied. The connection's role becomes the owner of the schema; it needs
// CREATE on the database and, where the set's roles do not exist yet,
// CREATEROLE. Every file is one transaction; concurrent migrations wait for
// each other in each of them, by a lock that a pooler keeps too. A database that
// is newer than the set, or whose applied files differ from the set's, is refused
// unchanged.
func Migrate(ctx context.Context, conn *pgx.Conn, set Set) ([]Applied, error) {
	steps, err := set.steps()
	if err != nil {
		return nil, err
	}
	var done []string
	err = set.locked(ctx, conn, func(tx pgx.Tx) error {
		if err := ensureRoles(ctx, tx, set.Roles); err != nil {
			return err
		}
		if done, err = versions(ctx, tx, set); err != nil {
			return err
		}
		return set.fits(steps, done)
	})
	if err != nil {
		return nil, err
	}
	var applied []Applied
	for _, s := range steps[len(done):] {
		made := false
		err := set.locked(ctx, conn, func(tx pgx.Tx) error {
			done, err := versions(ctx, tx, set)
			if err != nil || len(done) >= s.version { // another migration was here
				return errors.Join(err, set.fits(steps, done))
			}
			made = true
			return apply(ctx, tx, set, s)
		})
		if err != nil {
			return applied, err
		}
		if made {
			applied = append(applied, Applied{s.version, s.name})
		}
	}
	return applied, set.locked(ctx, conn, func(tx pgx.Tx) error { return grant(ctx, tx, set) })
}

// locked runs f in a transaction that no other migration of the set runs beside.
func (s Set) locked(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		const lock = `SELECT pg_advisory_xact_lock(hashtextextended('hubn.migrate.' || $1, 0))`
		if _, err := tx.Exec(ctx, lock, s.Schema); err != nil {
			return fmt.Errorf("schema %s: wait for other migrations: %w", s.Schema, err)
		}
		return f(tx)
	})
}

// fits tells whether the set goes on from what was applied.
func (s Set) fits(steps []step, done []string) error {
	if len(done) > len(steps) {
		return fmt.Errorf("schema %s: the database is at version %d, this program knows %d; run a newer hubn",
			s.Schema, len(done), len(steps))
	}
	for i, checksum := range done {
		if checksum != steps[i].checksum {
			return fmt.Errorf("schema %s: version %04d_%s was applied from a different file; this program does not fit the database",
				s.Schema, steps[i].version, steps[i].name)
		}
	}
	return nil
}

// Pending is how many files of the set a database lacks; it changes nothing.
func Pending(ctx context.Context, conn *pgx.Conn, set Set) (int, error) {
	steps, err := set.steps()
	if err != nil {
		return 0, err
	}
	var exists bool
	const table = `SELECT to_regclass($1) IS NOT NULL`
	if err := conn.QueryRow(ctx, table, set.Schema+".schema_version").Scan(&exists); err != nil {
		return 0, err
	}
	if !exists {
		return len(steps), nil
	}
	var n int
	err = conn.QueryRow(ctx, `SELECT count(*) FROM `+pgx.Identifier{set.Schema, "schema_version"}.Sanitize()).Scan(&n)
	return len(steps) - n, err
}

// ensureRoles makes the roles and lets the migrating role act as them, so that
// one database URL serves an installation that gives no role a password.
func ensureRoles(ctx context.Context, tx pgx.Tx, roles []string) error {
	for _, role := range roles {
		id := pgx.Identifier{role}.Sanitize()
		// Roles belong to the cluster, and another database of it may be
		// migrating at this moment: the loser of that race finds the role there.
		create := `DO $$ BEGIN
			IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '` + role + `') THEN
				CREATE ROLE ` + id + ` LOGIN;
			END IF;
			IF NOT pg_has_role(current_user, '` + role + `', 'MEMBER') THEN
				GRANT ` + id + ` TO CURRENT_USER;
			END IF;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
		END $$`
		if _, err := tx.Exec(ctx, create); err != nil {
			return fmt.Errorf("make the PostgreSQL role %s (or let someone with CREATEROLE make it): %w", role, err)
		}
	}
	return nil
}

func versions(ctx context.Context, tx pgx.Tx, set Set) ([]string, error) {
	schema := pgx.Identifier{set.Schema}.Sanitize()
	table := pgx.Identifier{set.Schema, "schema_version"}.Sanitize()
	const exists = `SELECT to_regclass($1) IS NOT NULL`
	var there bool
	if err := tx.QueryRow(ctx, exists, set.Schema+".schema_version").Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		create := `CREATE SCHEMA IF NOT EXISTS ` + schema + `;
			CREATE TABLE ` + table + ` (
				version    integer PRIMARY KEY,
				name       text NOT NULL,
				checksum   text NOT NULL,
				applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
			)`
		if _, err := tx.Exec(ctx, create); err != nil {
			return nil, fmt.Errorf("create schema %s: %w", set.Schema, err)
		}
	}
	rows, err := tx.Query(ctx, `SELECT checksum FROM `+table+` ORDER BY version`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func apply(ctx context.Context, tx pgx.Tx, set Set, s step) error {
	if _, err := tx.Exec(ctx, s.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("schema %s: apply %04d_%s: %w", set.Schema, s.version, s.name, err)
	}
	record := `INSERT INTO ` + pgx.Identifier{set.Schema, "schema_version"}.Sanitize() + ` (version, name, checksum) VALUES ($1, $2, $3)`
	_, err := tx.Exec(ctx, record, s.version, s.name, s.checksum)
	return err
}

func grant(ctx context.Context, tx pgx.Tx, set Set) error {
	sql, err := fs.ReadFile(set.Files, "grants.sql")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, string(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("schema %s: apply grants.sql: %w", set.Schema, err)
	}
	return nil
}
