-- Upkeep: what grows is forgotten, and what is asked often has an index.

-- For the state of one module, and for forgetting it.
CREATE INDEX applied_state_module ON registry.applied_state (module, agg_type, agg_key);
CREATE INDEX observation_module ON registry.observation (module, agg_type, agg_key);

-- Prefixes by the AS that is to announce them; most have none.
CREATE INDEX prefix_origin_asn ON registry.prefix (origin_asn, prefix) WHERE origin_asn IS NOT NULL;

-- anycast_route_origin_key begins with the same column.
DROP INDEX registry.anycast_route_origin_allocation;

-- As before (0008), but each lane is compared by one probe of its own kind's
-- primary key, not by its key as text, which no index holds.
CREATE OR REPLACE FUNCTION registry.outbox_tombstones_purge(age interval, batch integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  forgotten integer;
BEGIN
  WITH dead AS (
    SELECT l.lane_id
    FROM registry.outbox_lane l
    WHERE l.agg_type IN ('organisation', 'prefix', 'anycast', 'ca', 'session', 'nsset')
      AND l.last_event_at < clock_timestamp() - age
      AND l.pub_seq = l.last_seq
      AND NOT CASE l.agg_type
                WHEN 'organisation' THEN EXISTS (SELECT FROM registry.organisation r WHERE r.id = l.agg_key::bigint)
                WHEN 'prefix' THEN EXISTS (SELECT FROM registry.prefix r WHERE r.id = l.agg_key::bigint)
                WHEN 'anycast' THEN EXISTS (SELECT FROM registry.anycast_allocation r WHERE r.id = l.agg_key::bigint)
                WHEN 'ca' THEN EXISTS (SELECT FROM registry.certificate_authority r WHERE r.id = l.agg_key::bigint)
                WHEN 'session' THEN EXISTS (SELECT FROM registry.bgp_session r WHERE r.id = l.agg_key::bigint)
                ELSE EXISTS (SELECT FROM registry.name_server_set r WHERE r.id = l.agg_key::bigint)
              END
    ORDER BY l.lane_id
    LIMIT batch
    FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM registry.outbox_lane l
    USING dead
    WHERE l.lane_id = dead.lane_id
    RETURNING l.agg_type, l.agg_key
  ), unsaid AS (
    DELETE FROM registry.applied_state a
    USING gone
    WHERE (a.agg_type, a.agg_key) = (gone.agg_type, gone.agg_key)
  ), unseen AS (
    DELETE FROM registry.observation o
    USING gone
    WHERE (o.agg_type, o.agg_key) = (gone.agg_type, gone.agg_key)
  )
  SELECT count(*) INTO forgotten FROM gone;
  RETURN forgotten;
END
$$;

-- Forgets commands that were given longer ago than the given age, with their
-- lanes and what modules answered; only what is published. Answers how many went;
-- fewer than the batch means that none is left.
CREATE FUNCTION registry.module_commands_purge(age interval, batch integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  forgotten integer;
BEGIN
  WITH dead AS (
    SELECT c.id, l.lane_id
    FROM registry.module_command c
    JOIN registry.outbox_lane l ON l.agg_type = 'command' AND l.agg_key = c.id::text
    WHERE c.created_at < clock_timestamp() - age
      AND l.pub_seq = l.last_seq
    ORDER BY c.id
    LIMIT batch
    FOR UPDATE SKIP LOCKED
  ), unlaned AS (
    DELETE FROM registry.outbox_lane l
    USING dead
    WHERE l.lane_id = dead.lane_id
  ), unsaid AS (
    DELETE FROM registry.applied_state a
    USING dead
    WHERE a.agg_type = 'command'
      AND a.agg_key = dead.id::text
  ), unseen AS (
    DELETE FROM registry.observation o
    USING dead
    WHERE o.agg_type = 'command'
      AND o.agg_key = dead.id::text
  ), gone AS (
    DELETE FROM registry.module_command c
    USING dead
    WHERE c.id = dead.id
    RETURNING c.id
  )
  SELECT count(*) INTO forgotten FROM gone;
  RETURN forgotten;
END
$$;

-- Forgets what was done with the outbox longer ago than the given age: nobody may
-- delete a row of it otherwise. Answers how many went.
CREATE FUNCTION registry.outbox_audit_purge(age interval, batch integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  forgotten integer;
BEGIN
  DELETE FROM registry.outbox_audit
  WHERE id IN (
    SELECT id
    FROM registry.outbox_audit
    WHERE at < clock_timestamp() - age
    ORDER BY id
    LIMIT batch);
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  RETURN forgotten;
END
$$;
