package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hubn/registry/client"
)

const (
	// nextFreeChildren are those that the pool has before anybody asks, and
	// nextFreeFewer those of the pool that it is compared with.
	nextFreeChildren, nextFreeFewer = 4_000, 40
	// nextFreeRequests are made in each round, to both pools.
	nextFreeRequests = 480
	nextFreeRounds   = 3
)

const makePool = `
WITH pool AS (
  INSERT INTO registry.prefix (prefix, kind)
  VALUES ($1, 'container')
  RETURNING id, prefix
), children AS (
  INSERT INTO registry.prefix (prefix, parent_id, parent_prefix)
  SELECT set_masklen((set_masklen(p.prefix::inet, 32) + i * 64)::cidr, 26), p.id, p.prefix
  FROM pool p, generate_series(0, $2::bigint - 1) i
  ORDER BY hashint8(i)
)
SELECT id FROM pool`

// measureNextFree lets clients take the next free /26 of one pool, all at the same
// time, and counts what two of them got.
func measureNextFree(ctx context.Context, b *bench, s *servers) error {
	progress("registry: next-free")
	name, err := s.copied(ctx, "registry_empty")
	if err != nil {
		return err
	}
	defer func() { _ = s.drop(context.WithoutCancel(ctx), name) }()
	part := &bench{}
	defer part.close()
	api, err := serveRegistry(ctx, part, s, name)
	if err != nil {
		return err
	}
	var large, small int64
	if err := api.pool.QueryRow(ctx, makePool, "10.0.0.0/8", nextFreeChildren).Scan(&large); err != nil {
		return err
	}
	if err := api.pool.QueryRow(ctx, makePool, "11.0.0.0/8", nextFreeFewer).Scan(&small); err != nil {
		return err
	}
	if _, err := api.pool.Exec(ctx, `VACUUM ANALYZE`); err != nil {
		return err
	}
	given := &given{}
	var atLarge, atSmall []float64
	for range nextFreeRounds {
		for _, pool := range []int64{small, large} {
			rate, err := api.takeFree(ctx, pool, given)
			if err != nil {
				return err
			}
			progress("next-free: %.0f/s", rate)
			if pool == large {
				atLarge = append(atLarge, rate)
			} else {
				atSmall = append(atSmall, rate)
			}
		}
	}
	b.compared("registry_next_free", median(atLarge), "prefixes/s", ratio(atLarge, atSmall), fmt.Sprintf("at_%d_children", nextFreeFewer))
	return nil
}

// given is what clients got; nobody may get what another has.
type given struct{ prefixes sync.Map }

// takeFree makes the requests of one round and answers their rate. An error, or a
// prefix that was given twice, ends the benchmark.
func (a *registryAPI) takeFree(ctx context.Context, pool int64, g *given) (float64, error) {
	path := fmt.Sprintf("/v1/prefixes/%d/next-free", pool)
	var left atomic.Int64
	left.Store(nextFreeRequests)
	begun := time.Now()
	err := together(func(int) error {
		for left.Add(-1) >= 0 {
			text, err := a.ask(ctx, http.MethodPost, path, strings.NewReader(`{"length":26}`))
			if err != nil {
				return err
			}
			var made client.Prefixes
			if err := json.Unmarshal(text, &made); err != nil || len(made.Items) != 1 {
				return fmt.Errorf("the answer is not one prefix: %s", text)
			}
			if _, twice := g.prefixes.LoadOrStore(made.Items[0].Prefix, true); twice {
				return fmt.Errorf("%s was given twice", made.Items[0].Prefix)
			}
		}
		return nil
	})
	return nextFreeRequests / time.Since(begun).Seconds(), err
}
