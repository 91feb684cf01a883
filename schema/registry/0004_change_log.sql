-- The change log: who changed what, when, why; written by triggers only.

CREATE TABLE registry.change_log (
  id         bigint GENERATED ALWAYS AS IDENTITY,
  at         timestamptz NOT NULL,
  lineage    uuid NOT NULL,
  xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
  kind       text COLLATE "C" NOT NULL,
  agg_key    text COLLATE "C" NOT NULL,
  table_name text NOT NULL,
  row_id     text NOT NULL,
  op         text NOT NULL CHECK (op IN ('insert', 'update', 'delete')),
  actor      text NOT NULL,
  token      text,
  request_id text,
  reason     text,
  before     jsonb,
  after      jsonb,
  PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
-- For the scan's question "what changed since this snapshot".
CREATE INDEX change_log_kind_xid ON registry.change_log (kind, xid);
CREATE INDEX change_log_aggregate ON registry.change_log (kind, agg_key, id);

CREATE FUNCTION registry.change_log_partitions_ensure(months_ahead integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' SET timezone = 'UTC'
AS $$
DECLARE
  month date;
  made  integer := 0;
  part  text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('registry.change_log_partitions', 0));
  FOR month IN
    SELECT generate_series(date_trunc('month', now()) - interval '1 month',
                           date_trunc('month', now()) + months_ahead * interval '1 month', interval '1 month')::date
  LOOP
    part := 'change_log_' || to_char(month, 'YYYYMM');
    IF to_regclass('registry.' || part) IS NULL THEN
      EXECUTE format('CREATE TABLE registry.%I PARTITION OF registry.change_log FOR VALUES FROM (%L) TO (%L)',
        part, month::timestamptz, (month + interval '1 month')::timestamptz);
      made := made + 1;
    END IF;
  END LOOP;
  RETURN made;
END
$$;
SELECT registry.change_log_partitions_ensure(12);

-- Who acts in this transaction, and in which lineage. The API sets hubn.actor and
-- its siblings with set_config(…, true); whoever writes plain SQL is the
-- session's user.
CREATE TYPE registry.acting AS (lineage uuid, actor text, token text, request_id text, reason text);

CREATE FUNCTION registry.acting() RETURNS registry.acting
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN ROW(
    (SELECT id FROM registry.lineage ORDER BY ordinal DESC LIMIT 1),
    coalesce(nullif(current_setting('hubn.actor', true), ''), 'postgresql:' || session_user),
    nullif(current_setting('hubn.token', true), ''),
    nullif(current_setting('hubn.request_id', true), ''),
    nullif(current_setting('hubn.reason', true), ''));
END
$$;
