package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"hubn/outbox/event"
	"hubn/registry/client"
)

// history is what the streams hold, entry by entry, and checks the order of it.
type history struct {
	events  int
	resyncs int
	// reached is the highest version of each resource in any epoch.
	reached map[client.Resource]int64
	faults  []error
}

// history reads every stream of a site.
func (s *site) history() *history {
	s.t.Helper()
	h := &history{reached: map[client.Resource]int64{}}
	for no := range event.Streams {
		entries, err := s.streams.XRange(s.t.Context(), s.names.Stream(no), "-", "+").Result()
		if err != nil {
			s.t.Fatalf("read stream %d: %v", no, err)
		}
		inEpoch := map[string]map[client.Resource]int64{}
		for _, entry := range entries {
			e, err := event.Parse(no, entry.Values)
			if err != nil {
				h.faults = append(h.faults, err)
				continue
			}
			if inEpoch[e.Epoch] == nil {
				inEpoch[e.Epoch] = map[client.Resource]int64{}
			}
			h.add(e, inEpoch[e.Epoch])
		}
	}
	return h
}

// add takes the next entry of a stream. Inside an epoch the versions of a
// resource go up by one, from wherever the epoch took over: no inversion, no
// duplicate, no hole. A resync stands for everything up to its version.
func (h *history) add(e event.Event, epoch map[client.Resource]int64) {
	switch {
	case e.Resource == client.Resource{}:
		h.resyncs++
		return
	case e.Kind == event.Resync:
		h.resyncs++
	default:
		h.events++
		if last, seen := epoch[e.Resource]; seen && e.Version != last+1 {
			h.faults = append(h.faults, fmt.Errorf("%s: version %d follows %d in epoch %s", e.Resource, e.Version, last, e.Epoch))
		}
	}
	epoch[e.Resource] = e.Version
	h.reached[e.Resource] = max(h.reached[e.Resource], e.Version)
}

// ordered fails the test where the order is broken.
func (h *history) ordered(t testing.TB) *history {
	t.Helper()
	if len(h.faults) > 0 {
		t.Errorf("%d faults in the streams' order, the first ones: %v", len(h.faults), errors.Join(h.faults[:min(5, len(h.faults))]...))
	}
	return h
}

// complete waits until the streams hold every event that was committed: every
// lane's are 1, 2, 3 and so on to its last, each once. What Redis lost comes
// back only when it is missed.
func (s *site) complete() {
	s.t.Helper()
	s.eventually("the streams hold every event", func() error {
		h := s.history().ordered(s.t)
		var missing []error
		committed := 0
		rows, err := s.owner.Query(s.t.Context(), `SELECT agg_type, agg_key, last_seq FROM registry.outbox_lane`)
		if err != nil {
			return err
		}
		var r client.Resource
		var last int64
		_, err = pgx.ForEachRow(rows, []any{&r.Kind, &r.Key, &last}, func() error {
			committed += int(last)
			if h.reached[r] != last {
				missing = append(missing, fmt.Errorf("%s: the last version in the stream is %d, want %d", r, h.reached[r], last))
			}
			return nil
		})
		if err == nil && h.events != committed {
			missing = append(missing, fmt.Errorf("%d events are in the streams, %d were committed", h.events, committed))
		}
		return errors.Join(err, errors.Join(missing...))
	})
}
