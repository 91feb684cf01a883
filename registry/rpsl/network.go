package rpsl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// parseNetwork reads an inetnum or inet6num object.
func parseNetwork(h Header) (*Network, *Refusal) {
	r, err := parseRange(h.Key)
	if err == nil {
		err = checkFamily(h.Class, r.From())
	}
	if err != nil {
		return nil, h.refuse(h.Attributes[0], err.Error())
	}
	object := &Network{Header: h, First: r.From(), Last: r.To(), CIDRs: splitRange(r)}
	for _, p := range object.CIDRs {
		if err := checkNotMapped(p); err != nil {
			return nil, h.refuse(h.Attributes[0], err.Error())
		}
	}
	if h.Delete {
		return object, nil
	}
	for _, parse := range []func(*Network) *Refusal{
		(*Network).checkCIDR, (*Network).parseHolder, (*Network).parseNameServers, (*Network).parseDS,
	} {
		if refusal := parse(object); refusal != nil {
			return nil, refusal
		}
	}
	return object, nil
}

// checkCIDR holds `cidr:` against the range. Several prefixes may stand in one
// value, parted by commas, or in several.
func (n *Network) checkCIDR() *Refusal {
	var stated []netip.Prefix
	var last Attribute
	for _, a := range n.all("cidr") {
		for field := range strings.FieldsFuncSeq(a.Value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			p, err := ParsePrefix(field)
			if err != nil {
				return n.refuse(a, "cidr "+err.Error())
			}
			stated, last = append(stated, p), a
		}
	}
	slices.SortFunc(stated, netip.Prefix.Compare)
	if len(stated) > 0 && !slices.Equal(stated, n.CIDRs) {
		return n.refuse(last, fmt.Sprintf("cidr %s is not the range %s, which is %s", last.Value, n.Key, joinPrefixes(n.CIDRs)))
	}
	return nil
}

// joinPrefixes lists prefixes for a message.
func joinPrefixes(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

func (n *Network) parseHolder() (refusal *Refusal) {
	n.Name = n.name("netname")
	n.Kind = n.kind()
	n.Organisation, refusal = n.organisation()
	return refusal
}

// kind is what the space is for; the package comment has the rules.
func (n *Network) kind() Kind {
	if len(n.CIDRs) == 1 && n.CIDRs[0].Bits() == 0 {
		return KindContainer
	}
	if policy, ok := n.first("policy"); ok && strings.EqualFold(policy.Value, "reserved") {
		return KindReserved
	}
	status, _ := n.first("status")
	words := strings.Join(strings.Fields(strings.ToUpper(status.Value)), " ")
	switch {
	case words == "ALLOCATED UNSPECIFIED", strings.HasPrefix(words, "LIR-PARTITIONED"):
		return KindContainer
	case strings.HasPrefix(words, "ALLOCATED"), strings.HasPrefix(words, "SUB-ALLOCATED"):
		return KindAllocation
	case words == "RESERVED":
		return KindReserved
	}
	return KindAssignment
}

// maxNameServers is how many name servers the Registry keeps for a prefix; more
// do not fit the answers of their parent zone anyway.
const maxNameServers = 16

// parseNameServers reads nserver: a host name, and addresses of it (glue).
func (n *Network) parseNameServers() *Refusal {
	for _, a := range n.all("nserver") {
		fields := strings.Fields(a.Value)
		if len(fields) == 0 {
			return n.refuse(a, "nserver has no host name")
		}
		host, err := parseHostName(fields[0])
		if err != nil {
			return n.refuse(a, "nserver "+err.Error())
		}
		if !slices.Contains(n.NameServers, host) {
			n.NameServers = append(n.NameServers, host)
		}
		for _, field := range fields[1:] {
			if refusal := n.addGlue(a, host, field); refusal != nil {
				return refusal
			}
		}
	}
	if len(n.NameServers) > maxNameServers {
		return n.refuse(n.all("nserver")[maxNameServers], fmt.Sprintf("%d name servers are more than %d", len(n.NameServers), maxNameServers))
	}
	slices.Sort(n.NameServers)
	return nil
}

func (n *Network) addGlue(a Attribute, host, field string) *Refusal {
	address, err := parseAddr(field)
	if err != nil {
		return n.refuse(a, fmt.Sprintf("nserver %s: %s; after the host name only its addresses may stand", host, err))
	}
	if n.Glue == nil {
		n.Glue = map[string][]netip.Addr{}
	}
	if !slices.Contains(n.Glue[host], address) {
		n.Glue[host] = append(n.Glue[host], address)
	}
	return nil
}

func (n *Network) parseDS() *Refusal {
	for _, a := range n.all("ds-rdata") {
		ds, err := ParseDS(a.Value)
		if err != nil {
			return n.refuse(a, "ds-rdata "+err.Error())
		}
		if len(n.NameServers) == 0 {
			return n.refuse(a, "ds-rdata stands without nserver: there is no delegation that it could secure; add the name servers or drop it")
		}
		if !slices.Contains(n.DS, ds) {
			n.DS = append(n.DS, ds)
		}
	}
	slices.SortFunc(n.DS, DS.compare)
	return nil
}
