-- Lifecycle consequences, whoever writes: the API, psql, COPY. On every
-- operational table one statement-level trigger per operation writes the change
-- log and appends to the outbox, and a row trigger raises the revision.
--
-- Each function below pairs the transition tables by a FULL JOIN on the key: its
-- plan is kept for the session, and one made for a single row must not become a
-- nested loop over the million rows of a later COPY. No key ever changes, so no
-- row is unpaired.

CREATE FUNCTION registry.row_revised() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  NEW.revision := OLD.revision + 1;
  NEW.created_at := OLD.created_at;
  NEW.updated_at := clock_timestamp();
  RETURN NEW;
END
$$;

CREATE FUNCTION registry.truncate_refused() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION 'TRUNCATE of % is refused: it would make no events; use DELETE', TG_TABLE_NAME
    USING ERRCODE = 'feature_not_supported';
END
$$;

CREATE FUNCTION registry.asn_number_kept() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION 'the number of AS% cannot change to %: create the other ASN and delete this one', OLD.number, NEW.number
    USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

-- Tells the world about some aggregates: one event for each key, whatever the
-- number of rows of it that a statement changed.
CREATE TYPE registry.happening AS (key text, kind text, changed text[]);

CREATE FUNCTION registry.outbox_tell(p_type text, p_happenings registry.happening[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  keys     text[];
  kinds    text[];
  payloads jsonb[];
BEGIN
  IF coalesce(cardinality(p_happenings), 0) = 1 THEN
    keys := ARRAY[p_happenings[1].key];
    kinds := ARRAY[p_happenings[1].kind];
    payloads := ARRAY[jsonb_build_object('changed', p_happenings[1].changed)];
  ELSIF cardinality(p_happenings) > 1 THEN
    SELECT array_agg(key), array_agg(kind), array_agg(jsonb_build_object('changed', changed))
    INTO keys, kinds, payloads
    FROM (
      SELECT h.key,
             CASE min(h.kind) WHEN max(h.kind) THEN min(h.kind) ELSE 'changed' END AS kind,
             array_agg(DISTINCT c ORDER BY c) FILTER (WHERE c IS NOT NULL) AS changed
      FROM unnest(p_happenings) h
      LEFT JOIN LATERAL unnest(h.changed) c ON true
      GROUP BY h.key
    ) merged;
  END IF;
  IF cardinality(keys) > 0 THEN
    PERFORM registry.outbox_append(p_type, keys, kinds, payloads);
  END IF;
END
$$;

-- Writes the log of one updated row and tells its aggregate: what people and the
-- API do, without the joins that a set of rows needs.
CREATE FUNCTION registry.row_written(who registry.acting, p_kind text, p_key text, p_table text, p_row_id text,
  p_before jsonb, p_after jsonb, p_changed text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF p_before - '{revision,updated_at}'::text[] <> p_after - '{revision,updated_at}'::text[] THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    VALUES (clock_timestamp(), who.lineage, p_kind, p_key, p_table, p_row_id, 'update',
            who.actor, who.token, who.request_id, who.reason, p_before, p_after);
  END IF;
  IF cardinality(p_changed) > 0 THEN
    PERFORM registry.outbox_append(p_kind, ARRAY[p_key], ARRAY['changed'], ARRAY[jsonb_build_object('changed', p_changed)]);
  END IF;
END
$$;

CREATE FUNCTION registry.row_immutable() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION '% % is immutable: it is neither changed nor deleted once created', TG_TABLE_NAME, OLD.id
    USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

-- organisation

CREATE FUNCTION registry.organisation_changed(o registry.organisation, n registry.organisation) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.handle, n.name, n.contact)
        IS DISTINCT FROM (o.handle, o.name, o.contact) THEN 'organisation' END], NULL)
$$;

CREATE FUNCTION registry.organisation_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.organisation;
  new_row    registry.organisation;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'organisation', n.id::text, 'organisation', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['organisation'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'organisation', o.id::text, 'organisation', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['organisation'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'organisation', new_row.id::text, 'organisation', new_row.id::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.organisation_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.organisation_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'organisation', p.key, 'organisation', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('organisation', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER organisation_inserted AFTER INSERT ON registry.organisation
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.organisation_written();
CREATE TRIGGER organisation_updated AFTER UPDATE ON registry.organisation
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.organisation_written();
CREATE TRIGGER organisation_deleted AFTER DELETE ON registry.organisation
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.organisation_written();
CREATE TRIGGER organisation_revised BEFORE UPDATE ON registry.organisation
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER organisation_truncated BEFORE TRUNCATE ON registry.organisation
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- asn

CREATE FUNCTION registry.asn_changed(o registry.asn, n registry.asn) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN n.organisation_id IS DISTINCT FROM o.organisation_id THEN 'holder' END], NULL)
$$;

CREATE FUNCTION registry.asn_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.asn;
  new_row    registry.asn;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'asn', n.number::text, 'asn', n.number::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.number::text, 'created', ARRAY['holder'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'asn', o.number::text, 'asn', o.number::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.number::text, 'deleted', ARRAY['holder'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'asn', new_row.number::text, 'asn', new_row.number::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.asn_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.number::text AS key, n.number::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.asn_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.number = n.number
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'asn', p.key, 'asn', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('asn', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER asn_inserted AFTER INSERT ON registry.asn
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.asn_written();
CREATE TRIGGER asn_updated AFTER UPDATE ON registry.asn
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.asn_written();
CREATE TRIGGER asn_deleted AFTER DELETE ON registry.asn
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.asn_written();
CREATE TRIGGER asn_revised BEFORE UPDATE ON registry.asn
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER asn_number_kept BEFORE UPDATE OF number ON registry.asn
  FOR EACH ROW WHEN (NEW.number <> OLD.number)
  EXECUTE FUNCTION registry.asn_number_kept();
CREATE TRIGGER asn_truncated BEFORE TRUNCATE ON registry.asn
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- name_server_set

CREATE FUNCTION registry.name_server_set_changed(o registry.name_server_set, n registry.name_server_set) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.name, n.servers)
        IS DISTINCT FROM (o.name, o.servers) THEN 'servers' END], NULL)
$$;

CREATE FUNCTION registry.name_server_set_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.name_server_set;
  new_row    registry.name_server_set;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'nsset', n.id::text, 'name_server_set', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['servers'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'nsset', o.id::text, 'name_server_set', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['servers'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'nsset', new_row.id::text, 'name_server_set', new_row.id::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.name_server_set_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.name_server_set_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'nsset', p.key, 'name_server_set', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('nsset', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER name_server_set_inserted AFTER INSERT ON registry.name_server_set
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.name_server_set_written();
CREATE TRIGGER name_server_set_updated AFTER UPDATE ON registry.name_server_set
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.name_server_set_written();
CREATE TRIGGER name_server_set_deleted AFTER DELETE ON registry.name_server_set
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.name_server_set_written();
CREATE TRIGGER name_server_set_revised BEFORE UPDATE ON registry.name_server_set
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER name_server_set_truncated BEFORE TRUNCATE ON registry.name_server_set
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- prefix

CREATE FUNCTION registry.prefix_changed(o registry.prefix, n registry.prefix) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN n.prefix IS DISTINCT FROM o.prefix THEN 'prefix' END,
      CASE WHEN n.status IS DISTINCT FROM o.status THEN 'status' END,
      CASE WHEN n.organisation_id IS DISTINCT FROM o.organisation_id THEN 'organisation' END,
      CASE WHEN (n.announced, n.origin_asn, n.max_length)
        IS DISTINCT FROM (o.announced, o.origin_asn, o.max_length) THEN 'routing' END,
      CASE WHEN (n.reverse_mode, n.name_servers, n.name_server_set_id, n.ds, n.rfc2317_style, n.zone_cut)
        IS DISTINCT FROM (o.reverse_mode, o.name_servers, o.name_server_set_id, o.ds, o.rfc2317_style, o.zone_cut) THEN 'reverse' END], NULL)
$$;

CREATE FUNCTION registry.prefix_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.prefix;
  new_row    registry.prefix;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'prefix', n.id::text, 'prefix', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['prefix', 'status', 'organisation', 'routing', 'reverse'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'prefix', o.id::text, 'prefix', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['prefix', 'status', 'organisation', 'routing', 'reverse'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      -- An anycast allocation is held by the organisation of the prefix that it
      -- lies in; it follows when that changes hands.
      IF new_row.organisation_id IS DISTINCT FROM old_row.organisation_id THEN
        UPDATE registry.anycast_allocation held
        SET organisation_id = new_row.organisation_id
        WHERE held.container_id = new_row.id
          AND held.organisation_id IS DISTINCT FROM new_row.organisation_id;
      END IF;
      PERFORM registry.row_written(who, 'prefix', new_row.id::text, 'prefix', new_row.id::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.prefix_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.prefix_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'prefix', p.key, 'prefix', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
    IF EXISTS (SELECT FROM unnest(happenings) h WHERE 'organisation' = ANY (h.changed)) THEN
      UPDATE registry.anycast_allocation held
      SET organisation_id = n.organisation_id
      FROM new_rows n
      WHERE held.container_id = n.id
        AND held.organisation_id IS DISTINCT FROM n.organisation_id;
    END IF;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('prefix', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER prefix_inserted AFTER INSERT ON registry.prefix
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.prefix_written();
CREATE TRIGGER prefix_updated AFTER UPDATE ON registry.prefix
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.prefix_written();
CREATE TRIGGER prefix_deleted AFTER DELETE ON registry.prefix
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.prefix_written();
CREATE TRIGGER prefix_revised BEFORE UPDATE ON registry.prefix
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER prefix_truncated BEFORE TRUNCATE ON registry.prefix
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- ptr_record

CREATE FUNCTION registry.ptr_record_changed(o registry.ptr_record, n registry.ptr_record) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.address, n.target, n.ttl)
        IS DISTINCT FROM (o.address, o.target, o.ttl) THEN 'ptr' END], NULL)
$$;

CREATE FUNCTION registry.ptr_record_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.ptr_record;
  new_row    registry.ptr_record;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'ptr', host(n.address), 'ptr_record', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(host(n.address), 'changed', ARRAY['ptr'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'ptr', host(o.address), 'ptr_record', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(host(o.address), 'changed', ARRAY['ptr'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      IF host(old_row.address) = host(new_row.address) THEN
        PERFORM registry.row_written(who, 'ptr', host(new_row.address), 'ptr_record', new_row.id::text,
          to_jsonb(old_row), to_jsonb(new_row), registry.ptr_record_changed(old_row, new_row));
        RETURN NULL;
      END IF;
    END IF;
    -- A row that moves to another aggregate changes both: it leaves the one and
    -- enters the other, in the change log too.
    WITH pairs AS MATERIALIZED (
      SELECT host(o.address) AS old_key, host(n.address) AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.ptr_record_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'ptr', l.key, 'ptr_record', p.row_id, l.op,
             who.actor, who.token, who.request_id, who.reason, l.before, l.after
      FROM pairs p
      CROSS JOIN LATERAL (
        SELECT p.key, 'update', p.before, p.after WHERE p.old_key = p.key
        UNION ALL
        SELECT p.old_key, 'delete', p.before, NULL WHERE p.old_key <> p.key
        UNION ALL
        SELECT p.key, 'insert', NULL, p.after WHERE p.old_key <> p.key
      ) l (key, op, before, after)
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(k.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    CROSS JOIN LATERAL (SELECT p.old_key UNION SELECT p.key) k (key)
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('ptr', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER ptr_record_inserted AFTER INSERT ON registry.ptr_record
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.ptr_record_written();
CREATE TRIGGER ptr_record_updated AFTER UPDATE ON registry.ptr_record
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.ptr_record_written();
CREATE TRIGGER ptr_record_deleted AFTER DELETE ON registry.ptr_record
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.ptr_record_written();
CREATE TRIGGER ptr_record_revised BEFORE UPDATE ON registry.ptr_record
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER ptr_record_truncated BEFORE TRUNCATE ON registry.ptr_record
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- anycast_allocation

CREATE FUNCTION registry.anycast_allocation_changed(o registry.anycast_allocation, n registry.anycast_allocation) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN n.prefix IS DISTINCT FROM o.prefix THEN 'prefix' END,
      CASE WHEN n.organisation_id IS DISTINCT FROM o.organisation_id THEN 'organisation' END,
      CASE WHEN n.service IS DISTINCT FROM o.service THEN 'service' END], NULL)
$$;

CREATE FUNCTION registry.anycast_allocation_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.anycast_allocation;
  new_row    registry.anycast_allocation;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'anycast', n.id::text, 'anycast_allocation', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['prefix', 'organisation', 'service'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'anycast', o.id::text, 'anycast_allocation', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['prefix', 'organisation', 'service'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'anycast', new_row.id::text, 'anycast_allocation', new_row.id::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.anycast_allocation_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.anycast_allocation_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'anycast', p.key, 'anycast_allocation', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('anycast', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER anycast_allocation_inserted AFTER INSERT ON registry.anycast_allocation
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.anycast_allocation_written();
CREATE TRIGGER anycast_allocation_updated AFTER UPDATE ON registry.anycast_allocation
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.anycast_allocation_written();
CREATE TRIGGER anycast_allocation_deleted AFTER DELETE ON registry.anycast_allocation
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.anycast_allocation_written();
CREATE TRIGGER anycast_allocation_revised BEFORE UPDATE ON registry.anycast_allocation
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER anycast_allocation_truncated BEFORE TRUNCATE ON registry.anycast_allocation
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- anycast_route_origin

CREATE FUNCTION registry.anycast_route_origin_changed(o registry.anycast_route_origin, n registry.anycast_route_origin) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.allocation_id, n.prefix, n.asn, n.max_length, n.active)
        IS DISTINCT FROM (o.allocation_id, o.prefix, o.asn, o.max_length, o.active) THEN 'origins' END], NULL)
$$;

CREATE FUNCTION registry.anycast_route_origin_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.anycast_route_origin;
  new_row    registry.anycast_route_origin;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'anycast', n.allocation_id::text, 'anycast_route_origin', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.allocation_id::text, 'changed', ARRAY['origins'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'anycast', o.allocation_id::text, 'anycast_route_origin', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.allocation_id::text, 'changed', ARRAY['origins'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      IF old_row.allocation_id::text = new_row.allocation_id::text THEN
        PERFORM registry.row_written(who, 'anycast', new_row.allocation_id::text, 'anycast_route_origin', new_row.id::text,
          to_jsonb(old_row), to_jsonb(new_row), registry.anycast_route_origin_changed(old_row, new_row));
        RETURN NULL;
      END IF;
    END IF;
    -- A row that moves to another aggregate changes both: it leaves the one and
    -- enters the other, in the change log too.
    WITH pairs AS MATERIALIZED (
      SELECT o.allocation_id::text AS old_key, n.allocation_id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.anycast_route_origin_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'anycast', l.key, 'anycast_route_origin', p.row_id, l.op,
             who.actor, who.token, who.request_id, who.reason, l.before, l.after
      FROM pairs p
      CROSS JOIN LATERAL (
        SELECT p.key, 'update', p.before, p.after WHERE p.old_key = p.key
        UNION ALL
        SELECT p.old_key, 'delete', p.before, NULL WHERE p.old_key <> p.key
        UNION ALL
        SELECT p.key, 'insert', NULL, p.after WHERE p.old_key <> p.key
      ) l (key, op, before, after)
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(k.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    CROSS JOIN LATERAL (SELECT p.old_key UNION SELECT p.key) k (key)
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('anycast', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER anycast_route_origin_inserted AFTER INSERT ON registry.anycast_route_origin
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.anycast_route_origin_written();
CREATE TRIGGER anycast_route_origin_updated AFTER UPDATE ON registry.anycast_route_origin
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.anycast_route_origin_written();
CREATE TRIGGER anycast_route_origin_deleted AFTER DELETE ON registry.anycast_route_origin
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.anycast_route_origin_written();
CREATE TRIGGER anycast_route_origin_revised BEFORE UPDATE ON registry.anycast_route_origin
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER anycast_route_origin_truncated BEFORE TRUNCATE ON registry.anycast_route_origin
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- certificate_authority

CREATE FUNCTION registry.certificate_authority_changed(o registry.certificate_authority, n registry.certificate_authority) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.name, n.parent_id, n.organisation_id, n.mode, n.csr, n.resources, n.prefixes, n.asns, n.state)
        IS DISTINCT FROM (o.name, o.parent_id, o.organisation_id, o.mode, o.csr, o.resources, o.prefixes, o.asns, o.state) THEN 'ca' END], NULL)
$$;

CREATE FUNCTION registry.certificate_authority_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.certificate_authority;
  new_row    registry.certificate_authority;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'ca', n.id::text, 'certificate_authority', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['ca'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'ca', o.id::text, 'certificate_authority', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['ca'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'ca', new_row.id::text, 'certificate_authority', new_row.id::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.certificate_authority_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.certificate_authority_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'ca', p.key, 'certificate_authority', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('ca', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER certificate_authority_inserted AFTER INSERT ON registry.certificate_authority
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.certificate_authority_written();
CREATE TRIGGER certificate_authority_updated AFTER UPDATE ON registry.certificate_authority
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.certificate_authority_written();
CREATE TRIGGER certificate_authority_deleted AFTER DELETE ON registry.certificate_authority
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.certificate_authority_written();
CREATE TRIGGER certificate_authority_revised BEFORE UPDATE ON registry.certificate_authority
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER certificate_authority_truncated BEFORE TRUNCATE ON registry.certificate_authority
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- certificate

CREATE FUNCTION registry.certificate_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
BEGIN
  INSERT INTO registry.change_log
    (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
  SELECT clock_timestamp(), who.lineage, 'ca', n.ca_id::text, 'certificate', n.id::text, 'insert',
         who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
  FROM new_rows n;
  SELECT array_agg(ROW(n.ca_id::text, 'changed', ARRAY['certificates'])::registry.happening)
  INTO happenings
  FROM new_rows n;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('ca', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER certificate_inserted AFTER INSERT ON registry.certificate
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.certificate_written();
CREATE TRIGGER certificate_kept BEFORE UPDATE OR DELETE ON registry.certificate
  FOR EACH ROW EXECUTE FUNCTION registry.row_immutable();
CREATE TRIGGER certificate_truncated BEFORE TRUNCATE ON registry.certificate
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- revocation

CREATE FUNCTION registry.revocation_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
BEGIN
  INSERT INTO registry.change_log
    (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
  SELECT clock_timestamp(), who.lineage, 'ca', (SELECT c.ca_id::text FROM registry.certificate c WHERE c.id = n.certificate_id), 'revocation', n.id::text, 'insert',
         who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
  FROM new_rows n;
  SELECT array_agg(ROW((SELECT c.ca_id::text FROM registry.certificate c WHERE c.id = n.certificate_id), 'changed', ARRAY['revocations'])::registry.happening)
  INTO happenings
  FROM new_rows n;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('ca', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER revocation_inserted AFTER INSERT ON registry.revocation
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.revocation_written();
CREATE TRIGGER revocation_kept BEFORE UPDATE OR DELETE ON registry.revocation
  FOR EACH ROW EXECUTE FUNCTION registry.row_immutable();
CREATE TRIGGER revocation_truncated BEFORE TRUNCATE ON registry.revocation
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- bgp_session

CREATE FUNCTION registry.bgp_session_changed(o registry.bgp_session, n registry.bgp_session) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.collector, n.local_asn, n.local_address, n.remote_asn, n.remote_address, n.families, n.password_sealed, n.max_prefixes, n.wanted)
        IS DISTINCT FROM (o.collector, o.local_asn, o.local_address, o.remote_asn, o.remote_address, o.families, o.password_sealed, o.max_prefixes, o.wanted) THEN 'session' END], NULL)
$$;

CREATE FUNCTION registry.bgp_session_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.bgp_session;
  new_row    registry.bgp_session;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'session', n.id::text, 'bgp_session', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, to_jsonb(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['session'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'session', o.id::text, 'bgp_session', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, to_jsonb(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['session'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'session', new_row.id::text, 'bgp_session', new_row.id::text,
        to_jsonb(old_row), to_jsonb(new_row), registry.bgp_session_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, to_jsonb(o) AS before, to_jsonb(n) AS after,
             registry.bgp_session_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'session', p.key, 'bgp_session', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('session', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bgp_session_inserted AFTER INSERT ON registry.bgp_session
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.bgp_session_written();
CREATE TRIGGER bgp_session_updated AFTER UPDATE ON registry.bgp_session
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.bgp_session_written();
CREATE TRIGGER bgp_session_deleted AFTER DELETE ON registry.bgp_session
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.bgp_session_written();
CREATE TRIGGER bgp_session_revised BEFORE UPDATE ON registry.bgp_session
  FOR EACH ROW EXECUTE FUNCTION registry.row_revised();
CREATE TRIGGER bgp_session_truncated BEFORE TRUNCATE ON registry.bgp_session
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- Rows that lie in a prefix find it themselves, so that a plain SQL INSERT needs
-- to know no ids. The foreign keys and checks hold against races: two that
-- insert a prefix and a part of it at once overlap as siblings, and one fails.

CREATE FUNCTION registry.prefix_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF NEW.parent_id IS NULL THEN
    SELECT c.id, c.prefix INTO NEW.parent_id, NEW.parent_prefix FROM registry.prefix_covering(NEW.prefix, true) c;
  ELSIF NEW.parent_prefix IS NULL THEN
    SELECT p.prefix INTO NEW.parent_prefix FROM registry.prefix p WHERE p.id = NEW.parent_id;
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER prefix_placed BEFORE INSERT ON registry.prefix
  FOR EACH ROW EXECUTE FUNCTION registry.prefix_placed();

CREATE FUNCTION registry.ptr_record_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF NEW.target_typed IS NULL THEN
    NEW.target_typed := NEW.target;
  END IF;
  IF NEW.prefix_id IS NULL OR TG_OP = 'UPDATE' THEN
    SELECT c.id, c.prefix INTO NEW.prefix_id, NEW.prefix FROM registry.prefix_covering(NEW.address, false) c;
    IF NEW.prefix_id IS NULL THEN
      RAISE EXCEPTION 'no prefix covers the address %; create the prefix first', host(NEW.address)
        USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'ptr_record_prefix_fkey';
    END IF;
  ELSIF NEW.prefix IS NULL THEN
    SELECT p.prefix INTO NEW.prefix FROM registry.prefix p WHERE p.id = NEW.prefix_id;
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER ptr_record_placed BEFORE INSERT ON registry.ptr_record
  FOR EACH ROW EXECUTE FUNCTION registry.ptr_record_placed();
CREATE TRIGGER ptr_record_moved BEFORE UPDATE ON registry.ptr_record
  FOR EACH ROW WHEN (NEW.address IS DISTINCT FROM OLD.address)
  EXECUTE FUNCTION registry.ptr_record_placed();

CREATE FUNCTION registry.anycast_allocation_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  holder bigint;
BEGIN
  IF NEW.container_id IS NULL OR (TG_OP = 'UPDATE' AND NEW.prefix IS DISTINCT FROM OLD.prefix) THEN
    SELECT c.id, c.prefix INTO NEW.container_id, NEW.container FROM registry.prefix_covering(NEW.prefix, false) c;
    IF NEW.container_id IS NULL THEN
      RAISE EXCEPTION 'no prefix covers the anycast prefix %; create the prefix first', NEW.prefix
        USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'anycast_allocation_container_fkey';
    END IF;
  END IF;
  -- The share lock holds off a change of the holder until this commits.
  SELECT p.organisation_id, p.prefix INTO holder, NEW.container
  FROM registry.prefix p
  WHERE p.id = NEW.container_id
  FOR SHARE;
  IF TG_OP = 'INSERT' AND NEW.organisation_id IS NULL THEN
    NEW.organisation_id := holder;
  END IF;
  IF NEW.organisation_id IS DISTINCT FROM holder THEN
    RAISE EXCEPTION 'the anycast prefix % lies in %, which another organisation holds', NEW.prefix, NEW.container
      USING ERRCODE = 'check_violation', CONSTRAINT = 'anycast_allocation_same_organisation';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER anycast_allocation_placed BEFORE INSERT OR UPDATE ON registry.anycast_allocation
  FOR EACH ROW EXECUTE FUNCTION registry.anycast_allocation_placed();

CREATE FUNCTION registry.anycast_route_origin_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF NEW.prefix IS NULL THEN
    SELECT a.prefix INTO NEW.prefix FROM registry.anycast_allocation a WHERE a.id = NEW.allocation_id;
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER anycast_route_origin_placed BEFORE INSERT ON registry.anycast_route_origin
  FOR EACH ROW EXECUTE FUNCTION registry.anycast_route_origin_placed();
