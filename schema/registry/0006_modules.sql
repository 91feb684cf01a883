-- Modules: who consumes, what they report, what they are told, leases.

CREATE TABLE registry.module (
  name          text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,39}$'),
  -- The aggregate types that the module derives something from.
  kinds         text[] NOT NULL,
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE registry.module_instance (
  module           text NOT NULL REFERENCES registry.module (name) ON DELETE CASCADE,
  instance         text NOT NULL,
  address          text NOT NULL DEFAULT '',
  lineage          uuid,
  behind           bigint NOT NULL DEFAULT 0,
  status           jsonb NOT NULL DEFAULT '{}',
  interval_seconds integer NOT NULL CHECK (interval_seconds BETWEEN 1 AND 3600),
  started_at       timestamptz NOT NULL,
  seen_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (module, instance)
);

-- What a module last said of a resource; written without change log, revision or outbox.
CREATE TABLE registry.applied_state (
  module      text NOT NULL REFERENCES registry.module (name) ON DELETE CASCADE,
  agg_type    text COLLATE "C" NOT NULL,
  agg_key     text COLLATE "C" NOT NULL,
  lineage     uuid NOT NULL,
  version     bigint NOT NULL,
  state       text NOT NULL CHECK (state IN ('applied', 'failed', 'withdrawn', 'held')),
  reason      text NOT NULL DEFAULT '',
  retry_at    timestamptz,
  detail      jsonb NOT NULL DEFAULT '{}',
  instance    text NOT NULL DEFAULT '',
  fetched_at  timestamptz NOT NULL,
  reported_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agg_type, agg_key, module)
) WITH (fillfactor = 70);
-- For the operator's work list, in its order.
CREATE INDEX applied_state_attention ON registry.applied_state (state, agg_type, agg_key) WHERE state IN ('failed', 'held');

-- What a module observed of the outside world (a route, a server's serial), per
-- resource and subject.
CREATE TABLE registry.observation (
  module      text NOT NULL REFERENCES registry.module (name) ON DELETE CASCADE,
  agg_type    text COLLATE "C" NOT NULL,
  agg_key     text COLLATE "C" NOT NULL,
  subject     text NOT NULL,
  state       text NOT NULL CHECK (state IN ('matches', 'diverged', 'unknown')),
  detail      jsonb NOT NULL DEFAULT '{}',
  observed_at timestamptz NOT NULL,
  PRIMARY KEY (agg_type, agg_key, module, subject)
);
CREATE INDEX observation_diverged ON registry.observation (agg_type, agg_key) WHERE state = 'diverged';

CREATE TABLE registry.module_command (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  module     text NOT NULL,
  name       text NOT NULL CHECK (name ~ '^[a-z][a-z0-9-]{0,39}$'),
  arguments  jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(arguments::text) <= 65536),
  actor      text NOT NULL,
  reason     text NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION registry.module_command_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  happenings registry.happening[];
BEGIN
  SELECT array_agg(ROW(n.id::text, 'command', ARRAY[n.module, n.name])::registry.happening)
  INTO happenings
  FROM new_rows n;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('command', happenings);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER module_command_inserted AFTER INSERT ON registry.module_command
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION registry.module_command_written();
CREATE TRIGGER module_command_truncated BEFORE TRUNCATE ON registry.module_command
  FOR EACH STATEMENT EXECUTE FUNCTION registry.truncate_refused();

-- A barrier: the lanes that had something unpublished when it was raised, then
-- one event on each stream.
CREATE TABLE registry.barrier (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  lineage      uuid NOT NULL,
  -- When the events that lay before it were all published and its own were appended.
  raised_at    timestamptz
);
CREATE TABLE registry.barrier_lane (
  barrier_id bigint NOT NULL REFERENCES registry.barrier (id) ON DELETE CASCADE,
  lane_id    bigint NOT NULL,
  seq        bigint NOT NULL,
  PRIMARY KEY (barrier_id, lane_id)
);
CREATE TABLE registry.barrier_stream (
  barrier_id bigint NOT NULL REFERENCES registry.barrier (id) ON DELETE CASCADE,
  stream_no  smallint NOT NULL,
  version    bigint NOT NULL,
  PRIMARY KEY (barrier_id, stream_no)
);

-- Makes a barrier: a snapshot of every lane's last sequence that is not yet published.
CREATE FUNCTION registry.barrier_create() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  new_id bigint;
BEGIN
  INSERT INTO registry.barrier (lineage) VALUES (registry.lineage_current()) RETURNING id INTO new_id;
  INSERT INTO registry.barrier_lane (barrier_id, lane_id, seq)
  -- Two questions, each with a partial index that holds little else.
  SELECT new_id, lane_id, last_seq
  FROM registry.outbox_lane
  WHERE ready_at IS NOT NULL
    AND agg_type <> 'barrier'
  UNION ALL
  SELECT new_id, lane_id, last_seq
  FROM registry.outbox_lane
  WHERE pub_seq < last_seq
    AND state = 'paused'
    AND agg_type <> 'barrier';
  RETURN new_id;
END
$$;

-- Takes a barrier one step on: forgets the lanes that caught up, and when none
-- is left appends the barrier's events. Answers how many lanes are still ahead.
CREATE FUNCTION registry.barrier_advance(p_id bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  ahead bigint;
BEGIN
  PERFORM FROM registry.barrier WHERE id = p_id AND raised_at IS NULL FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  DELETE FROM registry.barrier_lane b
  WHERE b.barrier_id = p_id
    AND NOT EXISTS (SELECT FROM registry.outbox_lane l WHERE l.lane_id = b.lane_id AND l.pub_seq < b.seq);
  SELECT count(*) INTO ahead FROM registry.barrier_lane WHERE barrier_id = p_id;
  IF ahead > 0 THEN
    RETURN ahead;
  END IF;
  PERFORM registry.outbox_append('barrier',
    array_agg(stream_no::text ORDER BY stream_no),
    array_agg('barrier'::text),
    array_agg(jsonb_build_object('barrier', p_id)))
  FROM registry.outbox_stream;
  INSERT INTO registry.barrier_stream (barrier_id, stream_no, version)
  SELECT p_id, l.stream_no, l.last_seq
  FROM registry.outbox_lane l
  WHERE l.agg_type = 'barrier';
  UPDATE registry.barrier SET raised_at = clock_timestamp() WHERE id = p_id;
  RETURN 0;
END
$$;

CREATE TABLE registry.lease (
  name       text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9:._-]{0,119}$'),
  holder     text NOT NULL,
  token      bigint NOT NULL DEFAULT 1,
  expires_at timestamptz NOT NULL
);
