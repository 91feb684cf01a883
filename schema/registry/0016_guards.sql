-- Guards against plain SQL that the API would never write: a row's identity, and
-- values that no reader of the table can take.

-- The id names a row in the change log, in the outbox and to the world, and the
-- triggers pair a statement's rows by it. GENERATED ALWAYS alone lets DEFAULT pass.
CREATE FUNCTION registry.id_kept() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION 'the id of % % cannot change to %: create the other one and delete this one', TG_TABLE_NAME, OLD.id, NEW.id
    USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

-- Certificates, revocations and ASNs have guards of their own.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['organisation', 'name_server_set', 'prefix', 'ptr_record', 'anycast_allocation', 'anycast_route_origin',
    'certificate_authority', 'bgp_session', 'module_command', 'barrier', 'api_token', 'role_grant', 'import_job', 'quarantine'] LOOP
    EXECUTE format(
      'CREATE TRIGGER %I BEFORE UPDATE OF id ON registry.%I
         FOR EACH ROW WHEN (NEW.id <> OLD.id) EXECUTE FUNCTION registry.id_kept()',
      name || '_id_kept', name);
  END LOOP;
END
$$;

-- A list without gaps and levels, which is all that its readers can take.
CREATE FUNCTION registry.list_valid(list anyarray) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN coalesce(array_ndims(list), 1) = 1 THEN array_position(list, NULL) IS NULL ELSE false END
$$;

-- An instant that RFC 3339 can write: none of infinity, none before Christ.
CREATE FUNCTION registry.instant_valid(instant timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT instant >= '0001-01-01 00:00:00+00' AND instant < '10000-01-01 00:00:00+00'
$$;

-- RFC 4291 section 2.5.5.2: an IPv4-mapped prefix is an IPv4 prefix in disguise.
CREATE FUNCTION registry.prefixes_valid(prefixes cidr[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT registry.list_valid(prefixes)
     AND NOT EXISTS (SELECT FROM unnest(prefixes) p WHERE p <<= '::ffff:0:0/96')
$$;

CREATE OR REPLACE FUNCTION registry.hostnames_valid(names text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT registry.list_valid(names) AND coalesce(bool_and(registry.hostname_valid(n)), true) FROM unnest(names) n
$$;

CREATE FUNCTION registry.ds_number_valid(value jsonb, most integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  -- The text is looked at first: 1.5 and 1e9 are numbers too.
  SELECT CASE WHEN jsonb_typeof(value) = 'number' AND value::text ~ '^\d{1,5}$' THEN value::text::integer <= most ELSE false END
$$;

CREATE OR REPLACE FUNCTION registry.ds_valid(ds jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  -- RFC 4034 section 5.1; digest lengths: SHA-1, SHA-256 (RFC 4509),
  -- GOST (RFC 5933 and RFC 9558), SHA-384 (RFC 6605), SM3 (RFC 9563). The zone
  -- may be left out.
  SELECT jsonb_typeof(ds) = 'array' AND coalesce(bool_and(
           CASE WHEN jsonb_typeof(d) = 'object' THEN
             d ?& '{key_tag,algorithm,digest_type,digest}'::text[]
             AND d - '{zone,key_tag,algorithm,digest_type,digest}'::text[] = '{}'
             AND registry.ds_number_valid(d->'key_tag', 65535)
             AND registry.ds_number_valid(d->'algorithm', 255)
             AND registry.ds_number_valid(d->'digest_type', 255)
             AND jsonb_typeof(d->'digest') = 'string'
             AND d->>'digest' ~ '^([0-9a-f]{2})+$'
             AND length(d->>'digest') = CASE d->>'digest_type'
                   WHEN '1' THEN 40 WHEN '2' THEN 64 WHEN '3' THEN 64 WHEN '4' THEN 96 WHEN '5' THEN 64 WHEN '6' THEN 64
                   ELSE length(d->>'digest') END
             AND (NOT d ? 'zone' OR jsonb_typeof(d->'zone') = 'string'
               AND d->>'zone' ~ '^([a-z0-9_/-]{1,63}\.)+(in-addr|ip6)\.arpa$')
           ELSE false END), true)
  FROM jsonb_array_elements(CASE jsonb_typeof(ds) WHEN 'array' THEN ds ELSE '[]' END) d
$$;

-- Each guard with the rows that are there already: the first one that breaks it
-- is named. The constraints of the first three are older than what they call.
DO $$
DECLARE
  guard  record;
  broken text;
BEGIN
  FOR guard IN
    SELECT *
    FROM (VALUES
      ('prefix', 'prefix_name_servers_valid', 'registry.hostnames_valid(name_servers)'),
      ('name_server_set', 'name_server_set_servers_check', 'registry.hostnames_valid(servers)'),
      ('prefix', 'prefix_ds_valid', 'registry.ds_valid(ds)'),
      ('certificate_authority', 'certificate_authority_prefixes_valid', 'registry.prefixes_valid(prefixes)'),
      ('certificate', 'certificate_prefixes_valid', 'registry.prefixes_valid(prefixes)'),
      ('certificate', 'certificate_validity_written',
        'registry.instant_valid(not_before) AND registry.instant_valid(not_after)'),
      ('revocation', 'revocation_revoked_at_valid', 'registry.instant_valid(revoked_at)'),
      ('bgp_session', 'bgp_session_families_valid', 'registry.list_valid(families)'),
      ('bgp_session', 'bgp_session_local_not_mapped', $c$NOT local_address <<= '::ffff:0:0/96'$c$),
      ('module', 'module_kinds_valid', 'registry.list_valid(kinds)'),
      ('api_token', 'api_token_roles_valid', 'registry.list_valid(roles)'),
      ('api_token', 'api_token_source_cidrs_valid', 'registry.prefixes_valid(source_cidrs)'),
      ('api_token', 'api_token_instants_valid', 'registry.instant_valid(created_at) AND registry.instant_valid(expires_at)'
        ' AND registry.instant_valid(revoked_at) AND registry.instant_valid(last_used_at)'),
      ('role_grant', 'role_grant_not_mapped', $c$NOT prefix <<= '::ffff:0:0/96'$c$),
      ('role_grant', 'role_grant_created_at_valid', 'registry.instant_valid(created_at)'),
      ('module_command', 'module_command_created_at_valid', 'registry.instant_valid(created_at)')
    ) v (name, rule, condition)
    UNION ALL
    SELECT t, t || '_instants_valid', 'registry.instant_valid(created_at) AND registry.instant_valid(updated_at)'
    FROM unnest(ARRAY['organisation', 'asn', 'name_server_set', 'prefix', 'ptr_record', 'anycast_allocation', 'anycast_route_origin',
      'certificate_authority', 'certificate', 'revocation', 'bgp_session']) t
  LOOP
    EXECUTE format('SELECT to_jsonb(t)::text FROM registry.%I t WHERE NOT (%s) LIMIT 1', guard.name, guard.condition) INTO broken;
    IF broken IS NOT NULL THEN
      RAISE EXCEPTION 'a row of registry.% breaks %, which is new: mend or delete the row and migrate again: %',
        guard.name, guard.condition, left(broken, 1000)
        USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = ('registry.' || guard.name)::regclass AND conname = guard.rule) THEN
      EXECUTE format('ALTER TABLE registry.%I ADD CONSTRAINT %I CHECK (%s)', guard.name, guard.rule, guard.condition);
    END IF;
  END LOOP;
END
$$;
