package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"hubn/app/problem"
	"hubn/registry/client"
	"hubn/registry/rdap"
)

func (s *shell) whoisCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "whois QUERY",
		Short: "Ask what the Registry tells everybody: who holds an address, an AS number, a zone",
		Long: `Ask the Registry's RDAP and show the answer as whois does: the most specific
network that holds an address or prefix, with its routes, its holder and what it
lies in; an AS number; an organisation with what it holds; the reverse zone that a
name in in-addr.arpa or ip6.arpa lies in; a name server of reverse zones.

How to reach a holder is shown to those whose token may read contacts. No token is
needed for the rest. --output json shows the RDAP document (RFC 9083).`,
		Args: s.arguments(1, 1, "an address, a prefix, an AS number, a handle or a name"),
	}, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		document, err := s.lookUp(ctx, cl, args[0])
		if err != nil {
			return err
		}
		if out.json() {
			return out.Print(document, nil)
		}
		found, err := rdap.Decode(document)
		if err != nil {
			return fmt.Errorf("the answer cannot be read: %w", err)
		}
		around, err := networksAround(ctx, cl, found)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out.cmd.OutOrStdout(), rdap.Text(found)+rdap.TextAround(around))
		return err
	})
}

// lookUp answers the likeliest thing that there is of what a word may mean.
func (s *shell) lookUp(ctx context.Context, cl *client.Client, text string) (document json.RawMessage, err error) {
	queries := rdap.Queries(text)
	if len(queries) == 0 {
		return nil, s.usage("nothing is asked for: write an address, a prefix, an AS number, a handle or a name")
	}
	for _, q := range queries {
		document, err = cl.RDAP(ctx, q.Path())
		if !problem.Is(err, problem.NotFound) {
			break
		}
	}
	return document, err
}

// maxAround bounds how far up the tree the answers are followed: an IPv6 address
// lies in 128 networks at most, and in some four in practice.
const maxAround = 32

// networksAround are the networks that a network lies in, the most specific first.
func networksAround(ctx context.Context, cl *client.Client, found any) ([]*rdap.Network, error) {
	var around []*rdap.Network
	n, ok := found.(*rdap.Network)
	for ok && n.Above().IsValid() && len(around) < maxAround {
		above := n.Above()
		document, err := cl.RDAP(ctx, rdap.LookupIP+"/"+url.PathEscape(above.Addr().String())+"/"+fmt.Sprint(above.Bits()))
		if problem.Is(err, problem.NotFound) {
			break // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		object, err := rdap.Decode(document)
		if err != nil {
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		}
		if n, ok = object.(*rdap.Network); ok {
			around = append(around, n)
		}
	}
	return around, nil
}
