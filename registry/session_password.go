package registry

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// lookingGlass is the module that opens BGP sessions; it alone reads passwords.
const lookingGlass = "lookingglass"

func (s *service) passwordRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/sessions/{id}/password", id: "get-session-password", tag: "sessions",
		summary: "Read the password of a BGP session", needs: readPasswords, unlogged: true,
		description: "For the token of the module " + lookingGlass + " alone, over TLS or on the loopback interface.",
		problems:    []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getPassword)
}

// passwordPurpose binds a sealed password to its session: it opens for no other.
func passwordPurpose(id int64) string {
	return "bgp_session/" + strconv.FormatInt(id, 10) + "/password"
}

// sealPassword seals a password; without one the result is nil.
func (s *service) sealPassword(id int64, password *Secret) ([]byte, error) {
	if password == nil {
		return nil, nil
	}
	if s.seal == nil {
		return nil, noSealKey()
	}
	return s.seal.Seal(passwordPurpose(id), password.value), nil
}

const sqlSealed = `SELECT password_sealed FROM registry.bgp_session WHERE id = $1`

// sealAnew seals a password that replaces what a session has, and tells whether it
// is another one: the same one again is no change.
func (s *service) sealAnew(ctx context.Context, w *writing, id int64, password *Secret) (sealed []byte, anew bool, err error) {
	var now []byte
	if err := w.QueryRow(ctx, sqlSealed, id).Scan(&now); err != nil {
		return nil, false, err
	}
	if password == nil || now == nil || s.seal == nil {
		sealed, err = s.sealPassword(id, password)
		return sealed, true, err
	}
	// One that does not open is replaced.
	if was, err := s.seal.Open(passwordPurpose(id), now); err == nil && bytes.Equal(was, password.value) {
		return nil, false, nil
	}
	sealed, err = s.sealPassword(id, password)
	return sealed, true, err
}

func noSealKey() error {
	return problem.New(problem.Unavailable, "this process has no key to seal passwords with: name one in seal.key_file")
}

// keyedSession is a request with what tells its password from another one, for the
// Idempotency-Key: a plain hash of it would be stored.
type keyedSession struct {
	sessionInput
	Fingerprint []byte
}

func (s *service) sessionRequest(in sessionInput) (keyedSession, error) {
	request := keyedSession{sessionInput: in}
	if in.Password == nil {
		return request, nil
	}
	if s.seal == nil {
		return request, noSealKey()
	}
	request.Fingerprint = s.seal.Fingerprint(in.Password.value)
	return request, nil
}

type passwordInput struct {
	SessionPath
	secure bool
}

// Resolve implements huma.Resolver: it sees how the request came.
func (in *passwordInput) Resolve(h huma.Context) []error {
	peer, err := netip.ParseAddrPort(h.RemoteAddr())
	in.secure = h.TLS() != nil || err == nil && peer.Addr().Unmap().IsLoopback()
	return nil
}

type passwordOutput struct {
	Body client.SessionPassword
}

// The version is joined in the statement that reads the password.
const sqlPassword = `
SELECT b.password_sealed,
       l.last_seq
FROM registry.bgp_session b
JOIN registry.outbox_lane l ON l.agg_type = 'session' AND l.agg_key = b.id::text
WHERE b.id = $1`

func (s *service) getPassword(ctx context.Context, in *passwordInput) (*passwordOutput, error) {
	p := callOf(ctx).principal
	if !slices.Contains(p.Roles, roleModule) || p.Module != lookingGlass {
		return nil, problem.New(problem.Forbidden, "%s may not read passwords: that needs the token of the module %s", p.Name, lookingGlass)
	}
	if !in.secure {
		return nil, problem.New(problem.Forbidden, "a password is answered over TLS or on the loopback interface alone: set tls.certificate and tls.key, and ask with https")
	}
	key := strconv.FormatInt(in.ID, 10)
	out := &passwordOutput{client.SessionPassword{Resource: client.Resource{Kind: client.KindSession, Key: key}}}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body.Lineage, out.Body.ReadAt = tx.Lineage, tx.At
		var sealed []byte
		err := tx.QueryRow(ctx, sqlPassword, in.ID).Scan(&sealed, &out.Body.Version)
		if errors.Is(err, pgx.ErrNoRows) {
			return absent(ctx, tx, client.KindSession, key)
		}
		if err != nil || sealed == nil {
			return err
		}
		password, err := s.openPassword(in.ID, sealed)
		out.Body.Password = string(password)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// openPassword opens a sealed password. What does not open is said as what it is: a
// key that is missing comes back when it is added, a broken one has to be set anew.
func (s *service) openPassword(id int64, sealed []byte) ([]byte, error) {
	if s.seal == nil {
		return nil, noSealKey()
	}
	password, err := s.seal.Open(passwordPurpose(id), sealed)
	if err != nil {
		return nil, problem.New(problem.Unavailable, "the password of session:%d cannot be opened: %v; or set it anew", id, err).Because(err)
	}
	return password, nil
}

const (
	// Sessions whose password is sealed with another key than the current one: the
	// key's id stands behind the first octet.
	sqlSealedOtherwise = `
SELECT id,
       password_sealed
FROM registry.bgp_session
WHERE substr(password_sealed, 2, 8) <> $1
  AND id > $2
ORDER BY id
LIMIT $3`
	// Only what was not changed meanwhile; the serial stays, so this is no event.
	sqlReseal = `
UPDATE registry.bgp_session
SET password_sealed = $3
WHERE id = $1
  AND password_sealed = $2`
)

// reseal seals anew, with the current key, what an older one sealed: then the
// older key can be removed. What cannot be opened stays, and is said.
func (s *service) reseal(ctx context.Context) error {
	if s.seal == nil {
		return nil
	}
	db, err := s.open()
	if err != nil {
		return err
	}
	current, done, after := s.seal.Current(), 0, int64(0)
	var failed error
	for {
		rows, err := db.pool.Query(ctx, sqlSealedOtherwise, current[:], after, purgeBatch)
		if err != nil {
			return err
		}
		batch, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sealedPassword])
		if err != nil || len(batch) == 0 {
			if done > 0 {
				s.log.Info("passwords were sealed with the current key", "count", done, "key", current)
			}
			return errors.Join(err, failed)
		}
		for _, p := range batch {
			after = p.ID
			password, err := s.seal.Open(passwordPurpose(p.ID), p.Sealed)
			if err != nil {
				s.log.Warn("a password cannot be opened", "session", p.ID, "error", err)
				failed = errors.New("passwords of BGP sessions cannot be opened, of session:" + strconv.FormatInt(p.ID, 10) + " among others: " + err.Error())
				continue
			}
			tag, err := db.pool.Exec(ctx, sqlReseal, p.ID, p.Sealed, s.seal.Seal(passwordPurpose(p.ID), password))
			if err != nil {
				return err
			}
			done += int(tag.RowsAffected())
		}
	}
}

// sealedPassword is a row of sqlSealedOtherwise.
type sealedPassword struct {
	ID     int64
	Sealed []byte
}
