package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	writers        = 16
	writerPrefixes = 20_000
	writerRounds   = 4
	// writerTime is long enough that the full-page images of the first write to
	// each page after the checkpoint weigh little, as between two checkpoints of
	// a server in use.
	writerTime = 8 * time.Second
)

// measureWriterCost compares the rate of one-row updates with all triggers
// (revision, change log, outbox) to that without any.
func measureWriterCost(ctx context.Context, b *bench, s *servers) error {
	name, err := s.copied(ctx, "empty")
	if err != nil {
		return err
	}
	defer func() { _ = s.drop(context.WithoutCancel(ctx), name) }()
	pool, err := s.pool(ctx, name, writers)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, makePrefixes, writerPrefixes); err != nil {
		return err
	}
	var ids []int64
	if err := pool.QueryRow(ctx, `SELECT array_agg(id) FROM registry.prefix`).Scan(&ids); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `VACUUM ANALYZE`); err != nil {
		return err
	}
	var with, without []float64
	for round := range 2 * writerRounds {
		// with, without, without, with, …: a machine that grows slower favours neither.
		triggers := round%4 == 0 || round%4 == 3
		rate, err := updateRate(ctx, pool, ids, triggers)
		if err != nil {
			return err
		}
		if triggers {
			with = append(with, rate)
		} else {
			without = append(without, rate)
		}
		progress("writers: triggers %t: %.0f changes/s", triggers, rate)
	}
	b.compared("outbox_writer_cost", median(with), "changes/s", ratio(with, without), "without_triggers")
	return nil
}

func updateRate(ctx context.Context, pool *pgxpool.Pool, ids []int64, triggers bool) (float64, error) {
	toggle := `ALTER TABLE registry.prefix DISABLE TRIGGER USER`
	if triggers {
		toggle = `ALTER TABLE registry.prefix ENABLE TRIGGER USER`
	}
	for _, sql := range []string{toggle, `CHECKPOINT`} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	timed, cancel := context.WithTimeout(ctx, writerTime)
	defer cancel()
	var done atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, writers)
	begun := time.Now()
	for range writers {
		group.Go(func() {
			for timed.Err() == nil {
				const sql = `UPDATE registry.prefix SET origin_asn = $2 WHERE id = $1`
				if _, err := pool.Exec(ctx, sql, ids[rand.N(len(ids))], 64496+rand.N(1_000_000)); err != nil {
					failed <- err
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	rate := float64(done.Load()) / time.Since(begun).Seconds()
	select {
	case err := <-failed:
		return 0, err
	default:
		return rate, ctx.Err()
	}
}
