package event

import "time"

// Settings are the tunables of a consumer. A zero field has its default.
type Settings struct {
	// ReconcileEvery is the pause between full reconciliations. 15 min: streams
	// are trimmed by age far above it, and a scan of a million sources takes a
	// small part of it.
	ReconcileEvery time.Duration `yaml:"reconcile_every"`
	// RetryEvery is the pace at which what keeps failing is tried again. 15 min
	// is the slowest that the design allows.
	RetryEvery time.Duration `yaml:"retry_every"`
	// RetryPoll is how often the retry list is looked at.
	RetryPoll time.Duration `yaml:"-"`
	// HeartbeatEvery is the pace of heartbeats; silent for three of them is stale.
	HeartbeatEvery time.Duration `yaml:"heartbeat_every"`
	// Attempts is how often a change is tried, with growing pauses, before it
	// goes to the retry list: at the default some 30 s go by.
	Attempts int `yaml:"-"`
	// FirstPause and LongestPause bound the pauses between attempts, and those
	// of a source that cannot be reached.
	FirstPause   time.Duration `yaml:"-"`
	LongestPause time.Duration `yaml:"-"`
	// ReadBatch is how many entries one read of a stream takes: two batch
	// fetches' worth.
	ReadBatch int `yaml:"-"`
	// Block is how long a read of an idle stream waits; it is also how long a
	// shutdown may wait for one.
	Block time.Duration `yaml:"-"`
	// InFlight bounds the entries of one stream that are read and not yet
	// acknowledged; above it nothing more is read.
	InFlight int `yaml:"-"`
	// MaxHandling bounds the handling of one batch.
	MaxHandling time.Duration `yaml:"-"`
	// ClaimIdle is after which time without a sign an entry of another replica
	// is taken over; more than MaxHandling.
	ClaimIdle time.Duration `yaml:"-"`
	// ShardLease is how long a replica owns a stream without renewing. 10 s is
	// renewed three times before it expires, and short enough after a crash.
	ShardLease time.Duration `yaml:"-"`
	// InspectEvery is how often a shard looks for entries trimmed before they
	// were read, and for those of replicas that are gone.
	InspectEvery time.Duration `yaml:"-"`
	// ReportEvery coalesces reports: the delay that trace and wait may see.
	ReportEvery time.Duration `yaml:"-"`
	// ReportQueue bounds the resources that wait to be reported.
	ReportQueue int `yaml:"-"`
	// ScanPage is how many sources a page of a scan asks for.
	ScanPage int `yaml:"-"`
	// Drain is how long a shutdown may take for what is in hand.
	Drain time.Duration `yaml:"-"`
}

// DefaultSettings are the settings of a consumer that sets none.
func DefaultSettings() Settings {
	return Settings{
		ReconcileEvery: 15 * time.Minute,
		RetryEvery:     15 * time.Minute,
		RetryPoll:      10 * time.Second,
		HeartbeatEvery: 10 * time.Second,
		Attempts:       6,
		FirstPause:     time.Second,
		LongestPause:   15 * time.Second,
		ReadBatch:      1000,
		Block:          500 * time.Millisecond,
		InFlight:       10000,
		MaxHandling:    60 * time.Second,
		ClaimIdle:      90 * time.Second,
		ShardLease:     10 * time.Second,
		InspectEvery:   10 * time.Second,
		ReportEvery:    100 * time.Millisecond,
		ReportQueue:    50000,
		ScanPage:       1000,
		Drain:          10 * time.Second,
	}
}

// filled is s with the defaults where it says nothing.
func (s Settings) filled() Settings {
	d := DefaultSettings()
	fill(&s.ReconcileEvery, d.ReconcileEvery)
	fill(&s.RetryEvery, d.RetryEvery)
	fill(&s.RetryPoll, d.RetryPoll)
	fill(&s.HeartbeatEvery, d.HeartbeatEvery)
	fill(&s.Attempts, d.Attempts)
	fill(&s.FirstPause, d.FirstPause)
	fill(&s.LongestPause, d.LongestPause)
	fill(&s.ReadBatch, d.ReadBatch)
	fill(&s.Block, d.Block)
	fill(&s.InFlight, d.InFlight)
	fill(&s.MaxHandling, d.MaxHandling)
	fill(&s.ClaimIdle, max(d.ClaimIdle, s.MaxHandling+s.MaxHandling/2))
	fill(&s.ShardLease, d.ShardLease)
	fill(&s.InspectEvery, d.InspectEvery)
	fill(&s.ReportEvery, d.ReportEvery)
	fill(&s.ReportQueue, d.ReportQueue)
	fill(&s.ScanPage, d.ScanPage)
	fill(&s.Drain, d.Drain)
	return s
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
