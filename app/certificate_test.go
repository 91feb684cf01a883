package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// makeCertificate makes a self-signed certificate for 127.0.0.1 with a serial
// number, in PEM.
func makeCertificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "hubn.example.net"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// replaceFile replaces a file as a renewal does.
func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := writeWhole(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	cert1, key1 := makeCertificate(t, 1)
	cert2, key2 := makeCertificate(t, 2)
	replaceFile(t, certFile, cert1)
	replaceFile(t, keyFile, key1)
	now := time.Now()
	c, err := loadCertificate(certFile, keyFile, slog.New(slog.DiscardHandler), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.Int64()
	}
	steps := []struct {
		name string
		do   func()
		want int64
	}{
		{"unchanged", func() {}, 1},
		{"half renewed", func() { replaceFile(t, certFile, cert2) }, 1},
		{"renewed", func() { replaceFile(t, keyFile, key2) }, 2},
		{"rubbish", func() { replaceFile(t, certFile, []byte("rubbish")) }, 2},
		{"removed", func() { _ = os.Remove(certFile) }, 2},
		{"back", func() { replaceFile(t, certFile, cert1); replaceFile(t, keyFile, key1) }, 1},
	}
	for _, s := range steps {
		s.do()
		now = now.Add(certificateCheck)
		if got := serial(); got != s.want {
			t.Errorf("%s: serial number %d, want %d", s.name, got, s.want)
		}
	}
}

func TestCertificateThatCannotBeReadIsNamed(t *testing.T) {
	if _, err := loadCertificate("/nonexistent/cert.pem", "/nonexistent/key.pem", slog.New(slog.DiscardHandler), time.Now); err == nil {
		t.Error("a certificate that does not exist was taken")
	}
}
