package outbox

import (
	"context"
	"fmt"

	"hubn/outbox/event"
)

const (
	// suppressedPage is how many entries one look back reads: some milliseconds.
	suppressedPage = 1000
	// suppressedLimit is how many entries of a stream are looked through: what was
	// sent twice is among the last ones, unless a worker died and its lease has
	// run out in the middle of a large import.
	suppressedLimit = 20_000
)

// doubtSuppressed looks at what the fences suppressed. Mostly it is the very
// event that is in the stream already: who sent it could not acknowledge it. If
// it is another one of the same number, the Registry went back where no
// fingerprint shows it, such as to an old copy of its disk, and has by now
// appended as much as it had lost. Then nothing of the batch counts as sent.
func (w *Worker) doubtSuppressed(ctx context.Context, lanes []*lane, streams [event.Streams]streamState, p *publication) {
	no, why, err := w.findOther(ctx, lanes, streams)
	if why == "" && err == nil {
		return
	}
	for _, l := range lanes {
		if why != "" || l.duplicates > 0 {
			l.outcome = outcome{}
		}
	}
	p.otherHistory, p.lineage = why, streams[no].lineage
	if err != nil {
		p.fail(err)
	}
}

// findOther answers a stream that has another event than the one that its fence
// suppressed, and says which; or "".
func (w *Worker) findOther(ctx context.Context, lanes []*lane, streams [event.Streams]streamState) (no int, why string, err error) {
	var doubtful [event.Streams]map[string]row
	for _, l := range lanes {
		e, ok := l.suppressed()
		if !ok {
			continue
		}
		if doubtful[l.stream] == nil {
			doubtful[l.stream] = map[string]row{}
		}
		doubtful[l.stream][l.resource.String()] = e
	}
	for no, rows := range doubtful {
		if len(rows) == 0 {
			continue
		}
		if why, err = w.compareSuppressed(ctx, no, streams[no].lineage, rows); why != "" || err != nil {
			return no, why, err
		}
	}
	return 0, "", nil
}

// suppressed is the last event of the lane that the fence suppressed. A marker
// has another id each time.
func (l *lane) suppressed() (row, bool) {
	if l.outcome.verdict != sent || l.duplicates == 0 {
		return row{}, false
	}
	e := l.events[l.duplicates-1]
	return e, e.kind != string(event.Resync)
}

// compareSuppressed looks for events of resources from their stream's end, and
// compares their ids.
func (w *Worker) compareSuppressed(ctx context.Context, no int, lineage string, rows map[string]row) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.pace.redis)
	defer cancel()
	to := "+"
	for read := 0; read < suppressedLimit && len(rows) > 0; read += suppressedPage {
		entries, err := w.redis.XRevRangeN(ctx, w.names.Stream(no), to, "-", suppressedPage).Result()
		if err != nil {
			return "", fmt.Errorf("look for suppressed events in stream %d: %w", no, err)
		}
		for _, entry := range entries {
			e, err := event.Parse(no, entry.Values)
			wanted, ok := rows[e.Resource.String()]
			if err != nil || !ok || e.Version > wanted.seq {
				continue
			}
			if e.Version == wanted.seq && e.Lineage == lineage && e.Kind != event.Resync && e.EventID != wanted.id.String() {
				return fmt.Sprintf("Redis holds another event %d of %s than the Registry", e.Version, e.Resource), nil
			}
			delete(rows, e.Resource.String())
		}
		if len(entries) < suppressedPage {
			return "", nil
		}
		to = "(" + entries[len(entries)-1].ID
	}
	return "", nil
}
