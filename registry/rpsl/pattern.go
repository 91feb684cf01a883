package rpsl

import (
	"fmt"
	"strings"
)

// NameServerPattern matches host names of HubN's own name servers: one exact
// name, or a name below a domain.
type NameServerPattern struct {
	// name is a host name, below which all names match if wildcard.
	name     string
	wildcard bool
}

// ParseNameServerPattern reads a host name such as ns1.example.net, or a
// wildcard such as *.delegation-servers.dn42, which matches every name below
// that domain but not the domain itself (RFC 4592 section 2.1.1).
func ParseNameServerPattern(s string) (NameServerPattern, error) {
	name, wildcard := strings.CutPrefix(s, "*.")
	host, err := parseHostName(name)
	if err != nil {
		return NameServerPattern{}, fmt.Errorf("name server pattern %q: %w; write a host name, or *. and a domain", s, err)
	}
	return NameServerPattern{name: host, wildcard: wildcard}, nil
}

// Match tells whether the pattern matches a host name in canonical form: A-labels,
// lower case, no final dot.
func (p NameServerPattern) Match(host string) bool {
	if p.wildcard {
		return len(host) > len(p.name)+1 && strings.HasSuffix(host, p.name) && host[len(host)-len(p.name)-1] == '.'
	}
	return p.name != "" && host == p.name
}

// String is the pattern as ParseNameServerPattern reads it.
func (p NameServerPattern) String() string {
	if p.wildcard {
		return "*." + p.name
	}
	return p.name
}
