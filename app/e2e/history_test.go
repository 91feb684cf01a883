package e2e

import (
	"errors"
	"fmt"
	"testing"

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

// complete fails the test where an event that was committed never came: every
// lane's are 1, 2, 3 and so on to its last, in one epoch, each once.
func (h *history) complete(s *site) {
	s.t.Helper()
	h.ordered(s.t)
	var committed int
	rows, err := s.owner.Query(s.t.Context(), `SELECT agg_type, agg_key, last_seq FROM registry.outbox_lane`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r client.Resource
		var last int64
		if err := rows.Scan(&r.Kind, &r.Key, &last); err != nil {
			s.t.Fatal(err)
		}
		committed += int(last)
		if h.reached[r] != last {
			s.t.Errorf("%s: the last version in the stream is %d, want %d", r, h.reached[r], last)
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	if h.events != committed {
		s.t.Errorf("%d events are in the streams, %d were committed", h.events, committed)
	}
}
