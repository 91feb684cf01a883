-- What is forgotten, and when.

-- Forgets resources that were deleted longer ago than the given age: their lanes,
-- which are their tombstones, and what modules said of them. Only kinds whose keys
-- are ids, which are never used again; and only what is published. Answers how
-- many lanes went; fewer than the batch means that none is left.
CREATE FUNCTION registry.outbox_tombstones_purge(age interval, batch integer) RETURNS integer
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
      AND NOT EXISTS (SELECT FROM registry.organisation r WHERE l.agg_type = 'organisation' AND r.id::text = l.agg_key)
      AND NOT EXISTS (SELECT FROM registry.prefix r WHERE l.agg_type = 'prefix' AND r.id::text = l.agg_key)
      AND NOT EXISTS (SELECT FROM registry.anycast_allocation r WHERE l.agg_type = 'anycast' AND r.id::text = l.agg_key)
      AND NOT EXISTS (SELECT FROM registry.certificate_authority r WHERE l.agg_type = 'ca' AND r.id::text = l.agg_key)
      AND NOT EXISTS (SELECT FROM registry.bgp_session r WHERE l.agg_type = 'session' AND r.id::text = l.agg_key)
      AND NOT EXISTS (SELECT FROM registry.name_server_set r WHERE l.agg_type = 'nsset' AND r.id::text = l.agg_key)
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
