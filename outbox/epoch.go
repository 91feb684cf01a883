package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
)

//go:embed epoch.lua
var epochSource string

var epochScript = redis.NewScript(epochSource)

var (
	// errEpochBusy: another worker is starting the epochs.
	errEpochBusy = errors.New("another worker is starting a new epoch")
	// errEpochMoved: the epoch key changed meanwhile.
	errEpochMoved = errors.New("the epoch in Redis changed while a new one was being started")
)

// streamStates checks the lineage and reads what the database says of every stream.
func (w *Worker) streamStates(ctx context.Context) (streams [event.Streams]streamState, err error) {
	check := statement{`SELECT registry.lineage_check()`, nil, func(pgx.Rows) error { return nil }}
	err = w.transact(ctx, check, statement{streamsSQL, nil, func(rows pgx.Rows) error { return scanStream(rows, &streams) }})
	if err == nil {
		w.lineage.Store(&streams[0].lineage)
	}
	return streams, err
}

// epochsInRedis reads every stream's epoch key; empty where there is none.
func (w *Worker) epochsInRedis(ctx context.Context) (epochs [event.Streams]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	var replies [event.Streams]*redis.StringCmd
	_, err = w.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for no := range replies {
			replies[no] = pipe.Get(ctx, w.names.Epoch(no))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return epochs, err
	}
	for no, reply := range replies {
		value, err := reply.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return epochs, err
		}
		epochs[no] = value
	}
	return epochs, nil
}

// staleStreams are the streams whose epoch in Redis is not the database's, or
// is one of another lineage.
func staleStreams(streams [event.Streams]streamState, redisEpochs [event.Streams]string) (stale []int) {
	for no, s := range streams {
		if !s.current || s.epoch == "" || s.epoch != redisEpochs[no] {
			stale = append(stale, no)
		}
	}
	return stale
}

// renewEpochs starts a new epoch on every stream that needs one. One worker does
// it at a time, under an advisory lock; another gets errEpochBusy. The database
// learns of the epoch last: whoever dies in between leaves a difference that the
// next one repairs by another epoch.
func (w *Worker) renewEpochs(ctx context.Context, reason string) error {
	var stale []int
	var fresh [event.Streams]string
	identity, err := w.identity(ctx)
	if err != nil {
		return err
	}
	err = w.underLock(ctx, "registry.outbox_epoch", func(tx pgx.Tx) error {
		streams, err := w.streamStates(ctx)
		if err != nil {
			return err
		}
		inRedis, err := w.epochsInRedis(ctx)
		if err != nil {
			return err
		}
		stale = staleStreams(streams, inRedis)
		if len(stale) == 0 {
			return nil
		}
		fresh, err = w.startEpochs(ctx, tx, stale, streams, inRedis, identity, reason)
		return err
	})
	if errors.Is(err, errLocked) {
		return errEpochBusy
	}
	if err == nil && len(stale) > 0 {
		if err := w.unlinkFences(ctx, stale, fresh); err != nil {
			w.log.Warn("former fences are left in Redis until the next epoch", "error", err)
		}
	}
	return err
}

// noteEpochSQL counts as an audit: the fences were set to what is acknowledged.
const noteEpochSQL = `
	UPDATE registry.outbox_stream
	SET lineage = $2,
	    epoch = $3,
	    epoch_at = now(),
	    epoch_reason = $4,
	    audited_at = now(),
	    audit_result = jsonb_build_object('reason', 'a new epoch: every fence was set', 'full', true,
	                                      'full_at', now(), 'identity', $5::text)
	WHERE stream_no = $1`

func (w *Worker) startEpochs(ctx context.Context, tx pgx.Tx, stale []int, streams [event.Streams]streamState, inRedis [event.Streams]string, identity, reason string) (fresh [event.Streams]string, err error) {
	ids := make(map[int]string, len(stale))
	for _, no := range stale {
		ids[no] = uuid.NewString()
		fresh[no] = streams[no].lineage + "/" + ids[no]
	}
	if err := w.seedFences(ctx, stale, fresh); err != nil {
		return fresh, err
	}
	level, reasons := slog.LevelInfo, []string{}
	for _, no := range stale {
		why := reason + ": " + epochReason(streams[no], inRedis[no])
		if err := w.openEpoch(ctx, no, streams[no].lineage, inRedis[no], fresh[no], why); err != nil {
			return fresh, err
		}
		if _, err := tx.Exec(ctx, noteEpochSQL, no, streams[no].lineage, ids[no], why, identity); err != nil {
			return fresh, databaseError{err}
		}
		w.metrics.resyncs.WithLabelValues("stream").Inc()
		if streams[no].epoch != "" {
			level = slog.LevelWarn
		}
		if !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	w.log.Log(ctx, level, "new epochs begin: consumers reconcile fully", "streams", stale, "reason", strings.Join(reasons, "; "))
	return fresh, nil
}

func epochReason(s streamState, inRedis string) string {
	switch {
	case s.epoch == "":
		return "the first epoch of the stream"
	case !s.current:
		return "the Registry has a new lineage"
	case inRedis == "":
		return "Redis holds no epoch"
	}
	return "Redis holds another epoch, " + inRedis
}

const seedsSQL = `
	SELECT lane_id, stream_no, pub_seq
	FROM registry.outbox_lane
	WHERE lane_id > $1
	  AND pub_seq > 0
	  AND stream_no = ANY ($2::smallint[])
	ORDER BY lane_id
	LIMIT $3`

// seedFences sets the new epochs' fences to what is acknowledged. A batch that
// is acknowledged meanwhile leaves its fence behind, and is published again.
func (w *Worker) seedFences(ctx context.Context, stale []int, fresh [event.Streams]string) error {
	var last int64
	for {
		var seeds [event.Streams][]any
		n := 0
		err := w.transact(ctx, statement{seedsSQL, []any{last, stale, seedLanes}, func(rows pgx.Rows) error {
			var no int
			var pubSeq int64
			n++
			if err := rows.Scan(&last, &no, &pubSeq); err != nil {
				return err
			}
			seeds[no] = append(seeds[no], last, pubSeq)
			return nil
		}})
		if err != nil {
			return fmt.Errorf("read the lanes for a new epoch: %w", err)
		}
		_, err = w.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for no, values := range seeds {
				if len(values) > 0 {
					pipe.HSet(ctx, w.names.Fence(no, fresh[no]), values...)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("seed the fences of a new epoch: %w", err)
		}
		if n < seedLanes {
			return nil
		}
	}
}

// openEpoch writes the resync entry and the epoch key at once.
func (w *Worker) openEpoch(ctx context.Context, no int, lineage, seen, fresh, reason string) error {
	payload, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return err
	}
	resync := event.Event{
		Lineage: lineage, Epoch: fresh, Stream: no, Kind: event.Resync,
		EventID: uuid.NewString(), CreatedAt: time.Now(), Payload: payload,
	}
	args := append([]any{seen, fresh}, resync.Fields()...)
	opened, err := epochScript.Run(ctx, w.redis, []string{w.names.Epoch(no), w.names.Stream(no)}, args...).Int()
	if err != nil {
		return fmt.Errorf("start an epoch on stream %d: %w", no, err)
	}
	if opened == 0 {
		return errEpochMoved
	}
	return nil
}

// unlinkFences removes the fences of former epochs, and of epochs whose start
// was broken off.
func (w *Worker) unlinkFences(ctx context.Context, stale []int, fresh [event.Streams]string) error {
	for _, no := range stale {
		keep := w.names.Fence(no, fresh[no])
		pattern := globEscape(strings.TrimSuffix(keep, fresh[no])) + "*"
		err := w.eachNode(ctx, func(ctx context.Context, node redis.Cmdable) error {
			found := node.Scan(ctx, 0, pattern, scanCount).Iterator()
			for found.Next(ctx) {
				if found.Val() == keep {
					continue
				}
				if err := node.Unlink(ctx, found.Val()).Err(); err != nil {
					return err
				}
			}
			return found.Err()
		})
		if err != nil {
			return fmt.Errorf("remove the former fences of stream %s: %w", strconv.Itoa(no), err)
		}
	}
	return nil
}

// scanCount is how many keys Redis looks at in one step: about a millisecond.
const scanCount = 1000

// globEscape takes the meaning from what Redis would read as a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// eachNode calls f for every server that holds keys.
func (w *Worker) eachNode(ctx context.Context, f func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := w.redis.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
	}
	return f(ctx, w.redis)
}
