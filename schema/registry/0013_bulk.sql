-- Bulk: what an RPSL export needs to give an import back, and jobs of bulk import.

-- A network object of RPSL may have a range as its key that is not one CIDR; each
-- prefix of such a range knows it. Empty where the prefix is the whole object.
ALTER TABLE registry.prefix
  ADD COLUMN range_first inet,
  ADD COLUMN range_last inet,
  ADD CONSTRAINT prefix_range_both CHECK ((range_first IS NULL) = (range_last IS NULL)),
  ADD CONSTRAINT prefix_range_order CHECK (range_first <= range_last);
CREATE INDEX prefix_range ON registry.prefix (range_first, range_last) WHERE range_first IS NOT NULL;

-- A job says that it is alive, and is told to stop, through its row: any instance
-- of the Registry may be asked for it.
ALTER TABLE registry.import_job
  ADD COLUMN principal text NOT NULL DEFAULT '',
  ADD COLUMN reason text NOT NULL DEFAULT '',
  ADD COLUMN seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ADD COLUMN cancelled_by text;

-- A bulk import knows the place of each of its prefixes, which one probe for each
-- possible length would find again; the constraints hold it to that.
CREATE OR REPLACE FUNCTION registry.prefix_placed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF NEW.parent_id IS NULL THEN
    IF coalesce(current_setting('hubn.placed', true), '') <> 'on' THEN
      SELECT c.id, c.prefix INTO NEW.parent_id, NEW.parent_prefix FROM registry.prefix_covering(NEW.prefix, true) c;
    END IF;
  ELSIF NEW.parent_prefix IS NULL THEN
    SELECT p.prefix INTO NEW.parent_prefix FROM registry.prefix p WHERE p.id = NEW.parent_id;
  END IF;
  RETURN NEW;
END
$$;
