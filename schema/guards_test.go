package schema_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
