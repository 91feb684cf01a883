package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateCheck is how old the knowledge may be that the certificate's files
// have not changed: a renewed certificate is in use this soon, and a burst of
// connections costs one look.
const certificateCheck = time.Second

// certificate is a TLS certificate that follows its files.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	checked time.Time
	seen    [2]fileVersion
	current *tls.Certificate
}

// fileVersion tells two contents of a file apart, also when a renewal replaced
// the file by another of the same size within a second.
type fileVersion struct {
	modified time.Time
	size     int64
	info     os.FileInfo
}

func (v fileVersion) same(w fileVersion) bool {
	return v.modified.Equal(w.modified) && v.size == w.size && os.SameFile(v.info, w.info)
}

// loadCertificate reads a certificate and its key.
func loadCertificate(certFile, keyFile string, log *slog.Logger, now func() time.Time) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: now}
	if err := c.reload(); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return c, nil
}

// get is the newest certificate whose two files fit together. While a renewal
// has written one of them, or wrote rubbish, the former is used.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.checked) < certificateCheck {
		return c.current, nil
	}
	if err := c.reload(); err != nil {
		c.log.Warn("the TLS certificate cannot be reloaded; the former is used", "error", err)
	}
	return c.current, nil
}

// reload reads the files if they have changed.
func (c *certificate) reload() error {
	c.checked = c.now()
	var seen [2]fileVersion
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		seen[i] = fileVersion{info.ModTime(), info.Size(), info}
	}
	if c.current != nil && seen[0].same(c.seen[0]) && seen[1].same(c.seen[1]) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	if c.current != nil {
		c.log.Info("the TLS certificate was reloaded", "not_after", pair.Leaf.NotAfter)
	}
	c.current, c.seen = &pair, seen
	return nil
}

// config is the TLS configuration of a server that shows the certificate.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
