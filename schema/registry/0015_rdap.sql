-- What RDAP asks that the API does not: which prefixes name a server.

-- Prefixes without servers of their own, which are most, are not in it.
CREATE INDEX prefix_name_servers ON registry.prefix USING gin (name_servers)
  WHERE cardinality(name_servers) > 0;
