package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"hubn/app/problem"
	"hubn/registry/client"
)

var (
	sessionFamilies = []string{"ipv4-unicast", "ipv6-unicast"}
	sessionWanted   = []string{"up", "down"}
)

func (s *shell) session() *noun[client.Session] {
	return &noun[client.Session]{
		shell: s, command_: "session", name: "BGP session", plural: "BGP sessions",
		about: "BGP sessions as they ought to be", kind: client.KindSession, path: "/v1/sessions",
		argument: "a BGP session: its id or its remote address", id: sessionID, key: "remote-address",
		fields: []field{
			{flag: "remote-address", usage: "the address of the other end; with the collector it is unique", member: "remote_address"},
			{flag: "remote-asn", usage: "the AS number of the other end", member: "remote_asn", parse: parseASN},
			{flag: "collector", usage: "the collector that opens it: default if not given", member: "collector"},
			{flag: "local-asn", usage: "the AS number of this end; none for the collector's own", member: "local_asn", parse: parseASN, clear: "none"},
			{flag: "local-address", usage: "the address of this end; none for any", member: "local_address", clear: "none"},
			{flag: "family", usage: "a family of routes, " + strings.Join(sessionFamilies, " or ") + "; both if not given (may be repeated)",
				member: "families", many: true, values: sessionFamilies},
			{flag: "password-file", usage: "the file with its password for TCP MD5 (RFC 2385); - for standard input, none for no password",
				member: "password", parse: parsePasswordFile, clear: "none"},
			{flag: "max-prefixes", usage: "more routes than this end it; none for no bound", member: "max_prefixes", parse: parseInt, clear: "none"},
			{flag: "wanted", usage: strings.Join(sessionWanted, ", "), member: "wanted", values: sessionWanted},
			{flag: "description", usage: "what people should know of it", member: "description"},
		},
		implied: func(body map[string]any, creating bool) {
			if creating {
				dropNulls(body)
			}
		},
		filters: []filter{
			{flag: "collector", usage: "only those of this collector"},
			{flag: "remote-asn", usage: "only those with this AS"},
			{flag: "remote-address", usage: "only those with this address"},
			{flag: "within", usage: "only those whose remote address lies in this prefix"},
			{flag: "wanted", usage: "only those that are wanted " + strings.Join(sessionWanted, " or "), values: sessionWanted},
			{flag: "text", usage: "only those with this in their description"},
		},
		head: []string{"ID", "COLLECTOR", "REMOTE ADDRESS", "REMOTE ASN", "WANTED", "PASSWORD", "DESCRIPTION"},
		row: func(b client.Session) []string {
			return []string{number(b.ID), shorten(b.Collector, 16), b.RemoteAddress.String(), b.RemoteASN.String(), b.Wanted, passwordText(b), shorten(b.Description, 24)}
		},
		show: showSession,
		label: func(b client.Session) string {
			return fmt.Sprintf("session:%d %s %s", b.ID, b.RemoteAddress, b.RemoteASN)
		},
	}
}

func showSession(w io.Writer, b client.Session) {
	local, asn, most := "", "", ""
	if b.LocalAddress.IsValid() {
		local = b.LocalAddress.String()
	}
	if b.LocalASN != 0 {
		asn = b.LocalASN.String()
	}
	if b.MaxPrefixes != 0 {
		most = strconv.Itoa(b.MaxPrefixes)
	}
	pairs(w, [2]string{"id", number(b.ID)}, [2]string{"collector", b.Collector}, [2]string{"local address", local}, [2]string{"local ASN", asn},
		[2]string{"remote address", b.RemoteAddress.String()}, [2]string{"remote ASN", b.RemoteASN.String()}, [2]string{"families", strings.Join(b.Families, ", ")},
		[2]string{"password", passwordText(b)}, [2]string{"max prefixes", most}, [2]string{"wanted", b.Wanted}, [2]string{"description", b.Description},
		[2]string{"revision", number(b.Revision)})
}

func passwordText(b client.Session) string {
	if b.PasswordSet {
		return "set"
	}
	return ""
}

// parsePasswordFile reads a password, less the end of its line. It comes from a file
// because everybody on the machine sees the arguments of a command.
func parsePasswordFile(path string) (any, error) {
	content, err := readFile(path, 4096)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if text == "" {
		return nil, errors.New("it is empty: write a password into the file, or none for no password")
	}
	return text, nil
}

// sessionID finds the session with an address.
func sessionID(ctx context.Context, c *client.Client, text string) (string, error) {
	id := strings.TrimPrefix(text, "session:")
	if _, err := strconv.ParseInt(id, 10, 64); err == nil {
		return id, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return "", fmt.Errorf("%q is neither the address nor the id of a BGP session", text)
	}
	page, err := client.ListPage[client.Session](ctx, c, "/v1/sessions", url.Values{"remote_address": {a.String()}})
	switch {
	case err != nil:
		return "", err
	case len(page.Items) == 0:
		return "", problem.New(problem.NotFound, "there is no BGP session with %s; `hubn session list` shows them", a)
	case len(page.Items) == 1:
		return number(page.Items[0].ID), nil
	}
	choices := make([]string, len(page.Items))
	for i, b := range page.Items {
		choices[i] = fmt.Sprintf("%d (%s)", b.ID, b.Collector)
	}
	return "", fmt.Errorf("several collectors have a BGP session with %s: name one by its id: %s", a, strings.Join(choices, ", "))
}
