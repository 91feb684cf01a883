package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// housekeep measures, trims streams, and makes and drops partitions.
func (w *Worker) housekeep(ctx context.Context) {
	measure := time.NewTimer(jitter(min(time.Second, w.pace.measure)))
	defer measure.Stop()
	tidy := time.NewTimer(jitter(min(time.Minute, w.pace.tidy)))
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-measure.C:
			w.measure(ctx)
			measure.Reset(w.pace.measure)
		case <-tidy.C:
			w.tidy(ctx)
			tidy.Reset(jitter(w.pace.tidy))
		}
	}
}

// tidy does what keeps tables and streams from growing.
func (w *Worker) tidy(ctx context.Context) {
	w.attempt(ctx, "make partitions", w.ensurePartitions)
	w.attempt(ctx, "drop partitions", w.dropPartitions)
	w.attempt(ctx, "trim streams", w.trimStreams)
}

// attempt lets each part of housekeeping fail alone.
func (w *Worker) attempt(ctx context.Context, what string, do func(context.Context) error) {
	if err := do(ctx); err != nil && ctx.Err() == nil {
		w.log.Warn("housekeeping failed: trying again later", "what", what, "error", err)
	}
}

// ensurePartitions makes partitions for two months ahead. The Registry and every
// migration do so too: a missing one would fail a writer, who must not depend on
// this worker.
func (w *Worker) ensurePartitions(ctx context.Context) error {
	return w.transact(ctx, statement{`SELECT registry.outbox_partitions_ensure($1)`, []any{partitionDays}, func(rows pgx.Rows) error {
		var made int
		if err := rows.Scan(&made); err != nil {
			return err
		}
		if made > 0 {
			w.log.Info("made partitions for the outbox's events", "partitions", made)
		}
		return nil
	}})
}

// lockNotAvailable is the SQLSTATE of a lock that was not to be had in time.
const lockNotAvailable = "55P03"

// dropPartitions drops, one after the other, partitions whose day is past the
// retention and in which everything has been published for so long. The lock
// that this takes is waited for half a second at most: else later.
func (w *Worker) dropPartitions(ctx context.Context) error {
	for {
		var dropped *string
		err := w.transact(ctx, statement{`SELECT registry.outbox_partition_drop($1)`, []any{w.settings.Retention}, func(rows pgx.Rows) error {
			return rows.Scan(&dropped)
		}})
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == lockNotAvailable {
			w.log.Info("an old partition is not dropped now: a transaction uses the table")
			return nil
		}
		if err != nil || dropped == nil {
			return err
		}
		w.metrics.partitionsDropped.Inc()
		w.log.Info("dropped an old partition of published events", "partition", *dropped)
	}
}
