-- Tokens, grants, idempotency keys, import jobs.

CREATE TABLE registry.api_token (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id    text NOT NULL UNIQUE,
  secret_hash  bytea NOT NULL CHECK (octet_length(secret_hash) = 32),
  name         text NOT NULL CHECK (name <> ''),
  roles        text[] NOT NULL CHECK (roles <@ '{viewer,member,allocator,operator,authority,module,auditor,admin}'::text[]),
  -- With the role module: the one module that the token reports as.
  module       text,
  source_cidrs cidr[] NOT NULL DEFAULT '{}',
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT api_token_module CHECK (('module' = ANY (roles)) = (module IS NOT NULL))
);

CREATE TABLE registry.role_grant (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  token_id        bigint NOT NULL REFERENCES registry.api_token (id) ON DELETE CASCADE,
  role            text NOT NULL CHECK (role IN ('viewer', 'member', 'allocator', 'operator', 'authority', 'auditor')),
  organisation_id bigint REFERENCES registry.organisation (id) ON DELETE CASCADE,
  prefix          cidr,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT role_grant_one_scope CHECK ((organisation_id IS NULL) <> (prefix IS NULL))
);
CREATE INDEX role_grant_token ON registry.role_grant (token_id);

CREATE TABLE registry.idempotency_key (
  principal    text NOT NULL,
  key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
  request_hash bytea NOT NULL,
  status       integer NOT NULL,
  etag         text,
  location     text,
  produced     text,
  response     bytea NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_key_age ON registry.idempotency_key (created_at);

CREATE TABLE registry.import_job (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  format      text NOT NULL CHECK (format IN ('rpsl', 'csv', 'ndjson')),
  actor       text NOT NULL,
  state       text NOT NULL CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
  dry_run     boolean NOT NULL,
  prune       boolean NOT NULL,
  progress    jsonb NOT NULL DEFAULT '{}',
  refused     jsonb NOT NULL DEFAULT '[]',
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz
);
