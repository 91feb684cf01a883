package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/app/embedded"
	"hubn/schema"
)

// servers are a PostgreSQL and a Redis of the benchmark's own, run as HubN's
// embedded ones are: what is written is synchronised to disk. Autovacuum is off:
// a backlog is drained as it was written moments before, and no run is slower
// than another because the cleaner happened to come by.
type servers struct {
	postgres *embedded.Postgres
	redisURL string
	redis    *redis.Client
	made     int
}

// startServers starts both in a folder that goes with the run.
func startServers(ctx context.Context, b *bench) (*servers, error) {
	dir, err := os.MkdirTemp("", "hubn-bench-")
	if err != nil {
		return nil, err
	}
	b.atEnd(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the database's user must get in
		return nil, err
	}
	s := &servers{}
	if s.postgres, err = embedded.StartPostgres(ctx, embedded.PostgresOptions{DataDir: dir, Settings: map[string]string{"autovacuum": "off"}}); err != nil {
		return nil, err
	}
	b.atEnd(func() { _ = s.postgres.Stop() })
	server, err := embedded.StartRedis(ctx, embedded.RedisOptions{DataDir: dir})
	if err != nil {
		return nil, err
	}
	b.atEnd(func() { _ = server.Stop() })
	if !server.Durable() {
		return nil, fmt.Errorf("no redis-server or valkey-server in PATH: install one, the Redis inside of hubn is no reference")
	}
	s.redisURL = server.URL()
	options, err := redis.ParseURL(s.redisURL)
	if err != nil {
		return nil, err
	}
	s.redis = redis.NewClient(options)
	b.atEnd(func() { _ = s.redis.Close() })
	return s, nil
}

// migrated makes the Registry's schema in a database of its own.
func (s *servers) migrated(ctx context.Context, name string) error {
	if err := s.admin(ctx, `CREATE DATABASE `+name); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = schema.Migrate(ctx, conn, schema.Registry)
	return err
}

// copied is a new database with the content of another.
func (s *servers) copied(ctx context.Context, from string) (name string, err error) {
	s.made++
	name = fmt.Sprintf("run_%d", s.made)
	return name, s.admin(ctx, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY`, name, from))
}

// drop removes a database.
func (s *servers) drop(ctx context.Context, name string) error {
	return s.admin(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
}

func (s *servers) url(database string) string { return s.postgres.URL(embedded.Owner, database) }

func (s *servers) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// pool opens connections to a database as its owner.
func (s *servers) pool(ctx context.Context, database string, size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.url(database))
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(size)
	return pgxpool.NewWithConfig(ctx, config)
}
