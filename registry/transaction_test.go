package registry

import (
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

type object = map[string]any

func changes(all ...object) object { return object{"changes": all} }

func TestTransactionMakesAllOfItsChangesInOrder(t *testing.T) {
	h := newHarness(t)
	r := h.post("/v1/transactions?reason=move", changes(
		object{"op": "create", "kind": "organisation", "as": "org", "body": object{"handle": "NEW-ORG"}},
		object{"op": "create", "kind": "prefix", "as": "outer", "body": object{"prefix": "192.0.2.0/24", "organisation_id": object{"$ref": "org"}}},
		object{"op": "create", "kind": "prefix", "body": object{"prefix": "192.0.2.0/25", "organisation": "NEW-ORG"}},
		object{"op": "change", "kind": "prefix", "ref": "outer", "body": object{"name": "outer", "routing": object{"announced": true, "origin": 64496}}},
		object{"op": "change", "kind": "prefix", "ref": "outer", "body": object{"kind": "allocation"}},
		object{"op": "create", "kind": "ptr", "as": "gone", "body": object{"address": "192.0.2.1", "target": "a.example"}},
		object{"op": "delete", "kind": "ptr", "ref": "gone"},
		object{"op": "create", "kind": "asn", "body": object{"number": "AS64496"}},
		object{"op": "create", "kind": "anycast", "body": object{"prefix": "192.0.2.128/25", "service": "dns", "origins": []any{object{"asn": 64497}}}},
	)).want(http.StatusOK)
	var result client.TransactionResult
	r.decode(&result)
	if len(result.Results) != 9 || result.Results[1].Key != result.Results[3].Key || result.Results[7].Key != "64496" {
		t.Fatalf("results: %s", r.body)
	}
	last, _ := result.Results[4].Body.(map[string]any)
	if last["name"] != "outer" || last["kind"] != "allocation" || last["organisation"] != "NEW-ORG" {
		t.Errorf("the prefix is %v", last)
	}
	if got := h.get(result.Results[1].Location).want(http.StatusOK).header.Get("ETag"); got != result.Results[4].ETag {
		t.Errorf("the ETag is %s, the result's %s", got, result.Results[4].ETag)
	}
	produced := r.header.Get(client.ProducedHeader)
	for _, kind := range []string{"organisation:", "prefix:", "asn:64496@1", "anycast:", "ptr:192.0.2.1@"} {
		if !strings.Contains(produced, kind) {
			t.Errorf("%s names no %s", produced, kind)
		}
	}
}

func TestTransactionChangesNothingWhenOneOfItsChangesIsRefused(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/prefixes", object{"prefix": "198.51.100.0/24"}).want(http.StatusCreated)
	good := object{"op": "create", "kind": "prefix", "body": object{"prefix": "192.0.2.0/24"}}
	for _, c := range []struct {
		name    string
		kind    problem.Kind
		at      string
		changes []object
	}{
		{"what is there already", problem.Conflict, "body.changes[1].body.prefix", []object{good, good}},
		{"a change without an ETag", problem.PreconditionRequired, "", []object{good, {"op": "change", "kind": "prefix", "key": "198.51.100.0/24", "body": object{"name": "x"}}}},
		{"a stale ETag", problem.Stale, "", []object{good, {"op": "delete", "kind": "prefix", "key": "198.51.100.0/24", "if_match": `"99"`}}},
		{"what is not there", problem.NotFound, "", []object{good, {"op": "delete", "kind": "organisation", "key": "NOBODY", "if_match": `"1"`}}},
		{"bodies that are wrong", problem.Invalid, "body.changes[2].body.nmae", []object{good, {"op": "create", "kind": "prefix", "body": object{"prefix": "192.0.2.1/24"}},
			{"op": "create", "kind": "organisation", "body": object{"handle": "A", "nmae": "x"}}}},
		{"a name that nothing has", problem.Invalid, "body.changes[1].body", []object{good, {"op": "create", "kind": "prefix", "body": object{"prefix": "10.0.0.0/8", "organisation_id": object{"$ref": "x"}}}}},
		{"a kind that is none", problem.Invalid, "body.changes[0].kind", []object{{"op": "create", "kind": "poem"}}},
		{"a name twice", problem.Invalid, "body.changes[1].as", []object{{"op": "create", "kind": "organisation", "as": "x", "body": object{"handle": "A"}},
			{"op": "create", "kind": "organisation", "as": "x", "body": object{"handle": "B"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := h.post("/v1/transactions", changes(c.changes...), token(h.operator))
			r.t = t
			d := r.wantProblem(c.kind)
			if c.at != "" {
				d.says(t, c.at, "")
			}
		})
	}
	h.post("/v1/transactions", changes(good), token(h.viewer)).wantProblem(problem.Forbidden)
	if got := h.exportText("/v1/export/csv?kind=prefix"); strings.Contains(got, "192.0.2.0") {
		t.Errorf("a refused transaction wrote something:\n%s", got)
	}
	h.post("/v1/transactions?dry_run=true", changes(good)).want(http.StatusOK)
	var first, again client.TransactionResult
	h.post("/v1/transactions", changes(good), idempotent("t")).want(http.StatusOK).decode(&first)
	h.post("/v1/transactions", changes(good), idempotent("t")).want(http.StatusOK).decode(&again)
	want(t, "the answer to the repeated transaction", again, first)
}
