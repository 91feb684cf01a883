package schema_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/schema"
	"hubn/schema/schematest"
)

// oneOfEach puts two rows into every table that names its rows by an id or number:
// one for a statement of one row, both for a statement of several.
const oneOfEach = `
INSERT INTO registry.organisation (handle) VALUES ('A'), ('B');
INSERT INTO registry.asn (number) VALUES (64496), (64497);
INSERT INTO registry.name_server_set (name, servers) VALUES ('a', '{ns1.example.net}'), ('b', '{ns2.example.net}');
INSERT INTO registry.module (name, kinds) VALUES ('routes', '{prefix}');
INSERT INTO registry.prefix (prefix, announced, origin_asn)
VALUES ('203.0.113.0/24', true, 64500), ('192.0.2.0/24', true, 64500), ('198.51.100.0/25', false, NULL), ('198.51.100.128/25', false, NULL);
DELETE FROM registry.prefix WHERE prefix << '198.51.100.0/24';
INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.1', 'a.example.net'), ('192.0.2.2', 'b.example.net');
INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/25', 'dns'), ('192.0.2.128/25', 'dns');
INSERT INTO registry.anycast_route_origin (allocation_id, asn) VALUES (1, 64496), (2, 64496);
INSERT INTO registry.certificate_authority (name, organisation_id, mode) VALUES ('a', 1, 'hosted'), ('b', 1, 'hosted');
INSERT INTO registry.certificate (ca_id, profile, csr, asns, not_before, not_after)
SELECT n, 'bgpsec-router', '\x30', '{[64496,64497)}', now(), now() + interval '1 year' FROM generate_series(1, 2) n;
INSERT INTO registry.revocation (certificate_id) VALUES (1), (2);
INSERT INTO registry.bgp_session (remote_asn, remote_address) VALUES (64496, '192.0.2.1'), (64496, '192.0.2.2');
INSERT INTO registry.module_command (module, name, actor) VALUES ('routes', 'refresh', 'a'), ('routes', 'refresh', 'a');
INSERT INTO registry.barrier (lineage) SELECT registry.lineage_current() FROM generate_series(1, 2);
INSERT INTO registry.api_token (public_id, secret_hash, name, roles)
SELECT n::text, sha256(n::text::bytea), 'a', '{viewer}' FROM generate_series(1, 2) n;
INSERT INTO registry.role_grant (token_id, role, prefix) VALUES (1, 'viewer', '192.0.2.0/24'), (2, 'viewer', '192.0.2.0/24');
INSERT INTO registry.import_job (format, actor, state, dry_run, prune) SELECT 'rpsl', 'a', 'done', false, false FROM generate_series(1, 2)`

// namedRows are the tables that name their rows by an id or a number which the
// database gives or checks. The outbox's own journal names nothing to anybody.
const namedRows = `
SELECT c.relname::text, a.attname::text
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND (a.attname = 'id' AND a.attidentity <> '' OR a.attname = 'number')
WHERE c.relnamespace = 'registry'::regnamespace
  AND c.relkind = 'r'
  AND NOT c.relispartition
  AND c.relname <> 'outbox_audit'
ORDER BY c.relname`

func TestIdentityOfARowNeverChanges(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	if _, err := conn.Exec(t.Context(), oneOfEach); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), namedRows)
	if err != nil {
		t.Fatal(err)
	}
	type named struct{ Table, Column string }
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[named])
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 17 {
		t.Errorf("only %d tables have ids: %v", len(tables), tables)
	}
	for _, n := range tables {
		t.Run(n.Table, func(t *testing.T) {
			table := `registry.` + pgx.Identifier{n.Table}.Sanitize()
			value := `DEFAULT`
			if n.Column == "number" {
				value = `number + 1000`
			}
			for name, where := range map[string]string{
				"one row":  ` WHERE ` + n.Column + ` = (SELECT min(` + n.Column + `) FROM ` + table + `)`,
				"all rows": ``,
			} {
				var code, message string
				sql := `UPDATE ` + table + ` SET ` + n.Column + ` = ` + value + where
				tag, err := conn.Exec(t.Context(), sql)
				if code, message = refusal(err); code != "55000" { // object_not_in_prerequisite_state
					t.Errorf("%s: %s: %v, %v (%s %s); want it refused with 55000", name, sql, tag, err, code, message)
				}
			}
			tag, err := conn.Exec(t.Context(), `SELECT FROM `+table)
			if err != nil || tag.RowsAffected() < 2 {
				t.Errorf("%d rows to try it on (%v), want 2", tag.RowsAffected(), err)
			}
		})
	}
}

// refusal is the code and the message of an error of the database.
func refusal(err error) (code, message string) {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code, refused.Message
	}
	return "", ""
}

func TestDatabaseRefusesWhatNoReaderTakes(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	if _, err := conn.Exec(t.Context(), oneOfEach); err != nil {
		t.Fatal(err)
	}
	const digest = `"digest":"0123456789abcdef0123456789abcdef01234567"`
	ds := func(list string) string { return `UPDATE registry.prefix SET ds = '` + list + `' WHERE id = 1` }
	servers := func(list string) string { return `UPDATE registry.prefix SET name_servers = ` + list + ` WHERE id = 1` }
	certificate := func(prefixes, from, until string) string {
		return `INSERT INTO registry.certificate (ca_id, profile, csr, prefixes, not_before, not_after)
			VALUES (1, 'child-ca', '\x30', ` + prefixes + `, ` + from + `, ` + until + `)`
	}
	tests := []struct{ name, sql, rule string }{
		{"name server NULL", servers(`ARRAY['ns1.example.net', NULL]`), "prefix_name_servers_valid"},
		{"name server NULL alone", servers(`ARRAY[NULL]::text[]`), "prefix_name_servers_valid"},
		{"name servers in two dimensions", servers(`'{{ns1.example.net},{ns2.example.net}}'`), "prefix_name_servers_valid"},
		{"name server that is no name", servers(`'{ns1..net}'`), "prefix_name_servers_valid"},
		{"name servers", servers(`'{ns1.example.net,ns2.example.net}'`), ""},
		{"no name server", servers(`'{}'`), ""},
		{"set with NULL", `UPDATE registry.name_server_set SET servers = '{ns1.example.net,NULL}'`, "name_server_set_servers_check"},
		{"set in two dimensions", `UPDATE registry.name_server_set SET servers = '{{ns1.example.net}}'`, "name_server_set_servers_check"},

		{"DS", ds(`[{"key_tag":5,"algorithm":13,"digest_type":1,` + digest + `}]`), ""},
		{"DS of a zone", ds(`[{"zone":"2.0.192.in-addr.arpa","key_tag":0,"algorithm":0,"digest_type":1,` + digest + `}]`), ""},
		{"DS of a type without a known length", ds(`[{"key_tag":65535,"algorithm":255,"digest_type":200,"digest":"00"}]`), ""},
		{"DS with text for a number", ds(`[{"key_tag":"5","algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with another text for a number", ds(`[{"key_tag":5,"algorithm":"13","digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with a broken number", ds(`[{"key_tag":5.5,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with a number with zeros", ds(`[{"key_tag":5.0,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with a number too large", ds(`[{"key_tag":65536,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with a huge number", ds(`[{"key_tag":1e300,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with a negative number", ds(`[{"key_tag":-1,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with null", ds(`[{"key_tag":null,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with one member more", ds(`[{"key_tag":5,"algorithm":13,"digest_type":1,"flags":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with one member less", ds(`[{"key_tag":5,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with a number for the digest", ds(`[{"key_tag":5,"algorithm":13,"digest_type":200,"digest":12}]`), "prefix_ds_valid"},
		{"DS with a short digest", ds(`[{"key_tag":5,"algorithm":13,"digest_type":2,` + digest + `}]`), "prefix_ds_valid"},
		{"DS with null for the zone", ds(`[{"zone":null,"key_tag":5,"algorithm":13,"digest_type":1,` + digest + `}]`), "prefix_ds_valid"},
		{"DS that is null", ds(`[null]`), "prefix_ds_valid"},
		{"DS that is a list", ds(`[[]]`), "prefix_ds_valid"},
		{"DS that is no list", ds(`{}`), "prefix_ds_valid"},

		{"CA with a mapped prefix", `UPDATE registry.certificate_authority SET resources = 'explicit', prefixes = '{::ffff:192.0.2.0/120}'`,
			"certificate_authority_prefixes_valid"},
		{"CA with a prefix NULL", `UPDATE registry.certificate_authority SET resources = 'explicit', prefixes = '{NULL}'`,
			"certificate_authority_prefixes_valid"},
		{"CA with prefixes in two dimensions", `UPDATE registry.certificate_authority SET resources = 'explicit', prefixes = '{{192.0.2.0/24}}'`,
			"certificate_authority_prefixes_valid"},
		{"CA with prefixes", `UPDATE registry.certificate_authority SET resources = 'explicit', prefixes = '{192.0.2.0/24,2001:db8::/32}'`, ""},
		{"certificate with a mapped prefix", certificate(`'{::ffff:0:0/96}'`, `now()`, `now() + interval '1 day'`), "certificate_prefixes_valid"},
		{"certificate with a prefix NULL", certificate(`'{192.0.2.0/24,NULL}'`, `now()`, `now() + interval '1 day'`), "certificate_prefixes_valid"},
		{"certificate for ever", certificate(`'{192.0.2.0/24}'`, `now()`, `'infinity'`), "certificate_validity_written"},
		{"certificate since ever", certificate(`'{192.0.2.0/24}'`, `'-infinity'`, `now()`), "certificate_validity_written"},
		{"certificate beyond the year 9999", certificate(`'{192.0.2.0/24}'`, `now()`, `'10000-01-01 00:00+00'`), "certificate_validity_written"},
		{"certificate", certificate(`'{192.0.2.0/24}'`, `now()`, `'9999-12-31 23:59:59+00'`), ""},
		{"revocation at the end of time", `INSERT INTO registry.revocation (certificate_id, revoked_at)
			SELECT max(id), 'infinity' FROM registry.certificate`, "revocation_revoked_at_valid"},

		{"session with a family NULL", `UPDATE registry.bgp_session SET families = '{ipv4-unicast,NULL}'`, "bgp_session_families_check"},
		{"session with families in two dimensions", `UPDATE registry.bgp_session SET families = '{{ipv4-unicast}}'`, "bgp_session_families_valid"},
		{"session from a mapped address", `UPDATE registry.bgp_session SET remote_address = '2001:db8::1', local_address = '::ffff:192.0.2.1' WHERE id = 1`,
			"bgp_session_local_not_mapped"},
		{"module with a kind NULL", `UPDATE registry.module SET kinds = '{prefix,NULL}'`, "module_kinds_valid"},
		{"token with roles in two dimensions", `UPDATE registry.api_token SET roles = '{{viewer}}'`, "api_token_roles_valid"},
		{"token for a mapped network", `UPDATE registry.api_token SET source_cidrs = '{::ffff:192.0.2.0/120}'`, "api_token_source_cidrs_valid"},
		{"token that expires at the end of time", `UPDATE registry.api_token SET expires_at = 'infinity'`, "api_token_instants_valid"},
		{"token", `UPDATE registry.api_token SET expires_at = now(), source_cidrs = '{192.0.2.0/24}'`, ""},
		{"grant on a mapped prefix", `UPDATE registry.role_grant SET prefix = '::ffff:192.0.2.0/120'`, "role_grant_not_mapped"},
		{"organisation of the end of time", `INSERT INTO registry.organisation (handle, created_at) VALUES ('C', 'infinity')`,
			"organisation_instants_valid"},
		{"organisation before Christ", `INSERT INTO registry.organisation (handle, created_at) VALUES ('C', '0002-01-01 BC')`,
			"organisation_instants_valid"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := conn.Exec(t.Context(), test.sql)
			var refused *pgconn.PgError
			switch {
			case test.rule == "" && err != nil:
				t.Errorf("%s: %v, want it accepted", test.sql, err)
			case test.rule != "" && (!errors.As(err, &refused) || refused.ConstraintName != test.rule):
				t.Errorf("%s: %v, want it refused by %s", test.sql, err, test.rule)
			}
		})
	}
}

// TestEveryListAndInstantIsGuarded finds the columns that a table added later
// forgets: PostgreSQL's own types allow NULL in a list, and infinity in an instant.
func TestEveryListAndInstantIsGuarded(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	const unguarded = `
SELECT c.relname || '.' || a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = 'registry'::regnamespace
  AND (t.typcategory = 'A' OR t.typname = 'timestamptz')
  AND c.relname = ANY ('{organisation,asn,name_server_set,prefix,ptr_record,anycast_allocation,anycast_route_origin,
    certificate_authority,certificate,revocation,bgp_session,module_command,api_token,role_grant}')
  AND NOT EXISTS (
    SELECT
    FROM pg_constraint r
    WHERE r.conrelid = c.oid
      AND r.contype = 'c'
      AND a.attnum = ANY (r.conkey)
      AND pg_get_constraintdef(r.oid) ~ '(list|hostnames|prefixes|instant)_valid')`
	rows, err := conn.Query(t.Context(), unguarded)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(columns) > 0 {
		t.Errorf("no constraint refuses NULL, levels or infinity in %v: add one as schema/registry/0016_guards.sql does", columns)
	}
}

// TestMigrationNamesTheRowThatBreaksANewGuard migrates a database of the version
// before the guards, with a row that only plain SQL can have written.
func TestMigrationNamesTheRowThatBreaksANewGuard(t *testing.T) {
	conn := schematest.New(t).Conn(t, "")
	if _, err := conn.Exec(t.Context(), `DROP SCHEMA registry CASCADE`); err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(schema.Registry.Files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	older := schema.Set{Schema: schema.Registry.Schema, Files: fstest.MapFS{}}
	for _, name := range names {
		if name < "0016" {
			sql, err := fs.ReadFile(schema.Registry.Files, name)
			if err != nil {
				t.Fatal(err)
			}
			older.Files.(fstest.MapFS)[name] = &fstest.MapFile{Data: sql}
		}
	}
	if _, err := schema.Migrate(t.Context(), conn, older); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ bad, names, mend string }{
		{`INSERT INTO registry.prefix (prefix, name_servers) VALUES ('192.0.2.0/24', ARRAY[NULL]::text[])`,
			`registry.prefix breaks registry.hostnames_valid(name_servers)`, `UPDATE registry.prefix SET name_servers = '{}'`},
		{`UPDATE registry.prefix SET ds = '[{"key_tag":"5","algorithm":13,"digest_type":200,"digest":"00"}]'`,
			`registry.prefix breaks registry.ds_valid(ds)`, `UPDATE registry.prefix SET ds = '[]'`},
		{`INSERT INTO registry.organisation (handle, created_at) VALUES ('A', 'infinity')`,
			`registry.organisation breaks registry.instant_valid(created_at)`, `DELETE FROM registry.organisation`},
	}
	for _, test := range tests {
		if _, err := conn.Exec(t.Context(), test.bad); err != nil {
			t.Fatal(err)
		}
		_, err := schema.Migrate(t.Context(), conn, schema.Registry)
		if err == nil || !strings.Contains(err.Error(), test.names) || !strings.Contains(err.Error(), `"id": 1`) {
			t.Errorf("migration over %s: %v, want the row named by %q and its id", test.bad, err, test.names)
		}
		if _, err := conn.Exec(t.Context(), test.mend); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := schema.Migrate(t.Context(), conn, schema.Registry); err != nil {
		t.Errorf("migration over mended rows: %v", err)
	}
}
