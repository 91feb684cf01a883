-- Privileges of the modules' roles. Applied at every migration, after the
-- numbered files, so that a dump restored on a server without the roles is
-- repaired by `hubn migrate`.

REVOKE ALL ON SCHEMA registry FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA registry FROM PUBLIC, hubn_registry, hubn_outbox;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA registry FROM PUBLIC;
GRANT USAGE ON SCHEMA registry TO hubn_registry, hubn_outbox;

-- The Registry: its nouns, never the outbox's order nor the change log's past.
GRANT SELECT ON ALL TABLES IN SCHEMA registry TO hubn_registry;
GRANT INSERT, UPDATE, DELETE ON
  registry.organisation, registry.asn, registry.name_server_set, registry.prefix, registry.ptr_record,
  registry.anycast_allocation, registry.anycast_route_origin, registry.certificate_authority, registry.certificate,
  registry.revocation, registry.bgp_session, registry.module, registry.module_instance, registry.applied_state,
  registry.observation, registry.module_command, registry.barrier, registry.lease, registry.api_token,
  registry.role_grant, registry.idempotency_key, registry.import_job
  TO hubn_registry;
GRANT INSERT ON registry.outbox_audit TO hubn_registry;
-- A password is sealed for the id of its session, which is taken before the row.
GRANT USAGE ON SEQUENCE registry.bgp_session_id_seq TO hubn_registry;
-- A bulk import takes the ids of rows that refer to each other before it copies them in.
GRANT USAGE ON SEQUENCE registry.organisation_id_seq, registry.prefix_id_seq, registry.anycast_allocation_id_seq TO hubn_registry;
GRANT UPDATE (next_at, attempts, state) ON registry.outbox_lane TO hubn_registry;
GRANT UPDATE (paused, audit_wanted_at, audit_wanted_fix) ON registry.outbox_stream TO hubn_registry;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA registry TO hubn_registry;
REVOKE EXECUTE ON FUNCTION
  registry.outbox_append(text, text[], text[], jsonb[]),
  registry.outbox_tell(text, registry.happening[]),
  registry.row_written(registry.acting, text, text, text, text, jsonb, jsonb, text[])
  FROM hubn_registry;

-- The worker: the outbox alone. It reads or starts a lineage through functions.
GRANT SELECT ON registry.outbox_lane, registry.outbox_event, registry.outbox_stream, registry.outbox_row_state TO hubn_outbox;
GRANT UPDATE (pub_seq, claim_token, claimed_by, next_at, queued_at, head_at, attempts, last_error, last_error_at, published_at)
  ON registry.outbox_lane TO hubn_outbox;
GRANT UPDATE (published_at) ON registry.outbox_event TO hubn_outbox;
GRANT UPDATE (lineage, epoch, epoch_at, epoch_reason, audited_at, audit_result, audit_wanted_at, audit_wanted_fix)
  ON registry.outbox_stream TO hubn_outbox;
GRANT INSERT ON registry.outbox_audit TO hubn_outbox;
GRANT EXECUTE ON FUNCTION
  registry.lineage_check(), registry.lineage_current(), registry.lineage_begin(uuid, text),
  registry.outbox_partitions_ensure(integer), registry.outbox_partitions_old(interval),
  registry.outbox_partition_drop(interval), registry.outbox_health()
  TO hubn_outbox;
