package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"hubn/app/problem"
	"hubn/registry/client"
)

func testShell() *shell {
	return &shell{Wiring{Usage: func(err error) error { return err }, Said: errors.New("said")}}
}

func TestEveryCommandIsDocumentedAndRefusesUnknownWords(t *testing.T) {
	wrong := errors.New("wrong use")
	// These are named by the one format that they write.
	formats := []string{" export csv", " export ndjson", " export rpsl"}
	named := func(path string) bool {
		return slices.ContainsFunc(formats, func(format string) bool { return strings.HasSuffix(" "+path, format) })
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: its short help is %q; want a phrase without a full stop", cmd.CommandPath(), cmd.Short)
		}
		if cmd.HasSubCommands() {
			if err := cmd.Args(cmd, []string{"frob"}); !errors.Is(err, wrong) || !strings.Contains(err.Error(), "frob") {
				t.Errorf("%s frob: %v; want wrong use that names it", cmd.CommandPath(), err)
			}
		} else if cmd.Flags().Lookup("output") == nil && cmd.Flags().Lookup("format") == nil && !named(cmd.CommandPath()) {
			t.Errorf("%s has neither --output nor --format", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	for _, cmd := range Commands(Wiring{Usage: func(err error) error { return errors.Join(wrong, err) }}) {
		visit(cmd)
	}
}

func TestBodyOfFlags(t *testing.T) {
	for _, c := range []struct {
		name     string
		args     []string
		creating bool
		want     map[string]any
		fails    string
	}{
		{"an origin is announced", []string{"--origin", "AS64496"}, true,
			map[string]any{"routing": map[string]any{"origin": uint32(64496), "announced": true}}, ""},
		{"unless told otherwise", []string{"--origin", "64496", "--announced=false"}, true,
			map[string]any{"routing": map[string]any{"origin": uint32(64496), "announced": false}}, ""},
		{"no origin is not announced", []string{"--origin", "none"}, false,
			map[string]any{"routing": map[string]any{"origin": nil, "announced": false, "max_length": nil}}, ""},
		{"name servers delegate a new prefix", []string{"--name-server", "a.example", "--name-server", "b.example"}, true,
			map[string]any{"reverse": map[string]any{"name_servers": []any{"a.example", "b.example"}, "mode": "delegated"}}, ""},
		{"and leave the mode of an old one", []string{"--name-server", ""}, false,
			map[string]any{"reverse": map[string]any{"name_servers": []any{}}}, ""},
		{"a holder by handle alone", []string{"--organisation", "ORG"}, false,
			map[string]any{"organisation": "ORG", "organisation_id": nil}, ""},
		{"nobody", []string{"--organisation", "none"}, false,
			map[string]any{"organisation": nil, "organisation_id": nil}, ""},
		{"nobody for a new one", []string{"--organisation", "none", "--max-length", "none"}, true, map[string]any{"routing": map[string]any{}}, ""},
		{"not a number", []string{"--max-length", "long"}, false, nil, `--max-length: "long" is not a whole number`},
		{"not an AS number", []string{"--origin", "ASX"}, false, nil, "--origin: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := testShell().prefix()
			cmd := &cobra.Command{}
			f := n.bodyFlags(cmd, c.creating)
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			body, err := f.body()
			if c.fails != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.fails) {
					t.Fatalf("got %v, want an error %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n.implied(body, c.creating)
			if diff := cmp.Diff(c.want, body); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseDS(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	for _, c := range []struct {
		text string
		want map[string]any
	}{
		{"1 13 2 " + strings.ToUpper(digest), map[string]any{"key_tag": uint64(1), "algorithm": uint64(13), "digest_type": uint64(2), "digest": digest}},
		{"2.0.192.in-addr.arpa. 1 13 2 " + digest[:20] + " " + digest[20:],
			map[string]any{"zone": "2.0.192.in-addr.arpa", "key_tag": uint64(1), "algorithm": uint64(13), "digest_type": uint64(2), "digest": digest}},
		{"1 13 2", nil},
		{"1 13 two " + digest, nil},
		{"", nil},
	} {
		got, err := parseDS(c.text)
		if c.want == nil {
			if err == nil {
				t.Errorf("%q is taken as %v", c.text, got)
			}
			continue
		}
		if diff := cmp.Diff(any(c.want), got); err != nil || diff != "" {
			t.Errorf("%q: %v, -want +got:\n%s", c.text, err, diff)
		}
	}
}

func TestParseOrigin(t *testing.T) {
	for text, want := range map[string]any{
		"AS64496":     map[string]any{"asn": uint32(64496)},
		"64496,24":    map[string]any{"asn": uint32(64496), "max_length": int64(24)},
		"AS1.10, /48": map[string]any{"asn": uint32(65546), "max_length": int64(48)},
		"AS64496,":    nil,
		"24":          map[string]any{"asn": uint32(24)},
		"192.0.2.0":   nil,
	} {
		got, err := parseOrigin(text)
		if want == nil && err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
		if want != nil && (err != nil || cmp.Diff(want, got) != "") {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestTimesArePastMomentsOrDurations(t *testing.T) {
	s, now := testShell(), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"30m":                  now.Add(-30 * time.Minute),
		"-1h":                  now.Add(-time.Hour),
		"2026-01-30T10:00:00Z": time.Date(2026, 1, 30, 10, 0, 0, 0, time.UTC),
		"2026-01-30":           time.Date(2026, 1, 30, 0, 0, 0, 0, time.Local),
	} {
		if got, err := s.past(text, now); err != nil || !got.Equal(want) {
			t.Errorf("past %q: got %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := s.past("yesterday", now); err == nil {
		t.Error("yesterday is taken as a time")
	}
	if got, err := s.future("1h", now); err != nil || !got.Equal(now.Add(time.Hour)) {
		t.Errorf("future 1h: got %v, %v", got, err)
	}
	for _, text := range []string{"2020-01-01", "-1h"} {
		if got, err := s.future(text, now); err == nil {
			t.Errorf("%s is taken as a time to come: %v", text, got)
		}
	}
}

func TestStreamIDOfAMoment(t *testing.T) {
	s, now := testShell(), time.UnixMilli(100_000)
	for from, want := range map[string]string{
		"now": "", "beginning": "0-0", "10s": "89999-18446744073709551615", "1000h": "0-18446744073709551615",
	} {
		if got, err := s.streamID(from, now); err != nil || got != want {
			t.Errorf("--from %s: got %q, %v; want %q", from, got, err, want)
		}
	}
}

func TestEntriesAreOrderedByTime(t *testing.T) {
	at := func(stream int, id string) entry { return entry{stream, redis.XMessage{ID: id}} }
	for _, c := range []struct {
		a, b entry
		want int
	}{
		{at(1, "9-0"), at(0, "10-0"), -1},
		{at(1, "10-0"), at(0, "10-5"), 1}, // one stream at a time keeps its order
		{at(0, "10-9"), at(0, "10-10"), -1},
	} {
		if got := c.a.compare(c.b); got != c.want {
			t.Errorf("%v to %v: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNamedResourcesNeedNoQuestion(t *testing.T) {
	for text, want := range map[string]string{
		"prefix:17": "prefix:17", "asn:AS64496": "asn:64496", "ptr:2001:DB8::1": "ptr:2001:db8::1",
		"2001:db8::1": "", "192.0.2.0/24": "", "AS64496": "", "EXAMPLE-ORG": "", "prefix:192.0.2.0/24": "", "ptr:host": "", "frob:1": "",
	} {
		r, ok := named(text)
		if got := r.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %s, %t; want %q", text, got, ok, want)
		}
	}
}

func TestProblemsAreExplained(t *testing.T) {
	p := problem.New(problem.Conflict, "192.0.2.0/24 is still needed by 1 resource").
		With("dependants", []any{map[string]any{"resource": "ptr:192.0.2.1", "label": "host.example.net"}})
	c := &Connection{url: "http://registry.example"}
	for _, test := range []struct {
		err  error
		want []string
	}{
		{p, []string{"192.0.2.0/24 is still needed", "\n  ptr:192.0.2.1 (host.example.net)"}},
		{problem.New(problem.Invalid, "one value of the request cannot be taken: see errors").At("body.routing.max_length", "it is 24 to 32", 33.0),
			[]string{"cannot be taken\n", "routing.max_length: it is 24 to 32 (got 33)"}},
		{problem.New(problem.Unauthenticated, "the token is not known"), []string{"HUBN_TOKEN"}},
		{problem.New(problem.Internal, "internal error").With("request_id", "abc"), []string{"request id abc"}},
		{fmt.Errorf("plain"), []string{"plain"}},
	} {
		got := c.explain(test.err)
		for _, part := range test.want {
			if !strings.Contains(got.Error(), part) {
				t.Errorf("%v is explained as %q, without %q", test.err, got, part)
			}
		}
		if again := c.explain(errors.Join(got)); again.Error() != got.Error() {
			t.Errorf("explained twice: %q", again)
		}
	}
}

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{0, 0, "reading … 3s"},
		{120, 0, "reading, 120 … 3s"},
		{15, 30, "reading [###############...............] 15 of 30, 3s"},
		{40, 30, "reading [##############################] 30 of 30, 3s"},
	} {
		if got := progressLine("reading", c.done, c.total, 3*time.Second); got != c.want {
			t.Errorf("%d of %d: got %q, want %q", c.done, c.total, got, c.want)
		}
	}
}

func TestTimelineIsInTheOrderOfTime(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)).UTC() }
	trace := client.Trace{
		State: client.State{
			Resource: client.Resource{Kind: client.KindPrefix, Key: "17"}, Label: "192.0.2.0/24", Version: 2, Requested: at(10),
			Published: 2, PublishedAt: at(14), Overall: client.OverallFailed,
			Consumers: []client.AppliedState{
				{Module: "mirror", Version: 2, State: client.ReportFailed, Reason: "no space", FetchedAt: at(18), ReportedAt: at(20)},
			},
			Waiting: []string{"dns"},
		},
		Changes: []client.TraceChange{
			{At: at(10), Table: "prefix", Op: "update", Actor: "admin", Reason: "a test",
				Before: []byte(`{"max_length":null,"name":"X","revision":1}`), After: []byte(`{"max_length":25,"name":"X","revision":2}`)},
		},
		Events: []client.TraceEvent{
			{Version: 4, EventID: "e4", Kind: "changed", CreatedAt: at(30), PublishedAt: at(31), State: "published"},
			{Version: 3, EventID: "e3", Kind: "changed", CreatedAt: at(30), PublishedAt: at(31), State: "published"},
			{Version: 2, EventID: "e2", Kind: "changed", Changed: []string{"routing"}, CreatedAt: at(11), PublishedAt: at(14), State: "published"},
		},
	}
	var got []string
	for _, s := range timeline(trace) {
		got = append(got, s.who+": "+s.what)
	}
	want := []string{
		"committed: update of prefix by admin: max_length none → 25 (a test)",
		"outbox: version 2 changed (routing), event e2",
		"published: version 2, 3 ms after the commit",
		"mirror: fetched version 2",
		"mirror: failed version 2: no space",
		"outbox: version 3 changed, event e3",
		"outbox: version 4 changed, event e4",
		"published: version 3, 1 ms after the commit",
		"published: version 4, 1 ms after the commit",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var text strings.Builder
	printTrace(&text, trace, false)
	for _, part := range []string{"prefix:17  192.0.2.0/24  failed", "mirror  failed version 2, 10 ms after the commit: no space", "dns     has not reported it yet", "published  version 2, 4 ms after the commit"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the trace lacks %q:\n%s", part, text.String())
		}
	}
}

func TestWaitSaysWhatBlocks(t *testing.T) {
	w := &waiter{result: waited{Version: 3}}
	state := client.State{Resource: client.Resource{Kind: client.KindPrefix, Key: "1"}, Version: 3, Published: 2,
		LaneState: "paused", Waiting: []string{"dns", "roa"},
		Consumers: []client.AppliedState{{Module: "mirror", Version: 3, State: client.ReportHeld, Reason: "too many"}}}
	blocks := strings.Join(w.stateBlocks(state), "\n")
	for _, part := range []string{"version 3 is not published", "hubn outbox resume prefix:1", "dns has not reported version 3", "mirror reports it held: too many"} {
		if !strings.Contains(blocks, part) {
			t.Errorf("%q is not said:\n%s", part, blocks)
		}
	}
	state.Published, state.Consumers = 3, nil
	barrier := client.Barrier{Raised: true, Modules: []client.BarrierModule{{Module: "dns", Done: true}, {Module: "roa", Stale: true}}}
	if got := w.unproven(state, barrier); len(got) != 1 || !strings.Contains(got[0], "hubn modules forget roa") {
		t.Errorf("got %q; dns has passed the barrier, and roa is not heard of", got)
	}
	barrier.Raised = false
	if got := w.unproven(state, barrier); len(got) != 2 {
		t.Errorf("got %q; a barrier that is not raised proves nothing", got)
	}
}
