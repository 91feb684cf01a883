package registry

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
)

// staticTokens are those of this process, by the hash of the token.
type staticTokens []staticToken

type staticToken struct {
	hash [sha256.Size]byte
	principal
}

func newStaticTokens(given []StaticToken) staticTokens {
	var all staticTokens
	for _, t := range given {
		p := principal{Name: t.Name, Module: t.Module}
		for _, r := range t.Roles {
			p.Roles = append(p.Roles, role(r))
		}
		all = append(all, staticToken{sha256.Sum256([]byte(t.Token)), p})
	}
	return all
}

// find compares with all of them, in a time that does not tell which was near.
func (all staticTokens) find(token string) (p principal, found bool) {
	hash := sha256.Sum256([]byte(token))
	for _, t := range all {
		if subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 {
			p, found = t.principal, true
		}
	}
	return p, found
}

// authenticate says who asks. A token is taken from the header alone: in a URL it
// would end up in logs and histories.
func (s *service) authenticate(r *http.Request) (principal, error) {
	if holdsSecret(r.URL) {
		s.metrics.refused.WithLabelValues("url").Inc()
		return principal{}, problem.New(problem.Unauthenticated, "a token stands in the URL, where logs and histories keep it: "+
			"revoke it (hubn token revoke), and send the new one in the header Authorization: Bearer hubn_…")
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" { // in any case (RFC 9110 section 11.1)
		s.metrics.refused.WithLabelValues("none").Inc()
		return principal{}, problem.New(problem.Unauthenticated, "no token: send the header Authorization: Bearer hubn_…")
	}
	if p, found := s.static.find(token); found {
		return p, nil
	}
	from := remoteAddress(r)
	hash := sha256.Sum256([]byte(token))
	if !s.logins.admits(from, hash) {
		s.metrics.refused.WithLabelValues("limited").Inc()
		return principal{}, problem.New(problem.RateLimited, "too many wrong tokens from %s: wait a minute", from)
	}
	p, err := s.storedToken(r.Context(), token, from)
	switch {
	case err == nil:
		s.logins.succeeded(hash)
	case problem.Is(err, problem.Unauthenticated):
		s.metrics.refused.WithLabelValues("invalid").Inc()
		s.logins.failed(from)
		s.log.Info("a token was refused", "remote", from, "reason", redact(err.Error()))
	}
	return p, err
}

// holdsSecret tells whether a token, or most of one, is anywhere in a URL.
func holdsSecret(u *url.URL) bool {
	query, err := url.QueryUnescape(u.RawQuery)
	if err != nil {
		query = u.RawQuery
	}
	return urlSecretPattern.MatchString(u.Path) || urlSecretPattern.MatchString(query)
}

var urlSecretPattern = regexp.MustCompile(tokenPrefix + `[a-z2-7]{24,}`)

const sqlFindToken = `
SELECT id,
       name,
       secret_hash,
       roles,
       coalesce(module, ''),
       source_cidrs,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'role', g.role, 'organisation', coalesce(g.organisation_id, 0), 'prefix', coalesce(g.prefix::text, ''))), '[]')
        FROM registry.role_grant g
        WHERE g.token_id = api_token.id),
       coalesce(expires_at <= clock_timestamp(), false),
       revoked_at IS NOT NULL,
       coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)
FROM registry.api_token
WHERE public_id = $1`

const sqlTokenUsed = `
UPDATE registry.api_token
SET last_used_at = clock_timestamp()
WHERE id = $1
  AND coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)`

func (s *service) storedToken(ctx context.Context, token string, from netip.Addr) (principal, error) {
	publicID, hash, err := parseSecret(token)
	if err != nil {
		return principal{}, problem.New(problem.Unauthenticated, "the token cannot be taken: %v", err)
	}
	db, err := s.open()
	if err != nil {
		return principal{}, err
	}
	var (
		id                        int64
		p                         = principal{TokenID: publicID}
		stored                    []byte
		sources                   []netip.Prefix
		expired, revoked, longAgo bool
		unknown                   = problem.New(problem.Unauthenticated, "the token is not known here: ask an admin for one (hubn token create)")
	)
	err = db.pool.QueryRow(ctx, sqlFindToken, publicID).
		Scan(&id, &p.Name, &stored, &p.Roles, &p.Module, &sources, &p.Grants, &expired, &revoked, &longAgo)
	if errors.Is(err, pgx.ErrNoRows) {
		return principal{}, unknown
	}
	if err != nil {
		return principal{}, databaseProblem(err)
	}
	// Only whoever has the whole token learns more.
	switch {
	case subtle.ConstantTimeCompare(stored, hash[:]) != 1:
		return principal{}, unknown
	case revoked:
		return principal{}, problem.New(problem.Unauthenticated, "the token %s was revoked", publicID)
	case expired:
		return principal{}, problem.New(problem.Unauthenticated, "the token %s has expired", publicID)
	case len(sources) > 0 && !slices.ContainsFunc(sources, func(n netip.Prefix) bool { return n.Contains(from) }):
		return principal{}, problem.New(problem.Unauthenticated, "the token %s may not be used from %s", publicID, from)
	}
	if longAgo {
		// A note for people: that it cannot be written makes no caller less valid.
		if _, err := db.pool.Exec(ctx, sqlTokenUsed, id); err != nil {
			s.log.Warn("the use of a token cannot be noted", "token", publicID, "error", err)
		}
	}
	return p, nil
}

// remoteAddress is the peer of the connection. Headers that a proxy may add are
// not believed: a client could send them as well.
func remoteAddress(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap().WithZone("")
}

const (
	// maxLoginAddresses bounds the memory of the limiter.
	maxLoginAddresses = 10_000
	// maxKnownTokens bounds how many good tokens are remembered.
	maxKnownTokens = 1_000
)

// loginLimiter slows down whoever tries tokens. While an address is limited,
// tokens that were good before still pass: others may share its address.
type loginLimiter struct {
	perMinute int
	clock     func() time.Time

	mu       sync.Mutex
	failures map[netip.Addr]*failures
	known    map[[sha256.Size]byte]bool
}

type failures struct {
	since time.Time
	count int
}

func newLoginLimiter(perMinute int, clock func() time.Time) *loginLimiter {
	return &loginLimiter{perMinute: perMinute, clock: clock,
		failures: map[netip.Addr]*failures{}, known: map[[sha256.Size]byte]bool{}}
}

// network is what counts as one address: an IPv6 host has a whole /64.
func network(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

func (l *loginLimiter) admits(from netip.Addr, hash [sha256.Size]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failures[network(from)]
	return f == nil || l.over(f) || f.count < l.perMinute || l.known[hash]
}

// over tells whether the minute that the failures count in is over.
func (l *loginLimiter) over(f *failures) bool { return l.clock().Sub(f.since) >= time.Minute }

func (l *loginLimiter) failed(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = network(from)
	f := l.failures[from]
	if f == nil || l.over(f) {
		l.makeRoom()
		f = &failures{since: l.clock()}
		l.failures[from] = f
	}
	f.count++
}

// makeRoom forgets what is over, and something else when that is not enough.
func (l *loginLimiter) makeRoom() {
	if len(l.failures) < maxLoginAddresses {
		return
	}
	for from, f := range l.failures {
		if l.over(f) {
			delete(l.failures, from)
		}
	}
	for from := range l.failures {
		if len(l.failures) < maxLoginAddresses {
			return
		}
		delete(l.failures, from)
	}
}

func (l *loginLimiter) succeeded(hash [sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) >= maxKnownTokens && !l.known[hash] {
		clear(l.known)
	}
	l.known[hash] = true
}
