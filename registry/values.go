package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/net/idna"

	"hubn/registry/client"
)

// The types of input below are parsed once, where a request is decoded. They keep
// the text and the fault instead of failing, so that a request's check can name
// every bad field with its location.

// given is text as it was typed, and what is wrong with it.
type given struct {
	text string
	err  error
}

// check reports what is wrong.
func (g given) check(f *faults, location string) {
	if g.err != nil {
		f.add(location, g.err, g.text)
	}
}

// Prefix is an IP prefix without host bits.
type Prefix struct {
	given
	value netip.Prefix
}

// UnmarshalText reads a prefix in any spelling.
func (p *Prefix) UnmarshalText(b []byte) error {
	p.text = string(b)
	p.value, p.err = parsePrefix(p.text)
	return nil
}

// MarshalText is the canonical form (RFC 5952), or what was typed if it is none.
func (p Prefix) MarshalText() ([]byte, error) {
	if p.err != nil || !p.value.IsValid() {
		return []byte(p.text), nil
	}
	return p.value.MarshalText()
}

// Schema implements huma.SchemaProvider.
func (Prefix) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(49), Examples: []any{"2001:db8::/32"},
		Description: "An IPv4 or IPv6 prefix without host bits; answers are in the form of RFC 5952"}
}

// Network is a prefix or a single address, for questions such as "what covers it".
type Network struct {
	given
	value netip.Prefix
}

// UnmarshalText reads a prefix or an address.
func (n *Network) UnmarshalText(b []byte) error {
	n.text = string(b)
	n.value, n.err = parseNetwork(n.text)
	return nil
}

// MarshalText is the canonical form of the prefix, or what was typed if it is none.
func (n Network) MarshalText() ([]byte, error) { return Prefix(n).MarshalText() }

// Schema implements huma.SchemaProvider.
func (Network) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(49), Examples: []any{"2001:db8::1"},
		Description: "An IPv4 or IPv6 prefix, or an address"}
}

// Address is the address of one host.
type Address struct {
	given
	value netip.Addr
}

// UnmarshalText reads an address in any spelling.
func (a *Address) UnmarshalText(b []byte) error {
	a.text = string(b)
	a.value, a.err = parseAddress(a.text)
	return nil
}

// MarshalText is the canonical form (RFC 5952), or what was typed if it is none.
func (a Address) MarshalText() ([]byte, error) {
	if a.err != nil || !a.value.IsValid() {
		return []byte(a.text), nil
	}
	return a.value.MarshalText()
}

// Schema implements huma.SchemaProvider.
func (Address) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(45), Examples: []any{"2001:db8::1"},
		Description: "An IPv4 or IPv6 address; answers are in the form of RFC 5952"}
}

// HostName is a domain name of a host as it was typed and as the DNS carries it.
type HostName struct {
	given
	value string // A-labels, lower case, without the final dot
}

// UnmarshalText reads a name, in Unicode or in A-labels.
func (h *HostName) UnmarshalText(b []byte) error {
	h.text = string(b)
	h.value, h.err = parseHostName(h.text)
	return nil
}

// MarshalText is the name as it was typed.
func (h HostName) MarshalText() ([]byte, error) { return []byte(h.text), nil }

// Schema implements huma.SchemaProvider.
func (HostName) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(1000), Examples: []any{"host.example.net"},
		Description: "A host name, in Unicode or in A-labels"}
}

// ASN is an AS number: 64496, "64496" or "AS64496".
type ASN struct {
	given
	value client.ASN
}

// UnmarshalJSON reads a number or a text.
func (a *ASN) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		return a.UnmarshalText([]byte(text))
	}
	return a.UnmarshalText(b)
}

// UnmarshalText reads "64496" or "AS64496".
func (a *ASN) UnmarshalText(b []byte) error {
	a.text = strings.TrimSpace(string(b))
	a.value, a.err = client.ParseASN(a.text)
	return nil
}

// MarshalJSON is the number.
func (a ASN) MarshalJSON() ([]byte, error) {
	if a.err != nil {
		return json.Marshal(a.text)
	}
	return json.Marshal(uint32(a.value))
}

// Schema implements huma.SchemaProvider.
func (ASN) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "An AS number, as a number or as text such as AS64496",
		OneOf: []*huma.Schema{
			asNumber(0).Schema(nil),
			{Type: huma.TypeString, Pattern: `^\s*([aA][sS])?\d{1,10}(\.\d{1,5})?\s*$`},
		},
	}
}

// asNumber describes client.ASN in answers.
type asNumber uint32

// Schema implements huma.SchemaProvider.
func (asNumber) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(0.0), Maximum: new(4294967295.0),
		Description: "An AS number", Examples: []any{64496}}
}

var errEmpty = errors.New("it is empty: write a value, or leave it out where that is allowed")

// parsePrefix reads a prefix, and says of one that is nearly right what is right.
func parsePrefix(text string) (netip.Prefix, error) {
	t := strings.TrimSpace(text)
	address, length, ok := strings.Cut(t, "/")
	if t == "" {
		return netip.Prefix{}, errEmpty
	}
	if !ok {
		if a, err := netip.ParseAddr(t); err == nil {
			return netip.Prefix{}, fmt.Errorf("%s has no prefix length: for this one address write %s/%d", t, a.WithZone(""), a.BitLen())
		}
		return netip.Prefix{}, fmt.Errorf("%q is not a prefix: write for example 192.0.2.0/24 or 2001:db8::/32", text)
	}
	a, err := parseAddress(address)
	if err != nil {
		return netip.Prefix{}, mappedPrefix(address, length, err)
	}
	bits, err := strconv.Atoi(length)
	if err != nil || strconv.Itoa(bits) != length || bits < 0 || bits > a.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%q is not a prefix length of %s: it is 0 to %d, without leading zeros", length, a, a.BitLen())
	}
	p := netip.PrefixFrom(a, bits)
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%s has host bits set: the prefix is %s", p, p.Masked())
	}
	return p, nil
}

// mappedPrefix names the IPv4 prefix that an IPv4-mapped one stands for.
func mappedPrefix(address, length string, err error) error {
	a, addressErr := netip.ParseAddr(address)
	bits, lengthErr := strconv.Atoi(length)
	if addressErr != nil || lengthErr != nil || !a.Is4In6() || bits < 96 || bits > 128 {
		return err
	}
	return fmt.Errorf("%s/%s is an IPv4-mapped IPv6 prefix: write %s", address, length, netip.PrefixFrom(a.Unmap(), bits-96).Masked())
}

// parseNetwork reads a prefix, or an address as the prefix of that one address.
func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return parsePrefix(text)
	}
	a, err := parseAddress(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// parseAddress reads the address of one host.
func parseAddress(text string) (netip.Addr, error) {
	t := strings.TrimSpace(text)
	if t == "" {
		return netip.Addr{}, errEmpty
	}
	if strings.Contains(t, "/") {
		return netip.Addr{}, fmt.Errorf("%q is a prefix: write one address, without a length", text)
	}
	a, err := netip.ParseAddr(t)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%q is not an IP address: write for example 192.0.2.1 or 2001:db8::1", text)
	case a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s has the zone %q, which means something on one machine only: leave it out", t, a.Zone())
	case a.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s is an IPv4-mapped IPv6 address: write %s", t, a.Unmap())
	}
	return a, nil
}

// names turns what people type into A-labels: mapped to lower case and composed
// (UTS 46), not transitional. Whether the result fits the DNS is checked after.
var names = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.ValidateLabels(true),
	idna.CheckHyphens(false), idna.StrictDomainName(false)) // the last two undo what ValidateLabels adds

// parseHostName turns a name into lower-case A-labels without the final dot.
func parseHostName(text string) (string, error) {
	t := strings.TrimSuffix(strings.TrimSpace(text), ".")
	if t == "" {
		return "", errEmpty
	}
	if _, err := netip.ParseAddr(t); err == nil {
		return "", fmt.Errorf("%q is an address where a host name must stand", text)
	}
	name, err := names.ToASCII(t)
	if err != nil {
		return "", fmt.Errorf("%q is not a host name: %s", text, strings.TrimPrefix(err.Error(), "idna: "))
	}
	name = strings.TrimSuffix(name, ".")
	// What is not the form of anything, such as bytes that are no UTF-8, comes
	// out as A-labels that do not read back.
	if again, err := names.ToASCII(name); err != nil || again != name {
		return "", fmt.Errorf("%q is not a host name: it holds characters that no name has", text)
	}
	// A name of 253 characters has 255 octets on the wire (RFC 1035 section 3.1).
	if len(name) > 253 {
		return "", fmt.Errorf("%q has %d characters in A-labels: a name has at most 253", text, len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%q is not a host name: %w", text, err)
		}
	}
	// What looks like an address must not be a name (RFC 1123 section 2.1).
	if last := name[strings.LastIndexByte(name, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return "", fmt.Errorf("%q is not a host name: its last label is a number", text)
	}
	return name, nil
}

// checkLabel is RFC 1123 section 2.1, with the underscore that RFC 8552 names begin with.
func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("it has an empty label: two dots in a row, or one at the beginning")
	case len(label) > 63:
		return fmt.Errorf("the label %q has %d characters in A-labels: a label has at most 63", label, len(label))
	case strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-"):
		return fmt.Errorf("the label %q begins or ends with a dash", label)
	case strings.HasSuffix(label, "_"):
		return fmt.Errorf("the label %q ends with an underscore", label)
	}
	for _, c := range label {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("the label %q contains %q: letters, digits and dashes are allowed", label, c)
		}
	}
	return nil
}
