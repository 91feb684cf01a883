-- What consumers and operators ask: indexes and functions that no writer needs.

-- Paused lanes are left out of outbox_lane_ready; there are hardly any.
CREATE INDEX outbox_lane_paused ON registry.outbox_lane (lane_id) WHERE state = 'paused';

-- Tells whether the Registry ever gave out an id. Ids are never reused, so one
-- that was not given out yet is known from a history that is over. A natural key
-- has a lane for ever once anything was said of it.
CREATE FUNCTION registry.id_issued(p_kind text, p_key text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT CASE p_kind
    WHEN 'organisation' THEN p_key::bigint <= (SELECT last_value FROM registry.organisation_id_seq)
    WHEN 'prefix' THEN p_key::bigint <= (SELECT last_value FROM registry.prefix_id_seq)
    WHEN 'anycast' THEN p_key::bigint <= (SELECT last_value FROM registry.anycast_allocation_id_seq)
    WHEN 'ca' THEN p_key::bigint <= (SELECT last_value FROM registry.certificate_authority_id_seq)
    WHEN 'session' THEN p_key::bigint <= (SELECT last_value FROM registry.bgp_session_id_seq)
    WHEN 'nsset' THEN p_key::bigint <= (SELECT last_value FROM registry.name_server_set_id_seq)
    ELSE EXISTS (SELECT FROM registry.outbox_lane l WHERE l.agg_type = p_kind AND l.agg_key = p_key)
  END
$$;
