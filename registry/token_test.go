package registry

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/problem"
	"hubn/registry/client"
)

func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// newToken makes a token over the API and has its secret watched for in the log.
func (h *harness) newToken(body map[string]any) client.NewToken {
	h.t.Helper()
	made := as[client.NewToken](h.post("/v1/tokens", body).want(http.StatusCreated))
	h.log.secrets(made.Secret)
	return made
}

func TestTokenFromCreationToRevocation(t *testing.T) {
	h := newHarness(t)
	made := h.newToken(map[string]any{"name": "alice", "roles": []string{"operator"}})
	if !strings.HasPrefix(made.Secret, tokenPrefix+made.PublicID) || len(made.Secret) != tokenLength {
		t.Errorf("the token %q does not begin with its public id %q", made.Secret, made.PublicID)
	}
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}, token(made.Secret)).want(http.StatusCreated)
	var actor, tokenID string
	const last = `SELECT actor, token FROM registry.change_log ORDER BY id DESC LIMIT 1`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), last).Scan(&actor, &tokenID); err != nil {
		t.Fatal(err)
	}
	check(t, "actor", actor, "alice")
	check(t, "token", tokenID, made.PublicID)

	listed := h.get("/v1/tokens").want(200)
	if strings.Contains(string(listed.body), made.Secret[len(tokenPrefix)+publicIDLength:]) {
		t.Error("the list shows the secret")
	}
	items := as[client.Page[client.Token]](listed).Items
	if len(items) != 1 || items[0].Name != "alice" || items[0].LastUsedAt.IsZero() {
		t.Errorf("the list is %+v", items)
	}
	h.do(http.MethodDelete, fmt.Sprintf("/v1/tokens/%d", made.ID), nil).want(http.StatusNoContent)
	h.get("/v1/organisations", token(made.Secret)).wantProblem(problem.Unauthenticated)
	h.do(http.MethodDelete, fmt.Sprintf("/v1/tokens/%d", made.ID), nil).want(http.StatusNoContent)
	h.do(http.MethodDelete, "/v1/tokens/999", nil).wantProblem(problem.NotFound)
}

func TestLastUsedIsWrittenOnceAMinute(t *testing.T) {
	h := newHarness(t)
	made := h.newToken(map[string]any{"name": "alice", "roles": []string{"viewer"}})
	used := func() (at time.Time) {
		t.Helper()
		h.get("/v1/organisations", token(made.Secret)).want(200)
		if err := h.db.Conn(t, "").QueryRow(t.Context(), `SELECT last_used_at FROM registry.api_token`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	first := used()
	check(t, "last used, the same minute", used().Equal(first), true)
	h.db.Exec(t, `UPDATE registry.api_token SET last_used_at = last_used_at - interval '61 seconds'`)
	check(t, "last used, a minute later", used().After(first), true)
}

func TestAUseThatCannotBeNotedRefusesNobody(t *testing.T) {
	h := newHarness(t)
	made := h.newToken(map[string]any{"name": "alice", "roles": []string{"viewer"}})
	h.db.Exec(t, `REVOKE UPDATE ON registry.api_token FROM hubn_registry`)
	h.get("/v1/organisations", token(made.Secret)).want(200)
	if !strings.Contains(h.log.String(), "the use of a token cannot be noted") {
		t.Error("the log does not say that the use could not be noted")
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Settings.LoginFailuresPerMinute = 1000 })
	good := h.newToken(map[string]any{"name": "good", "roles": []string{"viewer"}})
	expired := h.newToken(map[string]any{"name": "expired", "roles": []string{"viewer"}, "expires_at": time.Now().Add(-time.Second)})
	elsewhere := h.newToken(map[string]any{"name": "elsewhere", "roles": []string{"viewer"}, "source_cidrs": []string{"192.0.2.0/24", "2001:db8::1"}})
	here := h.newToken(map[string]any{"name": "here", "roles": []string{"viewer"}, "source_cidrs": []string{"127.0.0.0/8", "::1"}})
	other, _ := newSecret()
	h.log.secrets(other)
	// The secret of one token under the public id of another, with a right checksum.
	mixedBody := good.Secret[:len(tokenPrefix)+publicIDLength] + other[len(tokenPrefix)+publicIDLength:tokenLength-checksumLength]
	mixed := mixedBody + checksum(mixedBody)

	h.get("/v1/organisations", token(good.Secret)).want(200)
	h.get("/v1/organisations", token(here.Secret)).want(200)
	for name, secret := range map[string]string{
		"none": "", "expired": expired.Secret, "from elsewhere": elsewhere.Secret, "unknown": other, "another's secret": mixed,
		"mistyped": good.Secret[:tokenLength-1] + "_", "cut": good.Secret[:40], "nonsense": "hubn_secret", "basic": "YWxpY2U6c2VjcmV0",
		"upper case": strings.ToUpper(good.Secret),
	} {
		t.Run(name, func(t *testing.T) {
			r := h.get("/v1/organisations", token(secret))
			r.wantProblem(problem.Unauthenticated)
			if r.header.Get("WWW-Authenticate") == "" {
				t.Error("the answer has no WWW-Authenticate")
			}
			if secret != "" && strings.Contains(string(r.body), secret) {
				t.Error("the answer repeats the token")
			}
		})
	}
	// In a URL a token is worth nothing, and does not get into the log.
	h.get("/v1/organisations?access_token="+good.Secret, token("")).wantProblem(problem.Unauthenticated)
	// Not even beside a good one: whoever sent it should learn that it is burnt.
	h.get("/v1/organisations?token=" + good.Secret).wantProblem(problem.Unauthenticated)
	h.get("/v1/organisations?text=%68ubn_" + good.Secret[len(tokenPrefix):]).wantProblem(problem.Unauthenticated)
	h.get("/v1/" + good.Secret).wantProblem(problem.Unauthenticated)
	h.get("/v1/organisations", header{"X-Request-Id", good.Secret[:64]}).want(200)
}

func TestModuleTokenWritesNoNoun(t *testing.T) {
	h := newHarness(t)
	made := h.newToken(map[string]any{"name": "dns", "roles": []string{"module"}, "module": "dns"})
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}, token(made.Secret)).wantProblem(problem.Forbidden)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24"}, token(h.module)).wantProblem(problem.Forbidden)
	h.get("/v1/prefixes", token(made.Secret)).want(200)
	for name, body := range map[string]map[string]any{
		"no module":        {"name": "x", "roles": []string{"module"}},
		"no role module":   {"name": "x", "roles": []string{"viewer"}, "module": "dns"},
		"unknown role":     {"name": "x", "roles": []string{"king"}},
		"no role":          {"name": "x", "roles": []string{}},
		"source with bits": {"name": "x", "roles": []string{"viewer"}, "source_cidrs": []string{"192.0.2.1/24"}},
	} {
		t.Run(name, func(t *testing.T) { h.post("/v1/tokens", body).wantProblem(problem.Invalid) })
	}
}

func TestGuessingIsSlow(t *testing.T) {
	var now time.Time
	h := newHarness(t, func(o *Options) {
		now = time.Now()
		o.Clock = func() time.Time { return now }
		o.Settings.LoginFailuresPerMinute = 5
	})
	good := h.newToken(map[string]any{"name": "good", "roles": []string{"viewer"}})
	unused := h.newToken(map[string]any{"name": "unused", "roles": []string{"viewer"}})
	h.get("/v1/organisations", token(good.Secret)).want(200)
	guess := func() *response {
		secret := NewSecret()
		h.log.secrets(secret)
		return h.get("/v1/organisations", token(secret))
	}
	for range 5 {
		guess().wantProblem(problem.Unauthenticated)
	}
	if r := guess(); r.header.Get("Retry-After") == "" {
		t.Error("the answer does not say when to come back")
	} else {
		r.wantProblem(problem.RateLimited)
	}
	h.get("/v1/organisations", token(unused.Secret)).wantProblem(problem.RateLimited)
	// Others behind the same address go on working.
	h.get("/v1/organisations", token(good.Secret)).want(200)
	h.get("/v1/organisations").want(200)
	now = now.Add(time.Minute)
	h.get("/v1/organisations", token(unused.Secret)).want(200)
	guess().wantProblem(problem.Unauthenticated)
}

func TestSecretsHaveTheirForm(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		secret, publicID := newSecret()
		got, _, err := parseSecret(secret)
		if err != nil || got != publicID || seen[secret] {
			t.Fatalf("%q: public id %q, %v; want %q", secret, got, err, publicID)
		}
		seen[secret] = true
		for i := range secret {
			broken := secret[:i] + "0" + secret[i+1:]
			if _, _, err := parseSecret(broken); err == nil {
				t.Fatalf("a token with a changed character %d is taken", i)
			} else if strings.Contains(err.Error(), broken[10:]) {
				t.Fatal("the error repeats the token")
			}
		}
	}
}
