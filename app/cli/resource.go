package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hubn/registry/client"
)

// resource finds the aggregate that a person means: prefix:17, 192.0.2.0/24,
// AS64496, 2001:db8::1, the handle of an organisation.
func resource(ctx context.Context, c *client.Client, text string) (client.Resource, string, error) {
	if r, ok := named(text); ok {
		return r, "", nil
	}
	found, err := c.Resolve(ctx, text)
	if err != nil {
		return client.Resource{}, "", err
	}
	return found.Resource, found.Label, nil
}

// named reads kind:number, which needs no question; every other form the Registry
// resolves.
func named(text string) (client.Resource, bool) {
	if _, err := netip.ParseAddr(text); err == nil {
		return client.Resource{}, false // 2001:db8::1 has colons too
	}
	r, err := client.ParseResource(text)
	if err != nil || !slices.Contains(client.SourceKinds, r.Kind) {
		return client.Resource{}, false
	}
	switch r.Kind {
	case client.KindPTR:
		if a, err := netip.ParseAddr(r.Key); err == nil {
			return client.Resource{Kind: r.Kind, Key: a.String()}, true
		}
		return client.Resource{}, false
	case client.KindASN:
		if n, err := client.ParseASN(r.Key); err == nil {
			return client.Resource{Kind: r.Kind, Key: fmt.Sprint(uint32(n))}, true
		}
		return client.Resource{}, false
	}
	if strings.Trim(r.Key, "0123456789") != "" {
		return client.Resource{}, false
	}
	return r, true
}

// title is a resource with what people call it.
func title(r client.Resource, label string) string {
	if label == "" || label == r.Key {
		return r.String()
	}
	return r.String() + "  " + label
}
