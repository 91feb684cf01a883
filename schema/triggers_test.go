package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"hubn/schema/schematest"
)

// written is what a statement left in the outbox and the change log.
type written struct {
	// Events are "aggregate#version kind changed,changed", in the order of the keys.
	Events []string
	// Log is "aggregate table operation", in the order of the keys.
	Log []string
}

// watch runs a statement and answers what it wrote.
func watch(t *testing.T, conn *pgx.Conn, sql string) written {
	t.Helper()
	ctx := t.Context()
	var xid, entry int64
	marks := `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (SELECT coalesce(max(id), 0) FROM registry.change_log)`
	if err := conn.QueryRow(ctx, marks).Scan(&xid, &entry); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	read := func(query string, after int64) []string {
		rows, err := conn.Query(ctx, query, after)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	return written{
		Events: read(`
			SELECT agg_type || ':' || agg_key || '#' || seq || ' ' || kind || ' ' ||
			       array_to_string(ARRAY(SELECT c FROM jsonb_array_elements_text(payload -> 'changed') c ORDER BY c COLLATE "C"), ',')
			FROM registry.outbox_event
			JOIN registry.outbox_lane USING (lane_id)
			WHERE xid >= $1::bigint::text::xid8
			ORDER BY agg_type, agg_key, seq`, xid),
		Log: read(`
			SELECT kind || ':' || agg_key || ' ' || table_name || ' ' || op
			FROM registry.change_log
			WHERE id > $1
			ORDER BY kind, agg_key, table_name, op`, entry),
	}
}

// TestEveryWriteIsToldOnceToTheWorld writes plain SQL to every operational
// table, as psql would. The steps of a table build on one another.
func TestEveryWriteIsToldOnceToTheWorld(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	steps := []struct {
		sql, events, log string // lines
	}{
		{`INSERT INTO registry.organisation (handle) VALUES ('A'), ('B')`,
			"organisation:1#1 created organisation\norganisation:2#1 created organisation",
			"organisation:1 organisation insert\norganisation:2 organisation insert"},
		{`UPDATE registry.organisation SET name = 'An example' WHERE handle = 'A'`,
			"organisation:1#2 changed organisation", "organisation:1 organisation update"},
		{`UPDATE registry.organisation SET name = name`, "", ""},
		{`DELETE FROM registry.organisation WHERE handle = 'missing'`, "", ""},

		{`INSERT INTO registry.asn (number, organisation_id) VALUES (64496, 1)`, "asn:64496#1 created holder", "asn:64496 asn insert"},
		{`UPDATE registry.asn SET organisation_id = 2`, "asn:64496#2 changed holder", "asn:64496 asn update"},
		{`UPDATE registry.asn SET name = 'for people'`, "", "asn:64496 asn update"},
		{`DELETE FROM registry.asn`, "asn:64496#3 deleted holder", "asn:64496 asn delete"},
		// A natural key is used again: its lane goes on.
		{`INSERT INTO registry.asn (number) VALUES (64496)`, "asn:64496#4 created holder", "asn:64496 asn insert"},

		{`INSERT INTO registry.name_server_set (name, servers) VALUES ('ours', '{ns1.example.net}')`,
			"nsset:1#1 created servers", "nsset:1 name_server_set insert"},
		{`UPDATE registry.name_server_set SET servers = '{ns2.example.net}'`, "nsset:1#2 changed servers", "nsset:1 name_server_set update"},

		{`INSERT INTO registry.prefix (prefix, organisation_id) VALUES ('192.0.2.0/24', 1), ('2001:db8::/32', 1)`,
			"prefix:1#1 created organisation,prefix,reverse,routing,status\nprefix:2#1 created organisation,prefix,reverse,routing,status",
			"prefix:1 prefix insert\nprefix:2 prefix insert"},
		{`UPDATE registry.prefix SET announced = true, origin_asn = 64496 WHERE id = 1`, "prefix:1#2 changed routing", "prefix:1 prefix update"},
		{`UPDATE registry.prefix SET max_length = 25, reverse_mode = 'hosted' WHERE id = 1`,
			"prefix:1#3 changed reverse,routing", "prefix:1 prefix update"},
		{`UPDATE registry.prefix SET name_server_set_id = 1 WHERE id = 1`, "prefix:1#4 changed reverse", "prefix:1 prefix update"},
		{`UPDATE registry.prefix SET ds = '[{"key_tag":1,"algorithm":13,"digest_type":1,"digest":"0123456789abcdef0123456789abcdef01234567"}]' WHERE id = 1`,
			"prefix:1#5 changed reverse", "prefix:1 prefix update"},
		{`UPDATE registry.prefix SET status = 'planned'`, "prefix:1#6 changed status\nprefix:2#2 changed status",
			"prefix:1 prefix update\nprefix:2 prefix update"},
		{`UPDATE registry.prefix SET name = 'for people' WHERE id = 2`, "", "prefix:2 prefix update"},

		{`INSERT INTO registry.ptr_record (address, target)
		  VALUES ('192.0.2.1', 'a.example.net'), ('192.0.2.1', 'b.example.net'), ('192.0.2.2', 'c.example.net')`,
			"ptr:192.0.2.1#1 changed ptr\nptr:192.0.2.2#1 changed ptr",
			"ptr:192.0.2.1 ptr_record insert\nptr:192.0.2.1 ptr_record insert\nptr:192.0.2.2 ptr_record insert"},
		{`UPDATE registry.ptr_record SET ttl = 60 WHERE id = 1`, "ptr:192.0.2.1#2 changed ptr", "ptr:192.0.2.1 ptr_record update"},
		{`UPDATE registry.ptr_record SET address = '192.0.2.9' WHERE id = 3`, "ptr:192.0.2.2#2 changed ptr\nptr:192.0.2.9#1 changed ptr",
			"ptr:192.0.2.2 ptr_record delete\nptr:192.0.2.9 ptr_record insert"},
		{`DELETE FROM registry.ptr_record WHERE address = '192.0.2.1'`, "ptr:192.0.2.1#3 changed ptr",
			"ptr:192.0.2.1 ptr_record delete\nptr:192.0.2.1 ptr_record delete"},

		{`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/24', 'dns'), ('2001:db8::/48', 'dns')`,
			"anycast:1#1 created organisation,prefix,service\nanycast:2#1 created organisation,prefix,service",
			"anycast:1 anycast_allocation insert\nanycast:2 anycast_allocation insert"},
		{`INSERT INTO registry.anycast_route_origin (allocation_id, asn) VALUES (1, 64496), (1, 64497)`, "anycast:1#2 changed origins",
			"anycast:1 anycast_route_origin insert\nanycast:1 anycast_route_origin insert"},
		{`UPDATE registry.anycast_route_origin SET active = false WHERE asn = 64497`, "anycast:1#3 changed origins",
			"anycast:1 anycast_route_origin update"},
		{`UPDATE registry.anycast_allocation SET service = 'resolver' WHERE id = 2`, "anycast:2#2 changed service",
			"anycast:2 anycast_allocation update"},
		{`DELETE FROM registry.anycast_route_origin WHERE asn = 64497`, "anycast:1#4 changed origins", "anycast:1 anycast_route_origin delete"},
		// What an allocation takes with it is told too; who holds its prefix holds it.
		{`UPDATE registry.prefix SET organisation_id = 2 WHERE id = 1`, "anycast:1#5 changed organisation\nprefix:1#7 changed organisation",
			"anycast:1 anycast_allocation update\nprefix:1 prefix update"},

		{`INSERT INTO registry.certificate_authority (name, organisation_id, mode) VALUES ('ours', 1, 'hosted')`,
			"ca:1#1 created ca", "ca:1 certificate_authority insert"},
		{`INSERT INTO registry.certificate (ca_id, profile, csr, asns, not_before, not_after)
		  VALUES (1, 'bgpsec-router', '\x30', '{[64496,64497)}', now(), now() + interval '1 year')`,
			"ca:1#2 changed certificates", "ca:1 certificate insert"},
		{`INSERT INTO registry.revocation (certificate_id) VALUES (1)`, "ca:1#3 changed revocations", "ca:1 revocation insert"},
		{`UPDATE registry.certificate_authority SET state = 'retired'`, "ca:1#4 changed ca", "ca:1 certificate_authority update"},

		{`INSERT INTO registry.bgp_session (remote_asn, remote_address) VALUES (64496, '192.0.2.1')`,
			"session:1#1 created session", "session:1 bgp_session insert"},
		{`UPDATE registry.bgp_session SET wanted = 'down'`, "session:1#2 changed session", "session:1 bgp_session update"},
		{`UPDATE registry.bgp_session SET description = 'for people'`, "", "session:1 bgp_session update"},
		{`DELETE FROM registry.bgp_session`, "session:1#3 deleted session", "session:1 bgp_session delete"},
	}
	for _, step := range steps {
		want := written{Events: lines(step.events), Log: lines(step.log)}
		if diff := cmp.Diff(want, watch(t, conn, step.sql)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.sql, diff)
		}
	}
}

func lines(s string) []string {
	if s == "" {
		return []string{}
	}
	return strings.Split(s, "\n")
}

func TestRolledBackWriteIsToldToNobody(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	got := watch(t, conn, `
		BEGIN;
		INSERT INTO registry.prefix (prefix) VALUES ('192.0.2.0/24');
		UPDATE registry.prefix SET announced = true, origin_asn = 64496;
		ROLLBACK`)
	if diff := cmp.Diff(written{Events: lines(""), Log: lines("")}, got); diff != "" {
		t.Errorf("a rolled-back write left something (-want +got):\n%s", diff)
	}
}

// TestCopyIsToldLikeInserts loads the same rows by COPY and by INSERT.
func TestCopyIsToldLikeInserts(t *testing.T) {
	load := func(copied bool) (w written) {
		conn := schematest.New(t).Conn(t, "")
		if _, err := conn.Exec(t.Context(), `INSERT INTO registry.prefix (prefix) VALUES ('192.0.2.0/24')`); err != nil {
			t.Fatal(err)
		}
		var err error
		if copied {
			_, err = conn.PgConn().CopyFrom(t.Context(), strings.NewReader("192.0.2.1\ta.example.net\n192.0.2.1\tb.example.net\n192.0.2.2\tc.example.net\n"),
				`COPY registry.ptr_record (address, target) FROM STDIN`)
		} else {
			_, err = conn.Exec(t.Context(), `INSERT INTO registry.ptr_record (address, target)
				VALUES ('192.0.2.1', 'a.example.net'), ('192.0.2.1', 'b.example.net'), ('192.0.2.2', 'c.example.net')`)
		}
		if err != nil {
			t.Fatal(err)
		}
		for into, query := range map[*[]string]string{
			&w.Events: `SELECT agg_type || ':' || agg_key || '#' || seq || ' ' || kind FROM registry.outbox_event JOIN registry.outbox_lane USING (lane_id) ORDER BY 1`,
			&w.Log:    `SELECT kind || ':' || agg_key || ' ' || table_name || ' ' || op FROM registry.change_log ORDER BY kind, agg_key, table_name, op`,
		} {
			rows, err := conn.Query(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			if *into, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	inserted := load(false)
	if len(inserted.Events) != 3 || len(inserted.Log) != 4 {
		t.Errorf("INSERT makes %+v, want 3 events and 4 entries", inserted)
	}
	if diff := cmp.Diff(inserted, load(true)); diff != "" {
		t.Errorf("COPY differs from INSERT (-insert +copy):\n%s", diff)
	}
}

func TestWhatMakesNoEventIsRefused(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	for _, table := range []string{"organisation", "asn", "name_server_set", "prefix", "ptr_record", "anycast_allocation",
		"anycast_route_origin", "certificate_authority", "certificate", "revocation", "bgp_session"} {
		_, err := conn.Exec(t.Context(), `TRUNCATE registry.`+table+` CASCADE`)
		if err == nil || !strings.Contains(err.Error(), "use DELETE") {
			t.Errorf("TRUNCATE of %s ended with %v", table, err)
		}
	}
}
