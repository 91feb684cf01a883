package event

import (
	"context"
	"strconv"
	"time"

	"hubn/registry/client"
)

// shard follows one stream while this replica owns it. It belongs to one
// goroutine.
type shard struct {
	c      *Consumer
	stream stream
	queue  *queue
	epoch  string
	// lineage is the one that the works of the queue belong to.
	lineage string
	// recovered says that everything which Redis holds against this consumer
	// is in the queue. An answer of Redis that was lost may have carried entries.
	recovered bool
	inspected time.Time
	// unacked are handled entries that Redis could not be told about.
	unacked []string
	// wished are the reasons that need no second scan: the lineages whose events
	// have started one.
	wished map[string]bool
}

func newShard(c *Consumer, no int) *shard {
	return &shard{c: c, stream: c.streams[no], queue: newQueue(), wished: map[string]bool{}}
}

// run follows the stream until ctx is done; what is in hand then is finished
// under hand.
func (s *shard) run(ctx, hand context.Context) error {
	defer func() { // what another replica measures from now on
		no := strconv.Itoa(s.stream.no)
		s.c.metrics.lag.DeleteLabelValues(no)
		s.c.metrics.pending.DeleteLabelValues(no)
	}()
	for attempt := 0; ctx.Err() == nil; {
		if s.c.Lineage() == "" {
			// Nothing can be applied before the first scan has said in which lineage.
			select {
			case <-ctx.Done():
				return nil
			case <-s.c.scanned:
			case <-time.After(s.c.set.Block):
				if _, err := s.c.refresh(ctx); err != nil {
					s.c.log.Warn("the module's store cannot be read", "error", err)
				}
			}
			continue
		}
		err := s.step(ctx, hand)
		if ctx.Err() != nil {
			return nil
		}
		s.c.health.set(partRedis, err)
		if err == nil {
			attempt = 0
			continue
		}
		s.recovered = false
		attempt++
		if isNoGroup(err) {
			s.recreate(ctx)
		} else {
			s.c.log.Warn("the stream cannot be read", "stream", s.stream.key, "error", err)
		}
		// What is in the queue does not wait for Redis.
		s.handle(ctx, hand)
		if !wait(ctx, pause(attempt, s.c.set.FirstPause/4, s.c.set.LongestPause/3)) {
			return nil
		}
	}
	return nil
}

// step reads what there is and handles what is due. Its errors are those of Redis.
func (s *shard) step(ctx, hand context.Context) error {
	s.settleLineage()
	if err := s.flushAcks(hand); err != nil {
		return err
	}
	if !s.recovered {
		if err := s.recover(ctx, hand); err != nil {
			return err
		}
		s.recovered = true
	}
	if time.Since(s.inspected) >= s.c.set.InspectEvery {
		if err := s.inspect(ctx, hand); err != nil {
			return err
		}
		s.inspected = time.Now()
	}
	if s.queue.entries() < s.c.set.InFlight {
		entries, err := s.stream.read(ctx, s.c.set.ReadBatch, s.block())
		if err != nil {
			return err
		}
		s.take(hand, entries)
	} else if !wait(ctx, max(s.block(), time.Millisecond)) {
		return nil
	}
	s.handle(ctx, hand)
	return s.flushAcks(hand)
}

// block is how long a read may wait: not past the next attempt at what is in
// the queue.
func (s *shard) block() time.Duration {
	next, ok := s.queue.nextDue()
	if !ok {
		return s.c.set.Block
	}
	until := time.Until(next)
	if until <= 0 {
		return -1
	}
	return min(until, s.c.set.Block)
}

// recreate makes the group again, from the first entry that is left: what is
// known already is skipped. What was published and is gone with the stream is
// found by the scan.
func (s *shard) recreate(ctx context.Context) {
	s.c.log.Warn("the consumer group is gone: it is made again, and everything is scanned", "stream", s.stream.key, "group", s.stream.group)
	if s.c.want(ctx, "the consumer group of stream "+strconv.Itoa(s.stream.no)+" was gone") {
		_, err := s.stream.create(ctx, "0")
		s.c.health.set(partRedis, err)
	}
}

// recover puts into the queue what Redis holds against this replica, and, where
// replicas share the group, against those that owned the stream before: they do
// no longer, and where one is still at it the version check keeps order.
func (s *shard) recover(ctx, hand context.Context) error {
	for after := "0"; ; {
		entries, err := s.stream.own(ctx, after, s.c.set.ReadBatch)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			break
		}
		after = entries[len(entries)-1].id
		if err := s.count(ctx, entries); err != nil {
			return err
		}
		s.take(hand, entries)
	}
	if s.c.o.EveryInstance {
		return nil
	}
	return s.claim(ctx, hand, 0)
}

// claim takes over what other consumers of the group left.
func (s *shard) claim(ctx, hand context.Context, minIdle time.Duration) error {
	for from := "0-0"; ; {
		entries, next, err := s.stream.claim(ctx, minIdle, from, s.c.set.ReadBatch)
		if err != nil {
			return err
		}
		if err := s.count(ctx, entries); err != nil {
			return err
		}
		s.take(hand, entries)
		if next == "0-0" || next == "" {
			return nil
		}
		from = next
	}
}

// count fills in how often entries were delivered.
func (s *shard) count(ctx context.Context, entries []delivery) error {
	if len(entries) == 0 {
		return nil
	}
	first, last := entries[0].id, entries[0].id
	for _, d := range entries {
		if idLess(d.id, first) {
			first = d.id
		}
		if idLess(last, d.id) {
			last = d.id
		}
	}
	counts, err := s.stream.counts(ctx, first, last, 2*len(entries))
	if err != nil {
		return err
	}
	for i := range entries {
		entries[i].count = counts[entries[i].id]
	}
	return nil
}

// inspect looks for entries that were trimmed before they were read, and for
// those that nobody handles.
func (s *shard) inspect(ctx, hand context.Context) error {
	at, err := s.stream.position(ctx)
	if err != nil {
		return err
	}
	no := strconv.Itoa(s.stream.no)
	s.c.metrics.lag.WithLabelValues(no).Set(float64(at.lag))
	s.c.metrics.pending.WithLabelValues(no).Set(float64(at.pending))
	if at.trimmed() {
		s.c.log.Warn("entries were trimmed before they were read: everything is scanned", "stream", s.stream.key, "read_up_to", at.delivered, "first", at.first)
		s.c.metrics.entries.WithLabelValues(wordTrimmed).Inc()
		s.c.want(ctx, "entries of stream "+no+" were trimmed before they were read")
	}
	// Also entries of this replica, whose delivery never arrived.
	return s.claim(ctx, hand, s.c.set.ClaimIdle)
}

// take sorts entries into the queue and does at once what needs no fetch.
func (s *shard) take(ctx context.Context, entries []delivery) {
	if len(entries) == 0 {
		return
	}
	for _, d := range entries {
		if d.err == nil && !d.trimmed && d.event.Lineage != s.lineage {
			s.follow(ctx)
			break
		}
	}
	v := s.c.view.Load()
	r := rules{module: s.c.o.Module, kinds: s.c.o.Kinds, lineage: s.lineage, ancestors: v.ancestors, epoch: s.epoch}
	in := r.sort(s.queue, entries, time.Now())
	s.epoch = in.epoch
	for word, n := range in.counts {
		s.c.metrics.entries.WithLabelValues(word).Add(float64(n))
	}
	s.c.commands.put(in.commands)
	if len(in.retry) > 0 && s.c.giveUp(ctx, in.retry, "its events were delivered too often without being handled") {
		for _, w := range in.retry {
			in.ack = append(in.ack, w.ids...)
		}
	}
	for _, reason := range in.wants {
		if s.wished[reason] {
			continue
		}
		if !s.c.want(ctx, reason) {
			// Not acknowledged: the entries come again when the store is back.
			s.recovered = false
			return
		}
		if isLineageWish(reason) {
			s.wished[reason] = true
		}
	}
	s.unacked = append(s.unacked, in.ack...)
}

// follow looks whether another replica has adopted a lineage meanwhile.
func (s *shard) follow(ctx context.Context) {
	if _, err := s.c.refresh(ctx); err != nil {
		s.c.log.Warn("the module's store cannot be read", "error", err)
	}
	s.settleLineage()
}

// settleLineage empties the queue when the store's lineage is another one: the
// scan that adopted it covers what the entries spoke of.
func (s *shard) settleLineage() {
	now := s.c.Lineage()
	if s.lineage != now && s.lineage != "" {
		s.unacked = append(s.unacked, s.queue.drop()...)
	}
	s.lineage = now
}

// flushAcks tells Redis what was handled.
func (s *shard) flushAcks(ctx context.Context) error {
	if len(s.unacked) == 0 {
		return nil
	}
	if err := s.stream.ack(ctx, s.unacked); err != nil {
		if isNoGroup(err) {
			s.unacked = nil
		}
		return err
	}
	s.unacked = s.unacked[:0]
	return nil
}

// settle takes works out of the queue and acknowledges their entries.
func (s *shard) settle(works ...*work) {
	for _, w := range works {
		s.unacked = append(s.unacked, s.queue.done(w)...)
	}
}

// postpone makes works due again after a pause that grows with their tries.
func (s *shard) postpone(works ...*work) {
	for _, w := range works {
		w.tries++
		w.due = time.Now().Add(pause(w.tries, s.c.set.FirstPause, s.c.set.LongestPause))
	}
}

// handle works on what is due, and passes the barriers that nothing stands
// before any longer.
func (s *shard) handle(ctx, hand context.Context) {
	for ctx.Err() == nil {
		due := s.queue.due(time.Now(), s.c.set.ReadBatch)
		if len(due) == 0 {
			break
		}
		work, cancel := context.WithTimeout(hand, s.c.set.MaxHandling)
		s.attempt(work, due)
		cancel()
		// Entries that wait in Redis join works of their source that wait here.
		if len(due) < s.c.set.ReadBatch {
			break
		}
	}
	if passed := s.queue.passed(); len(passed) > 0 {
		s.c.barriers.put(passed)
	}
}

func resourcesOf(works []*work) []client.Resource {
	out := make([]client.Resource, len(works))
	for i, w := range works {
		out[i] = w.resource
	}
	return out
}
