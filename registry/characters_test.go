package registry

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hubn/app/problem"
)

// TestTextThatIsNone: what is no text, or cannot be kept, is refused where it
// stands, wherever that is.
func TestTextThatIsNone(t *testing.T) {
	h := newHarness(t)
	h.post("/v1/organisations", map[string]any{"handle": "EXAMPLE"}).want(http.StatusCreated)
	for _, path := range []string{
		"/v1/organisations?text=%00", "/v1/organisations?text=%ff%fe", "/v1/organisations?text=a%ed%a0%80", "/v1/prefixes?text=%00",
		"/v1/resolve?q=%00", "/v1/outbox/lanes?agg=%00", "/v1/organisations/%00", "/v1/organisations/%ff%fe", "/v1/prefixes/a%00b",
		"/v1/organisations?%00=1",
	} {
		location := "path"
		if _, query, given := strings.Cut(path, "?"); given {
			name, _, _ := strings.Cut(query, "=")
			location = strings.TrimSuffix("query."+name, ".%00")
		}
		h.get(path).wantProblem(problem.Invalid).says(t, location, "NUL")
	}
	for _, name := range []string{`a\u0000b`, `\ud800`, `\udc00`, `\ud800\ud800`, `\ud800x`, `\uD83D\u0041`, "\xff\xfe", "\xed\xa0\x80"} {
		body := `{"handle":"X","name":"` + name + `"}`
		h.do(http.MethodPost, "/v1/organisations", body).wantProblem(problem.Invalid).says(t, "body", "NUL")
		h.do(http.MethodPatch, "/v1/organisations/EXAMPLE", `{"name":"`+name+`"}`, ifMatch(`"1"`)).wantProblem(problem.Invalid).says(t, "body", "NUL")
	}
	var kept struct{ Name string }
	body := `{"handle":"Y","name":"\ud83d\ude00 \\u0000 \\\\ud800 \u00e9 é \ufffd"}`
	h.do(http.MethodPost, "/v1/organisations", body).want(http.StatusCreated).decode(&kept)
	if want := `😀 \u0000 \\ud800 é é ` + "\ufffd"; kept.Name != want {
		t.Errorf("kept %q, want %q", kept.Name, want)
	}
}

// FuzzKeepable compares with what Go makes of the same text: it puts U+FFFD where
// there is none, and keeps NUL.
func FuzzKeepable(f *testing.F) {
	for _, seed := range []string{`"a"`, `"\ud800"`, `"\ud83d\ude00"`, `"\\ud800"`, `"\u0000"`, `"\\\u0000"`, `{"a\ud800":1}`, "\"\xff\"", `"\u00"`, `"\ufffd"`, `"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s string
		if json.Unmarshal(text, &s) != nil || strings.Contains(string(text), "\ufffd") || strings.Contains(strings.ToLower(string(text)), `\ufffd`) {
			_ = keepable(text) // it does not panic
			return
		}
		if want := !strings.ContainsAny(s, "\ufffd\x00"); keepable(text) != want {
			t.Errorf("keepable(%q) is %v; decoded it is %q", text, !want, s)
		}
	})
}

func TestImportedTextThatIsNone(t *testing.T) {
	h := newHarness(t)
	job := h.load("", "application/x-ndjson", `{"kind":"organisation","body":{"handle":"A"}}
{"kind":"organisation","body":{"handle":"B","name":"\ud800"}}
{"kind":"prefix","body":{"prefix":"192.0.2.0/24","name":"a\u0000b"}}
{"kind":"prefix","body":{"prefix":"198.51.100.0/24","name":"\ud83d\ude00"}}
`)
	var lines []int
	for _, e := range job.Errors {
		lines = append(lines, e.Line)
		if !strings.Contains(e.Reason, "NUL") {
			t.Errorf("line %d: %+v, want the characters named", e.Line, e)
		}
	}
	if !slices.Equal(lines, []int{2, 3}) {
		t.Errorf("refused are the lines %v, want 2 and 3: %+v", lines, job)
	}
}
