package registry

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hubn/registry/client"
	"hubn/registry/rpsl"
)

// prefixInput is what a client writes of a prefix.
type prefixInput struct {
	Prefix Prefix `json:"prefix"`
	// ParentID is never filled from a prefix that exists: the tree says it.
	ParentID *int64 `json:"parent_id,omitempty" minimum:"1" doc:"The prefix that it is to lie in; refused unless that is the longest one around it"`
	OrganisationRef
	Kind    string       `json:"kind,omitempty" enum:"container,allocation,assignment,reserved" doc:"assignment if it is left out"`
	Status  string       `json:"status,omitempty" enum:"planned,active,retired" doc:"active if it is left out"`
	Name    string       `json:"name,omitempty" maxLength:"1000"`
	Routing routingInput `json:"routing,omitempty"`
	Reverse reverseInput `json:"reverse,omitempty"`
}

type routingInput struct {
	Announced bool `json:"announced,omitempty" doc:"Whether the route ought to be in the world's tables"`
	Origin    *ASN `json:"origin,omitempty" doc:"Who may originate it; AS0 is nobody (RFC 6483 section 4)"`
	MaxLength *int `json:"max_length,omitempty" minimum:"0" maximum:"128" doc:"The longest prefix that may be announced; the prefix's own length if it is left out"`
}

type reverseInput struct {
	Mode            string     `json:"mode,omitempty" enum:"inherit,off,hosted,delegated" doc:"inherit if it is left out"`
	NameServers     []HostName `json:"name_servers,omitempty" maxItems:"16"`
	NameServerSetID *int64     `json:"name_server_set_id,omitempty" minimum:"1"`
	DS              []dsInput  `json:"ds,omitempty" maxItems:"64"`
	RFC2317Style    string     `json:"rfc2317_style,omitempty" enum:"dash,slash,first" doc:"How the labels of classless delegations are written"`
	ZoneCut         *int       `json:"zone_cut,omitempty" minimum:"0" maximum:"128" doc:"The prefix length at which its zones are cut"`
}

type dsInput struct {
	Zone       string `json:"zone,omitempty" maxLength:"253" doc:"Of which zone, where the prefix has several"`
	KeyTag     int    `json:"key_tag" minimum:"0" maximum:"65535"`
	Algorithm  int    `json:"algorithm" minimum:"0" maximum:"255"`
	DigestType int    `json:"digest_type" minimum:"0" maximum:"255"`
	Digest     string `json:"digest" maxLength:"1024" doc:"Hexadecimal"`
}

// Resolve implements huma.Resolver.
func (in *prefixInput) Resolve(huma.Context) []error { return checked(in) }

func (in *prefixInput) check(f *faults) {
	in.Prefix.check(f, "body.prefix")
	in.Routing.check(f, in.Prefix.value)
	in.Reverse.check(f, in.Prefix.value)
}

func (r *routingInput) check(f *faults, p netip.Prefix) {
	if r.Origin != nil {
		r.Origin.check(f, "body.routing.origin")
	}
	if r.Announced && r.Origin == nil {
		f.add("body.routing.origin", errors.New("an announced prefix needs an origin: write its AS number"), nil)
	}
	if r.MaxLength != nil && r.Origin == nil {
		f.add("body.routing.max_length", errors.New("a max_length belongs to an origin: write routing.origin too, or leave it out"), *r.MaxLength)
		return
	}
	checkLength(f, "body.routing.max_length", "max_length", r.MaxLength, p)
}

// checkLength reports a prefix length that is not one inside of the prefix.
func checkLength(f *faults, location, what string, length *int, p netip.Prefix) {
	if length == nil || !p.IsValid() {
		return
	}
	if *length < p.Bits() || *length > hostBits(p) {
		f.add(location, fmt.Errorf("the %s of %s is %d to %d, not %d", what, p, p.Bits(), hostBits(p), *length), *length)
	}
}

func (r *reverseInput) check(f *faults, p netip.Prefix) {
	for i, server := range r.NameServers {
		location := fmt.Sprintf("body.reverse.name_servers[%d]", i)
		server.check(f, location)
		if server.err == nil && slices.ContainsFunc(r.NameServers[:i], func(other HostName) bool { return other.value == server.value }) {
			f.add(location, errors.New("this name server is named twice"), server.text)
		}
	}
	switch servers := len(r.NameServers) > 0; {
	case servers && r.NameServerSetID != nil:
		f.add("body.reverse.name_servers", errors.New("name either name_servers or a name_server_set_id, not both"), nil)
	case r.Mode == string(client.ReverseDelegated) && !servers && r.NameServerSetID == nil:
		f.add("body.reverse.name_servers", errors.New("a delegated reverse zone needs name servers: write name_servers or a name_server_set_id"), nil)
	}
	for i, ds := range r.DS {
		ds.check(f, fmt.Sprintf("body.reverse.ds[%d]", i))
	}
	checkLength(f, "body.reverse.zone_cut", "zone_cut", r.ZoneCut, p)
}

// reverseZone is the form of a reverse zone's name; the slash and the dash are
// those of RFC 2317.
var reverseZone = regexp.MustCompile(`^([a-z0-9_/-]{1,63}\.)+(in-addr|ip6)\.arpa$`)

func (d *dsInput) check(f *faults, location string) {
	digest := strings.ToLower(d.Digest)
	_, err := hex.DecodeString(digest)
	size, assigned := rpsl.DigestSize(d.DigestType)
	switch {
	case err != nil || digest == "":
		f.add(location+".digest", errors.New("the digest is not hexadecimal: write an even number of the digits 0-9 and a-f"), d.Digest)
	case !assigned:
		f.add(location+".digest_type", errors.New("this is no digest type that is assigned: write 2 for SHA-256 or 4 for SHA-384"), d.DigestType)
	case len(digest) != 2*size:
		f.add(location+".digest", fmt.Errorf("a digest of type %d has %d hexadecimal digits, this one has %d", d.DigestType, 2*size, len(digest)), d.Digest)
	}
	if d.Zone != "" && !reverseZone.MatchString(d.zone()) {
		f.add(location+".zone", errors.New("this is not the name of a reverse zone: write for example 2.0.192.in-addr.arpa"), d.Zone)
	}
}

func (d *dsInput) zone() string { return strings.TrimSuffix(strings.ToLower(d.Zone), ".") }

// columns are the values of all columns but prefix, place and holder, in the order
// of sqlChangePrefix.
func (in *prefixInput) columns() []any {
	var origin *int64
	if in.Routing.Origin != nil {
		origin = new(int64(in.Routing.Origin.value))
	}
	servers := make([]string, len(in.Reverse.NameServers))
	for i, server := range in.Reverse.NameServers {
		servers[i] = server.value
	}
	ds := make([]client.DS, len(in.Reverse.DS))
	for i, d := range in.Reverse.DS {
		ds[i] = client.DS{Zone: d.zone(), KeyTag: uint16(d.KeyTag), Algorithm: uint8(d.Algorithm),
			DigestType: uint8(d.DigestType), Digest: strings.ToLower(d.Digest)}
	}
	return []any{
		cmp.Or(in.Kind, "assignment"), cmp.Or(in.Status, "active"), in.Name,
		in.Routing.Announced, origin, in.Routing.MaxLength,
		cmp.Or(in.Reverse.Mode, string(client.ReverseInherit)), servers, in.Reverse.NameServerSetID, ds, in.Reverse.RFC2317Style, in.Reverse.ZoneCut,
	}
}

// or is the value, or the default where none was written.
// prefixInputOf is a prefix as a client would write it, for a patch to change.
func prefixInputOf(p client.Prefix) *prefixInput {
	in := &prefixInput{
		Prefix:          Prefix{value: p.Prefix},
		OrganisationRef: holderRef(p.OrganisationID, p.Organisation),
		Kind:            p.Kind, Status: p.Status, Name: p.Name,
		Routing: routingInput{Announced: p.Routing.Announced, MaxLength: p.Routing.MaxLength},
		Reverse: reverseInput{Mode: string(p.Reverse.Mode), RFC2317Style: p.Reverse.RFC2317Style, ZoneCut: p.Reverse.ZoneCut},
	}
	if p.Routing.Origin != nil {
		in.Routing.Origin = &ASN{value: *p.Routing.Origin}
	}
	if p.Reverse.NameServerSetID != 0 {
		in.Reverse.NameServerSetID = &p.Reverse.NameServerSetID
	}
	for _, server := range p.Reverse.NameServers {
		in.Reverse.NameServers = append(in.Reverse.NameServers, HostName{given: given{text: server}, value: server})
	}
	for _, d := range p.Reverse.DS {
		in.Reverse.DS = append(in.Reverse.DS, dsInput{d.Zone, int(d.KeyTag), int(d.Algorithm), int(d.DigestType), d.Digest})
	}
	return in
}
