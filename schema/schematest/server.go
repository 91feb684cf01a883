package schematest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/schema"
)

const (
	templateName = "hubn_template"
	readyPrefix  = "hubn_ready_"
	// readyClones are kept in stock, so that a test does not wait the 100 to
	// 200 ms that a clone takes.
	readyClones = 3
)

// server is a PostgreSQL server on which tests get databases.
type server struct {
	admin string // URL of a maintenance database, as a role that may create databases
	// trusting servers let every role log in; on others a test logs in as
	// the owner and takes the role.
	trusting bool
	suffix   string // tells the databases of several schemas on one server apart
}

// url is the URL of a database for a role; empty is the owner.
func (s server) url(role, database string) string {
	u, err := url.Parse(s.admin)
	if err != nil {
		panic(err) // it was parsed when the server was found
	}
	u.Path = "/" + database
	q := u.Query()
	switch {
	case role == "":
	case s.trusting:
		q.Set("user", role)
	default:
		q.Set("options", "-c role="+role)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func (s server) template() string { return templateName + s.suffix }
func (s server) ready() string    { return readyPrefix + s.suffix }

// ensureTemplate makes the migrated database that every test's is a clone of.
func (s server) ensureTemplate(ctx context.Context) error {
	return s.do(ctx, func(admin *pgx.Conn) error {
		// Other processes may be doing the same on a server that was given.
		const lock = `SELECT pg_advisory_lock(hashtextextended($1, 0))`
		if _, err := admin.Exec(ctx, lock, s.template()); err != nil {
			return err
		}
		var exists bool
		const there = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`
		if err := admin.QueryRow(ctx, there, s.template()).Scan(&exists); err != nil || exists {
			return err
		}
		building := s.template() + "_building"
		if err := dropDatabase(ctx, admin, building); err != nil {
			return err
		}
		if _, err := admin.Exec(ctx, `CREATE DATABASE `+quote(building)); err != nil {
			return err
		}
		if err := migrate(ctx, s.url("", building)); err != nil {
			return err
		}
		return rename(ctx, admin, building, s.template())
	})
}

func migrate(ctx context.Context, url string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := schema.Migrate(ctx, c, schema.Registry); err != nil {
		return err
	}
	// A fresh copy is not analysed by autovacuum for a minute.
	_, err = c.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// claimClone gives a clone a test's name: one from the stock if there is one.
// The rename is what two processes cannot both succeed with.
func (s server) claimClone(ctx context.Context, name string) error {
	return s.do(ctx, func(admin *pgx.Conn) error {
		stock, err := s.stock(ctx, admin)
		if err != nil {
			return err
		}
		for _, clone := range stock {
			if rename(ctx, admin, clone, name) == nil {
				return nil
			}
		}
		return s.clone(ctx, admin, name)
	})
}

// restock makes clones until enough are ready. A cancelled context is no error.
func (s server) restock(ctx context.Context) error {
	err := s.do(ctx, func(admin *pgx.Conn) error {
		for {
			stock, err := s.stock(ctx, admin)
			if err != nil || len(stock) >= readyClones {
				return err
			}
			// Under another name until its lineage has begun: a clone in stock is complete.
			raw := "hubn_raw_" + randomName()
			if err := s.clone(ctx, admin, raw); err != nil {
				return errors.Join(err, s.drop(raw))
			}
			if err := rename(ctx, admin, raw, s.ready()+randomName()); err != nil {
				return err
			}
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s server) stock(ctx context.Context, admin *pgx.Conn) ([]string, error) {
	const list = `SELECT datname FROM pg_database WHERE starts_with(datname, $1) ORDER BY datname`
	rows, err := admin.Query(ctx, list, s.ready())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// clone copies the template and begins the copy's own lineage.
func (s server) clone(ctx context.Context, admin *pgx.Conn, name string) error {
	create := `CREATE DATABASE ` + quote(name) + ` TEMPLATE ` + quote(s.template())
	if _, err := admin.Exec(ctx, create); err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, s.url("", name))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.Background()) }()
	_, err = c.Exec(ctx, `SELECT registry.lineage_check()`)
	return err
}

func (s server) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	return s.do(ctx, func(admin *pgx.Conn) error { return dropDatabase(ctx, admin, name) })
}

// do runs f on a connection to the maintenance database.
func (s server) do(ctx context.Context, f func(*pgx.Conn) error) error {
	admin, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close(context.Background()) }()
	return f(admin)
}

func dropDatabase(ctx context.Context, admin *pgx.Conn, name string) error {
	_, err := admin.Exec(ctx, `DROP DATABASE IF EXISTS `+quote(name)+` WITH (FORCE)`)
	return err
}

// rename waits for the last connection to the database to be gone: a client's
// Close does not wait for its server process.
func rename(ctx context.Context, admin *pgx.Conn, from, to string) error {
	const objectInUse = "55006"
	for {
		_, err := admin.Exec(ctx, `ALTER DATABASE `+quote(from)+` RENAME TO `+quote(to))
		var refused *pgconn.PgError
		if err == nil || !errors.As(err, &refused) || refused.Code != objectInUse {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rename %s: %w", from, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
