package registry

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func FuzzPrefix(f *testing.F) {
	for _, seed := range []string{"192.0.2.0/24", "2001:db8::/32", "::ffff:1.2.3.0/120", "fe80::%1/64", "1.2.3.4", "/", "0/0", " ::/0 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePrefix(text)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("%q is refused without a reason", text)
			}
			return
		}
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			t.Errorf("%q is taken as %v", text, p)
		}
		if again, err := parsePrefix(p.String()); err != nil || again != p {
			t.Errorf("%q is %v, which is %v, %v", text, p, again, err)
		}
	})
}

func FuzzHostName(f *testing.F) {
	for _, seed := range []string{"host.example.", "bücher.example", "xn--bcher-kva.example", "_sip._tcp.example", "a..b", "-", "例え。テスト", "\u00ad", "0\x85"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := parseHostName(text)
		if err != nil {
			return
		}
		if len(name) > 253 || name != strings.ToLower(name) || strings.HasSuffix(name, ".") {
			t.Errorf("%q is taken as %q", text, name)
		}
		if again, err := parseHostName(name); err != nil || again != name {
			t.Errorf("%q is %q, which is %q, %v", text, name, again, err)
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add(cursor("prefixes", netip.MustParsePrefix("192.0.2.0/24")))
	f.Add("")
	f.Add("W10")
	f.Fuzz(func(t *testing.T, after string) {
		var p netip.Prefix
		_, _ = PageParams{After: after}.decode("prefixes", &p) // any text is refused or read
	})
}

func FuzzSecret(f *testing.F) {
	f.Add(NewSecret())
	f.Add("hubn_")
	f.Fuzz(func(t *testing.T, text string) {
		if publicID, _, err := parseSecret(text); err == nil && !strings.HasPrefix(text, tokenPrefix+publicID) {
			t.Errorf("%q has the public id %q", text, publicID)
		}
	})
}

// jsonObject generates a JSON object without nulls.
func jsonObject(depth int) *rapid.Generator[map[string]any] {
	leaf := rapid.OneOf(
		rapid.Map(rapid.StringMatching(`[a-z]{0,3}`), func(s string) any { return s }),
		rapid.Map(rapid.Float64Range(-9, 9), func(n float64) any { return n }),
		rapid.Just[any](true),
		rapid.Just[any]([]any{"x"}),
	)
	value := leaf
	if depth > 0 {
		value = rapid.OneOf(leaf, rapid.Map(rapid.Deferred(func() *rapid.Generator[map[string]any] { return jsonObject(depth - 1) }),
			func(m map[string]any) any { return m }))
	}
	return rapid.MapOfN(rapid.StringMatching(`[a-d]`), value, 0, 4)
}

func copied(m map[string]any) (out map[string]any) {
	text, _ := json.Marshal(m)
	_ = json.Unmarshal(text, &out)
	return out
}

func TestMergePatchLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target, patch := jsonObject(2).Draw(t, "target"), jsonObject(2).Draw(t, "patch")
		once := merge(copied(target), patch)
		if twice := merge(copied(once.(map[string]any)), patch); !reflect.DeepEqual(once, twice) {
			t.Fatalf("applied twice it is %v, once %v", twice, once)
		}
		if same := merge(copied(target), map[string]any{}); !reflect.DeepEqual(same, any(target)) {
			t.Fatalf("an empty patch makes %v of %v", same, target)
		}
		removal := map[string]any{}
		for name := range target {
			removal[name] = nil
		}
		if empty := merge(copied(target), removal); len(empty.(map[string]any)) != 0 {
			t.Fatalf("removing every member leaves %v", empty)
		}
	})
}

// TestMergePatchExamples are those of RFC 7396 appendix A with objects.
func TestMergePatchExamples(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		var target, patch, want any
		for i, into := range []*any{&target, &patch, &want} {
			if err := json.Unmarshal([]byte(c[i]), into); err != nil {
				t.Fatal(err)
			}
		}
		check(t, c[0]+" merged with "+c[1], merge(target, patch), want)
	}
}
