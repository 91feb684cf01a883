package registry

import (
	"net/netip"
	"strings"
	"time"
)

// authorityLists are the lists of certificate authorities, of what they certify and
// of BGP sessions, with each filter.
func authorityLists() map[string]interface{ query() (*query, error) } {
	prefix := netip.MustParsePrefix("192.0.2.0/24")
	network, asn := Network{given{text: prefix.String()}, prefix}, ASN{given{text: "1"}, 1}
	page := func(list string) PageParams { return PageParams{After: cursor(list, 1)} }
	return map[string]interface{ query() (*query, error) }{
		"authorities":         &listAuthoritiesInput{},
		"authorities, by id":  &listAuthoritiesInput{Parent: "1", Organisation: "1"},
		"authorities, all":    &listAuthoritiesInput{page("certificate-authorities"), "X", "ca", "hosted", "active", network, asn, "x"},
		"certificates":        &listCertificatesInput{},
		"certificates, by id": &listCertificatesInput{CA: "1", Revoked: "false"},
		"certificates, all": &listCertificatesInput{page("certificates"), "ca", "child-ca", asn, network,
			strings.Repeat("ab", 20), "true", time.Unix(0, 0)},
		"revocations":      &listRevocationsInput{},
		"revocations, all": &listRevocationsInput{page("revocations"), "ca", 1, "superseded"},
		"sessions":         &listSessionsInput{},
		"sessions, all":    &listSessionsInput{page("sessions"), "default", asn, Address{value: prefix.Addr()}, Prefix(network), "up", "x"},
	}
}
