package outbox

import (
	"context"
	"errors"
	"time"

	"hubn/outbox/event"
)

// work claims and publishes batches until ctx is done. A batch that has begun
// is finished: its own steps are bounded.
func (w *Worker) work(ctx context.Context, n int) {
	failures := 0
	for ctx.Err() == nil {
		p := w.breaker.permit(time.Now())
		if p.wait > 0 {
			if !sleep(ctx, p.wait) {
				return
			}
			continue
		}
		if p.trial == 0 && !w.waitForWork(ctx) {
			return
		}
		err := w.batch(context.WithoutCancel(ctx), n, p.trial)
		w.breaker.ended(p.trial)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		w.metrics.databaseErrors.Inc()
		w.log.Warn("a batch could not be worked on", "error", err)
		if !sleep(ctx, jitter(min(w.pace.breakerMin<<min(failures, 16), w.pace.databaseRetryMax))) {
			return
		}
		w.wake(again)
	}
}

// waitForWork blocks until something says that there may be work.
func (w *Worker) waitForWork(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case s := <-w.wakes:
		w.metrics.wakes.WithLabelValues(string(s)).Inc()
		return true
	}
}

// batch takes one batch from claim to acknowledgement. An error is one of the
// database; what it leaves is given back later or expires.
func (w *Worker) batch(ctx context.Context, n int, trial int64) error {
	begun := time.Now()
	limit := int(w.lanes.Load())
	if trial != 0 {
		limit = trialLanes
	}
	name := w.claimant(n)
	w.active.begin(name)
	defer w.active.end(name)
	lanes, err := w.claim(ctx, name, limit)
	if err != nil {
		w.wantSweep()
		return err
	}
	w.metrics.claim.Observe(time.Since(begun).Seconds())
	if len(lanes) == 0 {
		if trial != 0 {
			return w.concludeTrial(ctx, trial)
		}
		return nil
	}
	w.taken.Add(int64(len(lanes)))
	w.metrics.claimedLanes.Add(float64(len(lanes)))
	if len(lanes) == limit {
		w.wake(full)
	}
	if w.signals.at(ctx, claimed) != nil {
		return nil
	}
	return w.carry(ctx, lanes, begun, trial)
}

// carry takes claimed lanes through publication to acknowledgement.
func (w *Worker) carry(ctx context.Context, lanes []*lane, begun time.Time, trial int64) error {
	expires := begun.Add(w.settings.Lease)
	streams, err := w.fetch(ctx, lanes)
	if err != nil {
		w.later(lateWork{settlements: givenBack(lanes, expires)})
		return err
	}
	if w.signals.at(ctx, fetched) != nil {
		return nil
	}
	p := w.publish(ctx, lanes, streams, w.publishUntil(begun))
	w.doubtSuppressed(ctx, lanes, streams, &p)
	if w.signals.at(ctx, published) != nil {
		return nil
	}
	settle, gaps, beyonds := settlements(lanes, expires)
	if w.signals.at(ctx, beforeAck) != nil {
		return nil
	}
	w.settle(ctx, settle)
	if err := w.followUp(ctx, p, trial); err != nil {
		return err
	}
	if err := w.repair(ctx, p, gaps, beyonds, streams, expires); err != nil {
		return err
	}
	if len(settle) > 0 && p.err == nil && len(p.epochs) == 0 {
		w.wake(again)
	}
	return nil
}

// repair deals with what the publication found of a Redis, or a Registry, that
// went back.
func (w *Worker) repair(ctx context.Context, p publication, gaps, beyonds []*lane, streams [event.Streams]streamState, expires time.Time) error {
	if p.otherHistory != "" {
		if err := w.beginLineage(ctx, p.lineage, p.otherHistory); err != nil {
			return err
		}
		w.wake(again)
	}
	if err := w.rewindLanes(ctx, gaps, expires); err != nil {
		return err
	}
	return w.examineHistory(ctx, beyonds, streams, expires)
}

// concludeTrial tries Redis when there is nothing to publish.
func (w *Worker) concludeTrial(ctx context.Context, trial int64) error {
	ping, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	return w.followUp(ctx, publication{err: w.redis.Ping(ping).Err()}, trial)
}

// followUp does what the publication showed to be necessary: the breaker, and
// epochs that are missing. An error is one of the database.
func (w *Worker) followUp(ctx context.Context, p publication, trial int64) error {
	if p.err == nil && len(p.epochs) > 0 {
		p.err = w.renewEpochs(ctx, "Redis lost its data, or the Registry's history changed")
		if errors.Is(p.err, errEpochBusy) {
			sleep(ctx, w.pace.breakerMin)
			w.wake(again)
			return nil
		}
		if isDatabase(p.err) {
			return p.err
		}
		w.wake(again)
	}
	if p.err != nil {
		w.metrics.transportErrors.WithLabelValues(transportClass(p.err)).Inc()
		if w.breaker.failed(time.Now(), trial, p.err) {
			w.log.Warn("Redis takes no events: nothing is lost, and no event's attempts are counted", "error", p.err)
			w.reportStatus()
		}
		return nil
	}
	if w.breaker.succeeded(trial) {
		w.log.Info("Redis takes events again")
		w.wantAudit("Redis takes events again")
		w.wake(again)
		w.reportStatus()
	}
	return nil
}
