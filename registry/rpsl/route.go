package rpsl

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// parseRoute reads a route or route6 object.
func parseRoute(h Header) (*Route, *Refusal) {
	p, err := parseKeyPrefix(h)
	if err != nil {
		return nil, h.refuse(h.Attributes[0], err.Error())
	}
	object := &Route{Header: h, Prefix: p}
	for _, a := range h.all("origin") {
		n, err := parseASN(a.Value)
		if err != nil {
			return nil, h.refuse(a, err.Error())
		}
		if !slices.Contains(object.Origins, n) {
			object.Origins = append(object.Origins, n)
		}
	}
	if h.Delete {
		return object, nil
	}
	if len(object.Origins) == 0 {
		return nil, h.refuse(h.Attributes[0], errNoOrigin.Error())
	}
	var refusal *Refusal
	if object.MaxLength, refusal = parseMaxLength(h, p); refusal != nil {
		return nil, refusal
	}
	if object.Organisation, refusal = h.organisation(); refusal != nil {
		return nil, refusal
	}
	return object, nil
}

// parseKeyPrefix reads the key of a route: a prefix, or a range that is one.
func parseKeyPrefix(h Header) (netip.Prefix, error) {
	r, err := parseRange(h.Key)
	if err != nil {
		return netip.Prefix{}, err
	}
	if err := checkFamily(h.Class, r.From()); err != nil {
		return netip.Prefix{}, err
	}
	prefixes := splitRange(r)
	if len(prefixes) > 1 {
		return netip.Prefix{}, fmt.Errorf("%s is not one prefix but %d; write a route for each", h.Key, len(prefixes))
	}
	return prefixes[0], checkNotMapped(prefixes[0])
}

// checkFamily refuses an object whose key is of the other address family.
func checkFamily(class Class, a netip.Addr) error {
	if class.holds(a) {
		return nil
	}
	family := "IPv4"
	if a.Is6() {
		family = "IPv6"
	}
	return fmt.Errorf("%s is %s, which belongs into a %s object", a, family, class.sibling())
}

// parseMaxLength reads max-length, which lies between the prefix's own length
// and that of an address (RFC 9582 section 4.3.2.2).
func parseMaxLength(h Header, p netip.Prefix) (*int, *Refusal) {
	a, ok, refusal := h.one("max-length")
	if refusal != nil || !ok {
		return nil, refusal
	}
	n, err := strconv.ParseUint(a.Value, 10, 8)
	if err != nil {
		return nil, h.refuse(a, fmt.Sprintf("max-length %q is no length; write a number such as %d", a.Value, p.Bits()))
	}
	length := int(n)
	if length < p.Bits() || length > p.Addr().BitLen() {
		return nil, h.refuse(a, fmt.Sprintf("max-length %d is not between %d, the length of %s, and %d", length, p.Bits(), p, p.Addr().BitLen()))
	}
	return &length, nil
}
