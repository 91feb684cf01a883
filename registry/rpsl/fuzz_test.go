package rpsl_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"

	"hubn/registry/rpsl"
	"hubn/registry/rpsl/rpsltest"
)

// FuzzImport reads, parses, plans and applies any text: objects must be right,
// refusals must have a reason, and the same import must then change nothing.
func FuzzImport(f *testing.F) {
	f.Add(network24 + route24 + anycast24)
	f.Add("inetnum: 192.0.2.1 - 192.0.2.8\ncidr: 192.0.2.1/32\n+ ,192.0.2.2/31\n\ndelete: x\nroute6: ::/0\norigin: AS0\n")
	f.Add("route: 0.0.0.0/0\r\nmax-length: 0\r\norigin: AS1\r\norigin: AS2\r\n\r\nroute: 0.0.0.0/0\r\norigin: AS1\r\ndelete:\r\n")
	f.Add("inet6num: ::fffe:0:0 - ::1:0:0:0\nnserver: bücher.example 2001:db8::1\nds-rdata: 1 8 1 ( 00 )\n")
	f.Add(rpsltest.Generate(1, 20).Text())
	f.Fuzz(func(t *testing.T, text string) {
		var tally rpsl.Tally
		var input rpsl.Input
		for raw, err := range rpsl.Read("fuzz", strings.NewReader(text), &tally) {
			if err != nil {
				continue // gzip that is none
			}
			if _, err := json.Marshal(raw); err != nil {
				t.Fatal(err)
			}
			object, err := rpsl.Parse(raw)
			var refusal *rpsl.Refusal
			if err != nil && (!errors.As(err, &refusal) || refusal.Reason == "" || refusal.Line < raw.Line || object != nil) {
				t.Fatalf("%+v is refused with %#v", raw, err)
			}
			if err == nil {
				checkObject(t, object)
			}
			input.Add(raw)
		}
		if len(input.Objects)+len(input.Refused) > tally.Objects {
			t.Fatalf("%d objects and %d refusals of %+v", len(input.Objects), len(input.Refused), tally)
		}
		for _, prune := range []bool{false, true} {
			options := rpsl.Options{Prune: prune}
			state := apply(t, rpsl.State{}, rpsl.PlanImport(rpsl.State{}, input, options))
			if again := rpsl.PlanImport(state, input, options); !again.Empty() {
				t.Fatalf("a second plan is not empty: %+v", again)
			}
		}
	})
}

// checkObject fails where a typed object breaks what its type promises.
func checkObject(t *testing.T, object rpsl.Object) {
	h := object.Head()
	if h.File != "fuzz" || h.Line == 0 || len(h.Attributes) == 0 || h.Attributes[0].Line != h.Line {
		t.Fatalf("header %+v", h)
	}
	switch o := object.(type) {
	case *rpsl.Network:
		var b netipx.IPSetBuilder
		for _, p := range o.CIDRs {
			checkPrefix(t, p)
			b.AddPrefix(p)
		}
		set, err := b.IPSet()
		if ranges := set.Ranges(); err != nil || len(ranges) != 1 || ranges[0].From() != o.First || ranges[0].To() != o.Last {
			t.Fatalf("%s - %s is split into %v", o.First, o.Last, o.CIDRs)
		}
		if len(o.NameServers) > 16 || len(o.DS) > 0 && len(o.NameServers) == 0 {
			t.Fatalf("network %+v", o)
		}
	case *rpsl.Route:
		checkPrefix(t, o.Prefix)
		if len(o.Origins) == 0 && !o.Delete {
			t.Fatalf("route %+v has no origin", o)
		}
		if m := o.MaxLength; m != nil && (*m < o.Prefix.Bits() || *m > o.Prefix.Addr().BitLen()) {
			t.Fatalf("route %s has max-length %d", o.Prefix, *m)
		}
	case *rpsl.AutNum:
		if o.Number == 0 {
			t.Fatal("AS 0 is taken")
		}
	}
}

func checkPrefix(t *testing.T, p netip.Prefix) {
	if p != p.Masked() || !p.IsValid() || p.Addr().Zone() != "" || p.Addr().Is4In6() && p.Bits() >= 96 {
		t.Fatalf("prefix %v is none", p)
	}
	if again, err := rpsl.ParsePrefix(p.String()); err != nil || again != p {
		t.Fatalf("prefix %s is read as %s: %v", p, again, err)
	}
}

// FuzzParsePrefix: what is taken is canonical and is read back the same.
func FuzzParsePrefix(f *testing.F) {
	for _, s := range []string{"192.0.2.0/24", "::/0", "2001:DB8::/32", "::ffff:0:0/96", "fe80::%1/64", "10/8", "1.2.3.4/24", "0.0.0.0/0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := rpsl.ParsePrefix(s); err == nil {
			checkPrefix(t, p)
		} else if err.Error() == "" {
			t.Fatalf("%q is refused without a reason", s)
		}
	})
}

// FuzzParseDS: what is taken has a digest of the length of its type.
func FuzzParseDS(f *testing.F) {
	f.Add("1 8 1 0123456789abcdef0123456789abcdef01234567")
	f.Add("1 8 2 ( 8E96D576D920F57AF8473CF2B55989C22578AAF3F63D47C860B89C71 6CEFF754 )")
	f.Fuzz(func(t *testing.T, s string) {
		ds, err := rpsl.ParseDS(s)
		if err != nil {
			return
		}
		want := map[uint8]int{1: 40, 2: 64, 3: 64, 4: 96, 5: 64, 6: 64}[ds.DigestType]
		if len(ds.Digest) != want || strings.Trim(ds.Digest, "0123456789abcdef") != "" || ds.Algorithm == 0 {
			t.Fatalf("%q is taken as %+v", s, ds)
		}
	})
}
