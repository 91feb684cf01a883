package outbox

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// wantAudit asks for an audit of everything; one that already waits is enough.
func (w *Worker) wantAudit(reason string) {
	select {
	case w.audits <- reason:
	default:
	}
}

// watch looks at the server, the epochs and the operators' wishes, and carries
// out the audits that follow, also while nothing is published.
func (w *Worker) watch(ctx context.Context) {
	owed := "" // the reason for an audit that is yet to succeed; empty: none
	for sleep(ctx, jitter(w.pace.watch)) {
		w.reportStatus()
		if _, fault := w.breaker.fault(); fault != nil {
			continue // the workers try; an audit follows
		}
		select {
		case owed = <-w.audits:
		default:
		}
		err := w.look(ctx, owed)
		if err == nil {
			owed = ""
		} else if ctx.Err() == nil {
			w.noteWatch(err)
		}
	}
}

// noteWatch sorts a fault of the watcher.
func (w *Worker) noteWatch(err error) {
	switch {
	case errors.Is(err, errEpochBusy), errors.Is(err, errEpochMoved), errors.Is(err, errLocked):
		w.log.Debug("another worker watches over Redis", "error", err)
	case isDatabase(err):
		w.metrics.databaseErrors.Inc()
		w.log.Warn("the outbox cannot be watched over", "error", err)
	default:
		w.metrics.transportErrors.WithLabelValues(transportClass(err)).Inc()
		if w.breaker.failed(time.Now(), 0, err) {
			w.log.Warn("Redis does not answer: nothing is lost, and no event's attempts are counted", "error", err)
		}
	}
}

// look does one round; owed is the reason for an audit, if there is one.
func (w *Worker) look(ctx context.Context, owed string) error {
	identity, err := w.identity(ctx)
	if err != nil {
		return err
	}
	streams, err := w.streamStates(ctx)
	if err != nil {
		return err
	}
	inRedis, err := w.epochsInRedis(ctx)
	if err != nil {
		return err
	}
	if len(staleStreams(streams, inRedis)) > 0 {
		if err := w.renewEpochs(ctx, "found by watching"); err != nil {
			return err
		}
	}
	if err := w.releaseVoid(ctx, streams[0].lineage); err != nil {
		return err
	}
	if owed != "" {
		return w.audit(ctx, auditScope{reason: owed, identity: identity, streams: allStreams, full: true, fix: true})
	}
	return w.auditWhatIsDue(ctx, identity)
}

const dueSQL = `
	SELECT stream_no,
	       CASE WHEN audit_wanted_at IS NOT NULL AND audit_wanted_fix THEN 'repair'
	            WHEN audit_wanted_at IS NOT NULL THEN 'count'
	            WHEN audit_result->>'identity' IS DISTINCT FROM $3 THEN 'other server'
	            WHEN audited_at IS NULL THEN 'all'
	            WHEN coalesce((audit_result->>'full_at')::timestamptz < now() - $2::interval, true) THEN 'all'
	            WHEN audited_at < now() - $1::interval THEN 'recent'
	            ELSE '' END
	FROM registry.outbox_stream
	ORDER BY stream_no`

// auditWhatIsDue carries out what operators wish, what another server than at
// the last full audit makes necessary, and what is due by time.
func (w *Worker) auditWhatIsDue(ctx context.Context, identity string) error {
	due := map[string][]int{}
	arguments := []any{w.pace.auditRecent, w.pace.auditAll, identity}
	err := w.transact(ctx, statement{dueSQL, arguments, func(rows pgx.Rows) error {
		var no int
		var what string
		err := rows.Scan(&no, &what)
		due[what] = append(due[what], no)
		return err
	}})
	if err != nil {
		return err
	}
	for _, scope := range []auditScope{
		{reason: "an operator asked for it", streams: due["repair"], full: true, fix: true},
		{reason: "an operator asked for it", streams: due["count"], full: true},
		{reason: "Redis or PostgreSQL is another server, or in another role, than at the last full audit", streams: due["other server"], full: true, fix: true},
		{reason: "the daily audit", streams: due["all"], full: true, fix: true},
		{reason: "the regular audit", streams: due["recent"], fix: true},
	} {
		if len(scope.streams) == 0 {
			continue
		}
		scope.identity = identity
		if err := w.audit(ctx, scope); err != nil {
			return err
		}
	}
	return nil
}

// identity names the servers that Redis and PostgreSQL are now: another process,
// a promoted replica or another replication history has another one.
func (w *Worker) identity(ctx context.Context) (string, error) {
	var postgres time.Time
	err := w.transact(ctx, statement{`SELECT pg_postmaster_start_time()`, nil, func(rows pgx.Rows) error { return rows.Scan(&postgres) }})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	var mu sync.Mutex
	var nodes []string
	err = w.eachNode(ctx, func(ctx context.Context, node redis.Cmdable) error {
		server, err := info(ctx, node, "server")
		if err != nil {
			return err
		}
		replication, err := info(ctx, node, "replication")
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, fmt.Sprintf("%s/%s/%s", server["run_id"], replication["role"], replication["master_replid"]))
		return nil
	})
	sort.Strings(nodes)
	return strings.Join(nodes, " ") + " " + postgres.UTC().Format(time.RFC3339Nano), err
}

// info reads a section of INFO; a server without that section says nothing.
func info(ctx context.Context, node redis.Cmdable, section string) (map[string]string, error) {
	text, err := node.Info(ctx, section).Result()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values, nil
}

// adviseRedis warns at start of a server that may throw events away.
func (w *Worker) adviseRedis(ctx context.Context) {
	policy, err := w.redis.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return // not every server answers that; `hubn outbox doctor` says so
	}
	if p := policy["maxmemory-policy"]; p != "" && p != "noeviction" {
		w.log.Warn("Redis may evict streams and fences when its memory is full: set maxmemory-policy noeviction", "policy", p)
		w.metrics.evicts.Set(1)
	}
}
