package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/jackc/pgx/v5"
)

// layout is a registry of a size: a tree of /8, /16, /24 and /26 from 10.0.0.0 on.
// Each level is dense, and ids follow the levels in address order.
type layout [4]int

var layoutLengths = [4]int{8, 16, 24, 26}

// layoutOf has a given number of prefixes, three quarters of which are leaves.
func layoutOf(total int) layout {
	up := func(n, by int) int { return (n + by - 1) / by }
	leaves := total * 3 / 4
	middle := up(total/4, 256)
	top := up(middle, 256)
	return layout{top, middle, total - leaves - middle - top, leaves}
}

func (l layout) total() int { return l[0] + l[1] + l[2] + l[3] }

// address is an address in a random leaf.
func (l layout) address() netip.Addr { return addressAt(rand.N(l[3])<<6 | rand.N(64)) }

// block is a random /24.
func (l layout) block() netip.Prefix { return netip.PrefixFrom(addressAt(rand.N(l[2])<<8), 24) }

func addressAt(offset int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(offset))
	return netip.AddrFrom4(a)
}

const (
	// The level that a statement makes, and the one above it: number, first id, length.
	insertLevel = `
INSERT INTO registry.prefix (id, prefix, parent_id, parent_prefix, kind, name, announced, origin_asn)
OVERRIDING SYSTEM VALUE
SELECT $2::bigint + i,
       set_masklen(('10.0.0.0'::inet + (i << (32 - $3::integer)))::cidr, $3::integer),
       CASE WHEN $5::integer > 0 THEN $4::bigint + (i >> ($3::integer - $5::integer)) END,
       CASE WHEN $5::integer > 0 THEN set_masklen(set_masklen(('10.0.0.0'::inet + (i << (32 - $3::integer)))::cidr, $5::integer)::cidr, $5::integer) END,
       $6,
       'block ' || i,
       $6 = 'assignment',
       CASE WHEN $6 = 'assignment' THEN 64496 + i % 16 END
FROM generate_series(0, $1::bigint - 1) i`
	insertLanes = `
INSERT INTO registry.outbox_lane (stream_no, agg_type, agg_key, last_seq, pub_seq)
SELECT registry.stream_of('prefix', id::text), 'prefix', id::text, 1, 1
FROM registry.prefix`
)

// filled is a Registry with so many prefixes, all of them published. What its reads
// do not look at is left out, since it takes minutes to make: the index that keeps
// siblings apart, the change log and the events.
func filled(ctx context.Context, b *bench, s *servers, name string, total int) (*registryAPI, error) {
	progress("registry: %d prefixes", total)
	if err := s.admin(ctx, `CREATE DATABASE `+name+` TEMPLATE registry_empty STRATEGY FILE_COPY`); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	l := layoutOf(total)
	for _, sql := range []string{
		`SET session_replication_role = replica`, // no triggers, no foreign keys
		`SET synchronous_commit = off`,
		`SET maintenance_work_mem = '512MB'`,
		`ALTER TABLE registry.prefix DROP CONSTRAINT prefix_siblings_disjoint`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	first, above, aboveLength := 1, 0, 0
	for i, n := range l {
		kind := []string{"container", "container", "allocation", "assignment"}[i]
		if _, err := conn.Exec(ctx, insertLevel, n, first, layoutLengths[i], above, aboveLength, kind); err != nil {
			return nil, fmt.Errorf("level /%d: %w", layoutLengths[i], err)
		}
		above, aboveLength, first = first, layoutLengths[i], first+n
	}
	for _, sql := range []string{insertLanes, `SELECT setval('registry.prefix_id_seq', (SELECT max(id) FROM registry.prefix))`, `VACUUM ANALYZE`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	api, err := serveRegistry(ctx, b, s, name)
	if err != nil {
		return nil, err
	}
	api.layout = l
	return api, nil
}
