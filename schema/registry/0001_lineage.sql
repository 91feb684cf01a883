-- Lineage: which history of the Registry this is. Versions of aggregates only
-- compare inside one lineage.

CREATE TABLE registry.lineage (
  ordinal           bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  parent            uuid REFERENCES registry.lineage (id),
  reason            text NOT NULL CHECK (reason <> ''),
  system_identifier bigint NOT NULL,
  timeline          bigint NOT NULL,
  database_oid      oid NOT NULL,
  table_oid         oid NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE registry.lineage IS
  'Histories of this Registry; the row with the highest ordinal is current. The fingerprint columns say where that history runs.';

-- What tells one running history from another: the cluster, its timeline (a
-- promotion raises it; the WAL file name knows it at once, the control file
-- only after a checkpoint), the database (a copy made from a template has
-- another oid) and the lineage table (a restored dump has another oid).
CREATE FUNCTION registry.fingerprint(
  OUT system_identifier bigint, OUT timeline bigint, OUT database_oid oid, OUT table_oid oid)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT s.system_identifier,
         ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint,
         d.oid,
         'registry.lineage'::regclass::oid
  FROM pg_control_system() s, pg_database d
  WHERE d.datname = current_database()
$$;

-- In PL/pgSQL, which keeps the plan: it is asked for every batch of the outbox.
CREATE FUNCTION registry.lineage_current() RETURNS uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN (SELECT id FROM registry.lineage ORDER BY ordinal DESC LIMIT 1);
END
$$;

-- Starts a new lineage if the current one is still the expected one, and
-- answers the current one. The lock makes concurrent callers start one lineage
-- between them.
CREATE FUNCTION registry.lineage_begin(expected uuid, why text) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  newest uuid;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('registry.lineage', 0));
  SELECT id INTO newest FROM registry.lineage ORDER BY ordinal DESC LIMIT 1;
  IF newest IS NOT DISTINCT FROM expected THEN
    INSERT INTO registry.lineage (parent, reason, system_identifier, timeline, database_oid, table_oid)
    SELECT newest, why, f.system_identifier, f.timeline, f.database_oid, f.table_oid
    FROM registry.fingerprint() f
    RETURNING id INTO newest;
  END IF;
  RETURN newest;
END
$$;

-- Run on every new database connection of the Registry and of the worker:
-- answers the current lineage, after starting a new one when the fingerprint
-- says that this is not the history that the current row was written in.
CREATE FUNCTION registry.lineage_check() RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  newest registry.lineage;
  here   record;
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'this PostgreSQL server is a standby; HubN needs the primary'
      USING ERRCODE = 'read_only_sql_transaction';
  END IF;
  SELECT * INTO here FROM registry.fingerprint();
  SELECT * INTO newest FROM registry.lineage ORDER BY ordinal DESC LIMIT 1;
  IF newest.id IS NULL THEN
    RETURN registry.lineage_begin(NULL, 'first start');
  END IF;
  IF (newest.system_identifier, newest.timeline, newest.database_oid, newest.table_oid)
     IS DISTINCT FROM (here.system_identifier, here.timeline, here.database_oid, here.table_oid) THEN
    RETURN registry.lineage_begin(newest.id, concat_ws(', ',
      CASE WHEN newest.system_identifier <> here.system_identifier THEN 'another PostgreSQL cluster' END,
      CASE WHEN newest.timeline <> here.timeline THEN format('timeline %s after %s', here.timeline, newest.timeline) END,
      CASE WHEN newest.database_oid <> here.database_oid THEN 'another database' END,
      CASE WHEN newest.table_oid <> here.table_oid THEN 'a restored dump' END));
  END IF;
  RETURN newest.id;
END
$$;

SELECT registry.lineage_check();
