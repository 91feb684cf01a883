package registry

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/registry/client"
)

// auditPoll is how often an audit that was asked for is looked after.
const auditPoll = 200 * time.Millisecond

type auditInput struct {
	Body client.OutboxAudit
}

type auditOutput struct {
	Body client.OutboxAuditAnswer
}

// A wish with repair is not taken back by one without.
const sqlWantAudit = `
UPDATE registry.outbox_stream
SET audit_wanted_fix = $2 OR (audit_wanted_fix AND audit_wanted_at IS NOT NULL),
    audit_wanted_at = clock_timestamp()
WHERE ($1::smallint IS NULL OR stream_no = $1)
RETURNING stream_no, audit_wanted_at`

// auditOutbox leaves a wish in the streams' rows, which a worker carries out, and
// looks for the result.
func (s *service) auditOutbox(ctx context.Context, in *auditInput) (*auditOutput, error) {
	o := in.Body
	if o.Stream != nil && (*o.Stream < 0 || *o.Stream >= event.Streams) {
		return nil, problem.New(problem.Invalid, "streams are numbered 0 to %d", event.Streams-1).At("body.stream", "is not a stream", *o.Stream)
	}
	wanted := map[int]time.Time{}
	err := s.write(ctx, func(ctx context.Context, tx *writing) error {
		clear(wanted)
		rows, err := tx.Query(ctx, sqlWantAudit, o.Stream, o.Fix)
		if err != nil {
			return err
		}
		var no int
		var at time.Time
		if _, err := pgx.ForEachRow(rows, []any{&no, &at}, func() error { wanted[no] = at; return nil }); err != nil {
			return err
		}
		target := "all"
		if o.Stream != nil {
			target = "stream:" + strconv.Itoa(*o.Stream)
		}
		return audit(ctx, tx, "audit", target, o.Reason, map[string]any{"fix": o.Fix})
	})
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(time.Duration(o.WaitSeconds) * time.Second)
	defer patience.Stop()
	poll := time.NewTicker(auditPoll)
	defer poll.Stop()
	for {
		out, err := s.auditProgress(ctx, wanted)
		if err != nil || out.Body.Done {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience.C:
			return out, nil
		case <-poll.C:
		}
	}
}

func (s *service) auditProgress(ctx context.Context, wanted map[int]time.Time) (*auditOutput, error) {
	var out auditOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		streams, err := readStreams(ctx, tx)
		if err != nil {
			return err
		}
		out.Body = client.OutboxAuditAnswer{Lineage: tx.Lineage, Done: true, Streams: []client.OutboxStream{}}
		for _, stream := range streams {
			at, asked := wanted[stream.Stream]
			if !asked {
				continue
			}
			out.Body.Streams = append(out.Body.Streams, stream)
			out.Body.Done = out.Body.Done && !stream.AuditedAt.Before(at)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type cleanupInput struct {
	Body client.OutboxCleanup
}

type cleanupOutput struct {
	Body client.OutboxCleanupAnswer
}

const (
	sqlOldPartitions = `
SELECT to_char(to_date(right(o.partition, 8), 'YYYYMMDD'), 'YYYY-MM-DD'),
       o.events,
       o.unpublished,
       coalesce(pg_total_relation_size(to_regclass('registry.' || o.partition)), 0),
       o.droppable,
       o.published_until
FROM registry.outbox_partitions_old($1) o`
	sqlDropPartition = `SELECT registry.outbox_partition_drop($1)`
)

// cleanupOutbox lists the partitions that are older than the retention, and,
// unless it is a dry run, drops those that are due. The workers do so by themselves.
func (s *service) cleanupOutbox(ctx context.Context, in *cleanupInput) (*cleanupOutput, error) {
	var out cleanupOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body = client.OutboxCleanupAnswer{Lineage: tx.Lineage, DryRun: in.Body.DryRun, Partitions: []client.OutboxPartition{}}
		rows, err := tx.Query(ctx, sqlOldPartitions, s.eventRetention)
		if err != nil {
			return err
		}
		var p client.OutboxPartition
		var until *time.Time
		_, err = pgx.ForEachRow(rows, []any{&p.Day, &p.Rows, &p.Unpublished, &p.Bytes, &p.Due, &until}, func() error {
			p.Reason = partitionReason(p, until, s.eventRetention)
			out.Body.Partitions = append(out.Body.Partitions, p)
			return nil
		})
		return err
	})
	if err != nil || in.Body.DryRun {
		return &out, err
	}
	// Not more often than partitions were due: each drop is one transaction.
	for _, p := range out.Body.Partitions {
		if !p.Due {
			continue
		}
		var name *string
		if err := s.record(ctx, func(ctx context.Context, tx *writing) error {
			if err := tx.QueryRow(ctx, sqlDropPartition, s.eventRetention).Scan(&name); err != nil || name == nil {
				return err
			}
			return audit(ctx, tx, "cleanup", *name, "", nil)
		}); err != nil {
			return nil, err
		}
		if name == nil {
			break // a worker is at it
		}
		out.Body.Dropped = append(out.Body.Dropped, *name)
	}
	return &out, nil
}

func partitionReason(p client.OutboxPartition, until *time.Time, retention time.Duration) string {
	switch {
	case p.Unpublished > 0:
		return strconv.FormatInt(p.Unpublished, 10) + " events are not published"
	case !p.Due && until != nil:
		return "the last of its events was published at " + until.UTC().Format(time.RFC3339) + ", less than " + span(retention) + " ago"
	}
	return "everything in it was published more than " + span(retention) + " ago"
}

// span is a retention in words: in days where it is whole days.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return counted(int(d/day), "day", "days")
	}
	return d.String()
}
