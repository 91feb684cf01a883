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
