package event

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"hubn/registry/client"
)

// maxDeliveries is how often an entry is delivered before it goes to the retry
// list unhandled: whoever was given it so often did not live to acknowledge it.
const maxDeliveries = 12

// rules are what decides where an entry belongs.
type rules struct {
	module string
	kinds  []client.Kind
	// lineage is the store's; ancestors are lineages that its own came from.
	lineage   string
	ancestors []string
	// epoch is the one of the stream's last entry, empty when none was seen.
	epoch string
}

// intake is what the entries of one read ask for, besides the works and
// barriers that went into the queue.
type intake struct {
	ack      []string
	commands []mark
	// retry are sources whose entries were delivered too often.
	retry []*work
	// wants are reasons for a full reconciliation; they are noted durably
	// before anything of ack is acknowledged.
	wants []string
	epoch string
	// counts are entries by what became of them, for the metrics.
	counts map[string]int
}

// sort puts the entries of one read into the queue, or into the answer.
func (r rules) sort(q *queue, entries []delivery, now time.Time) intake {
	in := intake{epoch: r.epoch, counts: map[string]int{}}
	for _, d := range entries {
		if q.has(d.id) {
			continue
		}
		word := r.place(q, &in, d, now)
		in.counts[word]++
	}
	return in
}

// The words for what became of an entry.
const (
	wordQueued     = "queued"
	wordTrimmed    = "trimmed"
	wordUnreadable = "unreadable"
	wordResync     = "resync"
	wordLineage    = "other_lineage"
	wordBarrier    = "barrier"
	wordCommand    = "command"
	wordIgnored    = "ignored"
	wordPoison     = "poison"
)

func (r rules) place(q *queue, in *intake, d delivery, now time.Time) string {
	done := func(word, want string) string {
		in.ack = append(in.ack, d.id)
		if want != "" && !slices.Contains(in.wants, want) {
			in.wants = append(in.wants, want)
		}
		return word
	}
	if d.trimmed {
		return done(wordTrimmed, "entries were trimmed before they were handled")
	}
	if d.err != nil {
		return done(wordUnreadable, "an entry could not be read")
	}
	e := d.event
	if in.epoch != "" && e.Epoch != in.epoch && e.Lineage == r.lineage {
		in.wants = append(in.wants, "a new epoch began")
	}
	in.epoch = e.Epoch
	switch {
	case e.Lineage != r.lineage && slices.Contains(r.ancestors, e.Lineage):
		return done(wordLineage, "")
	case e.Lineage != r.lineage:
		return done(wordLineage, lineageWish(e.Lineage))
	case e.Resource == client.Resource{}:
		return done(wordResync, "a resync event")
	case e.Kind == Barrier || e.Resource.Kind == client.KindBarrier:
		q.addBarrier(d.id, e)
		return wordBarrier
	case e.Kind == Command || e.Resource.Kind == client.KindCommand:
		if !e.mentions(r.module) {
			return done(wordIgnored, "")
		}
		in.commands = append(in.commands, mark{
			resource: e.Resource, version: e.Version, lineage: e.Lineage, stream: e.Stream, ids: []string{d.id}, made: e.CreatedAt,
		})
		return wordCommand
	case !slices.Contains(r.kinds, e.Resource.Kind):
		return done(wordIgnored, "")
	case d.count > maxDeliveries:
		in.retry = append(in.retry, &work{
			resource: e.Resource, lowest: e.Version, highest: e.Version, ids: []string{d.id}, attempts: int(d.count), oldest: e.CreatedAt,
		})
		return wordPoison
	default:
		q.add(d.id, e, now)
		return wordQueued
	}
}

// lineageWish is the reason for a scan that an event of another lineage gives.
func lineageWish(lineage string) string { return lineageWords + lineage }

func isLineageWish(reason string) bool { return strings.HasPrefix(reason, lineageWords) }

const lineageWords = "events of lineage "

// mentions tells whether what the event says changed names the word. A command's
// event names its module; one that says nothing may be anybody's.
func (e Event) mentions(word string) bool {
	var payload struct {
		Changed []string `json:"changed"`
	}
	if json.Unmarshal(e.Payload, &payload) != nil || len(payload.Changed) == 0 {
		return true
	}
	return slices.Contains(payload.Changed, word)
}

// verdict is what a fetch means for the work that it was made for.
type verdict int

const (
	// toRetry: nothing is known; try again.
	toRetry verdict = iota
	// toApply: the fetch is as new as the events, or newer.
	toApply
	// toWait: the Registry served an older version than an event spoke of.
	toWait
	// toReport: the Registry served an older version than the store holds.
	toReport
	// toLeave: the Registry does not know the source; the scan decides.
	toLeave
	// toScan: the Registry serves another lineage.
	toScan
)

// judge says what a fetch means, given the newest version that events spoke of
// and the one that the store held before the fetch.
func judge(highest int64, held Held, f client.Fetched) verdict {
	switch f.Outcome() {
	case client.Present, client.Deleted:
	case client.Forgotten:
		return toLeave
	default:
		var foreign *client.LineageError
		if errors.As(f.Err(), &foreign) {
			return toScan
		}
		return toRetry
	}
	switch {
	case f.Version() < held.Version:
		return toReport
	case f.Version() < highest:
		return toWait
	default:
		return toApply
	}
}
