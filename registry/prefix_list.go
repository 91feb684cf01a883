package registry

import (
	"context"
	"net/netip"

	"github.com/danielgtaylor/huma/v2"
	"go4.org/netipx"

	"hubn/registry/client"
)

type listPrefixesInput struct {
	PageParams
	Covers       Network `query:"covers" doc:"Those that contain this prefix or address, or are it"`
	Within       Prefix  `query:"within" doc:"Those inside of this prefix, and it"`
	Exact        Prefix  `query:"exact" doc:"This prefix"`
	Longest      Network `query:"longest" doc:"The most specific one that contains this prefix or address"`
	Parent       int64   `query:"parent" minimum:"1" doc:"The children of the prefix with this id"`
	Organisation string  `query:"organisation" maxLength:"80" doc:"Those that this organisation holds: its id or handle"`
	Kind         string  `query:"kind" enum:"container,allocation,assignment,reserved"`
	Status       string  `query:"status" enum:"planned,active,retired"`
	Origin       ASN     `query:"origin" doc:"Those that this AS may originate"`
	Text         string  `query:"text" maxLength:"200" doc:"Part of the name or of the prefix"`
}

// Resolve implements huma.Resolver.
func (in *listPrefixesInput) Resolve(huma.Context) []error {
	var f faults
	in.Covers.check(&f, "query.covers")
	in.Within.check(&f, "query.within")
	in.Exact.check(&f, "query.exact")
	in.Longest.check(&f, "query.longest")
	in.Origin.check(&f, "query.origin")
	return f.list
}

func (in *listPrefixesInput) query() (*query, error) {
	q := newQuery(sqlPrefixes)
	var after netip.Prefix
	if ok, err := in.decode("prefixes", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`p.prefix > ?::cidr`, after)
	}
	in.inTree(q)
	if in.Parent != 0 {
		q.and(`p.parent_id = ?`, in.Parent)
	}
	if in.Organisation != "" {
		q.heldBy("p.organisation_id", in.Organisation)
	}
	if in.Kind != "" {
		q.and(`p.kind = ?`, in.Kind)
	}
	if in.Status != "" {
		q.and(`p.status = ?`, in.Status)
	}
	if in.Origin.text != "" {
		q.and(`p.origin_asn = ?`, int64(in.Origin.value))
	}
	if in.Text != "" {
		q.and(`(p.name ILIKE ? OR p.prefix::text ILIKE ?)`, contains(in.Text), contains(in.Text))
	}
	q.page(`p.prefix`, in.limit())
	return q, nil
}

// inTree adds the conditions on the place in the tree, each as what the unique
// index on prefix answers.
func (in *listPrefixesInput) inTree(q *query) {
	if p := in.Covers.value; p.IsValid() {
		q.and(`p.prefix = ANY(?::cidr[])`, covering(p))
	}
	if p := in.Within.value; p.IsValid() {
		// Tree order: all that lies in p is between p and its last address.
		last := netipx.PrefixLastIP(p)
		q.and(`p.prefix BETWEEN ?::cidr AND ?::cidr`, p, netip.PrefixFrom(last, last.BitLen()))
	}
	if p := in.Exact.value; p.IsValid() {
		q.and(`p.prefix = ?::cidr`, p)
	}
	if p := in.Longest.value; p.IsValid() {
		q.and(`p.prefix = (SELECT c.prefix FROM registry.prefix c WHERE c.prefix = ANY(?::cidr[]) ORDER BY masklen(c.prefix) DESC LIMIT 1)`, covering(p))
	}
}

// covering lists every prefix that could cover p, p included.
func covering(p netip.Prefix) []netip.Prefix {
	all := make([]netip.Prefix, 0, p.Bits()+1)
	for bits := 0; bits <= p.Bits(); bits++ {
		all = append(all, netip.PrefixFrom(p.Addr(), bits).Masked())
	}
	return all
}

func (s *service) listPrefixes(ctx context.Context, in *listPrefixesInput) (*list[client.Prefix], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanPrefix, func(p client.Prefix) string { return cursor("prefixes", p.Prefix) })
}
