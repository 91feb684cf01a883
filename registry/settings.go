package registry

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

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
	// RDAP is whether /rdap answers everybody what is public.
	RDAP bool `yaml:"rdap"`
	// RDAPURL is the URL of /rdap as the world knows it, for links; empty takes
	// what each request names.
	RDAPURL string `yaml:"rdap_url"`
	// RDAPTerms is the URL of the terms of use that answers link to; empty is none.
	RDAPTerms string `yaml:"rdap_terms"`
	// WhoisListen is HOST:PORT where whois answers; empty runs none.
	WhoisListen string `yaml:"whois_listen"`
	// PublicQueriesPerMinute is how many questions one address may ask RDAP and
	// whois in a minute without a token.
	PublicQueriesPerMinute int `yaml:"public_queries_per_minute"`
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
		RDAP:                     true,
		PublicQueriesPerMinute:   300, // a person or a script that looks things up; not one that copies everything
	}
}

// Validate names every setting that cannot be, with its value and a way out.
func (s Settings) Validate() error {
	var wrong []error
	for _, u := range []struct{ setting, value string }{{"registry.rdap_url", s.RDAPURL}, {"registry.rdap_terms", s.RDAPTerms}} {
		parsed, err := url.Parse(u.value)
		if u.value != "" && (err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "") {
			wrong = append(wrong, fmt.Errorf("%s is %q: write a whole URL, such as https://rdap.example.net/rdap", u.setting, u.value))
		}
	}
	if _, _, err := net.SplitHostPort(s.WhoisListen); err != nil && s.WhoisListen != "" {
		wrong = append(wrong, fmt.Errorf("registry.whois_listen is %q: write HOST:PORT, such as 127.0.0.1:4343, or :43 for every address", s.WhoisListen))
	}
	return errors.Join(wrong...)
}
