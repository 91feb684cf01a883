package event

// postgresTables are the consumer's notes in a module's schema.
const postgresTables = `-- What the module holds of its sources, and the notes of its event consumer:
-- the tables of package outbox/event, word for word (event.PostgresTables).

CREATE TABLE {schema}.consumer (
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
INSERT INTO {schema}.consumer DEFAULT VALUES;

-- The version that the module's own tables hold of each source. A source that
-- is gone keeps its row for a while: an older version that comes late is then
-- still older.
CREATE TABLE {schema}.source_version (
  kind       text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  version    bigint NOT NULL,
  -- deleted: the Registry stated it; absent: a complete scan proved it.
  state      text NOT NULL CHECK (state IN ('present', 'deleted', 'absent')),
  fetched_at timestamptz NOT NULL,
  stored_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (kind, key)
) WITH (fillfactor = 70);
CREATE INDEX source_version_gone ON {schema}.source_version (stored_at) WHERE state <> 'present';

-- What a scan of a new lineage found, until it replaces everything in one
-- transaction. Unlogged: a scan that was cut off starts over.
CREATE UNLOGGED TABLE {schema}.source_staged (
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
CREATE TABLE {schema}.source_retry (
  kind     text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  version  bigint NOT NULL,
  attempts integer NOT NULL,
  reason   text NOT NULL,
  since    timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_at  timestamptz NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX source_retry_next ON {schema}.source_retry (next_at);

-- Withdrawals that wait for an operator.
CREATE TABLE {schema}.held_set (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lineage    text NOT NULL,
  reason     text NOT NULL,
  decision   text NOT NULL DEFAULT 'waiting' CHECK (decision IN ('waiting', 'approved', 'rejected')),
  held_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  decided_at timestamptz,
  decided_by text NOT NULL DEFAULT ''
);
CREATE TABLE {schema}.held_source (
  kind    text COLLATE "C" NOT NULL,
  key     text COLLATE "C" NOT NULL,
  set_id  bigint NOT NULL REFERENCES {schema}.held_set (id) ON DELETE CASCADE,
  version bigint NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX held_source_set ON {schema}.held_source (set_id);
`

// postgresStatements are the store's statements. The parameters $1 and $2 of
// many are kinds and keys, in pairs.
var postgresStatements = map[string]string{
	// A replacement of the lineage takes the lock alone, every other write shares
	// it: no row is written for it, and nothing waits but for a replacement.
	"lock":        `SELECT pg_advisory_xact_lock(hashtextextended('hubn.consumer.' || $1, 0))`,
	"lock shared": `SELECT pg_advisory_xact_lock_shared(hashtextextended('hubn.consumer.' || $1, 0))`,

	"lineage": `SELECT lineage FROM {schema}.consumer`,

	"state": `
SELECT lineage, allowed, wanted, done, reason, reconciled_at, clock_timestamp()
FROM {schema}.consumer`,

	"begin": `
UPDATE {schema}.consumer
SET lineage = $1
WHERE lineage = ''`,

	"held": `
SELECT v.kind, v.key, v.version, v.state <> 'present'
FROM unnest($1::text[], $2::text[]) AS wanted (kind, key)
JOIN {schema}.source_version v ON v.kind = wanted.kind AND v.key = wanted.key`,

	"published": `
SELECT count(*)
FROM {schema}.source_version
WHERE state = 'present'`,

	"inventory": `
SELECT kind, key, version
FROM {schema}.source_version
WHERE (kind, key) > ($1, $2)
  AND state = 'present'
ORDER BY kind, key
LIMIT $3`,

	// A source that the lineage does not know has no version in it; a report
	// carries the lowest then, which the source's own first one may replace.
	"describe": `
SELECT v.kind, v.key, greatest(v.version, 1), v.state = 'present', v.fetched_at, h.set_id
FROM {schema}.source_version v
LEFT JOIN {schema}.held_source h ON h.kind = v.kind AND h.key = v.key
WHERE (v.kind, v.key) > ($1, $2)
  AND (v.version > 0 OR h.set_id IS NOT NULL)
ORDER BY v.kind, v.key
LIMIT $3`,

	"describe some": `
SELECT v.kind, v.key, greatest(v.version, 1), v.state = 'present', v.fetched_at, h.set_id
FROM unnest($1::text[], $2::text[]) AS wanted (kind, key)
JOIN {schema}.source_version v ON v.kind = wanted.kind AND v.key = wanted.key
LEFT JOIN {schema}.held_source h ON h.kind = v.kind AND h.key = v.key
WHERE v.version > 0 OR h.set_id IS NOT NULL
ORDER BY v.kind, v.key`,

	// The version guard: one conditional write, rows locked in key order. A
	// source that a scan proved absent may come back in the version that it had.
	"take": `
INSERT INTO {schema}.source_version AS v (kind, key, version, state, fetched_at)
SELECT kind, key, version, CASE WHEN gone THEN 'deleted' ELSE 'present' END, fetched_at
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[], $5::timestamptz[]) AS c (kind, key, version, gone, fetched_at)
ORDER BY kind COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, key) DO UPDATE
SET version = EXCLUDED.version,
    state = EXCLUDED.state,
    fetched_at = EXCLUDED.fetched_at,
    stored_at = clock_timestamp()
WHERE v.version < EXCLUDED.version
   OR (v.version = EXCLUDED.version AND v.state = 'absent' AND EXCLUDED.state = 'present')
RETURNING v.kind, v.key`,

	// A source of which nothing is held yet gets a row without a version, for its
	// event to wait on.
	"expect": `
INSERT INTO {schema}.source_version (kind, key, version, state, fetched_at)
SELECT kind, key, 0, 'present', clock_timestamp()
FROM unnest($1::text[], $2::text[]) AS c (kind, key)
ORDER BY kind COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, key) DO NOTHING`,

	"expected": `
SELECT v.kind, v.key
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS c (kind, key, version)
JOIN {schema}.source_version v ON v.kind = c.kind AND v.key = c.key
WHERE v.version < c.version
ORDER BY v.kind, v.key
FOR UPDATE OF v`,

	"withdraw": `
UPDATE {schema}.source_version v
SET state = 'absent', stored_at = clock_timestamp()
FROM (
  SELECT locked.kind, locked.key
  FROM {schema}.source_version locked
  JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS c (kind, key, version)
    ON c.kind = locked.kind AND c.key = locked.key AND c.version = locked.version
  WHERE locked.state = 'present'
  ORDER BY locked.kind, locked.key
  FOR UPDATE OF locked
) gone
WHERE v.kind = gone.kind AND v.key = gone.key
RETURNING v.kind, v.key`,

	"settle up to": `
DELETE FROM {schema}.source_retry r
USING unnest($1::text[], $2::text[], $3::bigint[]) AS c (kind, key, version)
WHERE r.kind = c.kind AND r.key = c.key AND r.version <= c.version`,

	"settle": `
DELETE FROM {schema}.source_retry r
USING unnest($1::text[], $2::text[]) AS c (kind, key)
WHERE r.kind = c.kind AND r.key = c.key`,

	"release": `
WITH released AS (
  DELETE FROM {schema}.held_source h
  USING unnest($1::text[], $2::text[]) AS c (kind, key)
  WHERE h.kind = c.kind AND h.key = c.key
  RETURNING h.kind, h.key, h.set_id
)
DELETE FROM {schema}.held_set s
WHERE s.id IN (SELECT set_id FROM released)
  AND NOT EXISTS (
    SELECT FROM {schema}.held_source h
    WHERE h.set_id = s.id
      AND NOT EXISTS (SELECT FROM released r WHERE r.kind = h.kind AND r.key = h.key))`,

	"want": `
UPDATE {schema}.consumer
SET wanted = wanted + 1, reason = $1`,

	"reconciled": `
UPDATE {schema}.consumer
SET done = greatest(done, $1), reconciled_at = clock_timestamp()`,

	// Longer than the Registry keeps its tombstones (30 days): a late fetch
	// cannot be that old.
	"prune": `
DELETE FROM {schema}.source_version
WHERE state <> 'present'
  AND stored_at < clock_timestamp() - interval '35 days'`,

	"allow": `
UPDATE {schema}.consumer
SET allowed = $1`,

	"defer": `
INSERT INTO {schema}.source_retry AS r (kind, key, version, attempts, reason, next_at)
SELECT kind, key, version, attempts, reason, clock_timestamp() + $6::interval
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::integer[], $5::text[]) AS c (kind, key, version, attempts, reason)
ORDER BY kind COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, key) DO UPDATE
SET version = greatest(r.version, EXCLUDED.version),
    attempts = greatest(r.attempts, EXCLUDED.attempts),
    reason = EXCLUDED.reason,
    next_at = EXCLUDED.next_at`,

	"due": `
UPDATE {schema}.source_retry r
SET attempts = r.attempts + 1,
    next_at = clock_timestamp() + $1::interval
FROM (
  SELECT kind, key
  FROM {schema}.source_retry
  WHERE next_at <= clock_timestamp()
  ORDER BY next_at
  LIMIT $2
  FOR UPDATE SKIP LOCKED
) due
WHERE r.kind = due.kind AND r.key = due.key
RETURNING r.kind, r.key, r.version, r.attempts, r.reason, r.since, r.next_at`,

	"retries": `
SELECT kind, key, version, attempts, reason, since, next_at
FROM {schema}.source_retry
ORDER BY since, kind, key
LIMIT $1`,

	"count retries": `SELECT count(*) FROM {schema}.source_retry`,

	"hold": `
INSERT INTO {schema}.held_set (lineage, reason)
VALUES ($1, $2)
RETURNING id`,

	"hold sources": `
INSERT INTO {schema}.held_source (kind, key, set_id, version)
SELECT kind, key, $4, version
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS c (kind, key, version)
ORDER BY kind COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, key) DO NOTHING`,

	"holds": `
SELECT s.id, s.lineage, s.reason, s.decision, s.held_at, s.decided_by, s.decided_at, h.kind, h.key
FROM {schema}.held_set s
JOIN {schema}.held_source h ON h.set_id = s.id
ORDER BY s.id, h.kind, h.key`,

	"decide": `
UPDATE {schema}.held_set
SET decision = $2, decided_by = $3, decided_at = clock_timestamp()
WHERE id = $1`,

	"forget stages": `
DELETE FROM {schema}.source_staged
WHERE staged_at < clock_timestamp() - interval '1 day'`,

	"stage": `
INSERT INTO {schema}.source_staged AS s (run, kind, key, version, body, fetched_at)
SELECT $1, kind, key, version, body, fetched_at
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::jsonb[], $6::timestamptz[]) AS c (kind, key, version, body, fetched_at)
ON CONFLICT (run, kind, key) DO UPDATE
SET version = EXCLUDED.version, body = EXCLUDED.body, fetched_at = EXCLUDED.fetched_at`,

	"discard": `
DELETE FROM {schema}.source_staged
WHERE run = $1`,

	"unstage": `
DELETE FROM {schema}.source_staged s
USING unnest($2::text[], $3::text[]) AS c (kind, key)
WHERE s.run = $1 AND s.kind = c.kind AND s.key = c.key`,

	// What is staged, and what is gone already, makes room; the rest is held.
	"make room": `
DELETE FROM {schema}.source_version v
WHERE v.state <> 'present'
   OR EXISTS (SELECT FROM {schema}.source_staged s WHERE s.run = $1 AND s.kind = v.kind AND s.key = v.key)`,

	"forget holds": `DELETE FROM {schema}.held_set`,

	"hold rest": `
INSERT INTO {schema}.held_source (kind, key, set_id, version)
SELECT kind, key, $1, version
FROM {schema}.source_version`,

	"count rest": `SELECT count(*) FROM {schema}.source_version`,

	// Any version of the new lineage is newer than what is held.
	"unversion rest": `UPDATE {schema}.source_version SET version = 0`,

	"unversion": `
UPDATE {schema}.source_version
SET version = 0
WHERE kind = $1 AND key = $2`,

	"take stage": `
INSERT INTO {schema}.source_version (kind, key, version, state, fetched_at)
SELECT kind, key, version, CASE WHEN body IS NULL THEN 'deleted' ELSE 'present' END, fetched_at
FROM {schema}.source_staged
WHERE run = $1
  AND version > 0`,

	"staged": `
SELECT kind, key, version, body, fetched_at
FROM {schema}.source_staged
WHERE run = $1
  AND (kind, key) > ($2, $3)
ORDER BY kind, key
LIMIT $4`,

	"forget retries": `DELETE FROM {schema}.source_retry`,

	"set lineage": `
UPDATE {schema}.consumer
SET lineage = $1, allowed = ''`,
}
