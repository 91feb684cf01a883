package registry

import (
	"context"
	"slices"
	"strings"
	"testing"

	"hubn/app/problem"
)

// wantAccess is the table of who may do what once more, written out by hand: a
// change of one of them alone fails.
var wantAccess = map[permission]map[role]bool{
	readNouns:     {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: true},
	writeNouns:    {roleAdmin: true, roleOperator: true, roleViewer: false, roleModule: false},
	readSources:   {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: true},
	report:        {roleAdmin: true, roleOperator: false, roleViewer: false, roleModule: true},
	readState:     {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: true},
	wait:          {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: false},
	command:       {roleAdmin: true, roleOperator: true, roleViewer: false, roleModule: false},
	readCommands:  {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: true},
	lease:         {roleAdmin: true, roleOperator: false, roleViewer: false, roleModule: true},
	forgetModules: {roleAdmin: true, roleOperator: true, roleViewer: false, roleModule: false},
	importData:    {roleAdmin: true, roleOperator: true, roleViewer: false, roleModule: false},
	exportData:    {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: true},
	readOutbox:    {roleAdmin: true, roleOperator: true, roleViewer: true, roleModule: false},
	operateOutbox: {roleAdmin: true, roleOperator: true, roleViewer: false, roleModule: false},
	manageTokens:  {roleAdmin: true, roleOperator: false, roleViewer: false, roleModule: false},
}

func TestAccessTableCellByCell(t *testing.T) {
	for needs := range access {
		if _, known := wantAccess[needs]; !known {
			t.Errorf("the permission %q has no row in this test", needs)
		}
	}
	for needs, row := range wantAccess {
		if len(row) != len(roles) {
			t.Errorf("%s: the row has %d cells, there are %d roles", needs, len(row), len(roles))
		}
		for r, want := range row {
			p := principal{Name: "someone", Roles: []role{r}}
			if got := p.may(needs); got != want {
				t.Errorf("%s may %s: got %t, want %t", r, needs, got, want)
			}
			if err := p.allow(needs); (err == nil) != want || err != nil && !problem.Is(err, problem.Forbidden) {
				t.Errorf("%s may %s: got %v", r, needs, err)
			}
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

// TestEveryOperationRefusesWhoMayNot asks every operation of the API with every
// role, and without a token.
func TestEveryOperationRefusesWhoMayNot(t *testing.T) {
	h := newHarness(t)
	tokens := map[role]string{roleAdmin: h.admin, roleOperator: h.operator, roleViewer: h.viewer, roleModule: h.module}
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		} `json:"paths"`
	}
	h.get("/openapi.json").want(200).decode(&document)
	asked := 0
	for path, methods := range document.Paths {
		for method, op := range methods {
			needs, ok := h.registry.service.needs[op.OperationID]
			if !ok {
				t.Errorf("%s %s is in the document and not in the table of operations", method, path)
				continue
			}
			h.do(strings.ToUpper(method), path, nil, token("")).wantProblem(problem.Unauthenticated)
			for r, secret := range tokens {
				if slices.Contains(access[needs], r) {
					continue
				}
				asked++
				h.do(strings.ToUpper(method), path, nil, token(secret)).wantProblem(problem.Forbidden)
			}
		}
	}
	if asked < 20 {
		t.Errorf("only %d refusals were asked for", asked)
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
