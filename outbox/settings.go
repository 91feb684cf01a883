package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Settings are what an operator may change of the worker.
type Settings struct {
	// Workers is how many batches one process works on at a time. Two keep
	// PostgreSQL busy while the other waits for Redis.
	Workers int `yaml:"workers"`
	// Lease is how long a claimed lane belongs to its worker. It has to outlast
	// every pause of a healthy process, and bounds how long a killed one's lanes wait.
	Lease time.Duration `yaml:"lease"`
	// MaxEventBytes is the largest payload that is published; an event above it
	// fails its lane. The schema allows 8 KiB.
	MaxEventBytes int `yaml:"max_event_bytes"`
	// Retention is how long published events are kept: a week of history to
	// replay from and to look at.
	Retention time.Duration `yaml:"retention"`
	// StreamAge is how long entries stay in the streams at least. It must not be
	// below the consumers' reconcile interval.
	StreamAge time.Duration `yaml:"stream_age"`
	// StreamMaxAge is how long entries stay for a consumer group that has not
	// read them. Whoever sleeps longer reconciles fully.
	StreamMaxAge time.Duration `yaml:"stream_max_age"`
	// WaitReplicas is how many replicas of Redis must confirm a publication
	// (WAIT) before it counts; 0 trusts the primary and leaves the tail that a
	// failover loses to the audit. Not for Redis Cluster.
	WaitReplicas int `yaml:"wait_replicas"`
}

// DefaultSettings serve a Registry of a million resources.
func DefaultSettings() Settings {
	return Settings{
		Workers:       2,
		Lease:         5 * time.Minute,
		MaxEventBytes: 64 << 10,
		Retention:     7 * 24 * time.Hour,
		StreamAge:     24 * time.Hour,
		StreamMaxAge:  7 * 24 * time.Hour,
	}
}

// Validate names the setting that cannot be, with its value and what to write.
func (s Settings) Validate() error {
	var wrong []error
	refuse := func(name string, value any, advice string) {
		wrong = append(wrong, fmt.Errorf("outbox.%s is %v: %s", name, value, advice))
	}
	if s.Workers < 1 || s.Workers > 64 {
		refuse("workers", s.Workers, "write a number from 1 to 64")
	}
	if s.Lease <= 0 {
		refuse("lease", s.Lease, "write a duration above zero, such as 5m")
	}
	if s.MaxEventBytes < 1024 {
		refuse("max_event_bytes", s.MaxEventBytes, "write 1024 or more")
	}
	if s.Retention < time.Hour {
		refuse("retention", s.Retention, "write an hour or more, such as 168h")
	}
	if s.StreamAge <= 0 {
		refuse("stream_age", s.StreamAge, "write a duration above zero, such as 24h")
	}
	if s.StreamMaxAge < s.StreamAge {
		refuse("stream_max_age", s.StreamMaxAge, "write outbox.stream_age or more")
	}
	if s.WaitReplicas < 0 {
		refuse("wait_replicas", s.WaitReplicas, "write 0 or more")
	}
	return errors.Join(wrong...)
}

const (
	// role is the PostgreSQL role that the worker acts as: it sees the outbox alone.
	role = "hubn_outbox"

	// claimLanes and laneEvents make a batch of up to 1,000 events. While batches
	// are full they grow to as many lanes as hold batchEvents events, though not
	// beyond mostLanes: some 20 ms of work, so that a slow batch delays nobody
	// noticeably, and enough to pay for its round trips.
	claimLanes  = 100
	laneEvents  = 10
	batchEvents = 2000
	mostLanes   = 500

	// chunkEvents and chunkBytes bound one call of the publishing script, which
	// stops the whole Redis server while it runs: 500 entries take about 5 ms.
	chunkEvents = 500
	chunkBytes  = 1 << 20
	// pipelineChunks are sent in one round trip: one for each stream, and the
	// lease is looked at between two round trips.
	pipelineChunks = 8

	// publishShare is the part of the lease, counted from before the claim, in
	// which events are published; the rest is for the answer and the acknowledgement.
	publishShare = 0.6

	// slowAttempts is how many failures in a row make a lane failing: it is then
	// tried every 15 minutes, with an alert.
	slowAttempts = 20

	// trialLanes is the size of the batch that tries whether Redis takes events
	// again: small, since it may well be given back.
	trialLanes = 5

	// seedLanes is the page in which lanes are read for an audit or a new
	// epoch: some 200 kB, a few milliseconds.
	seedLanes = 5000

	// deferredLanes bounds the acknowledgements that wait for a writer; what
	// does not fit is published again after its lease and suppressed by the fence.
	deferredLanes = 10_000

	// partitionDays is how far ahead partitions are made, partitionAlarmDays
	// when their end is near enough to alarm somebody.
	partitionDays      = 60
	partitionAlarmDays = 14
)

// pace is every interval and timeout of the worker. Tests shorten them.
type pace struct {
	// busy and idle are the polls between which an empty database is asked: a
	// change by plain SQL, which sends no hint, waits that long.
	busy, idle time.Duration
	// statement bounds one statement of a batch; a claim that takes longer is
	// behind a lock that will not go away soon.
	statement time.Duration
	// redis bounds one round trip of publishing.
	redis time.Duration
	// settle bounds giving lanes back while the process ends.
	settle time.Duration
	// databaseRetryMax is the longest pause after a failed statement.
	databaseRetryMax time.Duration
	// breakerMin and breakerMax bound the pause between two tries of a Redis
	// that did not take events: short at first, since a failover takes seconds.
	breakerMin, breakerMax time.Duration
	// deferMin and deferMax bound the pause before a lane that a writer had
	// locked is acknowledged again: most transactions take milliseconds.
	deferMin, deferMax time.Duration
	// watch is how often the server's identity and the operators' wishes are
	// looked at: both are one cheap question.
	watch time.Duration
	// auditRecent is how often the lanes published since the last audit are
	// compared with Redis, auditAll how often all of them are.
	auditRecent, auditAll time.Duration
	// measure is how often the gauges are taken: the pending lanes are counted
	// through a partial index.
	measure time.Duration
	// tidy is how often streams are trimmed and partitions looked at. A process
	// that begins has a backlog to publish first.
	tidy time.Duration
}

func defaultPace() pace {
	return pace{
		busy:             100 * time.Millisecond,
		idle:             time.Second,
		statement:        30 * time.Second,
		redis:            5 * time.Second,
		settle:           5 * time.Second,
		databaseRetryMax: 5 * time.Second,
		breakerMin:       100 * time.Millisecond,
		breakerMax:       10 * time.Second,
		deferMin:         3 * time.Millisecond,
		deferMax:         time.Second,
		watch:            time.Second,
		auditRecent:      10 * time.Minute,
		auditAll:         24 * time.Hour,
		measure:          10 * time.Second,
		tidy:             10 * time.Minute,
	}
}
