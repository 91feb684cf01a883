package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// grantRoles are what a grant may give.
var grantRoles = []string{"viewer", "member", "allocator", "operator", "authority", "auditor"}

func (s *shell) grantCommand() *cobra.Command {
	n := s.grant()
	return s.group("grant", "Grants: what a token may on an organisation or a prefix", n.long,
		n.listCommand(), n.showCommand(), n.createCommand(), n.deleteCommand())
}

func (s *shell) grant() *noun[client.Grant] {
	return &noun[client.Grant]{
		shell: s, command_: "grant", name: "grant", plural: "grants", path: "/v1/grants",
		long: `What a token may on a part of the Registry: on what an organisation holds, or on a
prefix with all that lies in it, whoever holds that.

A member changes what there is, an allocator takes free space, an operator does
both and certifies, an authority certifies, an auditor reads the history, a viewer
reads contacts too.`,
		argument: "a grant: its id, as `hubn grant list` shows it", id: grantID, key: "to",
		fields: []field{
			{flag: "to", usage: "the id of the token that gets it", member: "token_id", parse: parseInt},
			{flag: "role", usage: "the role: " + strings.Join(grantRoles, ", "), member: "role", values: grantRoles},
			{flag: "organisation", usage: "on what this organisation holds", member: "organisation"},
			{flag: "prefix", usage: "on this prefix and all that lies in it", member: "prefix"},
		},
		filters: []filter{
			{flag: "of", query: "token", usage: "only those of the token with this id"},
			{flag: "role", usage: "only those with this role", values: grantRoles},
			{flag: "organisation", usage: "only those on this organisation"},
			{flag: "covers", usage: "only those on a prefix that covers this prefix or address"},
		},
		head: []string{"ID", "TOKEN", "NAME", "ROLE", "ON"},
		row: func(g client.Grant) []string {
			return []string{number(g.ID), number(g.TokenID), shorten(g.Token, 30), g.Role, grantPlace(g)}
		},
		show: func(w io.Writer, g client.Grant) {
			pairs(w, [2]string{"id", number(g.ID)}, [2]string{"token", fmt.Sprintf("%d %s", g.TokenID, g.Token)}, [2]string{"role", g.Role},
				[2]string{"on", grantPlace(g)}, [2]string{"since", moment(g.CreatedAt)})
		},
		label: func(g client.Grant) string {
			return fmt.Sprintf("grant %d: %s is %s on %s", g.ID, g.Token, g.Role, grantPlace(g))
		},
	}
}

func grantID(_ context.Context, _ *client.Client, text string) (string, error) {
	if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return "", fmt.Errorf("%q is not the id of a grant: `hubn grant list` shows them", text)
	}
	return text, nil
}

// grantPlace is what a grant is on.
func grantPlace(g client.Grant) string {
	switch {
	case g.Prefix.IsValid():
		return g.Prefix.String()
	case g.Organisation != "":
		return g.Organisation
	}
	return fmt.Sprintf("organisation:%d", g.OrganisationID)
}

// parseGrant reads ROLE@ORGANISATION or ROLE@PREFIX.
func parseGrant(text string) (client.GrantOrder, error) {
	role, place, ok := strings.Cut(text, "@")
	if !ok || role == "" || place == "" {
		return client.GrantOrder{}, fmt.Errorf("%q is not a grant: write member@EXAMPLE-ORG, or allocator@192.0.2.0/24", text)
	}
	order := client.GrantOrder{Role: role}
	if !strings.Contains(place, "/") {
		order.Organisation = place
		return order, nil
	}
	prefix, err := netip.ParsePrefix(place)
	if err != nil {
		return order, fmt.Errorf("%q is not a grant: %q is not a prefix", text, place)
	}
	order.Prefix = prefix
	return order, nil
}

// shorten cuts what would make a table too wide.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}
