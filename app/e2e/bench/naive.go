package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
	"hubn/registry/client"
)

// naive is the reference: an outbox as one writes it first. One row an event; a
// batch is 100 rows whose aggregate has no earlier unfinished row, SKIP LOCKED,
// pipelined XADD, one UPDATE, all in one transaction.
const naiveSchema = `
	CREATE SCHEMA naive;
	CREATE TABLE naive.event (
	  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	  event_id     uuid NOT NULL DEFAULT gen_random_uuid(),
	  agg_type     text NOT NULL,
	  agg_key      text NOT NULL,
	  kind         text NOT NULL,
	  payload      jsonb NOT NULL,
	  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	  next_at      timestamptz NOT NULL DEFAULT '-infinity',
	  published_at timestamptz
	);
	CREATE INDEX event_pending ON naive.event (id) WHERE published_at IS NULL;
	CREATE INDEX event_aggregate ON naive.event (agg_type, agg_key, id) WHERE published_at IS NULL`

const naiveBatch = 100

const naiveClaim = `
	SELECT id, event_id::text, agg_type, agg_key, kind, payload::text, created_at
	FROM naive.event e
	WHERE published_at IS NULL
	  AND next_at <= now()
	  AND NOT EXISTS (
	    SELECT FROM naive.event earlier
	    WHERE earlier.agg_type = e.agg_type
	      AND earlier.agg_key = e.agg_key
	      AND earlier.id < e.id
	      AND earlier.published_at IS NULL)
	ORDER BY id
	LIMIT $1
	FOR UPDATE SKIP LOCKED`

// naiveDrain publishes with some workers until so many rows are done or the time
// is up, and answers how many it published in how long.
func naiveDrain(ctx context.Context, pool *pgxpool.Pool, rdb *redis.Client, workers int, rows int64, limit time.Duration) (published int64, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var done atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, workers)
	begun := time.Now()
	for range workers {
		group.Go(func() {
			for done.Load() < rows && ctx.Err() == nil {
				n, err := naiveOnce(ctx, pool, rdb)
				if err != nil && ctx.Err() == nil {
					failed <- err
					return
				}
				done.Add(int64(n))
			}
		})
	}
	group.Wait()
	took = time.Since(begun)
	select {
	case err = <-failed:
	default:
	}
	if err == nil && done.Load() == 0 {
		err = fmt.Errorf("the naive outbox published nothing in %s", limit)
	}
	return done.Load(), took, err
}

type naiveRow struct {
	ID                                      int64
	EventID, AggType, AggKey, Kind, Payload string
	CreatedAt                               time.Time
}

// entry is the same as HubN's own for the event.
func (r naiveRow) entry() event.Event {
	return event.Event{
		Lineage:   naiveLineage,
		Epoch:     naiveLineage + "/" + naiveLineage,
		Resource:  client.Resource{Kind: client.Kind(r.AggType), Key: r.AggKey},
		Version:   r.ID,
		Kind:      event.Kind(r.Kind),
		EventID:   r.EventID,
		CreatedAt: r.CreatedAt,
		Payload:   json.RawMessage(r.Payload),
	}
}

const naiveLineage = "00000000-0000-4000-8000-000000000000"

func naiveOnce(ctx context.Context, pool *pgxpool.Pool, rdb *redis.Client) (n int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, naiveClaim, naiveBatch)
		if err != nil {
			return err
		}
		batch, err := pgx.CollectRows(rows, pgx.RowToStructByPos[naiveRow])
		if err != nil || len(batch) == 0 {
			return err
		}
		ids := make([]int64, len(batch))
		_, err = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, r := range batch {
				ids[i] = r.ID
				pipe.XAdd(ctx, &redis.XAddArgs{Stream: fmt.Sprintf("naive:%d", r.ID%event.Streams), Values: r.entry().Fields()})
			}
			return nil
		})
		if err != nil {
			return err
		}
		n = len(batch)
		_, err = tx.Exec(ctx, `UPDATE naive.event SET published_at = now() WHERE id = ANY ($1)`, ids)
		return err
	})
	return n, err
}
