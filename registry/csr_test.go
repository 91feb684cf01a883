package registry

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strings"
	"sync"
	"testing"
)

// Keys are made once: RSA takes its time.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return mustKey(rsa.GenerateKey(rand.Reader, 2048)) })
	otherRSA = sync.OnceValue(func() *rsa.PrivateKey { return mustKey(rsa.GenerateKey(rand.Reader, 2048)) })
	shortRSA = sync.OnceValue(func() *rsa.PrivateKey { return mustKey(rsa.GenerateKey(rand.Reader, 1024)) })
	p256     = sync.OnceValue(newP256)
)

func newP256() *ecdsa.PrivateKey { return mustKey(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func mustKey[K any](key K, err error) K { return must(key, err) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// description is one AccessDescription of a subjectInfoAccess.
type description struct {
	method asn1.ObjectIdentifier
	uri    string
}

func uriName(uri string) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(uri)}
}

func sia(all ...description) pkix.Extension {
	var list []accessDescription
	for _, a := range all {
		list = append(list, accessDescription{a.method, uriName(a.uri)})
	}
	return pkix.Extension{Id: oidSubjectInfoAccess, Value: must(asn1.Marshal(list))}
}

func basicConstraints(der ...byte) pkix.Extension {
	return pkix.Extension{Id: oidBasicConstraints, Critical: true, Value: der}
}

var (
	isCA       = basicConstraints(0x30, 3, 1, 1, 0xff)
	keyUsageCA = pkix.Extension{Id: oidKeyUsage, Critical: true, Value: []byte{3, 2, 1, 6}}
	published  = sia(description{oidCARepository, "rsync://rpki.example.net/repo/ca/"}, description{oidRPKIManifest, "rsync://rpki.example.net/repo/ca/ca.mft"})
)

// newCSR makes a request; its signature holds.
func newCSR(key crypto.Signer, subject pkix.Name, extensions ...pkix.Extension) []byte {
	return must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject, ExtraExtensions: extensions}, key))
}

// caRequest is a request that a delegated CA sends.
func caRequest(key crypto.Signer) string {
	return requestPEM(newCSR(key, pkix.Name{}, isCA, keyUsageCA, published))
}

// routerRequest is a request that a BGPsec router sends.
func routerRequest(key crypto.Signer, name string) string {
	return requestPEM(newCSR(key, pkix.Name{CommonName: name}))
}

func readRequest(text string) CSR {
	var c CSR
	_ = c.UnmarshalText([]byte(text))
	return c
}

func TestRequestsAreReadInEveryForm(t *testing.T) {
	der := newCSR(rsaKey(), pkix.Name{}, isCA, published)
	text, plain := requestPEM(der), base64.StdEncoding.EncodeToString(der)
	for name, form := range map[string]string{
		"PEM": text, "PEM of older programs": strings.ReplaceAll(text, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
		"PEM behind a text": "Certificate Request:\n    Data:\n" + text, "base64": plain, "base64 in lines": plain[:64] + "\r\n" + plain[64:] + "\n",
	} {
		c := readRequest(form)
		if c.err != nil {
			t.Errorf("%s: %v", name, c.err)
			continue
		}
		again, _ := c.MarshalText()
		check(t, name, string(again), text)
	}
	c := readRequest(text)
	public := must(x509.ParsePKIXPublicKey(c.value.RawSubjectPublicKeyInfo)).(*rsa.PublicKey)
	check(t, "key", public.Equal(rsaKey().Public()), true)
	// Of RSA, the bits of the key are its PKCS#1 form (RFC 8017 appendix A.1.1).
	sum := sha1.Sum(x509.MarshalPKCS1PublicKey(public))
	check(t, "key identifier", c.value.key(), hex.EncodeToString(sum[:]))
}

func TestRequestsThatAreNone(t *testing.T) {
	der := newCSR(rsaKey(), pkix.Name{}, isCA, published)
	text := requestPEM(der)
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(rsaKey()))}))
	broken := append([]byte{}, der...)
	broken[len(broken)-1] ^= 1
	version := append([]byte{}, der...)
	// SEQUENCE, SEQUENCE, INTEGER 0: the version is the tenth octet of a request of this size.
	at := strings.Index(string(version), "\x02\x01\x00")
	version[at+2] = 1
	for name, c := range map[string]struct{ text, says string }{
		"nothing":         {"", "empty"},
		"no base64":       {"not a request!", "neither PEM nor base64"},
		"something else":  {base64.StdEncoding.EncodeToString([]byte("hello")), "PKCS#10"},
		"cut PEM":         {text[:len(text)-20], "whole file"},
		"private key":     {private, "private key"},
		"certificate":     {strings.ReplaceAll(text, "CERTIFICATE REQUEST", "CERTIFICATE"), "is a certificate"},
		"another PEM":     {strings.ReplaceAll(text, "CERTIFICATE REQUEST", "X509 CRL"), "X509 CRL"},
		"two of them":     {text + text, "one request alone"},
		"trailing octets": {base64.StdEncoding.EncodeToString(append(append([]byte{}, der...), 0)), "PKCS#10"},
		"too long":        {base64.StdEncoding.EncodeToString(make([]byte, maxRequest+1)), "at most"},
		"bad signature":   {requestPEM(broken), "signature does not hold"},
		"version":         {requestPEM(version), "version is 1"},
	} {
		got := readRequest(c.text)
		if got.err == nil || !strings.Contains(got.err.Error(), c.says) || got.value != nil {
			t.Errorf("%s: got %v; want an error that says %q", name, got.err, c.says)
			continue
		}
		var f faults
		got.check(&f, "body.csr")
		if said := must(f.problem().(interface{ MarshalJSON() ([]byte, error) }).MarshalJSON()); len(c.text) > 100 && strings.Contains(string(said), c.text[60:90]) {
			t.Errorf("%s: the answer repeats what was sent: %s", name, said)
		}
	}
}

// wrongs joins what rules say.
func wrongs(list []error) string {
	var parts []string
	for _, err := range list {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, "\n")
}

func TestRulesOfARequestOfACA(t *testing.T) {
	repository := description{oidCARepository, "rsync://rpki.example.net/repo/ca/"}
	manifest := description{oidRPKIManifest, "rsync://rpki.example.net/repo/ca/ca.mft"}
	unknown := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: []byte{0x30, 0}}
	for name, c := range map[string]struct {
		der  []byte
		says []string // nothing: taken
	}{
		"as krill sends it":       {newCSR(rsaKey(), pkix.Name{CommonName: "any"}, isCA, keyUsageCA, published), nil},
		"without key usage":       {newCSR(rsaKey(), pkix.Name{}, isCA, published), nil},
		"with RRDP":               {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, manifest, description{oidRPKINotify, "https://rrdp.example.net/notification.xml"})), nil},
		"without a slash":         {newCSR(rsaKey(), pkix.Name{}, isCA, sia(description{oidCARepository, strings.TrimSuffix(repository.uri, "/")}, manifest)), nil},
		"a second protocol":       {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, description{oidCARepository, "https://rpki.example.net/repo/ca/"}, manifest)), nil},
		"short RSA":               {newCSR(shortRSA(), pkix.Name{}, isCA, published), []string{"1024 bits"}},
		"EC key":                  {newCSR(p256(), pkix.Name{}, isCA, published), []string{"key is ECDSA"}},
		"no extensions":           {newCSR(rsaKey(), pkix.Name{}), []string{"no basicConstraints", "no subjectInfoAccess"}},
		"no CA":                   {newCSR(rsaKey(), pkix.Name{}, basicConstraints(0x30, 0), published), []string{"no CA"}},
		"a path length":           {newCSR(rsaKey(), pkix.Name{}, basicConstraints(0x30, 6, 1, 1, 0xff, 2, 1, 1), published), []string{"paths to 1"}},
		"broken constraints":      {newCSR(rsaKey(), pkix.Name{}, basicConstraints(0x30, 9), published), []string{"basicConstraints cannot be read"}},
		"another key usage":       {newCSR(rsaKey(), pkix.Name{}, isCA, pkix.Extension{Id: oidKeyUsage, Value: []byte{3, 2, 1, 0x86}}, published), []string{"exactly keyCertSign"}},
		"half a key usage":        {newCSR(rsaKey(), pkix.Name{}, isCA, pkix.Extension{Id: oidKeyUsage, Value: []byte{3, 2, 2, 4}}, published), []string{"exactly keyCertSign"}},
		"a subject name":          {newCSR(rsaKey(), pkix.Name{}, isCA, published, unknown), []string{"subjectAltName (2.5.29.17)"}},
		"no manifest":             {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository)), []string{"no rsync URI of rpkiManifest"}},
		"no repository":           {newCSR(rsaKey(), pkix.Name{}, isCA, sia(manifest)), []string{"no rsync URI of caRepository"}},
		"HTTPS alone":             {newCSR(rsaKey(), pkix.Name{}, isCA, sia(description{oidCARepository, "https://rpki.example.net/"}, manifest)), []string{"no rsync URI of caRepository"}},
		"two repositories":        {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, repository, manifest)), []string{"several rsync URIs"}},
		"manifest elsewhere":      {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, description{oidRPKIManifest, "rsync://rpki.example.net/repo/ca2/ca.mft"})), []string{"not a file"}},
		"manifest in a subfolder": {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, description{oidRPKIManifest, "rsync://rpki.example.net/repo/ca/x/ca.mft"})), []string{"not a file"}},
		"a path upwards":          {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, description{oidRPKIManifest, "rsync://rpki.example.net/repo/ca/../ca.mft"})), []string{"cannot be used"}},
		"no host":                 {newCSR(rsaKey(), pkix.Name{}, isCA, sia(description{oidCARepository, "rsync:///repo/"}, manifest)), []string{"cannot be used"}},
		"RRDP without TLS":        {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, manifest, description{oidRPKINotify, "http://rrdp.example.net/n.xml"})), []string{"no https URI of rpkiNotify"}},
		"another access method":   {newCSR(rsaKey(), pkix.Name{}, isCA, sia(repository, manifest, description{asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 11}, manifest.uri})), []string{"48.11"}},
		"everything wrong":        {newCSR(shortRSA(), pkix.Name{}, basicConstraints(0x30, 0), unknown), []string{"1024", "no CA", "subjectAltName", "no subjectInfoAccess"}},
	} {
		c := c
		t.Run(name, func(t *testing.T) {
			r, err := parseRequest(c.der)
			if err != nil {
				t.Fatal(err)
			}
			checkSaid(t, r.checkAuthority(), c.says)
		})
	}
}

func checkSaid(t *testing.T, got []error, says []string) {
	t.Helper()
	if len(got) != len(says) {
		t.Errorf("got %d faults, want %d: %s", len(got), len(says), wrongs(got))
	}
	for _, part := range says {
		if !strings.Contains(wrongs(got), part) {
			t.Errorf("nothing says %q: %s", part, wrongs(got))
		}
	}
}

func TestRulesOfARequestOfARouter(t *testing.T) {
	p384 := mustKey(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	_, ed := func() (ed25519.PublicKey, ed25519.PrivateKey) {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		must(public, err)
		return public, private
	}()
	name := pkix.Name{CommonName: "ROUTER-0000FBF0"}
	eku := func(uses ...asn1.ObjectIdentifier) pkix.Extension {
		return pkix.Extension{Id: oidExtKeyUsage, Value: must(asn1.Marshal(uses))}
	}
	serverAuth := asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
	for label, c := range map[string]struct {
		der  []byte
		says []string
	}{
		"as recommended":       {newCSR(p256(), name), nil},
		"lower case":           {newCSR(p256(), pkix.Name{CommonName: "ROUTER-0000fbf0"}), nil},
		"no subject":           {newCSR(p256(), pkix.Name{}), nil},
		"a name of its own":    {newCSR(p256(), pkix.Name{CommonName: "edge-1"}), nil},
		"with its identifier":  {newCSR(p256(), pkix.Name{CommonName: name.CommonName, SerialNumber: "C0000201"}), nil},
		"what does not count":  {newCSR(p256(), name, isCA, keyUsageCA, published), nil},
		"its key usage":        {newCSR(p256(), name, eku(oidBGPsecRouter, serverAuth)), nil},
		"another AS":           {newCSR(p256(), pkix.Name{CommonName: "ROUTER-0000FBF1"}), []string{"names AS64497"}},
		"an organisation":      {newCSR(p256(), pkix.Name{CommonName: name.CommonName, Organization: []string{"Example"}}), []string{"attribute 2.5.4.10"}},
		"an odd serial number": {newCSR(p256(), pkix.Name{CommonName: name.CommonName, SerialNumber: "1"}), []string{`serial number is "1"`}},
		"another use":          {newCSR(p256(), name, eku(serverAuth)), []string{"not that of a BGPsec router"}},
		"a subject name":       {newCSR(p256(), name, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: []byte{0x30, 0}}), []string{"subjectAltName"}},
		"RSA":                  {newCSR(rsaKey(), name), []string{"key is RSA"}},
		"Ed25519":              {newCSR(ed, name), []string{"key is Ed25519"}},
		"another curve":        {newCSR(p384, name), []string{"P-384", "ECDSA-SHA384"}},
	} {
		t.Run(label, func(t *testing.T) {
			r, err := parseRequest(c.der)
			if err != nil {
				t.Fatal(err)
			}
			checkSaid(t, r.checkRouter(64496), c.says)
		})
	}
}

// TestAttributesBesideTheRequestForExtensions takes requests as other programs make
// them, with attributes that package x509 cannot write.
func TestAttributesBesideTheRequestForExtensions(t *testing.T) {
	for name, c := range map[string]struct {
		attribute asn1.ObjectIdentifier
		says      string
	}{"challenge password": {oidChallengePassword, "challenge password"}, "unstructured name": {asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 2}, "1.9.2"}} {
		r, err := parseRequest(requestWith(t, p256(), c.attribute))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkSaid(t, r.checkRouter(64496), []string{c.says})
	}
}

// requestWith makes a request with an attribute that holds text.
func requestWith(t testing.TB, key *ecdsa.PrivateKey, attribute asn1.ObjectIdentifier) []byte {
	t.Helper()
	type attributeValue struct {
		Type   asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}
	text := asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte("text")}
	info := must(asn1.Marshal(struct {
		Version    int
		Subject    asn1.RawValue
		Key        asn1.RawValue
		Attributes []attributeValue `asn1:"tag:0,set"`
	}{0, asn1.RawValue{FullBytes: []byte{0x30, 0}}, asn1.RawValue{FullBytes: must(x509.MarshalPKIXPublicKey(key.Public()))}, []attributeValue{{attribute, []asn1.RawValue{text}}}}))
	digest := crypto.SHA256.New()
	digest.Write(info)
	signature := must(key.Sign(rand.Reader, digest.Sum(nil), crypto.SHA256))
	return must(asn1.Marshal(struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: info}, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}}))
}

func FuzzCSR(f *testing.F) {
	f.Add([]byte(requestPEM(newCSR(p256(), pkix.Name{CommonName: "ROUTER-0000FBF0"}))))
	f.Add([]byte(base64.StdEncoding.EncodeToString(newCSR(p256(), pkix.Name{}, isCA, published))))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := readRequest(string(text))
		if (c.err == nil) != (c.value != nil) {
			t.Fatalf("a request is read or refused: %v, %v", c.err, c.value)
		}
		if c.value == nil {
			return
		}
		c.value.checkAuthority()
		c.value.checkRouter(64496)
		again, _ := c.MarshalText()
		if second := readRequest(string(again)); second.err != nil {
			t.Errorf("what was taken is refused when it is written: %v", second.err)
		}
	})
}
