-- The mirror itself: every route origin that some active source states.

-- The tuple, as it would be published: it is here as long as any source needs it.
CREATE TABLE mirror.route_origin (
  asn        bigint NOT NULL CHECK (asn BETWEEN 0 AND 4294967295),
  prefix     cidr NOT NULL,
  max_length smallint NOT NULL,
  since      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (prefix, asn, max_length)
);

-- Which source needs which tuple.
CREATE TABLE mirror.route_origin_source (
  kind       text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  asn        bigint NOT NULL,
  prefix     cidr NOT NULL,
  max_length smallint NOT NULL,
  PRIMARY KEY (kind, key, prefix, asn, max_length),
  FOREIGN KEY (prefix, asn, max_length) REFERENCES mirror.route_origin (prefix, asn, max_length)
);
CREATE INDEX route_origin_source_tuple ON mirror.route_origin_source (prefix, asn, max_length);
