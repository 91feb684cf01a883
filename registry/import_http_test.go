package registry

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"hubn/app/problem"
	"hubn/registry/client"
)

// lines is objects as the body of an import.
func lines(t testing.TB, texts ...string) string {
	t.Helper()
	var b strings.Builder
	for i, text := range texts {
		line, err := json.Marshal(client.ImportObject{File: "test.rpsl", Line: 10 * i, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func asNDJSON() header { return header{"Content-Type", ndjson} }

func TestImportOverHTTPNamesWhatItCouldNotTake(t *testing.T) {
	h := newHarness(t)
	body := lines(t,
		"inetnum: 192.0.2.0 - 192.0.2.255\nnetname: DOC\n",
		"route: 192.0.2.1/24\norigin: AS64496\n",
		"inetnum: 198.51.100.0/24\nnserver: b.ns.example.net\n")
	var r client.ImportResult
	answer := h.post("/v1/import/rpsl?own_nameserver=*.ns.example.net&reason=first", body, asNDJSON()).want(http.StatusOK)
	if err := json.Unmarshal(answer.body, &r); err != nil {
		t.Fatal(err)
	}
	if r.Added != 2 || len(r.Refused) != 1 || r.Refused[0].Line != 10 || !strings.Contains(r.Refused[0].Reason, "192.0.2.0/24") {
		t.Errorf("got %s; want two prefixes, and the route refused with the prefix that was meant", answer.body)
	}
	if r.Lineage == "" || r.Lineage != answer.header.Get(client.LineageHeader) {
		t.Errorf("the body's lineage is %q, the header's %q", r.Lineage, answer.header.Get(client.LineageHeader))
	}
	var p client.Prefix
	if err := json.Unmarshal(h.get("/v1/prefixes/198.51.100.0%2F24").want(http.StatusOK).body, &p); err != nil {
		t.Fatal(err)
	}
	if p.Reverse.Mode != client.ReverseHosted {
		t.Errorf("with its name server named as HubN's own, the prefix is %s, not hosted", p.Reverse.Mode)
	}
}

func TestImportAnswersProgressWhereItIsAskedFor(t *testing.T) {
	h := newHarness(t)
	answer := h.post("/v1/import/rpsl", lines(t, "inetnum: 192.0.2.0/24\n"), asNDJSON(), header{"Accept", ndjson}).want(http.StatusOK)
	var stages []string
	var last client.ImportProgress
	for text := range strings.Lines(string(answer.body)) {
		last = client.ImportProgress{}
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		stages = append(stages, last.Stage)
	}
	if last.Result == nil || last.Result.Added != 1 {
		t.Errorf("the last line is %+v, not the result", last)
	}
	if len(stages) < 3 || stages[0] != "planning" || stages[1] != "writing" {
		t.Errorf("the stages were %q", stages)
	}
}

func TestImportIsRefused(t *testing.T) {
	h := newHarness(t)
	good := lines(t, "inetnum: 192.0.2.0/24\n")
	for _, c := range []struct {
		name, path, body string
		token            string
		status           int
		says             string
	}{
		{"a viewer", "", good, h.viewer, http.StatusForbidden, "operator"},
		{"a module", "", good, h.module, http.StatusForbidden, "operator"},
		{"no token", "", good, "", http.StatusUnauthorized, ""},
		{"a body that is not NDJSON", "", "inetnum: 192.0.2.0/24\n", h.operator, http.StatusBadRequest, "line 1"},
		{"an unknown member", "", `{"file": "x", "line": 1, "txt": ""}`, h.operator, http.StatusBadRequest, "txt"},
		{"a line without end", "", `{"text": "` + strings.Repeat("x", importLine), h.operator, http.StatusRequestEntityTooLarge, "longer than"},
		{"a bad pattern", "?own_nameserver=*.*.example", good, h.operator, http.StatusUnprocessableEntity, "own_nameserver"},
		{"an unknown parameter", "?prunes=true", good, h.operator, http.StatusUnprocessableEntity, "prunes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := h.do(http.MethodPost, "/v1/import/rpsl"+c.path, c.body, asNDJSON(), token(c.token))
			answer.t = t
			if answer.want(c.status); !strings.Contains(string(answer.body), c.says) {
				t.Errorf("the answer does not speak of %q: %s", c.says, answer.body)
			}
		})
	}
	if got := h.get("/v1/prefixes").want(http.StatusOK); !strings.Contains(string(got.body), `"items":[]`) {
		t.Errorf("a refused import left something: %s", got.body)
	}
}

func TestImportsBeyondTheBoundAreRefusedBeforeTheyAreRead(t *testing.T) {
	h := newHarness(t)
	ended := make(chan error, importsAtOnce)
	var bodies []*io.PipeWriter
	for range importsAtOnce {
		body, to := io.Pipe()
		bodies = append(bodies, to)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/v1/import/rpsl", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+h.admin)
		req.Header.Set("Content-Type", ndjson)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
			}
			ended <- err
		}()
	}
	waitFor(t, "the imports to begin", func() bool { return len(h.registry.service.importSlots) == importsAtOnce })
	h.post("/v1/import/rpsl", lines(t, "inetnum: 192.0.2.0/24\n"), asNDJSON()).wantProblem(problem.Conflict)
	for _, to := range bodies {
		_ = to.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	h.post("/v1/import/rpsl", lines(t, "inetnum: 192.0.2.0/24\n"), asNDJSON()).want(http.StatusOK)
}

func TestExportListsEachWantedRouteOriginOnce(t *testing.T) {
	h := newHarness(t)
	const csv = "/v1/export/vrps"
	if got := h.get(csv).want(http.StatusOK); len(got.body) != 0 {
		t.Errorf("an empty registry exports %q", got.body)
	}
	h.post("/v1/import/rpsl", lines(t,
		"route6: 2001:db8::/32\nmax-length: 48\norigin: AS64496\n",
		"route: 192.0.2.0/24\norigin: AS64497\norigin: AS64496\n",
		"route: 198.51.100.0/24\norigin: AS0\n",
		"inetnum: 203.0.113.0/24\n"), asNDJSON()).want(http.StatusOK)
	// The same tuple from a second source, one that is switched off, and one that
	// is planned only.
	h.db.Exec(t, `
		INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/24', 'twice');
		INSERT INTO registry.anycast_route_origin (allocation_id, asn, active)
		SELECT id, o.asn, o.active FROM registry.anycast_allocation, (VALUES (64496, true), (64499, false)) o (asn, active) WHERE service = 'twice';
		UPDATE registry.prefix SET announced = true, origin_asn = 64500, status = 'planned' WHERE prefix = '203.0.113.0/24'`)
	want := "AS64496,192.0.2.0/24,24\nAS64497,192.0.2.0/24,24\nAS0,198.51.100.0/24,24\nAS64496,2001:db8::/32,48\n"
	if got := h.get(csv, token(h.viewer)).want(http.StatusOK); string(got.body) != want {
		t.Errorf("CSV:\n%swant:\n%s", got.body, want)
	}
	var doc struct {
		ROAs []exportedVRP `json:"roas"`
	}
	if err := json.Unmarshal(h.get(csv+"?format=json").want(http.StatusOK).body, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.ROAs) != 4 || doc.ROAs[3] != (exportedVRP{"AS64496", "2001:db8::/32", 48}) {
		t.Errorf("JSON: %+v", doc.ROAs)
	}
	h.get(csv + "?format=xml").want(http.StatusUnprocessableEntity)
}
