-- Allocation: quarantine of vacated space, and what next-free and free space ask.

-- The children of a pool in address order, from the index alone.
DROP INDEX registry.prefix_parent;
CREATE INDEX prefix_parent ON registry.prefix (parent_id, prefix);
CREATE INDEX prefix_retired ON registry.prefix (parent_id, prefix) WHERE status = 'retired';
CREATE INDEX prefix_pool ON registry.prefix (prefix) WHERE kind IN ('container', 'allocation');

-- Most prefixes have neither name servers nor DS records: then no function is called,
-- which halves what a row costs.
ALTER TABLE registry.prefix
  DROP CONSTRAINT prefix_name_servers_valid,
  DROP CONSTRAINT prefix_ds_valid,
  ADD CONSTRAINT prefix_name_servers_valid CHECK (cardinality(name_servers) = 0
    OR cardinality(name_servers) <= 16 AND registry.hostnames_valid(name_servers)),
  ADD CONSTRAINT prefix_ds_valid CHECK (ds = '[]' OR registry.ds_valid(ds));

-- Space that somebody had until a moment ago: what modules derived from it (a ROA,
-- a zone) may still be in the world. It is not offered to anybody else before every
-- module that was registered by then has reported it withdrawn.
CREATE TABLE registry.quarantine (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  prefix   cidr NOT NULL,
  -- The resource that held it, and its version that gave it up.
  agg_type text COLLATE "C" NOT NULL,
  agg_key  text COLLATE "C" NOT NULL,
  version  bigint NOT NULL,
  lineage  uuid NOT NULL,
  since    timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Tree order: all that lies in a prefix is one range.
CREATE INDEX quarantine_prefix ON registry.quarantine (prefix);

-- The modules that may still show something of a resource as it was before a
-- version: those that were registered by then and have neither applied that version
-- nor withdrawn everything at the one before. A report of the lineage in which the
-- version was made keeps its meaning when the lineage changes.
CREATE FUNCTION registry.withdrawal_missing(p_type text, p_key text, p_version bigint, p_lineage uuid, p_since timestamptz)
RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN ARRAY(
    SELECT m.name
    FROM registry.module m
    WHERE p_type = ANY (m.kinds)
      AND m.registered_at <= p_since
      AND NOT EXISTS (
        SELECT
        FROM registry.applied_state s
        WHERE s.agg_type = p_type
          AND s.agg_key = p_key
          AND s.module = m.name
          AND s.lineage IN (p_lineage, registry.lineage_current())
          AND (s.state = 'withdrawn' AND s.version >= p_version - 1
            OR s.state = 'applied' AND s.version >= p_version))
    ORDER BY m.name);
END
$$;

CREATE FUNCTION registry.space_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- Without consumers nothing was derived that would have to go.
  IF EXISTS (SELECT FROM registry.module m WHERE TG_ARGV[0] = ANY (m.kinds)) THEN
    INSERT INTO registry.quarantine (prefix, agg_type, agg_key, version, lineage)
    SELECT o.prefix, l.agg_type, l.agg_key, l.last_seq, registry.lineage_current()
    FROM old_rows o
    JOIN registry.outbox_lane l ON l.agg_type = TG_ARGV[0] AND l.agg_key = o.id::text;
  END IF;
  RETURN NULL;
END
$$;
-- Triggers of one event fire in order of their names: these come after the ones
-- that make the versions, prefix_deleted and anycast_allocation_deleted.
CREATE TRIGGER prefix_vacated AFTER DELETE ON registry.prefix
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.space_deleted('prefix');
CREATE TRIGGER anycast_allocation_vacated AFTER DELETE ON registry.anycast_allocation
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.space_deleted('anycast');

CREATE FUNCTION registry.prefix_shed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF EXISTS (SELECT FROM registry.module m WHERE 'prefix' = ANY (m.kinds)) THEN
    INSERT INTO registry.quarantine (prefix, agg_type, agg_key, version, lineage)
    SELECT OLD.prefix, l.agg_type, l.agg_key, l.last_seq, registry.lineage_current()
    FROM registry.outbox_lane l
    WHERE l.agg_type = 'prefix'
      AND l.agg_key = OLD.id::text;
  END IF;
  RETURN NULL;
END
$$;
-- At the end of the transaction, which then holds the lane with the new version.
CREATE CONSTRAINT TRIGGER prefix_shed AFTER UPDATE OF prefix ON registry.prefix
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NOT OLD.prefix <<= NEW.prefix)
  EXECUTE FUNCTION registry.prefix_shed();

-- Forgets space that everybody has left. Answers how many entries went; fewer than
-- the batch means that no more are over.
CREATE FUNCTION registry.quarantine_sweep(batch integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  gone integer;
BEGIN
  WITH over AS (
    SELECT q.id
    FROM registry.quarantine q
    WHERE cardinality(registry.withdrawal_missing(q.agg_type, q.agg_key, q.version, q.lineage, q.since)) = 0
    ORDER BY q.id
    LIMIT batch
    FOR UPDATE SKIP LOCKED
  )
  DELETE FROM registry.quarantine q
  USING over
  WHERE q.id = over.id;
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END
$$;

-- Ends a quarantine before all modules have reported, which the change log keeps.
CREATE FUNCTION registry.quarantine_release(p_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who      registry.acting := registry.acting();
  released registry.quarantine;
BEGIN
  DELETE FROM registry.quarantine WHERE id = p_id RETURNING * INTO released;
  IF released.id IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO registry.change_log
    (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
  VALUES (clock_timestamp(), who.lineage, 'quarantine', released.id::text, 'quarantine', released.id::text, 'delete',
          who.actor, who.token, who.request_id, who.reason, to_jsonb(released), NULL);
  RETURN true;
END
$$;
