package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	// maintenanceInterval: partitions are made 60 days ahead, and retentions are
	// counted in hours; nothing here is in a hurry.
	maintenanceInterval = time.Hour
	// barrierInterval is how often open barriers are taken on: somebody waits.
	barrierInterval = 100 * time.Millisecond
	// barrierIdle is how often it is looked whether there are any.
	barrierIdle = time.Second
	// outboxDays and changeLogMonths are how far ahead partitions exist: a
	// stopped Registry must not stop whoever writes plain SQL.
	outboxDays, changeLogMonths = 60, 12
	// purgeBatch bounds one deletion, so that none holds its locks for long.
	purgeBatch = 1000
	// barrierRetention is how long a barrier can be asked for.
	barrierRetention = 7 * 24 * time.Hour
	// commandRetention is how long it can be read who told a module what, and what
	// it answered: a quarter, as long as anybody looks back for a cause.
	commandRetention = 90 * 24 * time.Hour
	// outboxAuditRetention is how long it is kept what operators and audits did
	// with the outbox: a year, as accounts of operation mostly are.
	outboxAuditRetention = 365 * 24 * time.Hour
)

const (
	sqlOutboxPartitions    = `SELECT registry.outbox_partitions_ensure($1)`
	sqlChangeLogPartitions = `SELECT registry.change_log_partitions_ensure($1)`

	sqlOpenBarriers = `
SELECT id
FROM registry.barrier
WHERE raised_at IS NULL
ORDER BY id
LIMIT 100`

	sqlPurgeKeys = `
DELETE FROM registry.idempotency_key
WHERE (principal, key) IN (
  SELECT principal, key
  FROM registry.idempotency_key
  WHERE created_at < clock_timestamp() - $1::interval
  LIMIT $2)`
	sqlPurgeBarriers = `
DELETE FROM registry.barrier
WHERE id IN (
  SELECT id
  FROM registry.barrier
  WHERE created_at < clock_timestamp() - $1::interval
  LIMIT $2)`
	sqlPurgeTombstones  = `SELECT registry.outbox_tombstones_purge($1::interval, $2)`
	sqlPurgeCommands    = `SELECT registry.module_commands_purge($1::interval, $2)`
	sqlPurgeOutboxAudit = `SELECT registry.outbox_audit_purge($1::interval, $2)`
)

// maintain keeps the schema going until ctx is done. What fails is said in the
// module's status and tried again; it never ends the module.
func (s *service) maintain(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return s.every(ctx, maintenanceInterval, s.upkeep) })
	work.Go(func() error { return s.advanceBarriers(ctx) })
	return work.Wait()
}

// every runs f at once and then in an interval.
func (s *service) every(ctx context.Context, interval time.Duration, f func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := f(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.trouble.set("maintenance fails: " + err.Error())
			s.log.Error("maintenance failed; it is tried again", "error", err, "after", interval)
		default:
			s.trouble.set("")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// upkeep makes partitions and removes what its retention is over for.
func (s *service) upkeep(ctx context.Context) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	for sql, ahead := range map[string]int{sqlOutboxPartitions: outboxDays, sqlChangeLogPartitions: changeLogMonths} {
		var made int
		if err := db.pool.QueryRow(ctx, sql, ahead).Scan(&made); err != nil {
			return fmt.Errorf("make partitions: %w", err)
		}
		s.metrics.partition.Add(float64(made))
	}
	for _, old := range []struct {
		table, sql string
		age        time.Duration
	}{
		{"idempotency_key", sqlPurgeKeys, s.settings.IdempotencyRetention},
		{"barrier", sqlPurgeBarriers, barrierRetention},
	} {
		for full := true; full; {
			tag, err := db.pool.Exec(ctx, old.sql, old.age, purgeBatch)
			if err != nil {
				return fmt.Errorf("purge %s: %w", old.table, err)
			}
			s.metrics.purged.WithLabelValues(old.table).Add(float64(tag.RowsAffected()))
			full = tag.RowsAffected() == purgeBatch
		}
	}
	if err := s.sweepQuarantine(ctx); err != nil {
		return fmt.Errorf("sweep the quarantine: %w", err)
	}
	// What the Registry's own role may not delete.
	for _, old := range []struct {
		table, sql string
		age        time.Duration
	}{
		{"outbox_lane", sqlPurgeTombstones, s.settings.TombstoneRetention},
		{"module_command", sqlPurgeCommands, commandRetention},
		{"outbox_audit", sqlPurgeOutboxAudit, outboxAuditRetention},
	} {
		for full := true; full; {
			var purged int
			if err := db.pool.QueryRow(ctx, old.sql, old.age, purgeBatch).Scan(&purged); err != nil {
				return fmt.Errorf("purge %s: %w", old.table, err)
			}
			s.metrics.purged.WithLabelValues(old.table).Add(float64(purged))
			full = purged == purgeBatch
		}
	}
	return s.reseal(ctx)
}

// advanceBarriers takes open barriers on, whether or not somebody asks for them:
// whoever made one may be gone, and their events wake the modules.
func (s *service) advanceBarriers(ctx context.Context) error {
	failing := false
	for {
		open, err := s.advanceOnce(ctx)
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				s.log.Warn("barriers cannot be taken on; it is tried again", "error", err)
			}
		}
		wait := barrierIdle
		if open > 0 {
			wait = barrierInterval
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (s *service) advanceOnce(ctx context.Context) (open int, err error) {
	db, err := s.open()
	if err != nil {
		return 0, err
	}
	rows, err := db.pool.Query(ctx, sqlOpenBarriers)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		var ahead int64
		if err := db.pool.QueryRow(ctx, sqlBarrierAdvance, id).Scan(&ahead); err != nil {
			return len(ids), err
		}
		if ahead == 0 {
			s.wake.hint()
		}
	}
	return len(ids), nil
}
