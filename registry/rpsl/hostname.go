package rpsl

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// maxHostName is the longest host name as text (RFC 1035 section 2.3.4: 255
// octets on the wire are 253 characters without the final dot).
const maxHostName = 253

// parseHostName reads a host name into A-labels in lower case without the final
// dot. Underscores are taken: name servers with them exist and answer.
func parseHostName(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	if name == "" {
		return "", fmt.Errorf("%q is no host name", s)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "", fmt.Errorf("%s is an address where a host name must stand", s)
	}
	name = strings.ToLower(name)
	if !isASCII(name) || strings.Contains(name, "xn--") {
		alabel, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("%q is no internationalised domain name: %w", s, err)
		}
		name = alabel
	}
	if len(name) > maxHostName {
		return "", fmt.Errorf("host name %.40q… has %d characters; at most %d are possible", s, len(name), maxHostName)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%q is no host name: %w", s, err)
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return "", fmt.Errorf("%q is no host name: its last label is a number", s)
	}
	return name, nil
}

// checkLabel holds a label to RFC 1123 section 2.1, with underscores as in RFC 8552.
func checkLabel(label string) error {
	switch {
	case label == "":
		return fmt.Errorf("it has an empty label")
	case len(label) > 63:
		return fmt.Errorf("label %.20q… is longer than 63 characters", label)
	}
	for i := range len(label) {
		c := label[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '_' && (i == 0 || i < len(label)-1):
		case c == '-' && i > 0 && i < len(label)-1:
		default:
			return fmt.Errorf("label %q has %q at position %d", label, c, i+1)
		}
	}
	return nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
