-- The outbox: one lane per aggregate, its events, the streams they go to.

CREATE TABLE registry.outbox_stream (
  stream_no     smallint PRIMARY KEY,
  -- The epoch in Redis is '<lineage>/<epoch>'; a new one starts when Redis lost
  -- its data or the Registry's history changed.
  lineage       uuid,
  epoch         uuid,
  paused        boolean NOT NULL DEFAULT false,
  epoch_at      timestamptz,
  epoch_reason  text,
  audited_at    timestamptz,
  audit_result  jsonb,
  -- An operator's wish for an audit, carried out by a worker.
  audit_wanted_at  timestamptz,
  audit_wanted_fix boolean NOT NULL DEFAULT false
);
INSERT INTO registry.outbox_stream (stream_no)
SELECT generate_series(0, 7);

CREATE FUNCTION registry.stream_of(agg_type text, agg_key text) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  -- 8 streams: enough for eight active replicas of a consumer, few enough that
  -- one reader of all of them stays cheap. Part of the schema: an aggregate
  -- never changes its stream.
  -- A barrier's key is the number of the stream that it goes to.
  SELECT CASE agg_type WHEN 'barrier' THEN agg_key::smallint
              ELSE (hashtextextended(agg_type || ':' || agg_key, 0) & 7)::smallint END
$$;

CREATE TABLE registry.outbox_lane (
  lane_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  stream_no     smallint NOT NULL REFERENCES registry.outbox_stream (stream_no),
  agg_type      text COLLATE "C" NOT NULL,
  agg_key       text COLLATE "C" NOT NULL,
  last_seq      bigint NOT NULL DEFAULT 0,
  pub_seq       bigint NOT NULL DEFAULT 0,
  claim_token   bigint NOT NULL DEFAULT 0,
  claimed_by    text,
  -- Ready since, backing off until, or claim expires at: when the lane may be claimed next.
  next_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- A lower bound of created_at of the first unpublished event, for lag and partition pruning.
  head_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_event_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempts      integer NOT NULL DEFAULT 0,
  last_error    text,
  last_error_at timestamptz,
  published_at  timestamptz,
  state         text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
  CONSTRAINT outbox_lane_key UNIQUE (agg_type, agg_key),
  CONSTRAINT outbox_lane_order CHECK (pub_seq BETWEEN 0 AND last_seq)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_lane_ready ON registry.outbox_lane (next_at, lane_id)
  WHERE pub_seq < last_seq AND state = 'active';

CREATE TABLE registry.outbox_event (
  lane_id      bigint NOT NULL,
  seq          bigint NOT NULL,
  created_at   timestamptz NOT NULL,
  event_id     uuid NOT NULL DEFAULT gen_random_uuid(),
  kind         text NOT NULL,
  payload      jsonb NOT NULL CHECK (octet_length(payload::text) <= 8192),
  xid          xid8 NOT NULL DEFAULT pg_current_xact_id(),
  published_at timestamptz,
  PRIMARY KEY (lane_id, seq, created_at)
) PARTITION BY RANGE (created_at);

COMMENT ON TABLE registry.outbox_event IS
  'Daily partitions by created_at (UTC); (lane_id, seq) is unique by the lane''s row lock.';

CREATE TABLE registry.outbox_audit (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor  text NOT NULL,
  action text NOT NULL,
  target text NOT NULL,
  reason text NOT NULL DEFAULT '',
  detail jsonb NOT NULL DEFAULT '{}'
);

-- Makes the daily partitions from yesterday up to the given number of days
-- ahead, and answers how many were missing.
CREATE FUNCTION registry.outbox_partitions_ensure(days_ahead integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' SET timezone = 'UTC'
AS $$
DECLARE
  day  date;
  made integer := 0;
  part text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('registry.outbox_partitions', 0));
  FOR day IN SELECT generate_series(current_date - 1, current_date + days_ahead, interval '1 day')::date LOOP
    part := 'outbox_event_' || to_char(day, 'YYYYMMDD');
    IF to_regclass('registry.' || part) IS NULL THEN
      EXECUTE format(
        'CREATE TABLE registry.%I PARTITION OF registry.outbox_event FOR VALUES FROM (%L) TO (%L)
           WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)',
        part, day::timestamptz, (day + 1)::timestamptz);
      made := made + 1;
    END IF;
  END LOOP;
  RETURN made;
END
$$;
SELECT registry.outbox_partitions_ensure(60);

-- Appends one event to each of the lanes named by keys (distinct; any order)
-- and creates the lanes that do not exist. The lanes' row locks are taken in
-- key order and held to commit: so the order of seq is the order of commits,
-- without gaps. created_at is read after the lock; head_at before it, so that
-- it never exceeds created_at.
CREATE FUNCTION registry.outbox_append(p_type text, p_keys text[], p_kinds text[], p_payloads jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  lane registry.outbox_lane;
BEGIN
  IF cardinality(p_keys) = 1 THEN
    -- The common case without sorting and joining.
    INSERT INTO registry.outbox_lane AS l (agg_type, agg_key, stream_no, last_seq)
    VALUES (p_type, p_keys[1], registry.stream_of(p_type, p_keys[1]), 1)
    ON CONFLICT (agg_type, agg_key) DO UPDATE
    SET last_seq = l.last_seq + 1,
        next_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.next_at END,
        head_at = CASE WHEN l.pub_seq = l.last_seq THEN greatest(EXCLUDED.head_at, l.last_event_at) ELSE l.head_at END,
        last_event_at = greatest(clock_timestamp(), l.last_event_at)
    RETURNING * INTO lane;
    INSERT INTO registry.outbox_event (lane_id, seq, created_at, kind, payload)
    VALUES (lane.lane_id, lane.last_seq, lane.last_event_at, p_kinds[1], p_payloads[1]);
    RETURN;
  END IF;
  WITH wanted AS (
    SELECT key COLLATE "C" AS key, kind, payload
    FROM unnest(p_keys, p_kinds, p_payloads) AS w (key, kind, payload)
  ), bumped AS (
    INSERT INTO registry.outbox_lane AS l (agg_type, agg_key, stream_no, last_seq)
    SELECT p_type, key, registry.stream_of(p_type, key), 1
    FROM wanted
    ORDER BY key
    ON CONFLICT (agg_type, agg_key) DO UPDATE
    SET last_seq = l.last_seq + 1,
        next_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.next_at END,
        head_at = CASE WHEN l.pub_seq = l.last_seq THEN greatest(EXCLUDED.head_at, l.last_event_at) ELSE l.head_at END,
        last_event_at = greatest(clock_timestamp(), l.last_event_at)
    RETURNING l.lane_id, l.agg_key, l.last_seq, l.last_event_at
  )
  INSERT INTO registry.outbox_event (lane_id, seq, created_at, kind, payload)
  SELECT b.lane_id, b.last_seq, b.last_event_at, w.kind, w.payload
  FROM bumped b
  -- A full join is never a nested loop, whatever the row count that the plan
  -- was first made for; both sides hold the same keys.
  FULL JOIN wanted w ON w.key = b.agg_key;
END
$$;

-- Locks the lanes of several aggregates in the one order that everybody uses,
-- for transactions that touch aggregates in several statements. Lanes that do
-- not exist yet have nobody to wait for.
CREATE FUNCTION registry.outbox_lock(p_types text[], p_keys text[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT count(*) FROM (
    SELECT l.lane_id
    FROM registry.outbox_lane l
    WHERE (l.agg_type, l.agg_key) IN (SELECT t, k FROM unnest(p_types, p_keys) AS w (t, k))
    ORDER BY l.agg_type, l.agg_key
    FOR NO KEY UPDATE
  ) locked
$$;

CREATE VIEW registry.outbox_row_state AS
SELECT l.agg_type,
       l.agg_key,
       e.lane_id,
       e.seq,
       e.event_id,
       e.kind,
       e.payload,
       e.created_at,
       e.published_at,
       CASE WHEN e.seq <= l.pub_seq THEN 'published'
            WHEN l.state = 'paused' OR s.paused THEN 'blocked'
            WHEN l.claimed_by IS NOT NULL AND l.next_at > clock_timestamp() AND e.seq <= l.pub_seq + 10 THEN 'claimed'
            WHEN l.attempts > 0 AND l.next_at > clock_timestamp() THEN 'blocked'
            ELSE 'pending' END AS state
FROM registry.outbox_event e
JOIN registry.outbox_lane l USING (lane_id)
JOIN registry.outbox_stream s USING (stream_no);
