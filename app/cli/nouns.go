package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *shell) organisation() *noun[client.Organisation] {
	return &noun[client.Organisation]{
		shell: s, command_: "organisation", name: "organisation", plural: "organisations",
		about: "Organisations: who holds resources", kind: client.KindOrganisation, path: "/v1/organisations",
		argument: "an organisation: its handle or id", id: idOr(client.KindOrganisation, asTyped), key: "handle",
		fields: []field{
			{flag: "handle", usage: "its handle, which is unique", member: "handle"},
			{flag: "name", usage: "its name", member: "name"},
			{flag: "contact", usage: "how to reach it", member: "contact"},
		},
		filters: []filter{{flag: "text", usage: "only those with this in handle, name or contact"}},
		head:    []string{"ID", "HANDLE", "NAME", "CONTACT"},
		row: func(o client.Organisation) []string {
			return []string{number(o.ID), o.Handle, o.Name, o.Contact}
		},
		show: func(w io.Writer, o client.Organisation) {
			pairs(w, [2]string{"id", number(o.ID)}, [2]string{"handle", o.Handle}, [2]string{"name", o.Name},
				[2]string{"contact", contactText(o)}, [2]string{"revision", number(o.Revision)})
		},
		label: func(o client.Organisation) string { return fmt.Sprintf("organisation:%d %s", o.ID, o.Handle) },
	}
}

// contactText tells a contact that is hidden from one that there is not.
func contactText(o client.Organisation) string {
	if o.ContactHidden {
		return "not shown to this token"
	}
	return o.Contact
}

func (s *shell) asn() *noun[client.ASNHolder] {
	return &noun[client.ASNHolder]{
		shell: s, command_: "asn", name: "AS number", plural: "AS numbers",
		about: "AS numbers and who holds them", kind: client.KindASN, path: "/v1/asns",
		argument: "an AS number, such as AS64496", id: asnID, key: "number",
		fields: []field{
			{flag: "number", usage: "the AS number", member: "number", fixed: true, parse: parseASN},
			{flag: "organisation", usage: "the handle of who holds it; none for nobody", member: "organisation", clear: "none"},
			{flag: "name", usage: "its name", member: "name"},
		},
		implied: clearHolder,
		filters: []filter{
			{flag: "organisation", usage: "only those that this organisation holds"},
			{flag: "text", usage: "only those with this in their name"},
		},
		head: []string{"NUMBER", "ORGANISATION", "NAME", "SPECIAL"},
		row: func(n client.ASNHolder) []string {
			return []string{n.Number.String(), n.Organisation, n.Name, n.Special}
		},
		show: func(w io.Writer, n client.ASNHolder) {
			pairs(w, [2]string{"number", n.Number.String()}, [2]string{"organisation", n.Organisation}, [2]string{"name", n.Name},
				[2]string{"special", n.Special}, [2]string{"revision", number(n.Revision)})
		},
		label: func(n client.ASNHolder) string { return n.Number.String() },
	}
}

func (s *shell) ptr() *noun[client.PTRRecord] {
	return &noun[client.PTRRecord]{
		shell: s, command_: "ptr", name: "PTR record", plural: "PTR records",
		about: "PTR records: the names of addresses", kind: client.KindPTR, path: "/v1/ptr-records",
		argument: "a PTR record: its id, its address, or ADDRESS=TARGET where an address has several", id: ptrID, key: "address",
		fields: []field{
			{flag: "address", usage: "the address", member: "address", fixed: true},
			{flag: "target", usage: "the host name that it points to", member: "target"},
			{flag: "ttl", usage: "its TTL in seconds; none for the zone's", member: "ttl", parse: parseInt, clear: "none"},
		},
		filters: []filter{
			{flag: "address", usage: "only those of this address"},
			{flag: "within", usage: "only those inside this prefix"},
			{flag: "text", usage: "only those with this in their target"},
		},
		head: []string{"ID", "ADDRESS", "TARGET", "TTL"},
		row: func(r client.PTRRecord) []string {
			return []string{number(r.ID), r.Address.String(), r.Target, optionalInt(r.TTL)}
		},
		show: func(w io.Writer, r client.PTRRecord) {
			pairs(w, [2]string{"id", number(r.ID)}, [2]string{"address", r.Address.String()}, [2]string{"target", r.Target},
				[2]string{"typed as", differs(r.TargetTyped, r.Target)}, [2]string{"ttl", optionalInt(r.TTL)}, [2]string{"revision", number(r.Revision)})
		},
		label: func(r client.PTRRecord) string {
			return fmt.Sprintf("PTR record %d, %s → %s", r.ID, r.Address, r.Target)
		},
	}
}

func (s *shell) anycast() *noun[client.Anycast] {
	return &noun[client.Anycast]{
		shell: s, command_: "anycast", name: "anycast allocation", plural: "anycast allocations",
		about: "Anycast allocations: prefixes that several AS numbers may originate", kind: client.KindAnycast, path: "/v1/anycast",
		argument: "an anycast allocation: its id or its prefix", id: anycastID, key: "prefix",
		fields: []field{
			{flag: "prefix", usage: "the prefix", member: "prefix", fixed: true},
			{flag: "service", usage: "what it is for; with the prefix it is unique", member: "service"},
			{flag: "origin", usage: "a route origin, AS64496 or AS64496,24 with its maxLength; on set, all of them anew (may be repeated)",
				member: "origins", many: true, parse: parseOrigin},
		},
		filters: []filter{
			{flag: "prefix", usage: "only those of this prefix"},
			{flag: "within", usage: "only those inside this prefix"},
			{flag: "organisation", usage: "only those that this organisation holds"},
			{flag: "text", usage: "only those with this in their service"},
		},
		head: []string{"ID", "PREFIX", "SERVICE", "ORGANISATION", "ORIGINS"},
		row: func(a client.Anycast) []string {
			return []string{number(a.ID), a.Prefix.String(), a.Service, a.Organisation, originsText(a)}
		},
		show: func(w io.Writer, a client.Anycast) {
			pairs(w, [2]string{"id", number(a.ID)}, [2]string{"prefix", a.Prefix.String()}, [2]string{"service", a.Service},
				[2]string{"organisation", a.Organisation}, [2]string{"lies in", fmt.Sprintf("prefix:%d", a.ContainerID)},
				[2]string{"origins", originsText(a)}, [2]string{"revision", number(a.Revision)})
		},
		label: func(a client.Anycast) string { return fmt.Sprintf("anycast:%d %s %s", a.ID, a.Prefix, a.Service) },
	}
}

func originsText(a client.Anycast) string {
	parts := make([]string, len(a.Origins))
	for i, o := range a.Origins {
		parts[i] = originText(o.ASN, o.MaxLength, a.Prefix)
		if !o.Active {
			parts[i] += " (not active)"
		}
	}
	return strings.Join(parts, ", ")
}

// originText is an origin with its maxLength, where it has one of its own.
func originText(asn client.ASN, maxLength *int, prefix netip.Prefix) string {
	if maxLength == nil || *maxLength == prefix.Bits() {
		return asn.String()
	}
	return fmt.Sprintf("%s up to /%d", asn, *maxLength)
}

// clearHolder makes "no organisation" hold for both names that it has in a body.
func clearHolder(body map[string]any, creating bool) {
	holder, ok := given(body, "organisation")
	switch {
	case ok && holder == nil && creating:
		delete(body, "organisation")
	case ok && !creating:
		body["organisation_id"] = nil // the handle alone says who it is
	}
}

// idOr takes an id as it is; anything else it resolves, or leaves for the path.
func idOr(kind client.Kind, other func(context.Context, *client.Client, string) (string, error)) func(context.Context, *client.Client, string) (string, error) {
	return func(ctx context.Context, c *client.Client, text string) (string, error) {
		id := strings.TrimPrefix(text, string(kind)+":")
		if _, err := strconv.ParseInt(id, 10, 64); err == nil {
			return id, nil
		}
		return other(ctx, c, text)
	}
}

func asTyped(_ context.Context, _ *client.Client, text string) (string, error) { return text, nil }

func asnID(_ context.Context, _ *client.Client, text string) (string, error) {
	n, err := client.ParseASN(strings.TrimPrefix(text, "asn:"))
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(uint64(n), 10), nil
}

// ptrID finds the record of an address, or of address=target.
func ptrID(ctx context.Context, c *client.Client, text string) (string, error) {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text, nil
	}
	address, target, _ := strings.Cut(strings.TrimPrefix(text, "ptr:"), "=")
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("%q is not a PTR record: write its id, its address, or ADDRESS=TARGET", text)
	}
	var found []client.PTRRecord
	for r, err := range client.List[client.PTRRecord](ctx, c, "/v1/ptr-records", map[string][]string{"address": {a.String()}}) {
		if err != nil {
			return "", err
		}
		if target == "" || strings.EqualFold(strings.TrimSuffix(target, "."), r.Target) || strings.EqualFold(target, r.TargetTyped) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return "", problem.New(problem.NotFound, "there is no PTR record %s", text)
	case 1:
		return number(found[0].ID), nil
	}
	choices := make([]string, len(found))
	for i, r := range found {
		choices[i] = fmt.Sprintf("%d (%s)", r.ID, r.Target)
	}
	return "", fmt.Errorf("%s has several PTR records: name one by its id: %s", a, strings.Join(choices, ", "))
}

// anycastID finds the allocation of a prefix.
func anycastID(ctx context.Context, c *client.Client, text string) (string, error) {
	id := strings.TrimPrefix(text, "anycast:")
	if _, err := strconv.ParseInt(id, 10, 64); err == nil {
		return id, nil
	}
	resolved, err := c.Resolve(ctx, text)
	if err != nil {
		return "", err
	}
	var ids, labels []string
	for _, candidate := range append([]client.Candidate{{Resource: resolved.Resource, Label: resolved.Label}}, resolved.Candidates...) {
		if candidate.Resource.Kind == client.KindAnycast && !slices.Contains(ids, candidate.Resource.Key) {
			ids, labels = append(ids, candidate.Resource.Key), append(labels, candidate.Resource.Key+" ("+candidate.Label+")")
		}
	}
	switch len(ids) {
	case 0:
		return "", problem.New(problem.NotFound, "%s has no anycast allocation; `hubn anycast list` shows them", text)
	case 1:
		return ids[0], nil
	}
	return "", errors.New(text + " has several anycast allocations: name one by its id: " + strings.Join(labels, ", "))
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func optionalInt(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// differs is text if it is not the same as other.
func differs(text, other string) string {
	if text == other {
		return ""
	}
	return text
}
