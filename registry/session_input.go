package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"hubn/registry/client"
)

const (
	defaultCollector = "default"
	familyIPv4       = "ipv4-unicast"
	familyIPv6       = "ipv6-unicast"
	wantedUp         = "up"
	// maxPassword is what Linux takes as a key of TCP MD5 (RFC 2385):
	// TCP_MD5SIG_MAXKEYLEN.
	maxPassword = 80
)

// sessionInput is what a client writes of a BGP session.
type sessionInput struct {
	Collector     string   `json:"collector,omitempty" maxLength:"80" doc:"The collector that opens it; default if it is left out"`
	LocalASN      *ASN     `json:"local_asn,omitempty" doc:"The collector's own if it is left out"`
	LocalAddress  *Address `json:"local_address,omitempty" doc:"Any if it is left out"`
	RemoteASN     ASN      `json:"remote_asn"`
	RemoteAddress Address  `json:"remote_address" doc:"With the collector it is unique"`
	Families      []string `json:"families,omitempty" maxItems:"2" enum:"ipv4-unicast,ipv6-unicast" doc:"Both if it is left out"`
	Password      *Secret  `json:"password,omitempty" doc:"For TCP MD5 (RFC 2385), at most 80 octets; it is never shown again" writeOnly:"true"`
	MaxPrefixes   *int     `json:"max_prefixes,omitempty" minimum:"1" maximum:"2147483647" doc:"More routes than this end the session; no bound if it is left out"`
	Wanted        string   `json:"wanted,omitempty" enum:"up,down" doc:"up if it is left out"`
	Description   string   `json:"description,omitempty" maxLength:"1000"`
}

// Secret is text that is taken and never shown.
type Secret struct{ value []byte }

// UnmarshalText takes the text.
func (s *Secret) UnmarshalText(b []byte) error {
	s.value = slices.Clone(b)
	return nil
}

// MarshalText is not the text.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// String is not the text.
func (Secret) String() string { return "[secret]" }

// GoString is not the text.
func (Secret) GoString() string { return "[secret]" }

// Schema implements huma.SchemaProvider. It states no bounds: what breaks them
// would be repeated in the answer.
func (Secret) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "password", WriteOnly: true}
}

func (s *Secret) check(f *faults, location string) {
	switch {
	case s == nil:
	case len(s.value) == 0:
		f.add(location, errors.New("it is empty: write a password, or null for none"), nil)
	case len(s.value) > maxPassword:
		f.add(location, fmt.Errorf("it has %d octets: TCP MD5 takes at most %d (RFC 2385)", len(s.value), maxPassword), nil)
	case !utf8.Valid(s.value) || strings.ContainsFunc(string(s.value), unicode.IsControl):
		f.add(location, errors.New("it holds a control character, perhaps the end of a line: leave that out"), nil)
	}
}

// Resolve implements huma.Resolver.
func (in *sessionInput) Resolve(huma.Context) []error { return checked(in) }

func (in *sessionInput) check(f *faults) {
	if in.Collector != "" && !handlePattern.MatchString(in.Collector) {
		f.add("body.collector", errors.New("a collector's name has 1 to 80 letters, digits, dots, dashes and underscores, and begins with a letter or digit"), in.Collector)
	}
	in.RemoteASN.check(f, "body.remote_asn")
	if in.RemoteASN.err == nil && in.RemoteASN.text != "" {
		checkSpeaker(f, "body.remote_asn", in.RemoteASN.value)
	}
	if in.LocalASN != nil {
		in.LocalASN.check(f, "body.local_asn")
		if in.LocalASN.err == nil {
			checkSpeaker(f, "body.local_asn", in.LocalASN.value)
		}
	}
	checkPeer(f, "body.remote_address", in.RemoteAddress)
	if in.LocalAddress != nil {
		checkPeer(f, "body.local_address", *in.LocalAddress)
		remote, local := in.RemoteAddress.value, in.LocalAddress.value
		switch {
		case !remote.IsValid() || !local.IsValid():
		case remote.Is4() != local.Is4():
			f.add("body.local_address", fmt.Errorf("%s and the remote address %s are of different families: write one of the same", local, remote), local.String())
		case remote == local:
			f.add("body.local_address", fmt.Errorf("%s is the remote address too: the two ends differ", local), local.String())
		}
	}
	for i, family := range in.Families {
		if slices.Contains(in.Families[:i], family) {
			f.add(fmt.Sprintf("body.families[%d]", i), errors.New("this family is named twice"), family)
		}
	}
	in.Password.check(f, "body.password")
}

// checkSpeaker refuses AS numbers that no BGP speaker has.
func checkSpeaker(f *faults, location string, asn client.ASN) {
	if specialASN(asn) == "reserved" {
		f.add(location, fmt.Errorf("%s is reserved and no BGP speaker has it (RFC 7607, 6793, 7300): write the AS number that stands in its OPEN", asn), uint32(asn))
	}
}

// checkPeer refuses addresses that a session cannot be opened with.
func checkPeer(f *faults, location string, a Address) {
	a.check(f, location)
	if a.err != nil || !a.value.IsValid() {
		return
	}
	switch v := a.value; {
	case v.IsUnspecified():
		f.add(location, fmt.Errorf("%s is no host's address", v), v.String())
	case v.IsMulticast(), v == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		f.add(location, fmt.Errorf("%s is not one host's address: write a unicast address", v), v.String())
	case v.Is6() && v.IsLinkLocalUnicast():
		f.add(location, fmt.Errorf("%s means something on one link only: write a global or unique local address", v), v.String())
	}
}

// args are the arguments that sqlCreateSession and sqlChangeSession begin with.
func (in *sessionInput) args(id int64) []any {
	var (
		asn      *int64
		local    *netip.Addr
		families = in.Families
	)
	if in.LocalASN != nil {
		asn = new(int64(in.LocalASN.value))
	}
	if in.LocalAddress != nil {
		local = &in.LocalAddress.value
	}
	if len(families) == 0 {
		families = []string{familyIPv4, familyIPv6}
	}
	slices.Sort(families)
	return []any{id, orDefault(in.Collector, defaultCollector), asn, local, int64(in.RemoteASN.value), in.RemoteAddress.value, families,
		in.MaxPrefixes, orDefault(in.Wanted, wantedUp), in.Description}
}

// sessionInputOf is what a session would be written as, its password left out.
func sessionInputOf(b client.Session) *sessionInput {
	in := &sessionInput{Collector: b.Collector, RemoteASN: ASN{value: b.RemoteASN}, RemoteAddress: Address{value: b.RemoteAddress},
		Families: b.Families, Wanted: b.Wanted, Description: b.Description}
	if b.LocalASN != 0 {
		in.LocalASN = &ASN{value: b.LocalASN}
	}
	if b.LocalAddress.IsValid() {
		in.LocalAddress = &Address{value: b.LocalAddress}
	}
	if b.MaxPrefixes != 0 {
		in.MaxPrefixes = &b.MaxPrefixes
	}
	return in
}

// namesPassword tells whether a merge patch speaks of the password: one that does
// not leaves it, and null removes it.
func namesPassword(patch []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(patch, &members) != nil {
		return false // patched has refused it
	}
	_, named := members["password"]
	return named
}

type listSessionsInput struct {
	PageParams
	Collector     string  `query:"collector" maxLength:"80" doc:"Those of this collector"`
	RemoteASN     ASN     `query:"remote_asn" doc:"Those with this AS"`
	RemoteAddress Address `query:"remote_address" doc:"Those with this address"`
	Within        Prefix  `query:"within" doc:"Those whose remote address lies in this prefix"`
	Wanted        string  `query:"wanted" enum:"up,down"`
	Text          string  `query:"text" maxLength:"200" doc:"Part of the description"`
}

// Resolve implements huma.Resolver.
func (in *listSessionsInput) Resolve(huma.Context) []error {
	var f faults
	in.RemoteASN.check(&f, "query.remote_asn")
	in.RemoteAddress.check(&f, "query.remote_address")
	in.Within.check(&f, "query.within")
	return f.list
}

func (in *listSessionsInput) query() (*query, error) {
	q := newQuery(sqlSessions)
	var after int64
	if ok, err := in.decode("sessions", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`b.id > ?`, after)
	}
	if in.Collector != "" {
		q.and(`b.collector = ?`, in.Collector)
	}
	if in.RemoteASN.text != "" {
		q.and(`b.remote_asn = ?`, int64(in.RemoteASN.value))
	}
	if a := in.RemoteAddress.value; a.IsValid() {
		q.and(`b.remote_address = ?::inet`, a)
	}
	if p := in.Within.value; p.IsValid() {
		q.and(`b.remote_address <<= ?::inet`, p)
	}
	if in.Wanted != "" {
		q.and(`b.wanted = ?`, in.Wanted)
	}
	if in.Text != "" {
		q.and(`b.description ILIKE ?`, contains(in.Text))
	}
	q.page(`b.id`, in.limit())
	return q, nil
}
