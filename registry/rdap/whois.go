package rdap

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
)

// Text is an object as whois shows it: attributes as in RPSL (RFC 2622), the
// object that was asked for first, then its route objects and who holds it. It
// ends with an empty line.
func Text(object any) string {
	t := &text{}
	switch o := object.(type) {
	case *Network:
		t.network(o)
		t.holders(o.Entities)
		t.omitted(o.Redacted)
	case *Autnum:
		t.autnum(o)
		t.holders(o.Entities)
		t.omitted(o.Redacted)
	case *Entity:
		t.organisation(o)
		for i := range o.Networks {
			t.network(&o.Networks[i])
		}
		for i := range o.Autnums {
			t.autnum(&o.Autnums[i])
		}
		t.remarks(o.Remarks)
		t.omitted(o.Redacted)
	case *Domain:
		t.domain(o)
		if o.Network != nil {
			t.network(o.Network)
		}
		t.holders(o.Entities)
		t.omitted(o.Redacted)
	case *Nameserver:
		t.attribute("nserver", o.LDHName)
		t.attribute("name", o.UnicodeName)
		t.end()
	}
	return t.String()
}

// text is whois's answer as it grows.
type text struct{ strings.Builder }

// attributeWidth is the column that values begin in, as in the RIPE database.
const attributeWidth = 16

// attribute writes one attribute; an empty value is left out.
func (t *text) attribute(name, value string) {
	if value = clean(value); value != "" {
		fmt.Fprintf(t, "%-*s%s\n", attributeWidth, name+":", value)
	}
}

// clean keeps a value on its line: what is typed in the Registry cannot write
// attributes of its own.
func clean(value string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf) {
			return ' '
		}
		return r
	}, value))
}

func (t *text) end() { t.WriteString("\n") }

func (t *text) events(events []Event) {
	for _, e := range events {
		name := "created"
		if e.Action == "last changed" {
			name = "last-modified"
		}
		t.attribute(name, e.Date.UTC().Format(time.RFC3339))
	}
}

func (t *text) network(n *Network) {
	routes := "route"
	if n.IPVersion == "v6" {
		routes = "route6"
		t.attribute("inet6num", n.Handle)
	} else {
		t.attribute("inetnum", n.StartAddress+" - "+n.EndAddress)
	}
	t.attribute("netname", n.Name)
	if len(n.Entities) > 0 {
		t.attribute("org", n.Entities[0].Handle)
	}
	t.attribute("status", n.Type)
	t.attribute("state", strings.Join(n.Status, ", "))
	t.attribute("parent", n.ParentHandle)
	for _, r := range n.Remarks {
		t.attribute("remarks", strings.Join(r.Description, " "))
	}
	t.events(n.Events)
	t.end()
	for _, origin := range n.Origins {
		t.attribute(routes, n.Handle)
		t.attribute("origin", fmt.Sprintf("AS%d", origin))
		t.end()
	}
}

func (t *text) autnum(a *Autnum) {
	t.attribute("aut-num", a.Handle)
	t.attribute("as-name", a.Name)
	if len(a.Entities) > 0 {
		t.attribute("org", a.Entities[0].Handle)
	}
	t.attribute("state", strings.Join(a.Status, ", "))
	t.events(a.Events)
	t.end()
}

func (t *text) holders(entities []Entity) {
	for i := range entities {
		t.organisation(&entities[i])
	}
}

func (t *text) organisation(e *Entity) {
	t.attribute("organisation", e.Handle)
	for _, name := range e.VCard.all("fn") {
		t.attribute("org-name", name)
	}
	for _, address := range e.VCard.all("email") {
		t.attribute("e-mail", address)
	}
	for _, number := range e.VCard.all("tel") {
		t.attribute("phone", strings.TrimPrefix(number, "tel:"))
	}
	for _, note := range e.VCard.all("note") {
		t.attribute("remarks", note)
	}
	t.events(e.Events)
	t.end()
}

func (t *text) domain(d *Domain) {
	t.attribute("domain", d.LDHName)
	for _, server := range d.Nameservers {
		t.attribute("nserver", server.LDHName)
	}
	for _, ds := range d.SecureDNS.DS {
		t.attribute("ds-rdata", fmt.Sprintf("%d %d %d %s", ds.KeyTag, ds.Algorithm, ds.DigestType, ds.Digest))
	}
	t.attribute("state", strings.Join(d.Status, ", "))
	t.events(d.Events)
	t.end()
}

func (t *text) remarks(remarks []Notice) {
	for _, r := range remarks {
		fmt.Fprintf(t, "%% %s\n\n", clean(strings.Join(r.Description, " ")))
	}
}

// omitted says that something was left out.
func (t *text) omitted(redacted []Redaction) {
	if len(redacted) > 0 {
		t.WriteString("% Contact data is left out here: it is shown to those who may read the registry.\n\n")
	}
}

// Above is the network that a network lies in; not valid where there is none.
func (n *Network) Above() netip.Prefix {
	p, err := netip.ParsePrefix(n.ParentHandle)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// TextAround is the networks that one lies in, the most specific first, without
// their routes and holders: those are questions of their own.
func TextAround(networks []*Network) string {
	t := &text{}
	if len(networks) > 0 {
		t.WriteString("% It lies in\n\n")
	}
	for _, n := range networks {
		alone := *n
		alone.Origins = nil
		t.network(&alone)
	}
	return t.String()
}
