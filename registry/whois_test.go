package registry

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// whois asks the Registry's whois server.
func (h *harness) whois(question string) string {
	h.t.Helper()
	address, ok := h.registry.Status().Detail["whois_address"].(string)
	if !ok {
		h.t.Fatal("the status does not say where whois listens")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, question); err != nil {
		h.t.Fatal(err)
	}
	if !strings.HasSuffix(question, "\n") {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			h.t.Fatal(err)
		}
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		h.t.Fatalf("%q: %v", question, err)
	}
	return strings.ReplaceAll(string(answer), "\r\n", "\n")
}

func withWhois(o *Options) { o.Settings.WhoisListen = "127.0.0.1:0" }

func TestWhoisAnswersTheMostSpecificFirst(t *testing.T) {
	h := publicRegistry(t, withWhois)
	answer := h.whois("192.0.2.1\r\n")
	last := -1
	for _, line := range []string{
		"\ninetnum:        192.0.2.0 - 192.0.2.255\n", "\nnetname:        OFFICE\n", "\nparent:         192.0.0.0/16\n",
		"\nroute:          192.0.2.0/24\norigin:         AS64496\n", "\nroute:          192.0.2.0/24\norigin:         AS64497\n",
		"\norganisation:   EXAMPLE-ORG\norg-name:       Example Networks\n", "\n% Contact data is left out", "\n% It lies in\n",
		"\ninetnum:        192.0.0.0 - 192.0.255.255\n",
	} {
		at := strings.Index(answer, line)
		if at <= last {
			t.Errorf("%q is at %d, after %d:\n%s", line, at, last, answer)
		}
		last = at
	}
	if strings.Contains(answer, "noc@example.net") {
		t.Errorf("the contact is shown:\n%s", answer)
	}
	for question, want := range map[string]string{
		"192.0.2.0/24\n":                "\ninetnum:        192.0.2.0 - 192.0.2.255\n",
		"2001:DB8::1\n":                 "\ninet6num:       2001:db8::/32\n",
		"as64496\n":                     "\naut-num:        AS64496\nas-name:        EXAMPLE-AS\n",
		"Example-Org\n":                 "\norganisation:   EXAMPLE-ORG\n",
		"2.0.192.in-addr.arpa\n":        "\nnserver:        ns2.example.net\n",
		"ns1.example.net\n":             "\nnserver:        ns1.example.net\n",
		"192.0.2.1":                     "\ninetnum:        192.0.2.0 - 192.0.2.255\n", // an end without a line's end
		"198.51.100.1\n":                "\n% No entries found: no network of this registry contains 198.51.100.1/32\n",
		"NOBODY\n":                      "\n% No entries found: ",
		"192.0.2.1/24\n":                "\n% Error: 192.0.2.1/24 has host bits set: the prefix is 192.0.2.0/24\n",
		"\r\n":                          "\n% Error: the question is empty",
		strings.Repeat("x", 400) + "\n": "\n% Error: the question has more than 300 characters\n",
	} {
		if answer := h.whois(question); !strings.Contains(answer, want) {
			t.Errorf("%.40q: want %q:\n%s", question, want, answer)
		}
	}
}

func TestWhoisIsBounded(t *testing.T) {
	h := newHarness(t, withWhois, func(o *Options) { o.Settings.PublicQueriesPerMinute = 2 })
	for range 2 {
		if answer := h.whois("192.0.2.1\n"); !strings.Contains(answer, "No entries found") {
			t.Errorf("got:\n%s", answer)
		}
	}
	if answer := h.whois("192.0.2.1\n"); !strings.Contains(answer, "% Error: more than 2 questions a minute from 127.0.0.1: wait a minute\n") {
		t.Errorf("got:\n%s", answer)
	}
}

func TestQueryLimitHoldsForAMinuteAndAnAddress(t *testing.T) {
	now := time.Now()
	l := newQueryLimiter(2, func() time.Time { return now })
	asked := func(address string) bool { return l.admit(addressOf(textAddr(address))) == nil }
	for i, c := range []struct {
		from  string
		wait  time.Duration
		admit bool
	}{
		{"192.0.2.1:1", 0, true}, {"192.0.2.1:2", 0, true}, {"192.0.2.1:3", 0, false}, {"192.0.2.2:1", 0, true},
		{"[2001:db8::1]:1", 0, true}, {"[2001:db8::2]:1", 0, true}, {"[2001:db8::3]:1", 0, false}, // one /64
		{"192.0.2.1:4", time.Minute, true},
	} {
		now = now.Add(c.wait)
		if got := asked(c.from); got != c.admit {
			t.Errorf("question %d of %s: admitted is %v, want %v", i, c.from, got, c.admit)
		}
	}
	for n := range 3 * maxQueryAddresses {
		asked(fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&255, n&255))
	}
	if len(l.asked) > maxQueryAddresses {
		t.Errorf("%d addresses are kept, at most %d may be", len(l.asked), maxQueryAddresses)
	}
}

// textAddr is the address of a peer.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }
