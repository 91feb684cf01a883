package registry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hubn/app/problem"
	"hubn/registry/client"
)

func ptr[T any](v T) *T { return &v }

var sameAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// strictly decodes a body and refuses a member that the type does not know.
func strictly(t *testing.T, body json.RawMessage, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

// everyKind registers one source of every kind with all its settings, and
// answers what their bodies should be.
func everyKind(s *serving) map[client.Resource]any {
	s.exec(`INSERT INTO registry.organisation (handle, name, contact) VALUES ('EXAMPLE', 'Example', 'noc@example.net')`)
	s.exec(`INSERT INTO registry.asn (number, organisation_id) VALUES (64496, 1), (4294967295, NULL)`)
	s.exec(`INSERT INTO registry.name_server_set (name, servers) VALUES ('shared', '{ns1.example.net,ns2.example.net}')`)
	s.exec(`INSERT INTO registry.prefix (prefix, organisation_id, announced, origin_asn, max_length, reverse_mode, name_servers, ds, rfc2317_style, zone_cut)
		VALUES ('192.0.2.0/24', 1, true, 64496, 28, 'delegated', '{ns.example.net}',
		        '[{"zone":"2.0.192.in-addr.arpa","key_tag":7,"algorithm":13,"digest_type":2,"digest":"` + fmt.Sprintf("%064x", 10) + `"}]', 'dash', 25)`)
	s.exec(`INSERT INTO registry.prefix (prefix, status, announced, origin_asn, name_server_set_id) VALUES ('2001:db8::/32', 'planned', true, 0, 1)`)
	s.exec(`INSERT INTO registry.ptr_record (address, target, ttl) VALUES ('192.0.2.1', 'b.example.net', 300), ('192.0.2.1', 'a.example.net', NULL)`)
	s.exec(`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/25', 'dns'), ('192.0.2.128/25', 'ntp')`)
	s.exec(`INSERT INTO registry.anycast_route_origin (allocation_id, asn, max_length, active) VALUES (1, 64497, NULL, true), (1, 64496, 26, false)`)
	s.exec(`INSERT INTO registry.certificate_authority (name, organisation_id, mode, csr, resources, prefixes, asns)
		VALUES ('parent', NULL, 'hosted', NULL, 'explicit', '{192.0.2.0/24,2001:db8::/32}', '{[64496,64500)}')`)
	s.exec(`INSERT INTO registry.certificate_authority (name, parent_id, organisation_id, mode, csr) VALUES ('child', 1, 1, 'delegated', '\x00ff')`)
	s.exec(`INSERT INTO registry.certificate (ca_id, profile, csr, prefixes, asns, not_before, not_after)
		VALUES (1, 'child-ca', decode(repeat('ab', 100), 'hex'), '{192.0.2.0/24}', '{}', '2030-01-01', '2031-01-01'),
		       (1, 'bgpsec-router', '\x02', '{}', '{[64496,64497)}', '2030-01-01', '2031-01-01')`)
	s.exec(`INSERT INTO registry.revocation (certificate_id, reason, revoked_at) VALUES (2, 'key-compromise', '2030-06-01 12:00:00.5+00')`)
	s.exec(`INSERT INTO registry.bgp_session (local_asn, local_address, remote_asn, remote_address, password_sealed, max_prefixes, wanted)
		VALUES (64496, '192.0.2.9', 64500, '192.0.2.10', '\x0102', 1000, 'down'), (NULL, NULL, 64501, '2001:db8::1', NULL, NULL, 'up')`)
	day := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	prefixes := func(cidrs ...string) []netip.Prefix {
		out := []netip.Prefix{}
		for _, c := range cidrs {
			out = append(out, netip.MustParsePrefix(c))
		}
		return out
	}
	return map[client.Resource]any{
		{Kind: client.KindOrganisation, Key: "1"}: client.OrganisationSource{ID: 1, Handle: "EXAMPLE", Name: "Example", Contact: "noc@example.net"},
		{Kind: client.KindASN, Key: "64496"}:      client.ASNSource{Number: 64496, OrganisationID: 1},
		{Kind: client.KindASN, Key: "4294967295"}: client.ASNSource{Number: 4294967295},
		{Kind: client.KindNameServers, Key: "1"}:  client.NameServersSource{ID: 1, Name: "shared", Servers: []string{"ns1.example.net", "ns2.example.net"}},
		{Kind: client.KindPrefix, Key: "1"}: client.PrefixSource{Prefix: netip.MustParsePrefix("192.0.2.0/24"), OrganisationID: 1, Status: "active",
			Routing: client.Routing{Announced: true, Origin: ptr(client.ASN(64496)), MaxLength: ptr(28)},
			Reverse: client.Reverse{Mode: client.ReverseDelegated, NameServers: []string{"ns.example.net"}, RFC2317Style: "dash", ZoneCut: ptr(25),
				DS: []client.DS{{Zone: "2.0.192.in-addr.arpa", KeyTag: 7, Algorithm: 13, DigestType: 2, Digest: fmt.Sprintf("%064x", 10)}}}},
		{Kind: client.KindPrefix, Key: "2"}: client.PrefixSource{Prefix: netip.MustParsePrefix("2001:db8::/32"), Status: "planned",
			Routing: client.Routing{Announced: true, Origin: ptr(client.ASN(0))},
			Reverse: client.Reverse{Mode: client.ReverseInherit, NameServers: []string{}, NameServerSetID: 1, DS: []client.DS{}}},
		{Kind: client.KindPTR, Key: "192.0.2.1"}: client.PTRSource{Address: netip.MustParseAddr("192.0.2.1"),
			Records: []client.PTRTarget{{Target: "a.example.net"}, {Target: "b.example.net", TTL: ptr(300)}}},
		{Kind: client.KindAnycast, Key: "1"}: client.AnycastSource{Prefix: netip.MustParsePrefix("192.0.2.0/25"), OrganisationID: 1, Service: "dns",
			Origins: []client.OriginSource{{ASN: 64496, MaxLength: ptr(26)}, {ASN: 64497, Active: true}}},
		{Kind: client.KindAnycast, Key: "2"}: client.AnycastSource{Prefix: netip.MustParsePrefix("192.0.2.128/25"), OrganisationID: 1, Service: "ntp",
			Origins: []client.OriginSource{}},
		{Kind: client.KindCA, Key: "1"}: client.CASource{ID: 1, Name: "parent", Mode: "hosted", Resources: "explicit", State: "active",
			Prefixes: prefixes("192.0.2.0/24", "2001:db8::/32"), ASNs: []client.ASNRange{{First: 64496, Last: 64499}},
			Certificates: []client.CertificateSource{
				{ID: 1, Profile: "child-ca", CSR: bytes.Repeat([]byte{0xab}, 100), Prefixes: prefixes("192.0.2.0/24"), ASNs: []client.ASNRange{},
					NotBefore: day, NotAfter: day.AddDate(1, 0, 0)},
				{ID: 2, Profile: "bgpsec-router", CSR: []byte{2}, Prefixes: prefixes(), ASNs: []client.ASNRange{{First: 64496, Last: 64496}},
					NotBefore: day, NotAfter: day.AddDate(1, 0, 0),
					Revocation: &client.RevocationSource{Reason: "key-compromise", RevokedAt: time.Date(2030, 6, 1, 12, 0, 0, 5e8, time.UTC)}},
			}},
		{Kind: client.KindCA, Key: "2"}: client.CASource{ID: 2, Name: "child", ParentID: 1, OrganisationID: 1, Mode: "delegated", CSR: []byte{0, 0xff},
			Resources: "organisation", State: "active", Prefixes: prefixes(), ASNs: []client.ASNRange{}, Certificates: []client.CertificateSource{}},
		{Kind: client.KindSession, Key: "1"}: client.SessionSource{ID: 1, Collector: "default", LocalASN: 64496, LocalAddress: netip.MustParseAddr("192.0.2.9"),
			RemoteASN: 64500, RemoteAddress: netip.MustParseAddr("192.0.2.10"), Families: []string{"ipv4-unicast", "ipv6-unicast"},
			PasswordSet: true, MaxPrefixes: 1000, Wanted: "down"},
		{Kind: client.KindSession, Key: "2"}: client.SessionSource{ID: 2, Collector: "default", RemoteASN: 64501, RemoteAddress: netip.MustParseAddr("2001:db8::1"),
			Families: []string{"ipv4-unicast", "ipv6-unicast"}, Wanted: "up"},
	}
}

func body(t *testing.T, f client.Fetched) any {
	t.Helper()
	switch f.Resource().Kind {
	case client.KindOrganisation:
		return decoded[client.OrganisationSource](t, f)
	case client.KindASN:
		return decoded[client.ASNSource](t, f)
	case client.KindNameServers:
		return decoded[client.NameServersSource](t, f)
	case client.KindPrefix:
		return decoded[client.PrefixSource](t, f)
	case client.KindPTR:
		return decoded[client.PTRSource](t, f)
	case client.KindAnycast:
		return decoded[client.AnycastSource](t, f)
	case client.KindCA:
		return decoded[client.CASource](t, f)
	case client.KindSession:
		return decoded[client.SessionSource](t, f)
	}
	t.Fatalf("no type for %s", f.Resource())
	return nil
}

func decoded[T any](t *testing.T, f client.Fetched) (v T) {
	t.Helper()
	strictly(t, f.Body(), &v)
	return v
}

func TestEverySourceIsServedWholeOnEveryPath(t *testing.T) {
	s := serve(t, nil)
	want := everyKind(s)
	lineage := s.lineage()
	check := func(how string, f client.Fetched) {
		t.Helper()
		if f.Outcome() != client.Present {
			t.Errorf("%s: %s is %s: %v", how, f.Resource(), f.Outcome(), f.Err())
			return
		}
		version := one[int64](s, `SELECT last_seq FROM registry.outbox_lane WHERE agg_type = $1 AND agg_key = $2`, string(f.Resource().Kind), f.Resource().Key)
		if f.Version() != version || f.Lineage() != lineage || f.ReadAt().IsZero() || f.Changed().IsZero() {
			t.Errorf("%s: %s has version %d, lineage %s, read %s, changed %s; want version %d and lineage %s",
				how, f.Resource(), f.Version(), f.Lineage(), f.ReadAt(), f.Changed(), version, lineage)
		}
		if diff := cmp.Diff(want[f.Resource()], body(t, f), sameAddr, cmpopts.EquateApproxTime(0)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", how, f.Resource(), diff)
		}
	}
	keys := map[client.Kind][]string{}
	for r := range want {
		check("fetch", s.viewer.Fetch(t.Context(), r))
		keys[r.Kind] = append(keys[r.Kind], r.Key)
	}
	for _, kind := range client.SourceKinds {
		if len(keys[kind]) == 0 {
			t.Fatalf("no source of kind %s is tested", kind)
		}
		for _, f := range s.module.FetchBatch(t.Context(), kind, keys[kind]) {
			check("batch", f)
		}
		page := must[client.SourcePage](t)(s.viewer.ScanPage(t.Context(), kind, client.PageRequest{}))
		if len(page.Items) != len(keys[kind]) || !page.Complete {
			t.Errorf("the scan of %s has %d items, complete %t; want %d", kind, len(page.Items), page.Complete, len(keys[kind]))
		}
		for _, f := range page.Fetched() {
			check("scan", f)
		}
		ids := map[string]int64{}
		_, count, err := s.viewer.ScanIDs(t.Context(), kind, "", func(id client.SourceID) error { ids[id.Key] = id.Version; return nil })
		if err != nil || int(count) != len(page.Items) {
			t.Errorf("ids of %s: %d, %v; want %d", kind, count, err, len(page.Items))
		}
		for _, item := range page.Items {
			if ids[item.Resource.Key] != item.Version {
				t.Errorf("ids of %s: version %d of %s, the page has %d", kind, ids[item.Resource.Key], item.Resource.Key, item.Version)
			}
		}
	}
}

func TestSessionPasswordIsNeverServed(t *testing.T) {
	s := serve(t, nil)
	everyKind(s)
	f := s.admin.Fetch(t.Context(), client.Resource{Kind: client.KindSession, Key: "1"})
	if bytes.Contains(f.Body(), []byte("password_sealed")) || bytes.Contains(f.Body(), []byte("0102")) {
		t.Errorf("the body holds the sealed password: %s", f.Body())
	}
	trace := must[client.Trace](t)(s.admin.Trace(t.Context(), client.Resource{Kind: client.KindSession, Key: "1"}))
	for _, c := range trace.Changes {
		if bytes.Contains(c.After, []byte("password_sealed")) {
			t.Errorf("the trace holds the sealed password: %s", c.After)
		}
	}
}

func TestDeletedSourcesAreTombstonesWithTheDeletionsVersion(t *testing.T) {
	s := serve(t, nil)
	everyKind(s)
	s.exec(`UPDATE registry.ptr_record SET ttl = 7 WHERE address = '192.0.2.1' AND target = 'a.example.net'`)
	s.exec(`DELETE FROM registry.ptr_record`)
	s.exec(`DELETE FROM registry.anycast_allocation`)
	s.exec(`DELETE FROM registry.prefix WHERE id = 1`)
	s.exec(`DELETE FROM registry.asn WHERE number = 64496`)
	s.exec(`DELETE FROM registry.bgp_session WHERE id = 1`)
	for r, version := range map[client.Resource]int64{
		{Kind: client.KindPTR, Key: "192.0.2.1"}: 3, // created, changed, deleted
		{Kind: client.KindPrefix, Key: "1"}:      2,
		{Kind: client.KindASN, Key: "64496"}:     2,
		{Kind: client.KindSession, Key: "1"}:     2,
		// Its origins went in the same statement's cascade: every version is told of.
		{Kind: client.KindAnycast, Key: "1"}: one[int64](s, `SELECT last_seq FROM registry.outbox_lane WHERE agg_type = 'anycast' AND agg_key = '1'`),
	} {
		single := s.viewer.Fetch(t.Context(), r)
		batch := s.viewer.FetchBatch(t.Context(), r.Kind, []string{r.Key})[0]
		for how, f := range map[string]client.Fetched{"single": single, "batch": batch} {
			if f.Outcome() != client.Deleted || f.Version() != version || f.Changed().IsZero() {
				t.Errorf("%s fetch of %s is %s at version %d (%v), want deleted at %d", how, r, f.Outcome(), f.Version(), f.Err(), version)
			}
		}
	}
	page := must[client.SourcePage](t)(s.viewer.ScanPage(t.Context(), client.KindPTR, client.PageRequest{}))
	if len(page.Items) != 0 || !page.Complete {
		t.Errorf("the scan shows deleted sources: %+v", page.Items)
	}
}

func TestUnknownSourcesAreForgotten(t *testing.T) {
	s := serve(t, nil)
	for _, r := range []client.Resource{
		{Kind: client.KindPrefix, Key: "999"}, {Kind: client.KindPTR, Key: "192.0.2.77"}, {Kind: client.KindASN, Key: "64511"},
	} {
		single := s.viewer.Fetch(t.Context(), r)
		batch := s.viewer.FetchBatch(t.Context(), r.Kind, []string{r.Key})[0]
		if single.Outcome() != client.Forgotten || batch.Outcome() != client.Forgotten {
			t.Errorf("%s is %s alone (%v) and %s in a batch (%v), want forgotten", r, single.Outcome(), single.Err(), batch.Outcome(), batch.Err())
		}
	}
}

func TestAnAddressIsFetchedInAnySpelling(t *testing.T) {
	s := serve(t, nil)
	s.prefix("2001:db8::/32")
	s.exec(`INSERT INTO registry.ptr_record (address, target) VALUES ('2001:db8::a', 'a.example.net')`)
	for _, key := range []string{"2001:db8::a", "2001:DB8:0::A", "2001:0db8:0000:0000:0000:0000:0000:000a"} {
		if f := s.viewer.Fetch(t.Context(), client.Resource{Kind: client.KindPTR, Key: key}); f.Outcome() != client.Present {
			t.Errorf("%s is %s: %v", key, f.Outcome(), f.Err())
		}
	}
}

func TestFetchRefusesWhatNamesNoSource(t *testing.T) {
	s := serve(t, nil)
	for _, r := range []client.Resource{
		{Kind: client.KindPrefix, Key: "x"}, {Kind: client.KindPrefix, Key: "-1"}, {Kind: client.KindPTR, Key: "192.0.2.0/24"},
		{Kind: client.KindPTR, Key: "::ffff:192.0.2.1"}, {Kind: "nothing", Key: "1"}, {Kind: client.KindCommand, Key: "1"},
	} {
		for how, f := range map[string]client.Fetched{
			"single": s.viewer.Fetch(t.Context(), r), "batch": s.viewer.FetchBatch(t.Context(), r.Kind, []string{"1", r.Key})[1],
		} {
			var p *problem.Error
			if client.ReasonOf(f.Err()) != client.Refused || !errors.As(f.Err(), &p) || p.Kind != problem.Invalid {
				t.Errorf("%s fetch of %s ends as %s: %v; want it refused as invalid", how, r, f.Outcome(), f.Err())
			}
		}
	}
}

func TestABatchIsBounded(t *testing.T) {
	s := serve(t, nil)
	keys := make([]string, client.MaxBatch+1)
	for i := range keys {
		keys[i] = fmt.Sprint(i + 1)
	}
	err := s.viewer.Raw(t.Context(), "POST", "/v1/sources/prefix:get", nil, client.SourceKeys{Keys: keys}, nil)
	refused(t, err, problem.Invalid, "500")
	err = s.viewer.Raw(t.Context(), "POST", "/v1/sources/prefix:get", nil, client.SourceKeys{Keys: []string{}}, nil)
	refused(t, err, problem.Invalid, "")
}

func TestARowWithoutALaneIsAnErrorNotAnAbsence(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.exec(`DELETE FROM registry.outbox_lane`)
	if f := s.viewer.Fetch(t.Context(), client.Resource{Kind: client.KindPrefix, Key: "1"}); client.ReasonOf(f.Err()) != client.Failing {
		t.Errorf("fetch is %s: %v", f.Outcome(), f.Err())
	}
	if _, err := s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{}); client.ReasonOf(err) != client.Failing {
		t.Errorf("scan: %v", err)
	}
	_, _, err := s.viewer.ScanIDs(t.Context(), client.KindPrefix, "", func(client.SourceID) error { return nil })
	if client.ReasonOf(err) != client.Unreachable {
		t.Errorf("ids: %v; want a stream that breaks off", err)
	}
}

func TestTupleSourcesListsTheActiveOnes(t *testing.T) {
	s := serve(t, nil)
	s.exec(`INSERT INTO registry.prefix (prefix, announced, origin_asn, max_length) VALUES ('192.0.2.0/24', true, 64496, NULL)`)
	s.exec(`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/24', 'dns'), ('192.0.2.0/24', 'ntp')`)
	s.exec(`INSERT INTO registry.anycast_route_origin (allocation_id, asn, max_length) VALUES (1, 64496, 24), (2, 64496, 25), (2, 64497, NULL)`)
	tuple := func(asn client.ASN, prefix string, length int) []string {
		t.Helper()
		answer := must[client.TupleSources](t)(s.module.TupleSources(t.Context(), client.Tuple{ASN: asn, Prefix: netip.MustParsePrefix(prefix), MaxLength: length}))
		names := []string{}
		for _, item := range answer.Items {
			names = append(names, fmt.Sprintf("%s@%d", item.Resource, item.Version))
		}
		return names
	}
	steps := []struct {
		sql    string
		asn    client.ASN
		length int
		want   []string
	}{
		{`SELECT 1`, 64496, 24, []string{"prefix:1@1", "anycast:1@2"}},
		{`SELECT 1`, 64496, 25, []string{"anycast:2@2"}},
		{`SELECT 1`, 64497, 24, []string{"anycast:2@2"}},
		{`SELECT 1`, 64498, 24, []string{}},
		{`UPDATE registry.prefix SET announced = false`, 64496, 24, []string{"anycast:1@2"}},
		{`UPDATE registry.anycast_route_origin SET active = false WHERE allocation_id = 1`, 64496, 24, []string{}},
		{`UPDATE registry.prefix SET announced = true, status = 'retired'`, 64496, 24, []string{}},
		{`UPDATE registry.prefix SET status = 'active'`, 64496, 24, []string{"prefix:1@4"}},
	}
	for _, step := range steps {
		s.exec(step.sql)
		if got := tuple(step.asn, "192.0.2.0/24", step.length); !cmp.Equal(got, step.want) {
			t.Errorf("after %s: AS%d up to /%d has the sources %v, want %v", step.sql, step.asn, step.length, got, step.want)
		}
	}
}

func TestTupleThatCannotBeReadIsRefused(t *testing.T) {
	s := serve(t, nil)
	for _, q := range []string{"", "AS1", "AS1,192.0.2.0/24", "ASx,192.0.2.0/24,24", "AS1,192.0.2.1/24,24", "AS1,::ffff:192.0.2.0/120,128",
		"AS1,192.0.2.0/24,23", "AS1,192.0.2.0/24,33", "AS1,2001:db8::/32,129", "AS1,192.0.2.0/24,24,1"} {
		err := s.viewer.Raw(t.Context(), "GET", "/v1/sources", map[string][]string{"tuple": {q}}, nil, nil)
		refused(t, err, problem.Invalid, "")
	}
}
