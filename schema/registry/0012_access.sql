-- Roles and grants.

ALTER TABLE registry.api_token
  ADD COLUMN revision bigint NOT NULL DEFAULT 1;

-- One grant of a kind: giving it again is an error that is told, not a second row
-- that outlives the first one's removal.
CREATE UNIQUE INDEX role_grant_organisation_key ON registry.role_grant (token_id, role, organisation_id)
  WHERE organisation_id IS NOT NULL;
CREATE UNIQUE INDEX role_grant_prefix_key ON registry.role_grant (token_id, role, prefix)
  WHERE prefix IS NOT NULL;
-- For the grants on an organisation, which go with it.
CREATE INDEX role_grant_organisation ON registry.role_grant (organisation_id)
  WHERE organisation_id IS NOT NULL;

-- The uses of a token are no change of it.
CREATE FUNCTION registry.api_token_revised() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  NEW.revision := OLD.revision + 1;
  NEW.created_at := OLD.created_at;
  NEW.public_id := OLD.public_id;
  NEW.secret_hash := OLD.secret_hash;
  RETURN NEW;
END
$$;
CREATE TRIGGER api_token_revised BEFORE UPDATE OF public_id, secret_hash, name, roles, module, source_cidrs, expires_at, revoked_at
  ON registry.api_token
  FOR EACH ROW EXECUTE FUNCTION registry.api_token_revised();

-- Who gave whom which right is in the change log like everything else; a secret's
-- hash is not, nor is each use.
CREATE FUNCTION registry.access_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who       registry.acting := registry.acting();
  unlogged  text[] := '{secret_hash,last_used_at}';
  old_row   jsonb;
  new_row   jsonb;
  some_row  jsonb;
BEGIN
  IF TG_OP <> 'INSERT' THEN
    old_row := to_jsonb(OLD) - unlogged;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    new_row := to_jsonb(NEW) - unlogged;
  END IF;
  some_row := coalesce(new_row, old_row);
  IF old_row - 'revision' IS NOT DISTINCT FROM new_row - 'revision' THEN
    RETURN NULL;
  END IF;
  INSERT INTO registry.change_log
    (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
  VALUES (clock_timestamp(), who.lineage, 'token', coalesce(some_row ->> 'token_id', some_row ->> 'id'),
          TG_TABLE_NAME, some_row ->> 'id', lower(TG_OP),
          who.actor, who.token, who.request_id, who.reason, old_row, new_row);
  RETURN NULL;
END
$$;
CREATE TRIGGER api_token_logged AFTER INSERT OR DELETE ON registry.api_token
  FOR EACH ROW EXECUTE FUNCTION registry.access_written();
CREATE TRIGGER api_token_change_logged AFTER UPDATE OF name, roles, module, source_cidrs, expires_at, revoked_at
  ON registry.api_token
  FOR EACH ROW EXECUTE FUNCTION registry.access_written();
CREATE TRIGGER role_grant_logged AFTER INSERT OR UPDATE OR DELETE ON registry.role_grant
  FOR EACH ROW EXECUTE FUNCTION registry.access_written();
