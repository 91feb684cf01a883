package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
)

// An audit compares what is acknowledged with the fences in Redis. A fence that
// is behind means that Redis lost the events in between: they are published
// again. A fence that is ahead of everything ever appended means that the
// Registry went back: it gets a new lineage.

// auditScope is what an audit looks at.
type auditScope struct {
	reason string
	// identity names the servers that are compared.
	identity string
	streams  []int
	// full takes every lane; else those published since the stream's last audit.
	full bool
	// fix repairs what is found; else it is only counted.
	fix bool
}

// auditResult is what an audit found on one stream; it is kept in outbox_stream.
type auditResult struct {
	Reason  string `json:"reason"`
	Full    bool   `json:"full"`
	Checked int64  `json:"checked"` // lanes
	// LanesLost is how many lanes' fences were behind, Lost how many events that is.
	LanesLost int64 `json:"lanes_lost"`
	Lost      int64 `json:"lost"`
	// Fixed is how many lanes are published again.
	Fixed int64 `json:"fixed"`
	// Resynced is how many of those lack rows, so that a marker takes their place.
	Resynced int64 `json:"resynced"`
	// Ahead is how many lanes' fences were beyond everything ever appended.
	Ahead int64 `json:"ahead"`
	// FullAt is when all lanes were last compared, Identity on which servers.
	FullAt   time.Time `json:"full_at,omitzero"`
	Identity string    `json:"identity,omitempty"`
}

// auditedStream is a stream in an audit.
type auditedStream struct {
	no    int
	epoch string
	begun time.Time
	// since is when what is compared was published, at the earliest; nil takes every lane.
	since  *time.Time
	result auditResult
}

// auditedLane is a lane as an audit compares it.
type auditedLane struct {
	id, pubSeq, lastSeq, fence int64
	stream                     int
}

// audit carries out a scope. One worker does so at a time: another gets errLocked.
func (w *Worker) audit(ctx context.Context, scope auditScope) error {
	return w.underLock(ctx, "registry.outbox_audit", func(tx pgx.Tx) error {
		streams, err := w.streamStates(ctx)
		if err != nil {
			return err
		}
		var due []*auditedStream
		for _, no := range scope.streams {
			if streams[no].epoch == "" || !streams[no].current {
				continue // the new epoch's fences come from what is acknowledged
			}
			s := &auditedStream{no: no, epoch: streams[no].epoch}
			if err := s.begin(ctx, tx, scope); err != nil {
				return err
			}
			due = append(due, s)
		}
		if len(due) == 0 {
			return nil
		}
		if err := w.compareStreams(ctx, due, scope.fix); err != nil {
			return err
		}
		for _, s := range due {
			if err := w.noteAudit(ctx, tx, s, scope); err != nil {
				return err
			}
		}
		return nil
	})
}

const lastAuditSQL = `
	SELECT clock_timestamp(), audited_at, coalesce(audit_result, '{}')
	FROM registry.outbox_stream
	WHERE stream_no = $1`

const noteAuditSQL = `
	UPDATE registry.outbox_stream
	SET audited_at = $2,
	    audit_result = $3,
	    audit_wanted_at = CASE WHEN audit_wanted_at > $2 THEN audit_wanted_at END
	WHERE stream_no = $1`

// overlap is by how much an audit looks back before the last one: an
// acknowledgement carries the time of its transaction's start.
const overlap = "1 minute"

// begin reads what the last audit of the stream left.
func (s *auditedStream) begin(ctx context.Context, tx pgx.Tx, scope auditScope) error {
	var before auditResult
	if err := tx.QueryRow(ctx, lastAuditSQL, s.no).Scan(&s.begun, &s.since, &before); err != nil {
		return databaseError{err}
	}
	s.result = auditResult{Reason: scope.reason, Full: scope.full || s.since == nil, FullAt: before.FullAt, Identity: before.Identity}
	if s.result.Full {
		s.since = nil
	}
	if s.result.Full && scope.fix {
		s.result.FullAt, s.result.Identity = s.begun, scope.identity
	}
	return nil
}

// noteAudit keeps what an audit found on a stream.
func (w *Worker) noteAudit(ctx context.Context, tx pgx.Tx, s *auditedStream, scope auditScope) error {
	r := s.result
	w.metrics.lost.Add(float64(r.Lost))
	if _, err := tx.Exec(ctx, noteAuditSQL, s.no, s.begun, r); err != nil {
		return databaseError{err}
	}
	if r.Lost == 0 && r.Ahead == 0 {
		return nil
	}
	w.log.Warn("the audit found a difference between Redis and what was published", "stream", s.no,
		"lost", r.Lost, "lanes", r.LanesLost, "fixed", r.Fixed, "resynced", r.Resynced, "ahead", r.Ahead)
	return noteOperation(ctx, tx, "audit", "stream:"+strconv.Itoa(s.no), scope.reason, r)
}

func noteOperation(ctx context.Context, tx pgx.Tx, action, target, reason string, detail any) error {
	const sql = `
		INSERT INTO registry.outbox_audit (actor, action, target, reason, detail)
		VALUES ('outbox', $1, $2, $3, $4)`
	if _, err := tx.Exec(ctx, sql, action, target, reason, detail); err != nil {
		return databaseError{err}
	}
	return nil
}

// auditSQL goes once through the lanes, whatever the number of streams; $3 has
// the time since when for each stream in the place of its number.
const auditSQL = `
	SELECT lane_id, stream_no, pub_seq, last_seq
	FROM registry.outbox_lane
	WHERE lane_id > $1
	  AND stream_no = ANY ($2::smallint[])
	  AND (($3::timestamptz[])[stream_no + 1] IS NULL
	       OR published_at >= ($3::timestamptz[])[stream_no + 1] - interval '` + overlap + `')
	ORDER BY lane_id
	LIMIT $4`

// compareStreams reads lanes and then their fences, page by page. In that order,
// since a fence never is behind what was acknowledged before it was read.
func (w *Worker) compareStreams(ctx context.Context, due []*auditedStream, fix bool) error {
	numbers, since := make([]int, len(due)), make([]*time.Time, event.Streams)
	for i, s := range due {
		numbers[i], since[s.no] = s.no, s.since
	}
	var last int64
	for {
		var pages [event.Streams][]auditedLane
		n := 0
		err := w.transact(ctx, statement{auditSQL, []any{last, numbers, since, seedLanes}, func(rows pgx.Rows) error {
			var l auditedLane
			err := rows.Scan(&l.id, &l.stream, &l.pubSeq, &l.lastSeq)
			pages[l.stream] = append(pages[l.stream], l)
			last = l.id
			n++
			return err
		}})
		if err != nil {
			return fmt.Errorf("read lanes for an audit: %w", err)
		}
		for _, s := range due {
			page := pages[s.no]
			if len(page) == 0 {
				continue
			}
			if err := w.readFences(ctx, s.no, s.epoch, page); err != nil {
				return err
			}
			if err := w.comparePage(ctx, s.epoch, page, fix, &s.result); err != nil {
				return err
			}
		}
		if n < seedLanes {
			return nil
		}
	}
}

// readFences reads the lanes' fences, if the stream still is in the epoch.
func (w *Worker) readFences(ctx context.Context, no int, epoch string, page []auditedLane) error {
	ctx, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	fields := make([]string, len(page))
	for i, l := range page {
		fields[i] = strconv.FormatInt(l.id, 10)
	}
	var fences *redis.SliceCmd
	var current *redis.StringCmd
	_, err := w.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		fences = pipe.HMGet(ctx, w.names.Fence(no, epoch), fields...)
		current = pipe.Get(ctx, w.names.Epoch(no))
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read the fences of stream %d: %w", no, err)
	}
	if current.Val() != epoch {
		return errEpochMoved
	}
	for i, v := range fences.Val() {
		text, ok := v.(string)
		if !ok {
			continue // none yet
		}
		if page[i].fence, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("the fence of lane %d in Redis is %q, which is no number: delete the key %s", page[i].id, text, w.names.Epoch(no))
		}
	}
	return nil
}

func (w *Worker) comparePage(ctx context.Context, epoch string, page []auditedLane, fix bool, result *auditResult) error {
	result.Checked += int64(len(page))
	var behind, ahead []auditedLane
	for _, l := range page {
		switch {
		case l.fence < l.pubSeq:
			behind = append(behind, l)
			result.LanesLost++
			result.Lost += l.pubSeq - l.fence
		case l.fence > l.lastSeq:
			ahead = append(ahead, l)
		}
	}
	if len(ahead) > 0 {
		beyond, err := w.stillBeyond(ctx, ahead)
		if err != nil {
			return err
		}
		result.Ahead += int64(len(beyond))
		if len(beyond) > 0 && fix {
			lineage, _, _ := strings.Cut(epoch, "/")
			return w.beginLineage(ctx, lineage, beyond[0].ahead())
		}
	}
	if len(behind) == 0 || !fix {
		return nil
	}
	fixed, err := w.rewind(ctx, behind)
	for _, there := range fixed {
		result.Fixed++
		if !there {
			result.Resynced++
		}
	}
	return err
}

// stillBeyond reads the lanes again and keeps those whose fence is ahead of all
// that was appended by now.
func (w *Worker) stillBeyond(ctx context.Context, lanes []auditedLane) (beyond []auditedLane, err error) {
	ids := make([]int64, len(lanes))
	byID := make(map[int64]auditedLane, len(lanes))
	for i, l := range lanes {
		ids[i], byID[l.id] = l.id, l
	}
	const sql = `
		SELECT lane_id, last_seq
		FROM registry.outbox_lane
		WHERE lane_id = ANY ($1)`
	err = w.transact(ctx, statement{sql, []any{ids}, func(rows pgx.Rows) error {
		var id, lastSeq int64
		if err := rows.Scan(&id, &lastSeq); err != nil {
			return err
		}
		if l := byID[id]; l.fence > lastSeq {
			l.lastSeq = lastSeq
			beyond = append(beyond, l)
		}
		return nil
	}})
	return beyond, err
}

// examineHistory looks at lanes whose fence was ahead of what the claim knew,
// and gives them back.
func (w *Worker) examineHistory(ctx context.Context, lanes []*lane, streams [event.Streams]streamState, expires time.Time) error {
	if len(lanes) == 0 {
		return nil
	}
	ahead := make([]auditedLane, 0, len(lanes))
	for _, l := range lanes {
		ahead = append(ahead, auditedLane{id: l.id, stream: l.stream, pubSeq: l.pubSeq, fence: l.outcome.fence})
	}
	beyond, err := w.stillBeyond(ctx, ahead)
	if err != nil {
		return err
	}
	if len(beyond) > 0 {
		if err := w.beginLineage(ctx, streams[beyond[0].stream].lineage, beyond[0].ahead()); err != nil {
			return err
		}
	}
	w.settle(ctx, givenBack(lanes, expires))
	w.wake(again)
	return nil
}

// ahead says that the fence of a lane is ahead of all that was ever appended to it.
func (l auditedLane) ahead() string {
	return fmt.Sprintf("Redis holds event %d of lane %d, the Registry knows %d", l.fence, l.id, l.lastSeq)
}

// beginLineage says that the Registry's history went back, if it still is the
// lineage in which that was seen. The new lineage gets an epoch of its own before
// anything is published in it.
func (w *Worker) beginLineage(ctx context.Context, lineage, why string) error {
	var current string
	err := w.transact(ctx, statement{`SELECT registry.lineage_begin($1, $2)::text`, []any{lineage, why}, func(rows pgx.Rows) error {
		return rows.Scan(&current)
	}})
	if err != nil {
		return err
	}
	w.log.Error("the Registry's history went back: it has a new lineage", "lineage", current, "reason", why)
	err = w.renewEpochs(ctx, why)
	if err == nil || isDatabase(err) {
		return err
	}
	// The next batch finds that the lineage has no epoch yet and tries again.
	w.log.Warn("the new lineage has no epoch yet", "error", err)
	return nil
}

var allStreams = func() []int {
	streams := make([]int, event.Streams)
	for no := range streams {
		streams[no] = no
	}
	return streams
}()
