package registry

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) sessionRoutes() {
	const tag, path, one = "sessions", "/v1/sessions", "/v1/sessions/{id}"
	register(s, operation{
		method: http.MethodGet, path: path, id: "list-sessions", tag: tag,
		summary: "List BGP sessions", needs: readNouns,
	}, s.listSessions)
	register(s, operation{
		method: http.MethodPost, path: path, id: "create-session", tag: tag,
		summary: "Create a BGP session", needs: writeNouns, status: http.StatusCreated,
		description: "The session as it ought to be. Its password is sealed, and answered to the module that opens the session alone.",
		problems:    []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createSession)
	register(s, operation{
		method: http.MethodGet, path: one, id: "get-session", tag: tag,
		summary: "Read a BGP session", needs: readNouns, problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getSession)
	register(s, operation{
		method: http.MethodPatch, path: one, id: "change-session", tag: tag,
		summary:     "Change a BGP session",
		description: "The password stays as it is unless the patch names it; null removes it.",
		needs:       writeNouns, problems: changeProblems, body: patchBody[*sessionInput](s),
	}, s.changeSession)
	register(s, operation{
		method: http.MethodDelete, path: one, id: "delete-session", tag: tag,
		summary: "Delete a BGP session", needs: writeNouns, problems: changeProblems, status: http.StatusNoContent,
	}, s.deleteSession)
}

const (
	sqlSessions = `
SELECT b.id,
       b.collector,
       coalesce(b.local_asn, 0),
       host(b.local_address),
       b.remote_asn,
       host(b.remote_address),
       b.families,
       b.password_sealed IS NOT NULL,
       coalesce(b.max_prefixes, 0),
       b.wanted,
       b.description,
       b.revision
FROM registry.bgp_session b`
	sqlSession       = sqlSessions + ` WHERE b.id = $1`
	sqlLockSession   = sqlSession + ` FOR NO KEY UPDATE`
	sqlNextSession   = `SELECT nextval('registry.bgp_session_id_seq')`
	sqlCreateSession = `
INSERT INTO registry.bgp_session
  (id, collector, local_asn, local_address, remote_asn, remote_address, families, max_prefixes, wanted, description, password_sealed, password_serial)
OVERRIDING SYSTEM VALUE
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, CASE WHEN $11::bytea IS NULL THEN 0 ELSE 1 END)`
	sqlChangeSession = `
UPDATE registry.bgp_session
SET collector = $2,
    local_asn = $3,
    local_address = $4,
    remote_asn = $5,
    remote_address = $6,
    families = $7,
    max_prefixes = $8,
    wanted = $9,
    description = $10
WHERE id = $1`
	// The serial makes another password a change, and the same one sealed anew none.
	sqlSetPassword = `
UPDATE registry.bgp_session
SET collector = $2,
    local_asn = $3,
    local_address = $4,
    remote_asn = $5,
    remote_address = $6,
    families = $7,
    max_prefixes = $8,
    wanted = $9,
    description = $10,
    password_sealed = $11,
    password_serial = password_serial + CASE WHEN $11::bytea IS NULL THEN 0 ELSE 1 END
WHERE id = $1`
	sqlDeleteSession = `DELETE FROM registry.bgp_session WHERE id = $1`
)

func scanSession(row pgx.CollectableRow) (b client.Session, err error) {
	var local *string
	var remote string
	err = row.Scan(&b.ID, &b.Collector, &b.LocalASN, &local, &b.RemoteASN, &remote, &b.Families, &b.PasswordSet, &b.MaxPrefixes,
		&b.Wanted, &b.Description, &b.Revision)
	if err != nil {
		return b, err
	}
	if local != nil {
		if b.LocalAddress, err = netip.ParseAddr(*local); err != nil {
			return b, err
		}
	}
	b.RemoteAddress, err = netip.ParseAddr(remote)
	return b, err
}

func oneSession(ctx context.Context, q querier, sql string, id int64) (client.Session, error) {
	rows, err := q.Query(ctx, sql, id)
	if err != nil {
		return client.Session{}, err
	}
	b, err := pgx.CollectExactlyOneRow(rows, scanSession)
	if errors.Is(err, pgx.ErrNoRows) {
		err = absent(ctx, q, client.KindSession, strconv.FormatInt(id, 10))
	}
	return b, err
}

func lockSession(ctx context.Context, w *writing, id int64, ifMatch string) (client.Session, error) {
	b, err := oneSession(ctx, w, sqlLockSession, id)
	if err != nil {
		return b, err
	}
	// Sessions are the whole network's: no grant reaches them.
	if err := w.allowOn(ctx, writeNouns, target{}); err != nil {
		return b, err
	}
	return b, matches(ifMatch, b.Revision, b)
}

func (s *service) listSessions(ctx context.Context, in *listSessionsInput) (*list[client.Session], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanSession, func(b client.Session) string { return cursor("sessions", b.ID) })
}

// SessionPath is the path parameter of one session.
type SessionPath struct {
	ID int64 `path:"id" minimum:"1"`
}

type getSessionInput struct{ SessionPath }

func (s *service) getSession(ctx context.Context, in *getSessionInput) (*found[client.Session], error) {
	out := &found[client.Session]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = oneSession(ctx, tx, sqlSession, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type createSessionInput struct {
	CreateParams
	Body sessionInput
}

func (s *service) createSession(ctx context.Context, in *createSessionInput) (*answer[client.Session], error) {
	request, err := s.sessionRequest(in.Body)
	if err != nil {
		return nil, err
	}
	return mutate(ctx, s, in.CreateParams, request, func(ctx context.Context, w *writing) (m made[client.Session], err error) {
		if err := w.allowOn(ctx, writeNouns, target{}); err != nil {
			return m, err
		}
		var id int64
		if err := w.QueryRow(ctx, sqlNextSession).Scan(&id); err != nil {
			return m, err
		}
		sealed, err := s.sealPassword(id, in.Body.Password)
		if err != nil {
			return m, err
		}
		if _, err := w.Exec(ctx, sqlCreateSession, append(in.Body.args(id), sealed)...); err != nil {
			return m, err
		}
		b, err := oneSession(ctx, w, sqlSession, id)
		return made[client.Session]{b, b.Revision, "/v1/sessions/" + strconv.FormatInt(id, 10)}, err
	})
}

type changeSessionInput struct {
	SessionPath
	AlterParams
	PatchBody
}

func (s *service) changeSession(ctx context.Context, in *changeSessionInput) (*answer[client.Session], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Session], err error) {
		b, err := lockSession(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return m, err
		}
		next, err := patched(s, sessionInputOf(b), in.RawBody)
		if err != nil {
			return m, err
		}
		sql, args := sqlChangeSession, next.args(b.ID)
		if namesPassword(in.RawBody) {
			sealed, anew, err := s.sealAnew(ctx, w, b.ID, next.Password)
			if err != nil {
				return m, err
			}
			if anew {
				sql, args = sqlSetPassword, append(args, sealed)
			}
		}
		if _, err := w.Exec(ctx, sql, args...); err != nil {
			return m, err
		}
		b, err = oneSession(ctx, w, sqlSession, b.ID)
		return made[client.Session]{object: b, revision: b.Revision}, err
	})
}

type deleteSessionInput struct {
	SessionPath
	AlterParams
}

func (s *service) deleteSession(ctx context.Context, in *deleteSessionInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		b, err := lockSession(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeleteSession, b.ID)
		return err
	})
}
