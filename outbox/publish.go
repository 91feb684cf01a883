package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"hubn/outbox/event"
)

//go:embed publish.lua
var publishSource string

var publishScript = redis.NewScript(publishSource)

// verdict is what became of a lane in a batch.
type verdict int

const (
	// unsent: nothing is known to be in Redis; the lane is given back.
	unsent verdict = iota
	// sent: the fence has reached what outcome.fence says.
	sent
	// rejected: an event of the lane cannot be published as it is.
	rejected
	// gap: the fence is behind what is acknowledged: Redis lost something.
	gap
	// beyond: the fence is ahead of what was ever appended, as far as the claim
	// knew: the Registry may have gone back.
	beyond
)

// outcome is a verdict and what it rests on.
type outcome struct {
	verdict verdict
	fence   int64
	message string // of a rejected lane
	// failed is set besides sent, when a later event of the lane cannot be published.
	failed bool
}

// chunk is one call of the script.
type chunk struct {
	stream int
	lanes  []*lane
	bytes  int
	events int
}

// publication is the facts about a batch that decide what comes next.
type publication struct {
	// epochs are the streams that are not in the expected epoch.
	epochs []int
	// err is a fault of Redis or of the way to it.
	err error
	// otherHistory says why the Registry must have gone back since the lineage
	// was begun; empty: nothing says so.
	otherHistory, lineage string
}

// publish sends the lanes' events and notes each lane's outcome. No database
// transaction is open meanwhile.
func (w *Worker) publish(ctx context.Context, lanes []*lane, streams [event.Streams]streamState, until time.Time) publication {
	var p publication
	var ready []*lane
	for _, l := range lanes {
		s := streams[l.stream]
		switch {
		case s.paused:
		case s.epoch == "" || !s.current:
			p.addEpoch(l.stream)
		case w.admit(l):
			ready = append(ready, l)
		}
	}
	chunks := cut(ready)
	for len(chunks) > 0 {
		if !time.Now().Before(until) {
			w.metrics.overrun.Inc()
			return p
		}
		n := min(pipelineChunks, len(chunks))
		w.send(ctx, chunks[:n], streams, until, &p)
		if p.err != nil {
			return p
		}
		chunks = chunks[n:]
	}
	return p
}

// fail keeps the first fault: the others of a round trip are mostly the same.
func (p *publication) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *publication) addEpoch(stream int) {
	if !slices.Contains(p.epochs, stream) {
		p.epochs = append(p.epochs, stream)
	}
}

// admit keeps the events before the first one that cannot be published, and
// tells whether there are any.
func (w *Worker) admit(l *lane) bool {
	for i, e := range l.events {
		if len(e.payload) <= w.settings.MaxEventBytes {
			continue
		}
		message := fmt.Sprintf("event %d has a payload of %d bytes; outbox.max_event_bytes allows %d", e.seq, len(e.payload), w.settings.MaxEventBytes)
		l.events = l.events[:i]
		l.outcome = outcome{verdict: rejected, fence: l.pubSeq, message: message, failed: true}
		break
	}
	return len(l.events) > 0
}

// cut divides lanes into calls of the script: each of one stream, and bounded.
// The events of a lane stay together.
func cut(lanes []*lane) []*chunk {
	var chunks []*chunk
	var open [event.Streams]*chunk
	for _, l := range lanes {
		size := 0
		for _, e := range l.events {
			size += len(e.payload) + len(e.kind) + entryOverhead
		}
		c := open[l.stream]
		if c == nil || c.events+len(l.events) > chunkEvents || c.bytes+size > chunkBytes {
			c = &chunk{stream: l.stream}
			open[l.stream] = c
			chunks = append(chunks, c)
		}
		c.lanes = append(c.lanes, l)
		c.events += len(l.events)
		c.bytes += size
	}
	return chunks
}

// entryOverhead is about what an event's id, numbers and time take besides its texts.
const entryOverhead = 120

// send calls the script for some chunks in one round trip.
func (w *Worker) send(ctx context.Context, chunks []*chunk, streams [event.Streams]streamState, until time.Time, p *publication) {
	limit := min(w.pace.redis, time.Until(until))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	replies := make([]*redis.Cmd, len(chunks))
	var waited *redis.Cmd
	_, err := w.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, c := range chunks {
			keys, args := w.arguments(c, streams[c.stream])
			replies[i] = publishScript.EvalSha(ctx, pipe, keys, args...)
		}
		if w.settings.WaitReplicas > 0 {
			waited = pipe.Do(ctx, "WAIT", w.settings.WaitReplicas, limit.Milliseconds())
		}
		return nil
	})
	w.metrics.script.Observe(time.Since(begun).Seconds())
	for i, c := range chunks {
		reply := replies[i]
		if redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
			// A new or emptied server: the whole script, which it then keeps.
			keys, args := w.arguments(c, streams[c.stream])
			reply = publishScript.Eval(ctx, w.redis, keys, args...)
		}
		w.conclude(c, reply, p)
	}
	if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		p.fail(err)
	}
	if waited != nil && p.err == nil {
		p.err = w.confirmed(chunks, waited)
	}
}

// confirmed is an error where too few replicas have the chunks: what the fences
// say is then not relied on, and published again.
func (w *Worker) confirmed(chunks []*chunk, waited *redis.Cmd) error {
	replicas, err := waited.Int()
	if err == nil && replicas < w.settings.WaitReplicas {
		err = fmt.Errorf("%d replicas confirmed, outbox.wait_replicas asks for %d", replicas, w.settings.WaitReplicas)
	}
	if err != nil {
		for _, c := range chunks {
			for _, l := range c.lanes {
				l.outcome = outcome{}
			}
		}
	}
	return err
}

// arguments are the script's keys and arguments for a chunk.
func (w *Worker) arguments(c *chunk, s streamState) ([]string, []any) {
	keys := []string{w.names.Epoch(c.stream), w.names.Fence(c.stream, s.epoch), w.names.Stream(c.stream)}
	args := make([]any, 0, 3+4*len(c.lanes)+5*c.events)
	args = append(args, s.epoch, s.lineage, len(c.lanes))
	for _, l := range c.lanes {
		args = append(args, l.id)
	}
	// Pointers spare an allocation for each value; a time is written as RFC 3339.
	for _, l := range c.lanes {
		args = append(args, l.resource.String(), l.events[0].after, len(l.events))
		for i := range l.events {
			e := &l.events[i]
			args = append(args, &e.seq, &e.kind, e.id.String(), &e.createdAt, &e.payload)
		}
	}
	return keys, args
}

// conclude reads a reply of the script into its lanes' outcomes.
func (w *Worker) conclude(c *chunk, reply *redis.Cmd, p *publication) {
	answer, err := reply.Slice()
	if err != nil {
		p.fail(err)
		return
	}
	if len(answer) == 2 && answer[0] == "epoch" {
		p.addEpoch(c.stream)
		return
	}
	if len(answer) != 3*len(c.lanes) {
		p.fail(fmt.Errorf("the publishing script answered %d values for %d lanes", len(answer), len(c.lanes)))
		return
	}
	for i, l := range c.lanes {
		fence, okFence := answer[3*i].(int64)
		added, okAdded := answer[3*i+1].(int64)
		stopped, okStopped := answer[3*i+2].(string)
		if !okFence || !okAdded || !okStopped {
			p.fail(fmt.Errorf("the publishing script answered %v for lane %d", answer[3*i:3*i+3], l.id))
			return
		}
		if err := w.judge(l, fence, added, stopped); err != nil {
			p.fail(err)
		}
	}
}

// judge is the outcome of one lane; an error is a fault of Redis.
func (w *Worker) judge(l *lane, fence, added int64, stopped string) error {
	last := l.events[len(l.events)-1].seq
	w.metrics.published.WithLabelValues(strconv.Itoa(l.stream)).Add(float64(added))
	failure := l.outcome // of an event that was not sent
	switch {
	case fence > l.lastSeq:
		l.outcome = outcome{verdict: beyond, fence: fence}
		return nil
	case stopped == "gap":
		l.outcome = outcome{verdict: gap, fence: fence}
		return nil
	case stopped != "" && !eventSpecific(stopped):
		l.outcome = outcome{verdict: sent, fence: fence}
		if fence <= l.pubSeq {
			l.outcome = outcome{}
		}
		return errors.New(stopped)
	case stopped != "":
		l.outcome = outcome{verdict: rejected, fence: max(fence, l.pubSeq), message: stopped, failed: true}
		return nil
	}
	l.duplicates = len(l.events) - int(added)
	w.metrics.duplicates.Add(float64(l.duplicates))
	l.outcome = outcome{verdict: sent, fence: min(fence, last), message: failure.message, failed: failure.failed}
	return nil
}

// eventSpecific tells an error that Redis answers because of what an event is
// from all others, which speak of Redis itself.
func eventSpecific(message string) bool {
	return strings.Contains(message, "exceeds maximum allowed size") || strings.Contains(message, "too big")
}
