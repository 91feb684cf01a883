package rdap

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Writer writes the documents of one answer.
type Writer struct {
	// Base is the URL that the paths of objects are below; it ends with a slash.
	Base string
	// Request is the URL that was asked: the context of the links.
	Request string
	// Contacts tells whether the caller may see how to reach the organisation with
	// an id; nil shows no contact.
	Contacts func(organisation int64) bool
	// Terms is the URL of the terms of use; empty where there are none.
	Terms string

	uses     map[string]bool // the extensions that the answer needed
	redacted []Redaction
	notices  []Notice
}

// Network writes an IP network as the topmost object.
func (w *Writer) Network(p Prefix) *Network {
	n := w.network(p, "$")
	n.Top = w.top()
	return &n
}

// Autnum writes an AS number as the topmost object.
func (w *Writer) Autnum(a ASN) *Autnum {
	n := w.autnum(a)
	n.Entities = w.registrant(a.Holder, "$")
	n.Top = w.top()
	return &n
}

// Entity writes an organisation with what it holds as the topmost object; more
// tells that it holds more than is listed.
func (w *Writer) Entity(o Organisation, holds []Prefix, asns []ASN, more bool) *Entity {
	e := w.entity(o, "$")
	for _, p := range holds {
		p.Holder = nil // it is the object that lists them
		e.Networks = append(e.Networks, w.network(p, ""))
	}
	for _, a := range asns {
		e.Autnums = append(e.Autnums, w.autnum(a))
	}
	if more {
		e.Remarks = append(e.Remarks, Notice{
			Title: "Not everything is listed", Type: "object truncated due to unexplainable reasons",
			Description: []string{fmt.Sprintf("It holds more than the %d networks and %d AS numbers that are listed here.", len(holds), len(asns))},
		})
	}
	e.Top = w.top()
	return &e
}

// Domain writes the reverse zone of a prefix that a reverse name lies in as the
// topmost object. asked is the prefix that the name stands for.
func (w *Writer) Domain(p Prefix, asked netip.Prefix) *Domain {
	d := w.domain(p, p.zone(asked), "$")
	network := w.network(p, "$.network")
	d.Network = &network
	d.Top = w.top()
	return &d
}

// Nameserver writes a name server as the topmost object.
func (w *Writer) Nameserver(name, unicode string) *Nameserver {
	n := w.nameserver(name)
	n.Status = []string{"active"}
	if unicode != name {
		n.UnicodeName = unicode
	}
	n.Top = w.top()
	return &n
}

// Entities answers a search for organisations.
func (w *Writer) Entities(found []Organisation, more bool) *Entities {
	out := &Entities{Results: []Entity{}}
	for i, o := range found {
		out.Results = append(out.Results, w.entity(o, fmt.Sprintf("$.entitySearchResults[%d]", i)))
	}
	w.truncated(more, len(found))
	out.Top = w.top()
	return out
}

// Domains answers a search for reverse zones: those of the prefixes, at most limit.
func (w *Writer) Domains(found []Prefix, limit int, more bool) *Domains {
	out := &Domains{Results: []Domain{}}
	for _, p := range found {
		zones := p.Zones(limit + 1)
		for _, zone := range zones {
			if len(out.Results) == limit {
				more = true
				break
			}
			at := fmt.Sprintf("$.domainSearchResults[%d]", len(out.Results))
			out.Results = append(out.Results, w.domain(p, zone, at))
		}
	}
	w.truncated(more, len(out.Results))
	out.Top = w.top()
	return out
}

// Nameservers answers a search for name servers.
func (w *Writer) Nameservers(names []string) *Nameservers {
	out := &Nameservers{Results: []Nameserver{}}
	for _, name := range names {
		out.Results = append(out.Results, w.nameserver(name))
	}
	out.Top = w.top()
	return out
}

// Help says what can be asked.
func (w *Writer) Help(notices ...Notice) *Help {
	w.use(extensionCIDR)
	w.use(extensionOrigins)
	w.use(extensionRedacted)
	w.notices = append(w.notices, notices...)
	return &Help{w.top()}
}

// Error says why there is no other answer.
func (w *Writer) Error(status int, description ...string) *Error {
	return &Error{Top: w.top(), Code: status, Title: http.StatusText(status), Description: description}
}

func (w *Writer) use(extension string) {
	if w.uses == nil {
		w.uses = map[string]bool{}
	}
	w.uses[extension] = true
}

// top is what the answer says of itself, once its objects are written.
func (w *Writer) top() Top {
	t := Top{Conformance: []string{levelZero}, Notices: w.notices, Redacted: w.redacted}
	if len(w.redacted) > 0 {
		w.use(extensionRedacted)
	}
	for _, extension := range []string{extensionCIDR, extensionOrigins, extensionRedacted} {
		if w.uses[extension] {
			t.Conformance = append(t.Conformance, extension)
		}
	}
	if w.Terms != "" {
		t.Notices = append(t.Notices, Notice{Title: "Terms of use", Description: []string{"The use of this service is subject to its terms."},
			Links: []Link{{Value: w.Request, Rel: "terms-of-service", Href: w.Terms, Type: "text/html"}}})
	}
	return t
}

func (w *Writer) truncated(more bool, shown int) {
	if more {
		w.notices = append(w.notices, Notice{
			Title: "Not all results are listed", Type: "result set truncated due to unexplainable reasons",
			Description: []string{fmt.Sprintf("There are more than the %d results that are listed here: ask for something narrower.", shown)},
		})
	}
}

// link leads to an object of this service; its path is given in parts.
func (w *Writer) link(rel string, parts ...string) Link {
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return Link{Value: w.Request, Rel: rel, Href: w.Base + strings.Join(parts, "/"), Type: ContentType}
}

// linkNetwork leads to a network; its prefix keeps its slash (RFC 9082 section 3.1.1).
func (w *Writer) linkNetwork(rel string, p netip.Prefix) Link {
	return Link{Value: w.Request, Rel: rel, Href: w.Base + "ip/" + p.String(), Type: ContentType}
}

func events(created, updated time.Time) []Event {
	all := []Event{{"registration", created.UTC().Truncate(time.Second)}}
	if updated.After(created) {
		all = append(all, Event{"last changed", updated.UTC().Truncate(time.Second)})
	}
	return all
}

// prefixStatuses are the words of the RDAP JSON Values registry (RFC 9083 section
// 10.2.2) for a prefix's status.
var prefixStatuses = map[string]string{"planned": "pending create", "active": "active", "retired": "inactive"}

func (p Prefix) statuses() []string {
	all := []string{prefixStatuses[p.Status]}
	if p.Kind == "container" || p.Kind == "reserved" {
		all = append(all, "administrative") // not for the holder's use as it is
	}
	return all
}

func (w *Writer) network(p Prefix, at string) Network {
	w.use(extensionCIDR)
	n := Network{
		Class: ClassNetwork, Handle: p.Prefix.String(), IPVersion: "v4", Name: p.Name, Type: strings.ToUpper(p.Kind),
		StartAddress: p.Prefix.Addr().String(), EndAddress: lastAddress(p.Prefix).String(),
		Status: p.statuses(), Events: events(p.Created, p.Updated),
		CIDRs: []CIDR{{V4: p.Prefix.Addr().String(), Length: p.Prefix.Bits()}},
		Links: []Link{w.linkNetwork("self", p.Prefix)},
	}
	if p.Prefix.Addr().Is6() {
		n.IPVersion, n.CIDRs[0].V4, n.CIDRs[0].V6 = "v6", "", n.CIDRs[0].V4
	}
	if p.Parent.IsValid() {
		n.ParentHandle = p.Parent.String()
		n.Links = append(n.Links, w.linkNetwork("up", p.Parent))
	}
	if len(p.Origins) > 0 {
		w.use(extensionOrigins)
		n.Origins = p.Origins
	}
	if p.Implied {
		n.Remarks = append(n.Remarks, Notice{Title: "Implied by a route", Description: []string{"It is known from its route only."}})
	}
	n.Entities = w.registrant(p.Holder, at)
	return n
}

func (w *Writer) autnum(a ASN) Autnum {
	handle := fmt.Sprintf("AS%d", a.Number)
	n := Autnum{
		Class: ClassAutnum, Handle: handle, Start: a.Number, End: a.Number, Name: a.Name, Status: []string{"active"},
		Events: events(a.Created, a.Updated), Links: []Link{w.link("self", "autnum", fmt.Sprint(a.Number))},
	}
	if a.Special != "" {
		n.Status = append(n.Status, "reserved") // by IANA, for special purposes
	}
	return n
}

func (w *Writer) domain(p Prefix, name, at string) Domain {
	d := Domain{
		Class: ClassDomain, Handle: name, LDHName: name, Status: []string{prefixStatuses[p.Status]},
		Events: events(p.Created, p.Updated), Links: []Link{w.link("self", "domain", name)},
	}
	for _, server := range p.NameServers {
		d.Nameservers = append(d.Nameservers, w.nameserver(server))
	}
	for _, ds := range p.DS {
		zone := strings.ToLower(strings.TrimSuffix(ds.Zone, "."))
		if zone == "" || zone == name || zone+"."+suffixV4 == name || zone+"."+suffixV6 == name {
			d.SecureDNS.DS = append(d.SecureDNS.DS, ds.DS)
		}
	}
	d.SecureDNS.DelegationSigned = len(d.SecureDNS.DS) > 0
	d.Entities = w.registrant(p.Holder, at)
	return d
}

func (w *Writer) nameserver(name string) Nameserver {
	return Nameserver{Class: ClassNameserver, LDHName: name, Links: []Link{w.link("self", "nameserver", name)}}
}

// registrant is the holder as the one entity of an object at a JSONPath.
func (w *Writer) registrant(o *Organisation, at string) []Entity {
	if o == nil {
		return nil
	}
	e := w.entity(*o, at+".entities[0]")
	e.Roles = []string{"registrant"}
	return []Entity{e}
}

func (w *Writer) entity(o Organisation, at string) Entity {
	e := Entity{
		Class: ClassEntity, Handle: o.Handle, VCard: newVCard(o), Status: []string{"active"},
		Events: events(o.Created, o.Updated), Links: []Link{w.link("self", "entity", o.Handle)},
	}
	reach := contact(o.Contact)
	if w.Contacts != nil && w.Contacts(o.ID) {
		e.VCard = append(e.VCard, reach...)
		return e
	}
	var names []string
	for _, p := range reach {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
			w.redact(p.Name, at)
		}
	}
	return e
}

// redactedNames say in words what a property of a card is.
var redactedNames = map[string]string{"email": "Registrant Email", "tel": "Registrant Phone", "note": "Registrant Contact"}

// redact says that a property of an entity's card was left out.
func (w *Writer) redact(property, at string) {
	w.redacted = append(w.redacted, Redaction{
		Name:    Description{redactedNames[property]},
		PrePath: fmt.Sprintf("%s.vcardArray[1][?(@[0]=='%s')]", at, property), PathLang: "jsonpath", Method: "removal",
		Reason: Description{"How to reach a holder is shown to those who may read the registry."},
	})
}
