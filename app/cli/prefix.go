package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"hubn/registry/client"
)

var (
	prefixKinds    = []string{"container", "allocation", "assignment", "reserved"}
	prefixStatuses = []string{"planned", "active", "retired"}
	reverseModes   = []string{"inherit", "off", "hosted", "delegated"}
	rfc2317Styles  = []string{"dash", "slash", "first"}
)

func (s *shell) prefix() *noun[client.Prefix] {
	return &noun[client.Prefix]{
		shell: s, command_: "prefix", name: "prefix", plural: "prefixes",
		about: "Prefixes: allocations with their routing and reverse-DNS settings", kind: client.KindPrefix, path: "/v1/prefixes",
		argument: "a prefix: itself, such as 192.0.2.0/24, or its id", id: prefixID, key: "prefix",
		fields:  prefixFields(),
		implied: implyPrefix,
		filters: []filter{
			{flag: "within", usage: "only those inside this prefix"},
			{flag: "covers", usage: "only those around this prefix or address"},
			{flag: "exact", usage: "only this prefix"},
			{flag: "longest", usage: "only the smallest one around this prefix or address"},
			{flag: "organisation", usage: "only those that this organisation holds"},
			{flag: "parent", usage: "only the children of the prefix with this id"},
			{flag: "kind", usage: "only those of this kind: " + strings.Join(prefixKinds, ", "), values: prefixKinds},
			{flag: "origin", usage: "only those that this AS number may originate"},
			{flag: "status", usage: "only those with this status: " + strings.Join(prefixStatuses, ", "), values: prefixStatuses},
			{flag: "text", usage: "only those with this in their name"},
		},
		head: []string{"ID", "PREFIX", "KIND", "STATUS", "ORGANISATION", "ORIGIN", "REVERSE", "NAME"},
		row: func(p client.Prefix) []string {
			return []string{number(p.ID), p.Prefix.String(), kindText(p), p.Status, p.Organisation, routingText(p), string(p.Reverse.Mode), p.Name}
		},
		show:  showPrefix,
		label: func(p client.Prefix) string { return fmt.Sprintf("prefix:%d %s", p.ID, p.Prefix) },
	}
}

func prefixFields() []field {
	return []field{
		{flag: "prefix", usage: "the prefix", member: "prefix", fixed: true},
		{flag: "organisation", usage: "the handle of who holds it; none for nobody", member: "organisation", clear: "none"},
		{flag: "kind", usage: "what it is for: " + strings.Join(prefixKinds, ", "), member: "kind", values: prefixKinds},
		{flag: "status", usage: strings.Join(prefixStatuses, ", "), member: "status", values: prefixStatuses},
		{flag: "name", usage: "its name", member: "name"},
		{flag: "origin", usage: "the AS number that may originate it, AS0 for nobody; it is then announced unless --announced=false; none for no origin",
			member: "routing.origin", parse: parseASN, clear: "none"},
		{flag: "max-length", usage: "the longest prefix inside it that may be announced; none for its own length",
			member: "routing.max_length", parse: parseInt, clear: "none"},
		{flag: "announced", usage: "whether its origin may announce it", member: "routing.announced", truth: true},
		{flag: "reverse-mode", usage: "who serves its reverse zone: " + strings.Join(reverseModes, ", "), member: "reverse.mode", values: reverseModes},
		{flag: "name-server", usage: "a name server of its reverse zone; on set, all of them anew (may be repeated; empty for none)",
			member: "reverse.name_servers", many: true},
		{flag: "name-server-set", usage: "the id of a shared set of name servers, instead of its own; none for no set",
			member: "reverse.name_server_set_id", parse: parseInt, clear: "none"},
		{flag: "ds", usage: "a DS record of its reverse zone: [ZONE] KEYTAG ALGORITHM DIGESTTYPE DIGEST; on set, all of them anew (may be repeated; empty for none)",
			member: "reverse.ds", many: true, parse: parseDS},
		{flag: "rfc2317-style", usage: "how its zone is named where it is longer than /24: " + strings.Join(rfc2317Styles, ", ") + "; none for the default",
			member: "reverse.rfc2317_style", values: rfc2317Styles, clear: "none"},
		{flag: "zone-cut", usage: "the prefix length at which its reverse zones are cut; none for the default",
			member: "reverse.zone_cut", parse: parseInt, clear: "none"},
	}
}

// implyPrefix completes what was said: an origin is announced, and without one
// nothing is; name servers of a new prefix are those that it is delegated to.
func implyPrefix(body map[string]any, creating bool) {
	clearHolder(body, creating)
	if origin, ok := given(body, "routing.origin"); ok {
		if _, said := given(body, "routing.announced"); !said {
			put(body, "routing.announced", origin != nil)
		}
		if _, said := given(body, "routing.max_length"); !said && origin == nil && !creating {
			put(body, "routing.max_length", nil)
		}
	}
	_, servers := given(body, "reverse.name_servers")
	_, set := given(body, "reverse.name_server_set_id")
	if _, said := given(body, "reverse.mode"); creating && !said && (servers || set) {
		put(body, "reverse.mode", string(client.ReverseDelegated))
	}
	if creating {
		dropNulls(body)
	}
}

// dropNulls leaves out of a new object what is not set.
func dropNulls(body map[string]any) {
	for name, value := range body {
		switch v := value.(type) {
		case nil:
			delete(body, name)
		case map[string]any:
			dropNulls(v)
		}
	}
}

// prefixID is an id, or a prefix in the form in which the Registry knows it.
func prefixID(_ context.Context, _ *client.Client, text string) (string, error) {
	id := strings.TrimPrefix(text, "prefix:")
	if _, err := strconv.ParseInt(id, 10, 64); err == nil {
		return id, nil
	}
	p, err := netip.ParsePrefix(id)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is neither a prefix nor an id: write 192.0.2.0/24, 2001:db8::/32 or 17", text)
	case p != p.Masked():
		return "", fmt.Errorf("%s has host bits set: the prefix is %s", p, p.Masked())
	}
	return p.String(), nil
}

func kindText(p client.Prefix) string {
	if p.Provenance == "implied" {
		return p.Kind + ", implied"
	}
	return p.Kind
}

func routingText(p client.Prefix) string {
	if p.Routing.Origin == nil {
		return ""
	}
	text := originText(*p.Routing.Origin, p.Routing.MaxLength, p.Prefix)
	if !p.Routing.Announced {
		text += ", not announced"
	}
	return text
}

func showPrefix(w io.Writer, p client.Prefix) {
	parent, set := "", ""
	if p.ParentID != 0 {
		parent = fmt.Sprintf("prefix:%d", p.ParentID)
	}
	if p.Reverse.NameServerSetID != 0 {
		set = fmt.Sprintf("nsset:%d", p.Reverse.NameServerSetID)
	}
	pairs(w,
		[2]string{"id", number(p.ID)},
		[2]string{"prefix", p.Prefix.String()},
		[2]string{"lies in", parent},
		[2]string{"organisation", p.Organisation},
		[2]string{"kind", kindText(p)},
		[2]string{"status", p.Status},
		[2]string{"name", p.Name},
		[2]string{"origin", routingText(p)},
		[2]string{"reverse DNS", string(p.Reverse.Mode)},
		[2]string{"name servers", strings.Join(p.Reverse.NameServers, ", ") + set},
		[2]string{"DS", dsText(p.Reverse.DS)},
		[2]string{"RFC 2317 style", p.Reverse.RFC2317Style},
		[2]string{"zone cut", optionalInt(p.Reverse.ZoneCut)},
		[2]string{"revision", number(p.Revision)},
	)
}

func dsText(ds []client.DS) string {
	parts := make([]string, len(ds))
	for i, d := range ds {
		parts[i] = strings.TrimSpace(fmt.Sprintf("%s %d %d %d %s", d.Zone, d.KeyTag, d.Algorithm, d.DigestType, d.Digest))
	}
	return strings.Join(parts, "; ")
}
