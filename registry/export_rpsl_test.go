package registry

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"hubn/registry/client"
	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

// importText imports RPSL over HTTP and answers the result.
func (h *harness) importText(query, text string) client.ImportResult {
	h.t.Helper()
	var texts []string
	for raw, err := range rpsl.Read("text.rpsl", strings.NewReader(text), new(rpsl.Tally)) {
		if err != nil {
			h.t.Fatal(err)
		}
		texts = append(texts, raw.Text)
	}
	var r client.ImportResult
	h.post("/v1/import/rpsl?"+query, lines(h.t, texts...), asNDJSON()).want(http.StatusOK).decode(&r)
	return r
}

func (h *harness) exportText(path string) string {
	h.t.Helper()
	return string(h.get(path).want(http.StatusOK).body)
}

// gives checks that a Registry's export changes nothing where it came from, and
// makes an empty Registry export the same.
func gives(t *testing.T, h *harness, query string) string {
	t.Helper()
	exported := h.exportText("/v1/export/rpsl")
	again := h.importText("prune=true&"+query, exported)
	if len(again.Refused) > 0 || again.Added+again.Changed+again.Deleted > 0 {
		t.Errorf("importing the export adds %d, changes %d, deletes %d, refuses %+v: %+v",
			again.Added, again.Changed, again.Deleted, again.Refused, again.Changes)
	}
	other := newHarness(t)
	other.importText(query, exported)
	if got := other.exportText("/v1/export/rpsl"); got != exported {
		t.Errorf("the export of a copy is another:\n%s\nwant:\n%s", got, exported)
	}
	return exported
}

func TestRPSLExportGivesTheSyntheticRegistryBack(t *testing.T) {
	h := newHarness(t)
	r := rpsltest.Generate(7, 1500)
	own := "own_nameserver=" + rpsltest.OwnNameServers
	h.importText(own, rpsltest.Text(r.Objects))
	exported := gives(t, h, own)
	// Object for object: each key that was imported, and no other.
	keys := func(text string) (all []string) {
		for raw, err := range rpsl.Read("text.rpsl", strings.NewReader(text), new(rpsl.Tally)) {
			if err != nil {
				t.Fatal(err)
			}
			object, err := rpsl.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			switch o := object.(type) {
			case *rpsl.Network:
				all = append(all, o.First.String()+"-"+o.Last.String())
			case *rpsl.Route:
				all = append(all, "route "+o.Prefix.String())
			case *rpsl.AutNum:
				all = append(all, o.Key)
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	want(t, "keys", keys(exported), keys(rpsltest.Text(r.Objects)))
}

func TestRPSLExportGivesTheRealRegistryBack(t *testing.T) {
	folder := os.Getenv("HUBN_REGISTRY_DATA")
	if folder == "" {
		t.Skip("HUBN_REGISTRY_DATA does not name the folder of the real registry")
	}
	var text strings.Builder
	for raw, err := range rpsl.Walk([]string{folder}, nil, new(rpsl.Tally)) {
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(raw.Text + "\n")
	}
	h := newHarness(t)
	const own = "own_nameserver=*.delegation-servers.dn42"
	h.importText(own, text.String())
	gives(t, h, own)
}

func TestRPSLExportOfWhatWasMadeByHand(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.OwnNameservers = []string{"ns1.hubn.example", "*.hubn.example"} })
	if got := h.exportText("/v1/export/rpsl"); got != "" {
		t.Errorf("an empty registry exports %q", got)
	}
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE-ORG"}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "192.0.2.0/24", "organisation": "EXAMPLE-ORG", "kind": "allocation",
		"routing": map[string]any{"announced": true, "origin": 64496}, "reverse": map[string]any{"mode": "hosted"}}).want(http.StatusCreated)
	h.post("/v1/prefixes", map[string]any{"prefix": "198.51.100.0/24", "status": "retired"}).want(http.StatusCreated)
	h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.0/25", "service": "dns", "origins": []any{map[string]any{"asn": 64497}}}).want(http.StatusCreated)
	want(t, "objects", h.exportText("/v1/export/rpsl"), `inetnum:            192.0.2.0 - 192.0.2.255
mnt-by:             EXAMPLE-ORG
status:             ALLOCATED PA
nserver:            ns1.hubn.example

route:              192.0.2.0/24
origin:             AS64496

`)
	h.get("/v1/export/rpsl", token("")).want(http.StatusUnauthorized)
}
