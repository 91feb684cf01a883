// Package pooler is about connection poolers such as PgBouncer that may stand
// between HubN and PostgreSQL. In transaction mode one gives every transaction any
// of its connections to the server: what belongs to a session (a SET, SET ROLE, a
// session's advisory lock, a statement prepared by name, LISTEN) is lost, or meets
// somebody else. It pools nothing itself.
package pooler

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Connect opens one connection that leaves nothing of a session behind: it
// prepares no statement by name, and sends no parameter that poolers refuse.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return pgx.ConnectConfig(ctx, config)
}

// Between tells whether a pooler is at the other end of a connection: it makes up
// the process id that a client is told at its start (for cancelling), and the
// server process that answers has another.
func Between(ctx context.Context, conn *pgx.Conn) (bool, error) {
	const backend = `SELECT pg_backend_pid()`
	var pid uint32
	if err := conn.QueryRow(ctx, backend, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return false, fmt.Errorf("ask for the server process: %w", err)
	}
	return conn.PgConn().PID() != pid, nil
}

// Ask tells whether a pooler is at a URL.
func Ask(ctx context.Context, url string) (bool, error) {
	conn, err := Connect(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return Between(ctx, conn)
}

// RoleError is why a connection through a pooler cannot act as a role that is not
// its user's: what SET ROLE says holds for whatever uses the server's connection next.
func RoleError(setting, user, role string) error {
	return fmt.Errorf("%s reaches PostgreSQL through a pooler as the role %s, and SET ROLE does not hold there: "+
		"let it connect as %s, or name PostgreSQL itself", setting, user, role)
}
