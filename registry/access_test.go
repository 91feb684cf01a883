package registry

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hubn/app/problem"
)

// wantAccess is the table of who may do what once more, written out by hand, one
// column for each of the roles in their order: a change of one of them alone fails.
// W is everywhere with the token's own role; with a grant of the role, G is inside
// of the grant, A is everywhere. A dot is never.
var wantAccess = map[permission][]string{
	//              admin  operator  authority  allocator  member  auditor  viewer  module
	readNouns:     {"W", "WA", "WA", "A", "A", "WA", "WA", "W"},
	readContacts:  {"W", "WG", ".", ".", "G", "WG", "WG", "W"},
	readHistory:   {"W", "WG", ".", ".", ".", "WG", ".", "."},
	writeNouns:    {"W", "WG", ".", ".", "G", ".", ".", "."},
	allocate:      {"W", "WG", ".", "G", "G", ".", ".", "."},
	releaseSpace:  {"W", "WG", ".", ".", ".", ".", ".", "."},
	certify:       {"W", "WG", "WG", ".", ".", ".", ".", "."},
	readPasswords: {".", ".", ".", ".", ".", ".", ".", "W"},
	readSources:   {"W", "W", ".", ".", ".", "W", "W", "W"},
	report:        {"W", ".", ".", ".", ".", ".", ".", "W"},
	readState:     {"W", "WA", "WA", "A", "A", "WA", "WA", "W"},
	wait:          {"W", "WA", "WA", "A", "A", "WA", "WA", "."},
	command:       {"W", "W", ".", ".", ".", ".", ".", "."},
	readCommands:  {"W", "W", ".", ".", ".", "W", "W", "W"},
	lease:         {"W", ".", ".", ".", ".", ".", ".", "W"},
	forgetModules: {"W", "W", ".", ".", ".", ".", ".", "."},
	importData:    {"W", "W", ".", ".", ".", ".", ".", "."},
	exportData:    {"W", "W", ".", ".", ".", "W", "W", "W"},
	readOutbox:    {"W", "W", ".", ".", ".", "W", "W", "."},
	operateOutbox: {"W", "W", ".", ".", ".", ".", ".", "."},
	readTokens:    {"W", ".", ".", ".", ".", "W", ".", "."},
	manageTokens:  {"W", ".", ".", ".", ".", ".", ".", "."},
}

func TestAccessTableCellByCell(t *testing.T) {
	for needs := range access {
		if _, known := wantAccess[needs]; !known {
			t.Errorf("the permission %q has no row in this test", needs)
		}
	}
	own := target{[]int64{7}, []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")}}
	foreign := target{[]int64{8}, []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")}}
	for needs, row := range wantAccess {
		if len(row) != len(roles) {
			t.Fatalf("%s: the row has %d cells, there are %d roles", needs, len(row), len(roles))
		}
		for i, want := range row {
			r := roles[i]
			whole := principal{Name: "someone", Roles: []role{r}}
			member := principal{Name: "someone", Grants: []grant{{Role: r, Organisation: 7}}}
			subtree := principal{Name: "someone", Grants: []grant{{Role: r, Prefix: netip.MustParsePrefix("10.7.0.0/16")}}}
			has := func(letters string) bool { return strings.ContainsAny(want, letters) }
			for _, c := range []struct {
				what      string
				got, want bool
			}{
				{"itself, everywhere", slices.Contains(wholeRoles, r) && whole.may(needs), has("W")},
				{"itself, foreign", slices.Contains(wholeRoles, r) && whole.mayOn(needs, foreign), has("W")},
				{"itself, at the door", slices.Contains(wholeRoles, r) && whole.allow(needs) == nil, has("W")},
				{"by a grant, everywhere", slices.Contains(grantRoles, r) && member.may(needs), has("A")},
				{"by a grant, own", slices.Contains(grantRoles, r) && member.mayOn(needs, own), has("GA")},
				{"by a grant, granted subtree", slices.Contains(grantRoles, r) && subtree.mayOn(needs, own), has("GA")},
				{"by a grant, foreign", slices.Contains(grantRoles, r) && member.mayOn(needs, foreign), has("A")},
				{"by a grant, foreign subtree", slices.Contains(grantRoles, r) && subtree.mayOn(needs, foreign), has("A")},
				{"by a grant, nobody's", slices.Contains(grantRoles, r) && member.mayOn(needs, target{}), has("A")},
				{"by a grant, at the door", slices.Contains(grantRoles, r) && member.allow(needs) == nil, has("GA")},
			} {
				if c.got != c.want {
					t.Errorf("%s may %s (%s): got %t, want %t", r, needs, c.what, c.got, c.want)
				}
			}
			if err := whole.allow(needs); err != nil && !problem.Is(err, problem.Forbidden) {
				t.Errorf("%s may %s: got %v", r, needs, err)
			}
		}
	}
}

func TestGrantCoversTarget(t *testing.T) {
	of := func(organisations []int64, prefixes ...string) target {
		var parsed []netip.Prefix
		for _, p := range prefixes {
			parsed = append(parsed, netip.MustParsePrefix(p))
		}
		return target{organisations, parsed}
	}
	organisation := grant{Role: roleMember, Organisation: 7}
	other := grant{Role: roleMember, Organisation: 8}
	subtree := grant{Role: roleMember, Prefix: netip.MustParsePrefix("10.0.0.0/8")}
	six := grant{Role: roleMember, Prefix: netip.MustParsePrefix("::/0")}
	for name, c := range map[string]struct {
		grants []grant
		target
		want bool
	}{
		"the organisation's own":                  {[]grant{organisation}, of([]int64{7}), true},
		"given away":                              {[]grant{organisation}, of([]int64{7, 8}), false},
		"from one to the other, granted both":     {[]grant{organisation, other}, of([]int64{7, 8}), true},
		"nobody's":                                {[]grant{organisation}, of([]int64{0}), false},
		"released to nobody":                      {[]grant{organisation}, of([]int64{7, 0}), false},
		"the subtree itself":                      {[]grant{subtree}, of([]int64{8}, "10.0.0.0/8"), true},
		"inside of the subtree, whoever holds":    {[]grant{subtree}, of([]int64{0, 8}, "10.9.0.0/24"), true},
		"around the subtree":                      {[]grant{subtree}, of([]int64{8}, "0.0.0.0/0"), false},
		"moved out of the subtree":                {[]grant{subtree}, of([]int64{8}, "10.9.0.0/24", "11.9.0.0/24"), false},
		"moved between subtrees":                  {[]grant{subtree, six}, of([]int64{8}, "10.9.0.0/24", "2001:db8::/32"), true},
		"the other family":                        {[]grant{six}, of([]int64{8}, "10.9.0.0/24"), false},
		"no space":                                {[]grant{subtree}, of([]int64{8}), false},
		"one holder granted, the space another's": {[]grant{organisation}, of([]int64{7, 8}, "10.9.0.0/24"), false},
	} {
		if got := (principal{Grants: c.grants}).mayOn(writeNouns, c.target); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestModuleSpeaksForItselfAlone(t *testing.T) {
	for name, c := range map[string]struct {
		principal
		module string
		want   bool
	}{
		"its own":          {principal{Roles: []role{roleModule}, Module: "dns"}, "dns", true},
		"another":          {principal{Roles: []role{roleModule}, Module: "dns"}, "roa", false},
		"admin":            {principal{Roles: []role{roleAdmin}}, "roa", true},
		"operator":         {principal{Roles: []role{roleOperator}}, "roa", false},
		"name but no role": {principal{Roles: []role{roleViewer}, Module: "roa"}, "roa", false},
		"no module":        {principal{Roles: []role{roleModule}}, "", true},
	} {
		if got := c.principal.mayActAs(c.module) == nil; got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestDatabaseRolesCannotReadAnothersSchema(t *testing.T) {
	h := newHarness(t)
	h.db.Exec(t, `DO $$ BEGIN CREATE ROLE hubn_stranger LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	for name, c := range map[string]struct{ role, sql string }{
		"a module's role and the nouns":       {"hubn_stranger", `SELECT FROM registry.prefix`},
		"a module's role and the schema":      {"hubn_stranger", `SELECT registry.lineage_current()`},
		"the worker and the nouns":            {"hubn_outbox", `SELECT FROM registry.prefix`},
		"the worker and the tokens":           {"hubn_outbox", `SELECT FROM registry.api_token`},
		"the worker and the change log":       {"hubn_outbox", `SELECT FROM registry.change_log`},
		"the worker inserts events":           {"hubn_outbox", `INSERT INTO registry.outbox_event (lane_id, seq, created_at, kind, payload) VALUES (1, 1, now(), 'x', '{}')`},
		"the Registry and the past":           {databaseRole, `DELETE FROM registry.change_log`},
		"the Registry inserts events":         {databaseRole, `INSERT INTO registry.outbox_event (lane_id, seq, created_at, kind, payload) VALUES (1, 1, now(), 'x', '{}')`},
		"the Registry raises a lane's number": {databaseRole, `UPDATE registry.outbox_lane SET last_seq = 9`},
		"the Registry writes a lineage":       {databaseRole, `INSERT INTO registry.lineage (reason, system_identifier, timeline, database_oid, table_oid) VALUES ('x', 1, 1, 1, 1)`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := h.db.Conn(t, c.role).Exec(context.Background(), c.sql); sqlState(err) != "42501" {
				t.Errorf("got %v, want SQLSTATE 42501 (insufficient privilege)", err)
			}
		})
	}
}
