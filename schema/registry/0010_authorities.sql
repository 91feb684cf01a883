-- Certificate authorities, certificates and BGP sessions as the API writes them.

-- The key of a request for a certificate: SHA-1 of its public key, which is the
-- subject key identifier (RFC 6487 section 4.8.2). A key is of one CA alone, and
-- certified by one CA alone; the same one may renew it.
ALTER TABLE registry.certificate_authority
  ADD COLUMN key_id bytea CHECK (length(key_id) = 20),
  -- A delegated CA is one that another certifies.
  ADD CONSTRAINT certificate_authority_delegated_has_parent
    CHECK (mode <> 'delegated' OR parent_id IS NOT NULL) NOT VALID;
CREATE UNIQUE INDEX certificate_authority_key_id_key ON registry.certificate_authority (key_id);

ALTER TABLE registry.certificate
  ADD COLUMN key_id bytea CHECK (length(key_id) = 20),
  ADD CONSTRAINT certificate_key_of_one_ca EXCLUDE USING gist (key_id WITH =, ca_id WITH <>);
CREATE INDEX certificate_key_id ON registry.certificate (key_id);
CREATE INDEX certificate_not_after ON registry.certificate (not_after);

-- Held until the transaction ends by whoever uses a key, so that a CA and a
-- certificate of the same key cannot come at once.
CREATE FUNCTION registry.key_taken(p_key bytea) RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT pg_advisory_xact_lock(hashtextextended('registry.key_id:' || encode(p_key, 'hex'), 0))
$$;

-- A CA hangs from an active hosted one or from none, never from itself, and
-- retires after its children.
CREATE FUNCTION registry.certificate_authority_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  issuer record;
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.mode <> OLD.mode THEN
    RAISE EXCEPTION 'the CA % is %, which does not change: create another CA and retire this one', OLD.name, OLD.mode
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_authority_mode_kept';
  END IF;
  IF NEW.key_id IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.key_id IS DISTINCT FROM OLD.key_id) THEN
    PERFORM registry.key_taken(NEW.key_id);
    IF EXISTS (SELECT FROM registry.certificate WHERE key_id = NEW.key_id) THEN
      RAISE EXCEPTION 'the key of the CA % is certified already', NEW.name
        USING ERRCODE = 'unique_violation', CONSTRAINT = 'certificate_authority_key_id_key';
    END IF;
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.parent_id IS NOT DISTINCT FROM OLD.parent_id AND NEW.state = OLD.state
    OR TG_OP = 'INSERT' AND NEW.parent_id IS NULL THEN
    RETURN NEW;
  END IF;
  -- One at a time: there are few CAs, and two changes that are right each for
  -- itself could together close a circle.
  PERFORM pg_advisory_xact_lock(hashtextextended('registry.certificate_authority', 0));
  SELECT p.mode, p.state INTO issuer FROM registry.certificate_authority p WHERE p.id = NEW.parent_id;
  IF issuer.mode = 'delegated' THEN
    RAISE EXCEPTION 'the parent of the CA % is delegated: what it certifies is its own business', NEW.name
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_authority_parent_hosted';
  ELSIF NEW.state = 'active' AND issuer.state = 'retired' THEN
    RAISE EXCEPTION 'the parent of the CA % is retired', NEW.name
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_authority_parent_active';
  ELSIF TG_OP = 'UPDATE' AND NEW.state = 'retired'
    AND EXISTS (SELECT FROM registry.certificate_authority c WHERE c.parent_id = NEW.id AND c.state = 'active') THEN
    RAISE EXCEPTION 'the CA % still has active children', NEW.name
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_authority_children_retired';
  ELSIF EXISTS (
    WITH RECURSIVE above AS (
      SELECT NEW.parent_id AS id
      UNION
      SELECT p.parent_id
      FROM above
      JOIN registry.certificate_authority p ON p.id = above.id
    )
    SELECT FROM above WHERE id = NEW.id) THEN
    RAISE EXCEPTION 'the parent of the CA % lies below itself', NEW.name
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_authority_no_circle';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER certificate_authority_placed BEFORE INSERT OR UPDATE ON registry.certificate_authority
  FOR EACH ROW EXECUTE FUNCTION registry.certificate_authority_placed();

-- A certificate is issued by an active hosted CA.
CREATE FUNCTION registry.certificate_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  issuer record;
BEGIN
  -- The share lock holds off retiring the CA until this commits.
  SELECT c.name, c.mode, c.state INTO issuer FROM registry.certificate_authority c WHERE c.id = NEW.ca_id FOR SHARE;
  IF issuer.mode = 'delegated' THEN
    RAISE EXCEPTION 'the CA % is delegated: it certifies by itself', issuer.name
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_ca_hosted';
  ELSIF issuer.state = 'retired' THEN
    RAISE EXCEPTION 'the CA % is retired', issuer.name
      USING ERRCODE = 'check_violation', CONSTRAINT = 'certificate_ca_active';
  END IF;
  IF NEW.key_id IS NOT NULL THEN
    PERFORM registry.key_taken(NEW.key_id);
    IF EXISTS (SELECT FROM registry.certificate_authority WHERE key_id = NEW.key_id) THEN
      RAISE EXCEPTION 'the key is that of a CA'
        USING ERRCODE = 'unique_violation', CONSTRAINT = 'certificate_key_of_one_ca';
    END IF;
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER certificate_placed BEFORE INSERT ON registry.certificate
  FOR EACH ROW EXECUTE FUNCTION registry.certificate_placed();

-- A password is sealed; which one it is, the serial says: sealing the same one
-- with another key is no change that the world should see.
ALTER TABLE registry.bgp_session ADD COLUMN password_serial bigint NOT NULL DEFAULT 0;

CREATE OR REPLACE FUNCTION registry.bgp_session_changed(o registry.bgp_session, n registry.bgp_session) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_remove(ARRAY[
      CASE WHEN (n.collector, n.local_asn, n.local_address, n.remote_asn, n.remote_address, n.families, n.max_prefixes, n.wanted)
        IS DISTINCT FROM (o.collector, o.local_asn, o.local_address, o.remote_asn, o.remote_address, o.families, o.max_prefixes, o.wanted)
        THEN 'session' END,
      CASE WHEN (n.password_sealed IS NULL, n.password_serial) IS DISTINCT FROM (o.password_sealed IS NULL, o.password_serial)
        THEN 'password' END], NULL)
$$;

-- The change log says when a password was set, and never keeps it, not even
-- sealed: it would outlive its replacement there.
CREATE FUNCTION registry.bgp_session_logged(r registry.bgp_session) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
  SELECT to_jsonb(r) - 'password_sealed' || jsonb_build_object('password_set', r.password_sealed IS NOT NULL)
$$;

CREATE OR REPLACE FUNCTION registry.bgp_session_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  who        registry.acting := registry.acting();
  happenings registry.happening[];
  old_row    registry.bgp_session;
  new_row    registry.bgp_session;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'session', n.id::text, 'bgp_session', n.id::text, 'insert',
           who.actor, who.token, who.request_id, who.reason, NULL, registry.bgp_session_logged(n)
    FROM new_rows n;
    SELECT array_agg(ROW(n.id::text, 'created', ARRAY['session'])::registry.happening)
    INTO happenings
    FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO registry.change_log
      (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
    SELECT clock_timestamp(), who.lineage, 'session', o.id::text, 'bgp_session', o.id::text, 'delete',
           who.actor, who.token, who.request_id, who.reason, registry.bgp_session_logged(o), NULL
    FROM old_rows o;
    SELECT array_agg(ROW(o.id::text, 'deleted', ARRAY['session'])::registry.happening)
    INTO happenings
    FROM old_rows o;
  ELSE
    IF (SELECT count(*) FROM new_rows) = 1 THEN
      SELECT * INTO old_row FROM old_rows;
      SELECT * INTO new_row FROM new_rows;
      PERFORM registry.row_written(who, 'session', new_row.id::text, 'bgp_session', new_row.id::text,
        registry.bgp_session_logged(old_row), registry.bgp_session_logged(new_row), registry.bgp_session_changed(old_row, new_row));
      RETURN NULL;
    END IF;
    WITH pairs AS MATERIALIZED (
      SELECT n.id::text AS key, n.id::text AS row_id, registry.bgp_session_logged(o) AS before,
             registry.bgp_session_logged(n) AS after, registry.bgp_session_changed(o, n) AS changed
      FROM new_rows n
      FULL JOIN old_rows o ON o.id = n.id
    ), logged AS (
      INSERT INTO registry.change_log
        (at, lineage, kind, agg_key, table_name, row_id, op, actor, token, request_id, reason, before, after)
      SELECT clock_timestamp(), who.lineage, 'session', p.key, 'bgp_session', p.row_id, 'update',
             who.actor, who.token, who.request_id, who.reason, p.before, p.after
      FROM pairs p
      WHERE p.before - '{revision,updated_at}'::text[] <> p.after - '{revision,updated_at}'::text[]
    )
    SELECT array_agg(ROW(p.key, 'changed', p.changed)::registry.happening)
    INTO happenings
    FROM pairs p
    WHERE cardinality(p.changed) > 0;
  END IF;
  IF happenings IS NOT NULL THEN
    PERFORM registry.outbox_tell('session', happenings);
  END IF;
  RETURN NULL;
END
$$;
