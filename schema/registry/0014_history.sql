-- History and the counts of the work list.

-- What people called a row whose key is a number that they do not know: the name
-- by which a deleted or renamed resource is found again.
CREATE FUNCTION registry.change_name(p_table text, p_row jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE p_table
    WHEN 'prefix' THEN p_row ->> 'prefix'
    WHEN 'organisation' THEN lower(p_row ->> 'handle')
    WHEN 'anycast_allocation' THEN p_row ->> 'prefix'
    WHEN 'certificate_authority' THEN p_row ->> 'name'
    WHEN 'name_server_set' THEN p_row ->> 'name'
    WHEN 'bgp_session' THEN p_row ->> 'remote_address' END
$$;

-- Former names only: a row is in it when a change took its name away.
CREATE INDEX change_log_former_name ON registry.change_log (registry.change_name(table_name, before))
  WHERE op <> 'insert'
    AND registry.change_name(table_name, before) IS DISTINCT FROM registry.change_name(table_name, after);
-- The log by time, of all and of one actor; both grow at their end alone. Every
-- write pays for each index of the log: the key is turned round to be the first
-- of the two, and an entry is found by its id, which grows with the time, in the
-- few blocks that may hold it.
ALTER TABLE registry.change_log
  DROP CONSTRAINT change_log_pkey,
  ADD PRIMARY KEY (at, id);
CREATE INDEX change_log_id ON registry.change_log USING brin (id) WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX change_log_actor ON registry.change_log (actor, at, id);
CREATE INDEX change_log_request ON registry.change_log (request_id) WHERE request_id IS NOT NULL;

-- Tells whether an entry of the log is about what the organisations hold, before
-- and after it, or about space inside of the prefixes.
CREATE FUNCTION registry.change_granted(p_table text, p_before jsonb, p_after jsonb, p_organisations bigint[], p_prefixes cidr[])
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT bool_and(i.held) OR bool_and(i.inside)
  FROM (
    SELECT coalesce(CASE p_table
             WHEN 'organisation' THEN (r ->> 'id')::bigint
             -- These rows are held by who holds the space.
             WHEN 'ptr_record' THEN (SELECT p.organisation_id FROM registry.prefix p WHERE p.id = (r ->> 'prefix_id')::bigint)
             WHEN 'anycast_route_origin' THEN (SELECT a.organisation_id FROM registry.anycast_allocation a
                                               WHERE a.id = (r ->> 'allocation_id')::bigint)
             ELSE (r ->> 'organisation_id')::bigint END = ANY (p_organisations), false) AS held,
           coalesce(coalesce(r ->> 'address', r ->> 'prefix')::inet <<= ANY (p_prefixes), false) AS inside
    FROM unnest(ARRAY[p_before, p_after]) r
    WHERE r IS NOT NULL
  ) i
$$;
