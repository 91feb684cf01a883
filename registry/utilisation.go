package registry

import (
	"context"
	"math/big"
	"net/netip"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/registry/client"
)

// idText is an id as paths and lanes write it.
func idText(id int64) string { return strconv.FormatInt(id, 10) }

type freeInput struct {
	PrefixPath
	PageParams
	Length int `query:"length" minimum:"0" maximum:"128" doc:"Only blocks with room for a prefix of this length"`
}

func (s *service) listFree(ctx context.Context, in *freeInput) (*list[client.FreeBlock], error) {
	var after netip.Prefix
	if _, err := in.decode("free", &after); err != nil {
		return nil, err
	}
	out := &list[client.FreeBlock]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		pool, err := in.find(ctx, tx)
		if err != nil {
			return err
		}
		sp, err := readSpace(ctx, tx, pool)
		if err != nil {
			return err
		}
		var blocks []client.FreeBlock
		for _, p := range sp.free() {
			if after.IsValid() && p.Addr().Compare(after.Addr()) <= 0 || in.Length > 0 && p.Bits() > in.Length {
				continue
			}
			if blocks = append(blocks, client.FreeBlock{Prefix: p, Addresses: size(p).String()}); len(blocks) > in.limit() {
				break
			}
		}
		out.Body.Items, out.Body.Next = paged(blocks, in.limit(), func(last client.FreeBlock) string { return cursor("free", last.Prefix) })
		return nil
	})
	return out, err
}

type utilisationOutput struct {
	Body client.Utilisation
}

func (s *service) getUtilisation(ctx context.Context, in *getPrefixInput) (*utilisationOutput, error) {
	out := &utilisationOutput{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		pool, err := in.find(ctx, tx)
		if err != nil {
			return err
		}
		out.Body, err = utilisation(ctx, tx, pool)
		return err
	})
	return out, err
}

// utilisation counts what is taken of a prefix. Each address counts once.
func utilisation(ctx context.Context, q batcher, pool client.Prefix) (client.Utilisation, error) {
	sp, err := readSpace(ctx, q, pool)
	if err != nil {
		return client.Utilisation{}, err
	}
	free := sp.free()
	all := size(pool.Prefix)
	unused := size(left(sp.pool, sp.used())...)
	used := new(big.Int).Sub(all, unused)
	u := client.Utilisation{
		ID: pool.ID, Prefix: pool.Prefix, Kind: pool.Kind, Organisation: pool.Organisation, Name: pool.Name,
		Children: len(sp.children), Addresses: all.String(), Used: used.String(), Free: size(free...).String(),
		Quarantined: new(big.Int).Sub(unused, size(free...)).String(),
	}
	u.UsedPercent, _ = new(big.Rat).SetFrac(new(big.Int).Mul(used, big.NewInt(100)), all).Float64()
	if most, ok := largest(free); ok {
		u.LargestFree = &most
	}
	return u, nil
}

type listUtilisationInput struct {
	Limit        int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many pools one page holds"`
	After        string `query:"after" doc:"The next of the page before; opaque"`
	Within       Prefix `query:"within" doc:"Pools inside of this prefix, and it"`
	Organisation string `query:"organisation" maxLength:"80" doc:"Those that this organisation holds: its id or handle"`
}

// Resolve implements huma.Resolver.
func (in *listUtilisationInput) Resolve(huma.Context) []error {
	var f faults
	in.Within.check(&f, "query.within")
	return f.list
}

func (in *listUtilisationInput) query() (*query, error) {
	q := newQuery(sqlPrefixes)
	q.and(`p.kind IN ('container', 'allocation')`)
	var after netip.Prefix
	if ok, err := (PageParams{After: in.After}).decode("utilisation", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`p.prefix > ?::cidr`, after)
	}
	if p := in.Within.value; p.IsValid() {
		last := netipx.PrefixLastIP(p)
		q.and(`p.prefix BETWEEN ?::cidr AND ?::cidr`, p, netip.PrefixFrom(last, last.BitLen()))
	}
	if in.Organisation != "" {
		q.heldBy("p.organisation_id", in.Organisation)
	}
	q.page(`p.prefix`, in.Limit)
	return q, nil
}

func (s *service) listUtilisation(ctx context.Context, in *listUtilisationInput) (*list[client.Utilisation], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	out := &list[client.Utilisation]{}
	err = s.read(ctx, func(ctx context.Context, tx *reading) error {
		rows, err := tx.Query(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		pools, err := pgx.CollectRows(rows, scanPrefix)
		if err != nil {
			return err
		}
		pools, out.Body.Next = paged(pools, in.Limit, func(last client.Prefix) string { return cursor("utilisation", last.Prefix) })
		out.Body.Items = make([]client.Utilisation, len(pools))
		for i, pool := range pools {
			if out.Body.Items[i], err = utilisation(ctx, tx, pool); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
