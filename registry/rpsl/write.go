package rpsl

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go4.org/netipx"
)

// Writer writes the rows of a Registry as the objects that Parse and PlanImport
// make these rows of again. It is given the rows in tree order, and leaves out
// what no object of these classes says: prefixes that are there for their route
// only, what is not active, and anycast allocations that were made by hand.
type Writer struct {
	out *bufio.Writer
	// own are the name servers of a hosted prefix that lists none.
	own []string
	// ranges are the network objects that are several prefixes, with the one
	// that was written first; nil while none was.
	ranges map[Range]*Prefix
	err    error
	count  int
}

// NewWriter makes a Writer. whole are the ranges of which every prefix is there.
func NewWriter(out io.Writer, ownNameServers []string, whole []Range) *Writer {
	w := &Writer{out: bufio.NewWriterSize(out, 64<<10), own: ownNameServers, ranges: make(map[Range]*Prefix, len(whole))}
	for _, r := range whole {
		w.ranges[r] = nil
	}
	return w
}

// Flush writes what is left, and answers how many objects were written.
func (w *Writer) Flush() (int, error) {
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.count, w.err
}

// ASN writes an aut-num object.
func (w *Writer) ASN(n ASN) error {
	w.begin(ClassAutNum, "AS"+strconv.FormatUint(uint64(n.Number), 10))
	w.attribute("as-name", n.Name)
	w.holder(n.Organisation)
	return w.end()
}

// Prefix writes what the row of a prefix says: its network object and its routes.
// origins are those of the anycast allocation that stands for its routes.
func (w *Writer) Prefix(p *Prefix, origins []RouteOrigin) error {
	if p.Status == StatusActive {
		if p.Provenance == ProvenanceRegistered {
			w.network(p)
		}
		if p.Routing.Announced && p.Routing.Origin != nil {
			own := RouteOrigin{ASN: *p.Routing.Origin, MaxLength: p.Routing.MaxLength, Active: true}
			origins = append(slices.Clip(origins), own)
		}
	}
	w.routes(p, origins)
	return w.err
}

// network writes the network object that a prefix is or is a part of. Of a range
// the first prefix speaks; others are written as well where they differ, and hold
// their prefix because they are exactly it.
func (w *Writer) network(p *Prefix) {
	class, key := networkClass(p.CIDR), keyOfPrefix(p.CIDR)
	if first, isPart := w.ranges[p.Range]; isPart && slices.Contains(p.Range.CIDRs(), p.CIDR) {
		if first != nil && sameNetwork(first, p) {
			return
		}
		if first == nil {
			w.ranges[p.Range] = p
			key = p.Range.First.String() + " - " + p.Range.Last.String()
		}
	}
	w.begin(class, key)
	w.attribute("netname", p.Name)
	w.holder(p.Organisation)
	w.attribute("status", statusOf(p))
	w.reverse(p)
	_ = w.end()
}

// sameNetwork tells whether one network object says all of both prefixes.
func sameNetwork(a, b *Prefix) bool {
	return sameHandle(a.Organisation, b.Organisation) && a.Name == b.Name && a.Kind == b.Kind && a.Reverse.equal(b.Reverse)
}

// keyOfPrefix is the key of a network object: a range for IPv4, as registries
// write it, and a prefix for IPv6.
func keyOfPrefix(p netip.Prefix) string {
	if p.Addr().Is4() {
		return p.Addr().String() + " - " + netipx.PrefixLastIP(p).String()
	}
	return p.String()
}

// statusOf is the status that an import reads as the prefix's kind.
func statusOf(p *Prefix) string {
	is4 := p.CIDR.Addr().Is4()
	switch {
	case p.Kind == KindContainer:
		return "ALLOCATED UNSPECIFIED"
	case p.Kind == KindAllocation && is4:
		return "ALLOCATED PA"
	case p.Kind == KindAllocation:
		return "ALLOCATED-BY-RIR"
	case p.Kind == KindReserved:
		return "RESERVED"
	case is4:
		return "ASSIGNED PA"
	}
	return "ASSIGNED"
}

// reverse writes the name servers and DS of a zone that is hosted or delegated.
func (w *Writer) reverse(p *Prefix) {
	servers := p.Reverse.NameServers
	switch p.Reverse.Mode {
	case ReverseHosted:
		if len(servers) == 0 {
			servers = w.own
		}
	case ReverseDelegated:
	default:
		return
	}
	for _, server := range servers {
		w.attribute("nserver", server)
	}
	if len(servers) == 0 {
		return
	}
	for _, ds := range p.Reverse.DS {
		w.attribute("ds-rdata", ds.String())
	}
}

// routes writes the routes of a prefix: an object for each max-length.
func (w *Writer) routes(p *Prefix, origins []RouteOrigin) {
	origins = slices.DeleteFunc(slices.Clone(origins), func(o RouteOrigin) bool { return !o.Active })
	slices.SortFunc(origins, func(a, b RouteOrigin) int {
		if c := lengthOrder(a.MaxLength) - lengthOrder(b.MaxLength); c != 0 {
			return c
		}
		return a.compare(b)
	})
	for i, o := range origins {
		begins := i == 0 || !equalPointers(origins[i-1].MaxLength, o.MaxLength)
		if begins {
			w.begin(routeClass(p.CIDR), p.CIDR.String())
		}
		if begins || origins[i-1].ASN != o.ASN {
			w.attribute("origin", "AS"+strconv.FormatUint(uint64(o.ASN), 10))
		}
		if i+1 < len(origins) && equalPointers(origins[i+1].MaxLength, o.MaxLength) {
			continue
		}
		if o.MaxLength != nil {
			w.attribute("max-length", strconv.Itoa(*o.MaxLength))
		}
		w.holder(p.RouteOrganisation)
		_ = w.end()
	}
}

// holder names whom an import takes for the holder: both attributes mean that;
// organisations of registries have keys that begin with ORG- (RFC 2725 knows
// maintainers only).
func (w *Writer) holder(handle string) {
	if len(handle) > 4 && strings.EqualFold(handle[:4], "ORG-") {
		w.attribute("org", handle)
		return
	}
	w.attribute("mnt-by", handle)
}

func (w *Writer) begin(class Class, key string) {
	w.count++
	w.attribute(string(class), key)
}

// attributeColumn is where values begin, as registries lay their objects out.
const attributeColumn = 20

// attribute writes an attribute that has a value.
func (w *Writer) attribute(name, value string) {
	if value = oneLine(value); value == "" || w.err != nil {
		return
	}
	_, w.err = fmt.Fprintf(w.out, "%-*s%s\n", attributeColumn, name+":", value)
}

func (w *Writer) end() error {
	if w.err == nil {
		w.err = w.out.WriteByte('\n')
	}
	return w.err
}

// oneLine is a value as one line of RPSL can carry it: without control characters,
// and without what would begin a comment, for which RPSL has no escape.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '#':
			return -1
		case unicode.IsControl(r):
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}

// WholeRanges are those of the ranges of which every prefix is there: a network
// object registers all of its prefixes.
func WholeRanges(ranges []Range, there func(netip.Prefix) bool) []Range {
	var whole []Range
	for _, r := range ranges {
		if !slices.ContainsFunc(r.CIDRs(), func(p netip.Prefix) bool { return !there(p) }) {
			whole = append(whole, r)
		}
	}
	return whole
}
