package registry

import (
	"crypto/sha1" //nolint:gosec // a key identifier is SHA-1 by definition (RFC 6487 section 4.8.2)
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// maxRequest bounds a request for a certificate: one for RSA-2048 with its URIs has
// 1 to 2 KiB.
const maxRequest = 16 << 10

// pemRequest are the PEM labels of a request: RFC 7468 section 7, and what older
// programs write.
var pemRequest = []string{"CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"}

// CSR is a request for a certificate (PKCS#10, RFC 2986) in PEM, or its DER in
// base64. It was read and its signature holds, or err says what is wrong; whether
// it is one that a CA or a router may make, csr_rules.go says.
type CSR struct {
	given
	value *signingRequest
}

// signingRequest is a request whose signature was checked: whoever made it has the key.
type signingRequest struct {
	*x509.CertificateRequest
	// attributes are the types of the attributes that it has (RFC 2986 section 4.1).
	attributes []asn1.ObjectIdentifier
	keyID      []byte
}

// UnmarshalText reads a request and checks its form and signature.
func (c *CSR) UnmarshalText(b []byte) error {
	*c = CSR{given: given{text: string(b)}}
	var der []byte
	if der, c.err = requestDER(c.text); c.err == nil {
		c.value, c.err = parseRequest(der)
	}
	return nil
}

// MarshalText is the request in PEM, or what was typed if it is none.
func (c CSR) MarshalText() ([]byte, error) {
	if c.value == nil {
		return []byte(c.text), nil
	}
	return []byte(requestPEM(c.value.Raw)), nil
}

// check reports what is wrong, without repeating the text: it could be a private
// key that was sent by mistake.
func (c CSR) check(f *faults, location string) { f.add(location, c.err, nil) }

// Schema implements huma.SchemaProvider.
func (CSR) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MaxLength: new(2 * maxRequest),
		Description: "A request for a certificate (PKCS#10): PEM, or DER in base64"}
}

func requestPEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: pemRequest[0], Bytes: der}))
}

// requestDER takes a request out of its text.
func requestDER(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, errEmpty
	}
	if !strings.Contains(text, "-----BEGIN") {
		der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return nil, errors.New("it is neither PEM nor base64: send the file that begins with -----BEGIN CERTIFICATE REQUEST-----, or its DER in base64")
		}
		return der, nil
	}
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return nil, errors.New("its PEM cannot be read: send the whole file, from -----BEGIN CERTIFICATE REQUEST----- to -----END CERTIFICATE REQUEST-----")
	case strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, errors.New("it is a private key, which is to stay where it was made: make a new key, and send the request for a certificate")
	case block.Type == "CERTIFICATE":
		return nil, errors.New("it is a certificate: send the request that it was made from, or a new one")
	case block.Type != pemRequest[0] && block.Type != pemRequest[1]:
		return nil, fmt.Errorf("its PEM is a %s: send a %s", block.Type, pemRequest[0])
	case strings.TrimSpace(string(rest)) != "":
		return nil, errors.New("something follows the request: send one request alone")
	}
	return block.Bytes, nil
}

// parseRequest reads the DER of a request and checks its signature.
func parseRequest(der []byte) (*signingRequest, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("it has %d octets: a request has at most %d", len(der), maxRequest)
	}
	parsed, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("it is no request for a certificate (PKCS#10): %s; make a new one", strings.TrimPrefix(err.Error(), "x509: "))
	}
	if parsed.Version != 0 {
		return nil, fmt.Errorf("its version is %d: a request has version 0, which is shown as v1 (RFC 2986 section 4.1)", parsed.Version)
	}
	r := &signingRequest{CertificateRequest: parsed}
	if err := r.readRest(); err != nil {
		return nil, err
	}
	if err := parsed.CheckSignature(); err != nil {
		var insecure x509.InsecureAlgorithmError
		if errors.As(err, &insecure) || errors.Is(err, x509.ErrUnsupportedAlgorithm) {
			return nil, fmt.Errorf("its signature algorithm is %s, which is not taken: sign with SHA-256", parsed.SignatureAlgorithm)
		}
		return nil, errors.New("its signature does not hold: it was changed after it was made, or signed with another key; make a new one")
	}
	return r, nil
}

// readRest reads what package x509 keeps for itself: the types of the attributes,
// and the bits of the key that its identifier is made of.
func (r *signingRequest) readRest() error {
	var info struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  struct{ Algorithm, Key asn1.RawValue }
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	if rest, err := asn1.Unmarshal(r.RawTBSCertificateRequest, &info); err != nil || len(rest) > 0 {
		return errors.New("its attributes cannot be read: make a new one")
	}
	for _, raw := range info.Attributes {
		var attribute struct {
			Type   asn1.ObjectIdentifier
			Values asn1.RawValue
		}
		if _, err := asn1.Unmarshal(raw.FullBytes, &attribute); err != nil {
			return errors.New("its attributes cannot be read: make a new one")
		}
		r.attributes = append(r.attributes, attribute.Type)
	}
	var key struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(r.RawSubjectPublicKeyInfo, &key); err != nil {
		return errors.New("its public key cannot be read: make a new one")
	}
	sum := sha1.Sum(key.Key.Bytes) //nolint:gosec // see the import
	r.keyID = sum[:]
	return nil
}

// key is the key identifier as people write it.
func (r *signingRequest) key() string { return hex.EncodeToString(r.keyID) }
