package mirror

import (
	"encoding/json"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hubn/outbox/event"
	"hubn/registry/client"
	"hubn/schema/schematest"
)

func TestConsumerTablesAreThoseOfTheLibrary(t *testing.T) {
	got, err := fs.ReadFile(Set.Files, "0001_consumer.sql")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(event.PostgresTables("mirror"), string(got)); diff != "" {
		t.Errorf("0001_consumer.sql differs from event.PostgresTables (-want +got):\n%s", diff)
	}
}

func TestEveryStatementFitsTheSchema(t *testing.T) {
	db := schematest.New(t)
	db.Migrate(t, Set)
	conn := db.Conn(t, "")
	if _, err := conn.Exec(t.Context(), `SET ROLE `+role); err != nil {
		t.Fatal(err)
	}
	for i, sql := range []string{sqlStored, sqlLock, sqlAdd, sqlDrop, sqlSweep, sqlOrigins} {
		if _, err := conn.Prepare(t.Context(), "", sql); err != nil {
			t.Errorf("statement %d: %v\n%s", i, err, sql)
		}
	}
}

func TestRoleSeesItsOwnSchemaAlone(t *testing.T) {
	db := schematest.New(t)
	db.Migrate(t, Set)
	conn := db.Conn(t, "")
	if _, err := conn.Exec(t.Context(), `SET ROLE `+role); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`SELECT FROM registry.prefix`, `SELECT FROM registry.outbox_event`, `DELETE FROM mirror.schema_version`} {
		if _, err := conn.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s as %s: got %v, want permission denied", sql, role, err)
		}
	}
}

func change(t testing.TB, kind client.Kind, key string, source any) event.Change {
	t.Helper()
	c := event.Change{Resource: client.Resource{Kind: kind, Key: key}, Version: 1}
	if source != nil {
		body, err := json.Marshal(source)
		if err != nil {
			t.Fatal(err)
		}
		c.Body = body
	}
	return c
}

func pointer[T any](v T) *T { return &v }

func TestStatedRouteOrigins(t *testing.T) {
	p := netip.MustParsePrefix("192.0.2.0/24")
	prefix := func(status string, r client.Routing) client.PrefixSource {
		return client.PrefixSource{Prefix: p, Status: status, Routing: r}
	}
	as := pointer(client.ASN(64496))
	cases := []struct {
		name   string
		kind   client.Kind
		source any
		want   []string
	}{
		{"announced", client.KindPrefix, prefix("active", client.Routing{Announced: true, Origin: as}), []string{"AS64496,192.0.2.0/24,24"}},
		{"with a maximum length", client.KindPrefix, prefix("active", client.Routing{Announced: true, Origin: as, MaxLength: pointer(28)}), []string{"AS64496,192.0.2.0/24,28"}},
		{"AS0", client.KindPrefix, prefix("active", client.Routing{Announced: true, Origin: pointer(client.ASN(0))}), []string{"AS0,192.0.2.0/24,24"}},
		{"not announced", client.KindPrefix, prefix("active", client.Routing{Origin: as}), nil},
		{"planned", client.KindPrefix, prefix("planned", client.Routing{Announced: true, Origin: as}), nil},
		{"retired", client.KindPrefix, prefix("retired", client.Routing{Announced: true, Origin: as}), nil},
		{"without an origin", client.KindPrefix, prefix("active", client.Routing{Announced: true}), nil},
		{"gone", client.KindPrefix, nil, nil},
		{"anycast", client.KindAnycast, client.AnycastSource{Prefix: p, Origins: []client.OriginSource{
			{ASN: 64496, Active: true}, {ASN: 64496, MaxLength: pointer(24), Active: true}, {ASN: 64497, Active: false}, {ASN: 64498, MaxLength: pointer(25), Active: true},
		}}, []string{"AS64496,192.0.2.0/24,24", "AS64498,192.0.2.0/24,25"}},
		{"anycast without origins", client.KindAnycast, client.AnycastSource{Prefix: p}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tuples, err := stated(change(t, c.kind, "1", c.source))
			var got []string
			for _, tuple := range tuples {
				got = append(got, tuple.String())
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
	if _, err := stated(event.Change{Resource: client.Resource{Kind: client.KindPrefix, Key: "1"}, Version: 1, Body: json.RawMessage(`[]`)}); err == nil {
		t.Error("a body that cannot be read stated something")
	}
	if _, err := stated(change(t, client.KindSession, "1", struct{}{})); err == nil {
		t.Error("a source of another kind stated something")
	}
}

// Whatever was stored and is stated: what is left after the difference is what
// is stated, nothing is added twice or dropped and added, and applying it again
// changes nothing.
func TestDifferenceLeadsToWhatIsStated(t *testing.T) {
	p := netip.MustParsePrefix("192.0.2.0/24")
	rapid.Check(t, func(t *rapid.T) {
		origins := rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 0, 6, rapid.ID[int])
		source := client.Resource{Kind: client.KindAnycast, Key: "1"}
		stored := map[need]bool{}
		var list []need
		for _, asn := range origins.Draw(t, "stored") {
			n := need{source, client.Tuple{ASN: client.ASN(asn), Prefix: p, MaxLength: 24}}
			stored[n] = true
			list = append(list, n)
		}
		body := client.AnycastSource{Prefix: p}
		want := map[need]bool{}
		for _, asn := range origins.Draw(t, "stated") {
			body.Origins = append(body.Origins, client.OriginSource{ASN: client.ASN(asn), Active: true})
			want[need{source, client.Tuple{ASN: client.ASN(asn), Prefix: p, MaxLength: 24}}] = true
		}
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		changes := []event.Change{{Resource: source, Version: 1, Body: raw}}
		d, err := compare(list, changes)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range d.add {
			if stored[n] {
				t.Fatalf("adds %v, which is there", n)
			}
			stored[n] = true
		}
		for _, n := range d.drop {
			if want[n] {
				t.Fatalf("drops %v, which is stated", n)
			}
			delete(stored, n)
		}
		if !cmp.Equal(stored, want, cmp.Comparer(func(a, b need) bool { return a == b })) {
			t.Fatalf("ends with %v, want %v", stored, want)
		}
		list = list[:0]
		for n := range stored {
			list = append(list, n)
		}
		if d, err = compare(list, changes); err != nil || len(d.add)+len(d.drop) > 0 {
			t.Fatalf("a second time it changes %+v (%v), want nothing", d, err)
		}
	})
}

func TestKeptNeedsAreNeitherDroppedNorAddedTwice(t *testing.T) {
	tuple := client.Tuple{ASN: 64496, Prefix: netip.MustParsePrefix("192.0.2.0/24"), MaxLength: 24}
	mine := need{client.Resource{Kind: client.KindPrefix, Key: "1"}, tuple}
	theirs := need{client.Resource{Kind: client.KindAnycast, Key: "1"}, tuple}
	got := withKept(difference{drop: []need{mine}}, []need{theirs})
	if !slices.Equal(got.add, []need{theirs}) || !slices.Equal(got.drop, []need{mine}) {
		t.Errorf("kept for another source: %+v, want it added in that one's name", got)
	}
	got = withKept(difference{drop: []need{mine}}, []need{mine})
	if len(got.add) != 0 || len(got.drop) != 0 {
		t.Errorf("kept for a newer version of the same source: %+v, want nothing to change", got)
	}
	got = withKept(difference{add: []need{theirs}, drop: []need{mine}}, []need{theirs})
	if !slices.Equal(got.add, []need{theirs}) {
		t.Errorf("added by the same batch already: %+v, want it once", got)
	}
}
