package registry

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/app/seal"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

// keys makes the keyring of a test's Registry.
func keys(t testing.TB, texts ...string) *seal.Keyring {
	t.Helper()
	ring, err := seal.Parse(strings.Join(texts, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

const sessionPassword = "correct-horse-42"

// sessionHarness is a Registry with a key, and the looking glass's token.
func sessionHarness(t testing.TB, ring *seal.Keyring) (h *harness, glass string) {
	t.Helper()
	glass = NewSecret()
	capturedLog.secrets(glass)
	h = newHarness(t, func(o *Options) {
		o.Seal = ring
		o.StaticTokens = append(o.StaticTokens, StaticToken{Token: glass, Name: "module:" + lookingGlass, Roles: []string{"module"}, Module: lookingGlass})
	})
	return h, glass
}

func TestBGPSessions(t *testing.T) {
	h, _ := sessionHarness(t, nil)
	made := h.post("/v1/sessions", map[string]any{"remote_asn": "AS64496", "remote_address": "2001:DB8::0:1"}).want(http.StatusCreated)
	b := as[client.Session](made)
	path := made.header.Get("Location")
	check(t, "as it is", fmt.Sprintf("%+v", b), fmt.Sprintf("%+v", client.Session{ID: b.ID, Collector: "default", RemoteASN: 64496, RemoteAddress: b.RemoteAddress,
		Families: []string{"ipv4-unicast", "ipv6-unicast"}, Wanted: "up", Revision: 1}))
	check(t, "address", b.RemoteAddress.String(), "2001:db8::1")
	check(t, "produced", made.header.Get(client.ProducedHeader), fmt.Sprintf("session:%d@1", b.ID))
	whole := map[string]any{"collector": "edge", "local_asn": 64500, "local_address": "192.0.2.1", "remote_asn": 64496, "remote_address": "192.0.2.2",
		"families": []string{"ipv4-unicast"}, "max_prefixes": 1000, "wanted": "down", "description": "Example upstream"}
	second := as[client.Session](h.post("/v1/sessions", whole).want(http.StatusCreated))
	check(t, "whole", fmt.Sprint(second.Collector, second.LocalASN, second.LocalAddress, second.Families, second.MaxPrefixes, second.Wanted, second.Description),
		"edgeAS64500 192.0.2.1 [ipv4-unicast] 1000downExample upstream")

	var source client.SessionSource
	h.sourceBody("session", second.ID, &source)
	check(t, "source", fmt.Sprintf("%+v", source), fmt.Sprintf("%+v", client.SessionSource{ID: second.ID, Collector: "edge", LocalASN: 64500, LocalAddress: second.LocalAddress, RemoteASN: 64496,
		RemoteAddress: second.RemoteAddress, Families: second.Families, MaxPrefixes: 1000, Wanted: "down"}))

	for name, c := range map[string]struct {
		change          map[string]any
		kind            problem.Kind
		location, tells string
	}{
		"taken":          {map[string]any{"local_address": nil, "remote_address": "192.0.2.2"}, problem.Conflict, "body.remote_address", "already"},
		"two families":   {map[string]any{"remote_address": "2001:db8::9"}, problem.Invalid, "body.local_address", "different families"},
		"with itself":    {map[string]any{"remote_address": "192.0.2.1"}, problem.Invalid, "body.local_address", "the two ends"},
		"AS0":            {map[string]any{"remote_asn": 0}, problem.Invalid, "body.remote_asn", "reserved"},
		"AS_TRANS":       {map[string]any{"local_asn": 23456}, problem.Invalid, "body.local_asn", "reserved"},
		"unspecified":    {map[string]any{"remote_address": "0.0.0.0"}, problem.Invalid, "body.remote_address", "no host"},
		"multicast":      {map[string]any{"remote_address": "224.0.0.5"}, problem.Invalid, "body.remote_address", "unicast"},
		"broadcast":      {map[string]any{"remote_address": "255.255.255.255"}, problem.Invalid, "body.remote_address", "unicast"},
		"link-local":     {map[string]any{"local_address": nil, "remote_address": "fe80::1"}, problem.Invalid, "body.remote_address", "one link"},
		"mapped":         {map[string]any{"remote_address": "::ffff:192.0.2.3"}, problem.Invalid, "body.remote_address", "192.0.2.3"},
		"a prefix":       {map[string]any{"remote_address": "192.0.2.0/24"}, problem.Invalid, "body.remote_address", "one address"},
		"twice":          {map[string]any{"remote_address": "192.0.2.3", "families": []string{"ipv4-unicast", "ipv4-unicast"}}, problem.Invalid, "body.families[1]", "twice"},
		"odd collector":  {map[string]any{"remote_address": "192.0.2.3", "collector": "a b"}, problem.Invalid, "body.collector", "letters"},
		"unknown family": {map[string]any{"remote_address": "192.0.2.3", "families": []string{"l2vpn-evpn"}}, problem.Invalid, "body.families[0]", "one of"},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{}
			for _, from := range []map[string]any{whole, c.change} {
				for k, v := range from {
					body[k] = v
					if v == nil {
						delete(body, k)
					}
				}
			}
			h.post("/v1/sessions", body).wantProblem(c.kind).says(t, c.location, c.tells)
		})
	}

	down := h.change(path, `{"wanted":"down","families":["ipv6-unicast"],"max_prefixes":5}`).want(200)
	check(t, "produced by a change", down.header.Get(client.ProducedHeader), fmt.Sprintf("session:%d@2", b.ID))
	quiet := h.change(path, `{"description":"for people"}`).want(200)
	check(t, "produced by what the world does not see", quiet.header.Get(client.ProducedHeader), "")
	reset := as[client.Session](h.change(path, `{"wanted":null,"families":null,"max_prefixes":null}`).want(200))
	check(t, "defaults", fmt.Sprint(reset.Wanted, reset.Families, reset.MaxPrefixes), "up[ipv4-unicast ipv6-unicast] 0")

	addresses := func(query string) (out []string) {
		for _, s := range as[client.Page[client.Session]](h.get("/v1/sessions?" + query).want(200)).Items {
			out = append(out, s.RemoteAddress.String())
		}
		return out
	}
	check(t, "all", addresses(""), []string{"2001:db8::1", "192.0.2.2"})
	check(t, "collector", addresses("collector=edge"), []string{"192.0.2.2"})
	check(t, "wanted", addresses("wanted=up&remote_asn=AS64496"), []string{"2001:db8::1"})
	check(t, "address", addresses("remote_address=2001:db8:0::1"), []string{"2001:db8::1"})
	check(t, "within", addresses("within=192.0.2.0/24"), []string{"192.0.2.2"})
	check(t, "text", addresses("text=UPSTREAM"), []string{"192.0.2.2"})
	next := as[client.Page[client.Session]](h.get("/v1/sessions?limit=1").want(200)).Next
	check(t, "next page", addresses("limit=1&after="+next), []string{"192.0.2.2"})

	// Without a key no password is taken, rather than kept open.
	h.change(path, `{"password":"secret"}`).wantProblem(problem.Unavailable)
	h.remove(path).want(http.StatusNoContent)
	h.get(path).wantProblem(problem.Deleted)
}

func passwordPath(id int64) string { return fmt.Sprintf("/v1/sessions/%d/password", id) }

func TestPasswordsAreSealedAndReadByTheLookingGlassAlone(t *testing.T) {
	h, glass := sessionHarness(t, keys(t, seal.NewKey()))
	body := map[string]any{"remote_asn": 64496, "remote_address": "192.0.2.1", "password": sessionPassword}
	made := h.post("/v1/sessions", body, idempotent("one")).want(http.StatusCreated)
	b := as[client.Session](made)
	path, secret := made.header.Get("Location"), passwordPath(b.ID)
	check(t, "password is set", b.PasswordSet, true)

	// The same request is the same, another password another one.
	check(t, "repeated", as[client.Session](h.post("/v1/sessions", body, idempotent("one")).want(http.StatusCreated)).ID, b.ID)
	body["password"] = "other"
	h.post("/v1/sessions", body, idempotent("one")).wantProblem(problem.Invalid)

	for name, who := range map[string]string{"admin": h.admin, "operator": h.operator, "viewer": h.viewer, "another module": h.module} {
		t.Run(name, func(t *testing.T) { h.get(secret, token(who)).wantProblem(problem.Forbidden) })
	}
	read := as[client.SessionPassword](h.get(secret, token(glass)).want(200))
	check(t, "password", read.Password, sessionPassword)
	check(t, "version", read.Version, int64(1))
	check(t, "resource", read.Resource.String(), fmt.Sprintf("session:%d", b.ID))

	// What leaves it alone leaves it alone; another one is a change, and so is none.
	for _, c := range []struct{ patch, produced, password string }{
		{`{"description":"x"}`, "", sessionPassword},
		{`{"password":"second one"}`, fmt.Sprintf("session:%d@2", b.ID), "second one"},
		{`{"password":"second one"}`, "", "second one"},
		{`{"password":null}`, fmt.Sprintf("session:%d@3", b.ID), ""},
		{`{"password":null}`, "", ""},
		{`{"password":"Größe 3","wanted":"down"}`, fmt.Sprintf("session:%d@4", b.ID), "Größe 3"},
	} {
		got := h.change(path, c.patch).want(200)
		check(t, c.patch, got.header.Get(client.ProducedHeader), c.produced)
		check(t, c.patch, as[client.SessionPassword](h.get(secret, token(glass)).want(200)).Password, c.password)
		check(t, c.patch, as[client.Session](got).PasswordSet, c.password != "")
	}
	for name, bad := range map[string]string{"empty": "", "long": strings.Repeat("long-secret", 8), "line": "line-secret\n"} {
		d := h.change(path, map[string]any{"password": bad})
		d.wantProblem(problem.Invalid).says(t, "body.password", map[string]string{"empty": "null for none", "long": "at most 80", "line": "end of a line"}[name])
		if bad != "" && bytes.Contains(d.body, []byte(bad[:8])) {
			t.Errorf("%s: the answer repeats the password: %s", name, d.body)
		}
	}

	h.remove(path).want(http.StatusNoContent)
	h.get(secret, token(glass)).wantProblem(problem.Deleted)
	h.get(passwordPath(99), token(glass)).wantProblem(problem.NotFound)
	h.nowhere(sessionPassword, "second one", "Größe 3")
}

// nowhere searches the log and what the database holds as text for secrets, in
// plain and as PostgreSQL writes bytes.
func (h *harness) nowhere(secrets ...string) {
	h.t.Helper()
	var text strings.Builder
	for _, table := range []string{"bgp_session", "change_log", "outbox_event", "idempotency_key"} {
		rows, err := h.db.Conn(h.t, databaseRole).Query(h.t.Context(), `SELECT to_jsonb(r)::text FROM registry.`+table+` r`)
		if err != nil {
			h.t.Fatal(err)
		}
		for rows.Next() {
			var row string
			if err := rows.Scan(&row); err != nil {
				h.t.Fatal(err)
			}
			text.WriteString(row + "\n")
		}
		if rows.Err() != nil {
			h.t.Fatal(rows.Err())
		}
	}
	if strings.Contains(text.String(), "password_sealed\": \"\\\\x01") && strings.Contains(text.String(), `"table_name": "bgp_session"`) {
		h.t.Error("the change log holds a sealed password")
	}
	for _, secret := range secrets {
		for what, in := range map[string]string{"the database": text.String(), "the log": h.log.String()} {
			if strings.Contains(in, secret) || strings.Contains(in, hex.EncodeToString([]byte(secret))) {
				h.t.Errorf("%q is in %s", secret, what)
			}
		}
	}
}

// TestPasswordsAreAnsweredOverTLSOrLoopbackAlone asks as if from elsewhere.
func TestPasswordsAreAnsweredOverTLSOrLoopbackAlone(t *testing.T) {
	h, glass := sessionHarness(t, keys(t, seal.NewKey()))
	b := as[client.Session](h.post("/v1/sessions", map[string]any{"remote_asn": 64496, "remote_address": "192.0.2.1", "password": sessionPassword}).want(http.StatusCreated))
	for name, c := range map[string]struct {
		url, remote string
		want        int
	}{
		"loopback":         {"http://registry.example.net", "127.0.0.1:4711", 200},
		"IPv6 loopback":    {"http://registry.example.net", "[::1]:4711", 200},
		"elsewhere":        {"http://registry.example.net", "192.0.2.9:4711", 403},
		"elsewhere by TLS": {"https://registry.example.net", "192.0.2.9:4711", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, c.url+passwordPath(b.ID), nil)
			r.RemoteAddr = c.remote
			r.Header.Set("Authorization", "Bearer "+glass)
			w := httptest.NewRecorder()
			h.registry.ServeHTTP(w, r)
			if w.Code != c.want || strings.Contains(w.Body.String(), sessionPassword) != (c.want == 200) {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, c.want)
			}
		})
	}
}

// TestKeysOfPasswordsAreChanged runs one Registry after the other on a database,
// with a new key, both, and the old one gone.
func TestKeysOfPasswordsAreChanged(t *testing.T) {
	first, second := seal.NewKey(), seal.NewKey()
	h, _ := sessionHarness(t, keys(t, first))
	b := as[client.Session](h.post("/v1/sessions", map[string]any{"remote_asn": 64496, "remote_address": "192.0.2.1", "password": sessionPassword}).want(http.StatusCreated))
	conn := h.db.Conn(t, databaseRole)
	sealed := func() string {
		var key string
		err := conn.QueryRow(t.Context(), `SELECT encode(substr(password_sealed, 2, 8), 'hex') FROM registry.bgp_session`).Scan(&key)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	check(t, "sealed with the first key", sealed(), keys(t, first).Current().String())

	another := onDatabase(t, h.db, keys(t, second))
	another.password(b.ID, problem.Unavailable)
	waitFor(t, "the Registry to say what it cannot open", func() bool {
		return strings.Contains(another.registry.Status().Reason, keys(t, first).Current().String())
	})
	both := onDatabase(t, h.db, keys(t, second, first))
	waitFor(t, "the password to be sealed with the new key", func() bool { return sealed() == keys(t, second).Current().String() })
	check(t, "opens with both", both.password(b.ID, "").Password, sessionPassword)
	after := onDatabase(t, h.db, keys(t, second)).password(b.ID, "")
	check(t, "opens with the new one", after.Password, sessionPassword)
	check(t, "version: sealing anew is no change", after.Version, int64(1))

	// A password that was moved to another session does not open there.
	h.db.Exec(t, `INSERT INTO registry.bgp_session (remote_asn, remote_address, password_sealed)
		SELECT 64497, '192.0.2.2', password_sealed FROM registry.bgp_session`)
	both.password(b.ID+1, problem.Unavailable)
}

// running is another Registry on the same database.
type running struct {
	t        testing.TB
	registry *Registry
	token    string
}

func onDatabase(t testing.TB, db *schematest.DB, ring *seal.Keyring) running {
	t.Helper()
	glass := NewSecret()
	capturedLog.secrets(glass)
	o := Options{Settings: DefaultSettings(), DatabaseURL: db.URL(databaseRole), Seal: ring,
		StaticTokens: []StaticToken{{Token: glass, Name: "module:" + lookingGlass, Roles: []string{"module"}, Module: lookingGlass}}}
	return running{t, run(t, o), glass}
}

// password reads a password, or the problem of kind that refuses it.
func (r running) password(id int64, kind problem.Kind) (out client.SessionPassword) {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, passwordPath(id), nil)
	req.RemoteAddr = "127.0.0.1:1"
	req.Header.Set("Authorization", "Bearer "+r.token)
	w := httptest.NewRecorder()
	r.registry.ServeHTTP(w, req)
	answer := &response{t: r.t, what: "GET " + passwordPath(id), status: w.Code, header: w.Result().Header, body: w.Body.Bytes()}
	if kind != "" {
		answer.wantProblem(kind)
		return out
	}
	return as[client.SessionPassword](answer.want(200))
}
