package registry

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/problem"
)

func TestPrefixesAsPeopleTypeThem(t *testing.T) {
	for typed, want := range map[string]string{
		"192.0.2.0/24":        "192.0.2.0/24",
		" 192.0.2.0/24 ":      "192.0.2.0/24",
		"0.0.0.0/0":           "0.0.0.0/0",
		"::/0":                "::/0",
		"192.0.2.0/31":        "192.0.2.0/31",
		"192.0.2.1/32":        "192.0.2.1/32",
		"2001:db8::/127":      "2001:db8::/127",
		"2001:DB8:0::1/128":   "2001:db8::1/128",
		"2001:db8:0:0:1::/80": "2001:db8:0:0:1::/80",
	} {
		if got, err := parsePrefix(typed); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v; want %s", typed, got, err, want)
		}
	}
	for typed, part := range map[string]string{
		"":                        "empty",
		"192.0.2.1/24":            "the prefix is 192.0.2.0/24",
		"2001:db8::1/32":          "the prefix is 2001:db8::/32",
		"192.0.2.1":               "write 192.0.2.1/32",
		"2001:db8::1":             "write 2001:db8::1/128",
		"::ffff:192.0.2.0/120":    "write 192.0.2.0/24",
		"::ffff:192.0.2.77/120":   "write 192.0.2.0/24",
		"::ffff:192.0.2.1":        "has no prefix length",
		"fe80::%eth0/64":          "zone",
		"10/8":                    "not an IP address",
		"10.0.0/24":               "not an IP address",
		"192.0.2.0/33":            "0 to 32",
		"2001:db8::/129":          "0 to 128",
		"192.0.2.0/024":           "leading zeros",
		"192.0.2.0/+24":           "not a prefix length",
		"192.0.2.0/-1":            "not a prefix length",
		"192.0.2.0/":              "not a prefix length",
		"192.0.2.0/255.255.255.0": "not a prefix length",
		"192.000.002.000/24":      "not an IP address",
		"banana":                  "write for example",
	} {
		if got, err := parsePrefix(typed); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is %v, %v; want an error with %q", typed, got, err, part)
		}
	}
}

// badPrefixes are what a registry must never hold, each with what the API says of
// it and the constraint that refuses it from plain SQL.
func TestBadInputIsRefusedByTheAPIAndBySQL(t *testing.T) {
	h := newHarness(t)
	h.prefix("192.0.2.0/24")
	h.prefix("2001:db8::/32")
	prefix := func(p string, routing ...any) map[string]any {
		body := map[string]any{"prefix": p}
		if len(routing) > 0 {
			r := map[string]any{}
			for i := 0; i < len(routing); i += 2 {
				r[routing[i].(string)] = routing[i+1]
			}
			body["routing"] = r
		}
		return body
	}
	const (
		route   = `INSERT INTO registry.prefix (prefix, origin_asn, max_length) VALUES `
		anycast = `WITH a AS (INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/25', 'sql') RETURNING id, prefix)
			INSERT INTO registry.anycast_route_origin (allocation_id, prefix, asn, max_length) SELECT id, prefix, `
	)
	for name, c := range map[string]struct {
		path     string
		body     map[string]any
		kind     problem.Kind
		location string
		says     string
		sql      string
		code     string
	}{
		"host bits": {"/v1/prefixes", prefix("198.51.100.1/24"), problem.Invalid, "body.prefix", "198.51.100.0/24",
			`INSERT INTO registry.prefix (prefix) VALUES ('198.51.100.1/24')`, "22P02"},
		"mapped prefix": {"/v1/prefixes", prefix("::ffff:198.51.100.0/120"), problem.Invalid, "body.prefix", "198.51.100.0/24",
			`INSERT INTO registry.prefix (prefix) VALUES ('::ffff:198.51.100.0/120')`, "23514"},
		"same prefix twice": {"/v1/prefixes", prefix("192.0.2.0/24"), problem.Conflict, "body.prefix", "already",
			`INSERT INTO registry.prefix (prefix) VALUES ('192.0.2.0/24')`, "23505"},
		"overlap beside the parent": {"", nil, "", "", "",
			`INSERT INTO registry.prefix (prefix) VALUES ('192.0.0.0/16')`, "23P01"},
		"max_length below": {"/v1/prefixes", prefix("198.51.100.0/24", "origin", 64496, "max_length", 23), problem.Invalid,
			"body.routing.max_length", "24 to 32", route + `('198.51.100.0/24', 64496, 23)`, "23514"},
		"max_length above": {"/v1/prefixes", prefix("198.51.100.0/24", "origin", 64496, "max_length", 33), problem.Invalid,
			"body.routing.max_length", "24 to 32", route + `('198.51.100.0/24', 64496, 33)`, "23514"},
		"max_length above for IPv6": {"/v1/prefixes", prefix("2001:db9::/32", "origin", 64496, "max_length", 129), problem.Invalid,
			"body.routing.max_length", "", route + `('2001:db9::/32', 64496, 129)`, "23514"},
		"max_length without origin": {"/v1/prefixes", prefix("198.51.100.0/24", "max_length", 24), problem.Invalid,
			"body.routing.max_length", "origin", route + `('198.51.100.0/24', NULL, 24)`, "23514"},
		"announced without origin": {"/v1/prefixes", prefix("198.51.100.0/24", "announced", true), problem.Invalid, "body.routing.origin", "origin",
			`INSERT INTO registry.prefix (prefix, announced) VALUES ('198.51.100.0/24', true)`, "23514"},
		"origin too large": {"/v1/prefixes", prefix("198.51.100.0/24", "origin", 4294967296), problem.Invalid, "body.routing.origin", "AS number",
			route + `('198.51.100.0/24', 4294967296, NULL)`, "23514"},
		"delegated without name servers": {"/v1/prefixes", map[string]any{"prefix": "198.51.100.0/24", "reverse": map[string]any{"mode": "delegated"}},
			problem.Invalid, "body.reverse.name_servers", "needs name servers",
			`INSERT INTO registry.prefix (prefix, reverse_mode) VALUES ('198.51.100.0/24', 'delegated')`, "23514"},
		"digest of the wrong length": {"/v1/prefixes", map[string]any{"prefix": "198.51.100.0/24", "reverse": map[string]any{
			"ds": []any{map[string]any{"key_tag": 1, "algorithm": 8, "digest_type": 2, "digest": "abcd"}}}},
			problem.Invalid, "body.reverse.ds[0].digest", "64",
			`INSERT INTO registry.prefix (prefix, ds) VALUES ('198.51.100.0/24', '[{"key_tag":1,"algorithm":8,"digest_type":2,"digest":"abcd"}]')`, "23514"},
		"PTR of a prefix": {"/v1/ptr-records", map[string]any{"address": "192.0.2.0/24", "target": "a.example"}, problem.Invalid, "body.address", "one address",
			`INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.0/24', 'a.example')`, "23514"},
		"PTR of a mapped address": {"/v1/ptr-records", map[string]any{"address": "::ffff:192.0.2.1", "target": "a.example"}, problem.Invalid, "body.address", "192.0.2.1",
			`INSERT INTO registry.ptr_record (address, target) VALUES ('::ffff:192.0.2.1', 'a.example')`, "23503"},
		"PTR outside of all prefixes": {"/v1/ptr-records", map[string]any{"address": "203.0.113.1", "target": "a.example"}, problem.Conflict, "body.address", "",
			`INSERT INTO registry.ptr_record (address, target) VALUES ('203.0.113.1', 'a.example')`, "23503"},
		"PTR to no host name": {"/v1/ptr-records", map[string]any{"address": "192.0.2.1", "target": "a b"}, problem.Invalid, "body.target", "",
			`INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.1', 'a b')`, "23514"},
		"anycast outside of all prefixes": {"/v1/anycast", map[string]any{"prefix": "203.0.113.0/24", "service": "x"}, problem.Conflict, "body.prefix", "",
			`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('203.0.113.0/24', 'x')`, "23503"},
		"anycast max_length of the other family": {"/v1/anycast", map[string]any{"prefix": "192.0.2.0/25", "service": "x",
			"origins": []any{map[string]any{"asn": 1, "max_length": 48}}}, problem.Invalid, "body.origins[0].max_length", "25 to 32",
			anycast + `1, 48 FROM a`, "23514"},
		"AS0 as a holding": {"/v1/asns", map[string]any{"number": 0}, problem.Invalid, "body.number", "AS0",
			`INSERT INTO registry.asn (number) VALUES (0)`, "23514"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path != "" {
				h.post(c.path, c.body).wantProblem(c.kind).says(t, c.location, c.says)
			}
			_, err := h.db.Conn(t, "").Exec(t.Context(), c.sql)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != c.code {
				t.Errorf("plain SQL: got %v, want SQLSTATE %s", err, c.code)
			}
		})
	}
}

func TestSmallestAndLargestPrefixesAreTaken(t *testing.T) {
	h := newHarness(t)
	for _, p := range []string{"0.0.0.0/0", "::/0", "192.0.2.0/31", "192.0.2.0/32", "192.0.2.1/32", "2001:db8::/127", "2001:db8::/128", "2001:db8::1/128"} {
		h.prefix(p, map[string]any{"routing": map[string]any{"announced": true, "origin": 0}})
	}
	for _, p := range []string{"198.51.100.0/31", "198.51.100.1/32", "2001:db8:1::/127", "2001:db8:1::1/128"} {
		h.db.Exec(t, `INSERT INTO registry.prefix (prefix) VALUES ($1::text::cidr)`, p)
	}
	for _, p := range []string{"192.0.2.1%2F32", "198.51.100.1%2F32", "2001:db8:1::1%2F128"} {
		h.get("/v1/prefixes/" + p).want(http.StatusOK)
	}
	h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.1", "target": "a.example"}).want(http.StatusCreated)
}

func TestDigestTypesAreThoseOfImports(t *testing.T) {
	for digestType, digits := range map[int]int{1: 40, 2: 64, 3: 64, 4: 96, 5: 64, 6: 64, 0: 0, 7: 0} {
		var f faults
		(&dsInput{DigestType: digestType, Digest: strings.Repeat("ab", cmp.Or(digits, 64)/2)}).check(&f, "ds")
		if got, want := f.problem() == nil, digits > 0; got != want {
			t.Errorf("digest type %d is taken: %t, want %t", digestType, got, want)
		}
	}
}
