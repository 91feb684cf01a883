CREATE EXTENSION IF NOT EXISTS btree_gist;

-- The nouns: organisations, ASNs, prefixes, PTR records, anycast allocations,
-- certificate authorities, certificates, revocations, BGP sessions.
-- Every row carries its revision (the ETag); versions are those of the lanes.

CREATE FUNCTION registry.hostname_valid(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  -- RFC 1123 section 2.1 in the wire's lower case, underscore allowed as a
  -- first character of a label (RFC 8552); at most 253 characters as text.
  SELECT length(name) BETWEEN 1 AND 253
     AND name ~ '^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?)*$'
$$;

CREATE FUNCTION registry.hostnames_valid(names text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT coalesce(bool_and(registry.hostname_valid(n)), true) FROM unnest(names) n
$$;

CREATE FUNCTION registry.ds_valid(ds jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  -- RFC 4034 section 5.1; digest lengths: SHA-1, SHA-256 (RFC 4509),
  -- GOST (RFC 5933), SHA-384 (RFC 6605).
  SELECT jsonb_typeof(ds) = 'array' AND coalesce(bool_and(
           coalesce((d->>'key_tag')::int BETWEEN 0 AND 65535
             AND (d->>'algorithm')::int BETWEEN 0 AND 255
             AND (d->>'digest_type')::int BETWEEN 0 AND 255
             AND d->>'digest' ~ '^([0-9a-f]{2})+$'
             AND length(d->>'digest') = CASE (d->>'digest_type')::int
                   WHEN 1 THEN 40 WHEN 2 THEN 64 WHEN 3 THEN 64 WHEN 4 THEN 96
                   ELSE length(d->>'digest') END, false)), true)
  FROM jsonb_array_elements(CASE jsonb_typeof(ds) WHEN 'array' THEN ds ELSE '[]' END) d
$$;

CREATE TABLE registry.organisation (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  handle     text NOT NULL CHECK (handle ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$'),
  name       text NOT NULL DEFAULT '',
  contact    text NOT NULL DEFAULT '',
  revision   bigint NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX organisation_handle_key ON registry.organisation (lower(handle));

CREATE TABLE registry.asn (
  number          bigint PRIMARY KEY CHECK (number BETWEEN 1 AND 4294967295),
  organisation_id bigint REFERENCES registry.organisation (id),
  name            text NOT NULL DEFAULT '',
  revision        bigint NOT NULL DEFAULT 1,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX asn_organisation ON registry.asn (organisation_id);

CREATE TABLE registry.name_server_set (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$'),
  servers    text[] NOT NULL CHECK (cardinality(servers) BETWEEN 1 AND 16 AND registry.hostnames_valid(servers)),
  revision   bigint NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE registry.prefix (
  id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  prefix             cidr NOT NULL,
  parent_id          bigint,
  parent_prefix      cidr,
  organisation_id    bigint REFERENCES registry.organisation (id),
  kind               text NOT NULL DEFAULT 'assignment'
                     CHECK (kind IN ('container', 'allocation', 'assignment', 'reserved')),
  status             text NOT NULL DEFAULT 'active' CHECK (status IN ('planned', 'active', 'retired')),
  provenance         text NOT NULL DEFAULT 'registered' CHECK (provenance IN ('registered', 'implied')),
  name               text NOT NULL DEFAULT '',
  -- Routing settings. Origin 0 means that nobody may originate it (RFC 6483
  -- section 4); a max_length that is not stated is the prefix's own length.
  announced          boolean NOT NULL DEFAULT false,
  origin_asn         bigint CHECK (origin_asn BETWEEN 0 AND 4294967295),
  max_length         smallint,
  -- Whom the route object of an imported route names. A prefix that is there for
  -- its route only is held by it, and one whose registration goes passes to it.
  route_organisation_id bigint REFERENCES registry.organisation (id),
  -- Reverse-DNS settings.
  reverse_mode       text NOT NULL DEFAULT 'inherit' CHECK (reverse_mode IN ('inherit', 'off', 'hosted', 'delegated')),
  name_servers       text[] NOT NULL DEFAULT '{}',
  name_server_set_id bigint REFERENCES registry.name_server_set (id),
  ds                 jsonb NOT NULL DEFAULT '[]',
  rfc2317_style      text CHECK (rfc2317_style IN ('dash', 'slash', 'first')),
  zone_cut           smallint,
  revision           bigint NOT NULL DEFAULT 1,
  created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),

  CONSTRAINT prefix_key UNIQUE (prefix),
  CONSTRAINT prefix_id_prefix_key UNIQUE (id, prefix),
  CONSTRAINT prefix_parent_both CHECK ((parent_id IS NULL) = (parent_prefix IS NULL)),
  CONSTRAINT prefix_inside_parent CHECK (prefix << parent_prefix),
  CONSTRAINT prefix_parent_fkey FOREIGN KEY (parent_id, parent_prefix)
    REFERENCES registry.prefix (id, prefix) ON UPDATE CASCADE DEFERRABLE INITIALLY IMMEDIATE,
  CONSTRAINT prefix_not_mapped CHECK (NOT prefix <<= '::ffff:0:0/96'),
  CONSTRAINT prefix_announced_has_origin CHECK (NOT announced OR origin_asn IS NOT NULL),
  CONSTRAINT prefix_max_length_bounds CHECK (max_length IS NULL OR (origin_asn IS NOT NULL
    AND max_length BETWEEN masklen(prefix) AND CASE family(prefix) WHEN 4 THEN 32 ELSE 128 END)),
  CONSTRAINT prefix_name_servers_valid CHECK (cardinality(name_servers) <= 16 AND registry.hostnames_valid(name_servers)),
  CONSTRAINT prefix_name_servers_once CHECK (name_server_set_id IS NULL OR cardinality(name_servers) = 0),
  CONSTRAINT prefix_delegated_has_servers CHECK (reverse_mode <> 'delegated'
    OR cardinality(name_servers) > 0 OR name_server_set_id IS NOT NULL),
  CONSTRAINT prefix_ds_valid CHECK (registry.ds_valid(ds)),
  CONSTRAINT prefix_zone_cut_bounds CHECK (zone_cut IS NULL
    OR zone_cut BETWEEN masklen(prefix) AND CASE family(prefix) WHEN 4 THEN 32 ELSE 128 END),
  -- Siblings never overlap. The operator class is named because btree_gist
  -- makes another one the default for cidr, and that one has no &&. network()
  -- changes nothing of a cidr; it keeps the planner from looking a plain
  -- prefix = … up here, which it takes for cheaper than the unique indexes: every
  -- foreign key's check would scan this index through all parents.
  CONSTRAINT prefix_siblings_disjoint EXCLUDE USING gist
    (coalesce(parent_id, 0) WITH =, network(prefix) inet_ops WITH &&) DEFERRABLE INITIALLY IMMEDIATE
) WITH (fillfactor = 90);
CREATE INDEX prefix_parent ON registry.prefix (parent_id);
CREATE INDEX prefix_organisation ON registry.prefix (organisation_id);
CREATE INDEX prefix_route_organisation ON registry.prefix (route_organisation_id) WHERE route_organisation_id IS NOT NULL;
CREATE INDEX prefix_name_server_set ON registry.prefix (name_server_set_id) WHERE name_server_set_id IS NOT NULL;

-- The longest registered prefix that covers an address or prefix (strictly, when
-- strict), by one probe of the unique index for each possible length: its cost
-- does not grow with the table.
CREATE FUNCTION registry.prefix_covering(address inet, strict boolean,
  OUT id bigint, OUT prefix cidr, OUT organisation_id bigint)
LANGUAGE sql STABLE
AS $$
  SELECT p.id, p.prefix, p.organisation_id
  FROM generate_series(masklen(address) - CASE WHEN strict THEN 1 ELSE 0 END, 0, -1) AS length
  CROSS JOIN LATERAL (
    SELECT q.id, q.prefix, q.organisation_id
    FROM registry.prefix q
    WHERE q.prefix = set_masklen(address::cidr, length)
  ) p
  LIMIT 1
$$;

CREATE TABLE registry.ptr_record (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  address      inet NOT NULL,
  prefix_id    bigint NOT NULL,
  prefix       cidr NOT NULL,
  target       text NOT NULL CHECK (registry.hostname_valid(target)),
  target_typed text NOT NULL,
  ttl          integer CHECK (ttl BETWEEN 0 AND 2147483647), -- RFC 2181 section 8
  revision     bigint NOT NULL DEFAULT 1,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT ptr_record_key UNIQUE (address, target),
  CONSTRAINT ptr_record_host CHECK (masklen(address) = CASE family(address) WHEN 4 THEN 32 ELSE 128 END),
  CONSTRAINT ptr_record_not_mapped CHECK (NOT address <<= '::ffff:0:0/96'),
  CONSTRAINT ptr_record_inside_prefix CHECK (address <<= prefix),
  CONSTRAINT ptr_record_prefix_fkey FOREIGN KEY (prefix_id, prefix)
    REFERENCES registry.prefix (id, prefix) ON UPDATE CASCADE DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX ptr_record_prefix ON registry.ptr_record (prefix_id);

CREATE TABLE registry.anycast_allocation (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  prefix          cidr NOT NULL,
  container_id    bigint NOT NULL,
  container       cidr NOT NULL,
  organisation_id bigint REFERENCES registry.organisation (id),
  service         text NOT NULL CHECK (service <> '' AND length(service) <= 200),
  revision        bigint NOT NULL DEFAULT 1,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT anycast_allocation_key UNIQUE (prefix, service),
  CONSTRAINT anycast_allocation_id_prefix_key UNIQUE (id, prefix),
  CONSTRAINT anycast_allocation_not_mapped CHECK (NOT prefix <<= '::ffff:0:0/96'),
  CONSTRAINT anycast_allocation_inside_container CHECK (prefix <<= container),
  CONSTRAINT anycast_allocation_container_fkey FOREIGN KEY (container_id, container)
    REFERENCES registry.prefix (id, prefix) ON UPDATE CASCADE DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX anycast_allocation_container ON registry.anycast_allocation (container_id);
CREATE INDEX anycast_allocation_organisation ON registry.anycast_allocation (organisation_id);

CREATE TABLE registry.anycast_route_origin (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  allocation_id bigint NOT NULL,
  prefix        cidr NOT NULL,
  asn           bigint NOT NULL CHECK (asn BETWEEN 0 AND 4294967295),
  max_length    smallint,
  active        boolean NOT NULL DEFAULT true,
  revision      bigint NOT NULL DEFAULT 1,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT anycast_route_origin_key UNIQUE NULLS NOT DISTINCT (allocation_id, asn, max_length),
  CONSTRAINT anycast_route_origin_max_length_bounds CHECK (max_length IS NULL
    OR max_length BETWEEN masklen(prefix) AND CASE family(prefix) WHEN 4 THEN 32 ELSE 128 END),
  CONSTRAINT anycast_route_origin_allocation_fkey FOREIGN KEY (allocation_id, prefix)
    REFERENCES registry.anycast_allocation (id, prefix) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX anycast_route_origin_allocation ON registry.anycast_route_origin (allocation_id);

CREATE TABLE registry.certificate_authority (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$'),
  parent_id       bigint REFERENCES registry.certificate_authority (id),
  organisation_id bigint REFERENCES registry.organisation (id),
  mode            text NOT NULL CHECK (mode IN ('hosted', 'delegated')),
  csr             bytea,
  resources       text NOT NULL DEFAULT 'organisation' CHECK (resources IN ('organisation', 'explicit')),
  prefixes        cidr[] NOT NULL DEFAULT '{}',
  asns            int8multirange NOT NULL DEFAULT '{}',
  state           text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'retired')),
  revision        bigint NOT NULL DEFAULT 1,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT certificate_authority_not_own_parent CHECK (parent_id <> id),
  CONSTRAINT certificate_authority_delegated_has_csr CHECK ((mode = 'delegated') = (csr IS NOT NULL)),
  CONSTRAINT certificate_authority_organisation_resources CHECK (resources <> 'organisation' OR organisation_id IS NOT NULL),
  CONSTRAINT certificate_authority_explicit_resources CHECK (resources <> 'organisation'
    OR (cardinality(prefixes) = 0 AND isempty(asns))),
  CONSTRAINT certificate_authority_asn_bounds CHECK (asns <@ '{[0,4294967296)}'::int8multirange)
);
CREATE INDEX certificate_authority_parent ON registry.certificate_authority (parent_id);
CREATE INDEX certificate_authority_organisation ON registry.certificate_authority (organisation_id);

CREATE TABLE registry.certificate (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  ca_id      bigint NOT NULL REFERENCES registry.certificate_authority (id),
  profile    text NOT NULL CHECK (profile IN ('child-ca', 'bgpsec-router')),
  csr        bytea NOT NULL,
  prefixes   cidr[] NOT NULL DEFAULT '{}',
  asns       int8multirange NOT NULL DEFAULT '{}',
  not_before timestamptz NOT NULL,
  not_after  timestamptz NOT NULL,
  revision   bigint NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT certificate_validity CHECK (not_before < not_after),
  CONSTRAINT certificate_asn_bounds CHECK (asns <@ '{[0,4294967296)}'::int8multirange),
  -- RFC 8209 section 3.1.3.4: a router certificate has AS resources and no IP resources.
  CONSTRAINT certificate_router_resources CHECK (profile <> 'bgpsec-router'
    OR (cardinality(prefixes) = 0 AND NOT isempty(asns)))
);
CREATE INDEX certificate_ca ON registry.certificate (ca_id);

CREATE TABLE registry.revocation (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  certificate_id bigint NOT NULL UNIQUE REFERENCES registry.certificate (id),
  reason         text NOT NULL DEFAULT 'unspecified' CHECK (reason IN
    ('unspecified', 'key-compromise', 'ca-compromise', 'affiliation-changed', 'superseded', 'cessation-of-operation')),
  revoked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  revision       bigint NOT NULL DEFAULT 1,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE registry.bgp_session (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  collector       text NOT NULL DEFAULT 'default' CHECK (collector ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$'),
  local_asn       bigint CHECK (local_asn BETWEEN 1 AND 4294967295),
  local_address   inet,
  remote_asn      bigint NOT NULL CHECK (remote_asn BETWEEN 1 AND 4294967295),
  remote_address  inet NOT NULL,
  families        text[] NOT NULL DEFAULT '{ipv4-unicast,ipv6-unicast}'
                  CHECK (cardinality(families) > 0 AND families <@ '{ipv4-unicast,ipv6-unicast}'::text[]),
  password_sealed bytea,
  max_prefixes    integer CHECK (max_prefixes > 0),
  wanted          text NOT NULL DEFAULT 'up' CHECK (wanted IN ('up', 'down')),
  description     text NOT NULL DEFAULT '',
  revision        bigint NOT NULL DEFAULT 1,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT bgp_session_key UNIQUE (collector, remote_address),
  CONSTRAINT bgp_session_hosts CHECK (
    masklen(remote_address) = CASE family(remote_address) WHEN 4 THEN 32 ELSE 128 END
    AND (local_address IS NULL OR masklen(local_address) = CASE family(local_address) WHEN 4 THEN 32 ELSE 128 END)),
  CONSTRAINT bgp_session_one_family CHECK (local_address IS NULL OR family(local_address) = family(remote_address)),
  CONSTRAINT bgp_session_not_mapped CHECK (NOT remote_address <<= '::ffff:0:0/96')
);
