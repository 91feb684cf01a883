-- What the module holds of its sources, and the notes of its event consumer:
-- the tables of package outbox/event, word for word (event.PostgresTables).

CREATE TABLE mirror.consumer (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  -- The Registry's lineage that the versions below belong to; empty before the first scan.
  lineage       text NOT NULL DEFAULT '',
  -- A foreign lineage that an operator lets the module adopt.
  allowed       text NOT NULL DEFAULT '',
  -- Wishes for a full reconciliation, and how many of them a complete one has answered.
  wanted        bigint NOT NULL DEFAULT 0,
  done          bigint NOT NULL DEFAULT 0,
  reason        text NOT NULL DEFAULT '',
  reconciled_at timestamptz
);
INSERT INTO mirror.consumer DEFAULT VALUES;

-- The version that the module's own tables hold of each source. A source that
-- is gone keeps its row for a while: an older version that comes late is then
-- still older.
CREATE TABLE mirror.source_version (
  kind       text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  version    bigint NOT NULL,
  -- deleted: the Registry stated it; absent: a complete scan proved it.
  state      text NOT NULL CHECK (state IN ('present', 'deleted', 'absent')),
  fetched_at timestamptz NOT NULL,
  stored_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (kind, key)
) WITH (fillfactor = 70);
CREATE INDEX source_version_gone ON mirror.source_version (stored_at) WHERE state <> 'present';

-- What a scan of a new lineage found, until it replaces everything in one
-- transaction. Unlogged: a scan that was cut off starts over.
CREATE UNLOGGED TABLE mirror.source_staged (
  run        uuid NOT NULL,
  kind       text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  version    bigint NOT NULL,
  body       jsonb,
  fetched_at timestamptz NOT NULL,
  staged_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (run, kind, key)
);

-- Sources that keep failing; tried again at a slow pace, never dropped.
CREATE TABLE mirror.source_retry (
  kind     text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  version  bigint NOT NULL,
  attempts integer NOT NULL,
  reason   text NOT NULL,
  since    timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_at  timestamptz NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX source_retry_next ON mirror.source_retry (next_at);

-- Withdrawals that wait for an operator.
CREATE TABLE mirror.held_set (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lineage    text NOT NULL,
  reason     text NOT NULL,
  decision   text NOT NULL DEFAULT 'waiting' CHECK (decision IN ('waiting', 'approved', 'rejected')),
  held_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  decided_at timestamptz,
  decided_by text NOT NULL DEFAULT ''
);
CREATE TABLE mirror.held_source (
  kind    text COLLATE "C" NOT NULL,
  key     text COLLATE "C" NOT NULL,
  set_id  bigint NOT NULL REFERENCES mirror.held_set (id) ON DELETE CASCADE,
  version bigint NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX held_source_set ON mirror.held_source (set_id);
