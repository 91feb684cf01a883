package registry

import "time"

// Settings are the Registry's part of the configuration.
type Settings struct {
	// MaxConnections bounds the pool of database connections.
	MaxConnections int `yaml:"max_connections"`
	// StatementTimeout ends a statement that takes longer.
	StatementTimeout time.Duration `yaml:"statement_timeout"`
	// LockTimeout ends a statement that waits longer for another's change.
	LockTimeout time.Duration `yaml:"lock_timeout"`
	// IdleInTransactionTimeout cuts a connection off that holds a transaction
	// open and does nothing: it would hold up the lanes that it locked.
	IdleInTransactionTimeout time.Duration `yaml:"idle_in_transaction_timeout"`
	// MaxBodyBytes bounds the body of a request; imports have a bound of their own.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
	// IdempotencyRetention is how long a repeated Idempotency-Key finds its answer.
	IdempotencyRetention time.Duration `yaml:"idempotency_retention"`
	// TombstoneRetention is how long a deleted resource answers 410 before it
	// is forgotten; modules that were off for longer rely on their scan.
	TombstoneRetention time.Duration `yaml:"tombstone_retention"`
	// LoginFailuresPerMinute is how many wrong tokens one address may try in a
	// minute before it has to wait.
	LoginFailuresPerMinute int `yaml:"login_failures_per_minute"`
}

// DefaultSettings fit a single machine and a registry of a million prefixes.
func DefaultSettings() Settings {
	return Settings{
		MaxConnections:           16, // two cores keep fewer busy; PostgreSQL's default allows 100
		StatementTimeout:         30 * time.Second,
		LockTimeout:              10 * time.Second,
		IdleInTransactionTimeout: 30 * time.Second,
		MaxBodyBytes:             4 << 20, // a report of 1,000 items with their details
		IdempotencyRetention:     24 * time.Hour,
		TombstoneRetention:       30 * 24 * time.Hour,
		LoginFailuresPerMinute:   10,
	}
}
