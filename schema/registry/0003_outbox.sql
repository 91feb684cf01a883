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
  -- The lane's place among those that are ready: since when, or since its last turn.
  queued_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The key of the claim's index. A claim, and an event appended to a lane that
  -- has others, leave it as it is: such an update touches no index (HOT).
  ready_at      timestamptz GENERATED ALWAYS AS (
    CASE WHEN pub_seq = last_seq OR state <> 'active' THEN NULL
         WHEN attempts > 0 THEN greatest(next_at, queued_at)
         ELSE queued_at END) STORED,
  last_error    text,
  last_error_at timestamptz,
  published_at  timestamptz,
  state         text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
  CONSTRAINT outbox_lane_key UNIQUE (agg_type, agg_key),
  CONSTRAINT outbox_lane_order CHECK (pub_seq BETWEEN 0 AND last_seq)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_lane_ready ON registry.outbox_lane (ready_at, lane_id)
  WHERE ready_at IS NOT NULL;

CREATE TABLE registry.outbox_event (
  lane_id      bigint NOT NULL,
  seq          bigint NOT NULL,
  created_at   timestamptz NOT NULL,
  event_id     uuid NOT NULL DEFAULT gen_random_uuid(),
  kind         text NOT NULL,
  payload      jsonb NOT NULL CHECK (pg_column_size(payload) <= 8192),
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
           WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)',
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
-- it never exceeds created_at. It runs with the rights of the trigger functions
-- that call it, which are the owner's; nobody else may write events.
CREATE FUNCTION registry.outbox_append(p_type text, p_keys text[], p_kinds text[], p_payloads jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  began timestamptz := clock_timestamp();
  lane  bigint;
  seq   bigint;
  at    timestamptz;
BEGIN
  IF cardinality(p_keys) = 1 THEN
    -- The common case without sorting and joining, and mostly of a lane that exists.
    UPDATE registry.outbox_lane l
    SET last_seq = l.last_seq + 1,
        next_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.next_at END,
        queued_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.queued_at END,
        head_at = CASE WHEN l.pub_seq = l.last_seq THEN greatest(began, l.last_event_at) ELSE l.head_at END,
        last_event_at = greatest(clock_timestamp(), l.last_event_at)
    WHERE l.agg_type = p_type
      AND l.agg_key = p_keys[1]
    RETURNING l.lane_id, l.last_seq, l.last_event_at INTO lane, seq, at;
    IF lane IS NULL THEN
      INSERT INTO registry.outbox_lane AS l (agg_type, agg_key, stream_no, last_seq)
      VALUES (p_type, p_keys[1], registry.stream_of(p_type, p_keys[1]), 1)
      ON CONFLICT (agg_type, agg_key) DO UPDATE
      SET last_seq = l.last_seq + 1,
          next_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.next_at END,
          queued_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.queued_at END,
          head_at = CASE WHEN l.pub_seq = l.last_seq THEN greatest(EXCLUDED.head_at, l.last_event_at) ELSE l.head_at END,
          last_event_at = greatest(clock_timestamp(), l.last_event_at)
      RETURNING l.lane_id, l.last_seq, l.last_event_at INTO lane, seq, at;
    END IF;
    INSERT INTO registry.outbox_event (lane_id, seq, created_at, kind, payload)
    VALUES (lane, seq, at, p_kinds[1], p_payloads[1]);
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
        queued_at = CASE WHEN l.pub_seq = l.last_seq THEN clock_timestamp() ELSE l.queued_at END,
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

-- Gives up what a lane has not published yet, up to a sequence number: those
-- events become markers of kind gap, which are published in their place. Their
-- numbers stay, so neither the order nor the fence in Redis knows an exception.
-- Answers how many.
CREATE FUNCTION registry.outbox_skip(p_lane bigint, p_through bigint, p_actor text, p_reason text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  lane    registry.outbox_lane;
  skipped bigint;
BEGIN
  SELECT * INTO lane FROM registry.outbox_lane WHERE lane_id = p_lane FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no lane %', p_lane USING ERRCODE = 'no_data_found';
  END IF;
  IF p_through NOT BETWEEN lane.pub_seq + 1 AND lane.last_seq THEN
    RAISE EXCEPTION 'lane % has unpublished events from % to %: % is none of them', p_lane, lane.pub_seq + 1, lane.last_seq, p_through
      USING ERRCODE = 'numeric_value_out_of_range';
  END IF;
  UPDATE registry.outbox_event
  SET kind = 'gap',
      payload = jsonb_build_object('skipped', kind, 'reason', left(p_reason, 500))
  WHERE lane_id = p_lane
    AND seq > lane.pub_seq
    AND seq <= p_through
    AND created_at BETWEEN lane.head_at AND lane.last_event_at;
  GET DIAGNOSTICS skipped = ROW_COUNT;
  -- The new token makes the answer of a worker that is at it void.
  UPDATE registry.outbox_lane
  SET claim_token = claim_token + 1,
      claimed_by = NULL,
      attempts = 0,
      next_at = clock_timestamp()
  WHERE lane_id = p_lane;
  INSERT INTO registry.outbox_audit (actor, action, target, reason, detail)
  VALUES (p_actor, 'skip', lane.agg_type || ':' || lane.agg_key, p_reason,
          jsonb_build_object('lane', p_lane, 'from', lane.pub_seq + 1, 'through', p_through, 'events', skipped, 'last_error', lane.last_error));
  RETURN skipped;
END
$$;

-- Appends one event of kind replay to each of the lanes, with a new sequence
-- number: nothing is ever rewound. Commands and barriers are not repeated.
-- Answers how many.
CREATE FUNCTION registry.outbox_replay(p_lanes bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  wanted   record;
  replayed bigint := 0;
BEGIN
  FOR wanted IN
    SELECT agg_type, array_agg(agg_key) AS keys, count(*) AS n
    FROM registry.outbox_lane
    WHERE lane_id = ANY (p_lanes)
      AND agg_type NOT IN ('command', 'barrier')
    GROUP BY agg_type
    ORDER BY agg_type
  LOOP
    PERFORM registry.outbox_append(wanted.agg_type, wanted.keys,
      array_fill('replay'::text, ARRAY[wanted.n::integer]), array_fill('{"changed": []}'::jsonb, ARRAY[wanted.n::integer]));
    replayed := replayed + wanted.n;
  END LOOP;
  RETURN replayed;
END
$$;

-- The daily partitions whose day ended longer ago than the retention, oldest
-- first, and whether they may be dropped: everything in them is published, and
-- was so longer ago than the retention. A lane says what is published; rows of a
-- lane that is forgotten say it themselves.
CREATE FUNCTION registry.outbox_partitions_old(p_retention interval)
RETURNS TABLE (partition text, events bigint, unpublished bigint, published_until timestamptz, droppable boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
BEGIN
  FOR partition IN
    SELECT c.relname
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'registry.outbox_event'::regclass
      AND c.relname ~ '^outbox_event_[0-9]{8}$'
      AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= clock_timestamp() - p_retention
    ORDER BY c.relname
  LOOP
    EXECUTE format(
      'SELECT count(*),
              count(*) FILTER (WHERE CASE WHEN l.lane_id IS NULL THEN e.published_at IS NULL ELSE e.seq > l.pub_seq END),
              max(e.published_at)
       FROM registry.%I e
       LEFT JOIN registry.outbox_lane l USING (lane_id)', partition)
    INTO events, unpublished, published_until;
    droppable := unpublished = 0 AND coalesce(published_until < clock_timestamp() - p_retention, true);
    RETURN NEXT;
  END LOOP;
END
$$;

-- Drops the oldest partition that may be dropped and answers its name, or NULL
-- where there is none. Rows of one partition only, in one transaction. The lock
-- on the parent table stops writers; DETACH CONCURRENTLY would not, but no
-- function may run it and the worker does not own the table. So it waits for
-- that lock half a second at most, and else fails for the caller to come again.
-- The advisory lock is also that of an audit which takes published events back.
CREATE FUNCTION registry.outbox_partition_drop(p_retention interval) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
  oldest text;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended('registry.outbox_retention', 0)) THEN
    RETURN NULL;
  END IF;
  SELECT o.partition INTO oldest
  FROM registry.outbox_partitions_old(p_retention) o
  WHERE o.droppable
  ORDER BY o.partition
  LIMIT 1;
  IF oldest IS NOT NULL THEN
    EXECUTE format('DROP TABLE registry.%I', oldest);
  END IF;
  RETURN oldest;
END
$$;

-- What a worker's own role cannot see of the outbox tables' health.
CREATE FUNCTION registry.outbox_health(
  OUT lane_lock_seconds double precision, OUT xmin_seconds double precision, OUT dead_tuples bigint,
  OUT partitions bigint, OUT oldest_partition text, OUT days_ahead integer)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
  SELECT (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - a.xact_start)), 0)
          FROM pg_locks k
          JOIN pg_stat_activity a ON a.pid = k.pid
          WHERE k.relation = 'registry.outbox_lane'::regclass
            AND k.mode = 'RowExclusiveLock'),
         (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - a.xact_start)), 0)
          FROM pg_stat_activity a
          WHERE a.backend_xmin IS NOT NULL
            AND a.datname = current_database()),
         (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint
          FROM pg_stat_user_tables s
          WHERE s.schemaname = 'registry'
            AND s.relname ~ '^outbox_(lane|event_)'),
         p.n,
         p.oldest,
         coalesce(p.newest - current_date, -1)
  FROM (
    SELECT count(*) AS n,
           min(c.relname)::text AS oldest,
           max(to_date(right(c.relname, 8), 'YYYYMMDD')) AS newest
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'registry.outbox_event'::regclass
      AND c.relname ~ '^outbox_event_[0-9]{8}$'
  ) p
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
