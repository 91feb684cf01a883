package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"hubn/registry/client"
)

// Object identifiers of requests; the names are those of their documents.
var (
	oidExtensionRequest  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14} // RFC 2985 section 5.4.2
	oidChallengePassword = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}  // RFC 2985 section 5.4.1
	oidBasicConstraints  = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidKeyUsage          = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidExtKeyUsage       = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidSubjectInfoAccess = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 11}
	oidCARepository      = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 5}
	oidRPKIManifest      = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 10}
	oidRPKINotify        = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 13} // RFC 8182 section 3.2
	oidBGPsecRouter      = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 30}  // RFC 8209 section 3.1.3.2
	oidCommonName        = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidSerialNumber      = asn1.ObjectIdentifier{2, 5, 4, 5}
)

// extensionNames are what people call extensions that requests have by mistake.
var extensionNames = map[string]string{
	"2.5.29.14": "subjectKeyIdentifier", "2.5.29.17": "subjectAltName", "2.5.29.35": "authorityKeyIdentifier",
	"2.5.29.31": "cRLDistributionPoints", "2.5.29.32": "certificatePolicies", "1.3.6.1.5.5.7.1.1": "authorityInfoAccess",
	"1.3.6.1.5.5.7.1.7": "ipAddrBlocks", "1.3.6.1.5.5.7.1.8": "autonomousSysNum", "2.5.29.37": "extKeyUsage",
	"1.3.6.1.5.5.7.1.11": "subjectInfoAccess",
}

// checkAuthority reports everything for which a CA's request would be refused
// (RFC 6487 section 6, RFC 7935). The subject does not count: the issuer names it.
// Nor do resources, which the registry gives and a request cannot ask for.
func (r *signingRequest) checkAuthority() (wrong []error) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	key, isRSA := r.PublicKey.(*rsa.PublicKey)
	switch {
	case !isRSA:
		say("its key is %s: a CA has an RSA key of 2048 bits (RFC 7935 section 3); make one with `openssl genrsa 2048`", r.PublicKeyAlgorithm)
	case key.N.BitLen() != 2048:
		say("its RSA key has %d bits: a CA's has 2048 (RFC 7935 section 3); make a new key", key.N.BitLen())
	case key.E != 65537:
		say("its RSA key has the exponent %d: a CA's has 65537 (RFC 7935 section 3); make a new key", key.E)
	}
	if isRSA && r.SignatureAlgorithm != x509.SHA256WithRSA {
		say("it is signed with %s: sign with SHA-256 and RSA, PKCS#1 version 1.5 (RFC 7935 section 2)", r.SignatureAlgorithm)
	}
	wrong = append(wrong, r.checkAttributes()...)
	found := map[string]bool{}
	for _, x := range r.Extensions {
		found[x.Id.String()] = true
		switch {
		case x.Id.Equal(oidBasicConstraints):
			wrong = append(wrong, checkConstraints(x.Value))
		case x.Id.Equal(oidKeyUsage):
			wrong = append(wrong, checkKeyUsage(x.Value))
		case x.Id.Equal(oidSubjectInfoAccess):
			wrong = append(wrong, checkAccess(x.Value)...)
		default:
			say("it asks for the extension %s, which a CA's request does not have (RFC 6487 section 6.3): leave it out", extensionName(x.Id))
		}
	}
	if !found[oidBasicConstraints.String()] {
		say("it asks for no basicConstraints: without CA:TRUE the certificate would not be a CA's (RFC 6487 section 6.3); add it")
	}
	if !found[oidSubjectInfoAccess.String()] {
		say("it asks for no subjectInfoAccess: add caRepository and rpkiManifest with the rsync URIs at which the CA publishes (RFC 6487 section 6.3)")
	}
	return slices.DeleteFunc(wrong, func(err error) bool { return err == nil })
}

// checkRouter reports everything for which a router's request would be refused
// (RFC 8209 sections 3.1 and 3.2, RFC 8608). basicConstraints, keyUsage and
// subjectInfoAccess do not count: a router's certificate has its own. A subject
// that names an AS names the one that the certificate is for.
func (r *signingRequest) checkRouter(asn client.ASN) (wrong []error) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	key, isEC := r.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !isEC:
		say("its key is %s: a BGPsec router has a key on the curve P-256 (RFC 8608 section 3); make one with `openssl ecparam -name prime256v1 -genkey`", r.PublicKeyAlgorithm)
	case key.Curve != elliptic.P256():
		say("its key is on the curve %s: a BGPsec router's is on P-256 (RFC 8608 section 3); make a new key", key.Curve.Params().Name)
	}
	if isEC && r.SignatureAlgorithm != x509.ECDSAWithSHA256 {
		say("it is signed with %s: sign with ECDSA and SHA-256 (RFC 8608 section 2)", r.SignatureAlgorithm)
	}
	wrong = append(wrong, r.checkAttributes()...)
	wrong = append(wrong, r.checkRouterSubject(asn)...)
	for _, x := range r.Extensions {
		switch {
		case x.Id.Equal(oidBasicConstraints), x.Id.Equal(oidKeyUsage), x.Id.Equal(oidSubjectInfoAccess):
		case x.Id.Equal(oidExtKeyUsage):
			var uses []asn1.ObjectIdentifier
			if !readWhole(x.Value, &uses) || !slices.ContainsFunc(uses, oidBGPsecRouter.Equal) {
				say("its extKeyUsage is not that of a BGPsec router, %s (RFC 8209 section 3.1.3.2): ask for that one, or leave the extension out", oidBGPsecRouter)
			}
		default:
			say("it asks for the extension %s, which a router's request does not have (RFC 8209 section 3.2): leave it out", extensionName(x.Id))
		}
	}
	return wrong
}

// checkAttributes refuses a password that would be kept where everybody reads it.
func (r *signingRequest) checkAttributes() (wrong []error) {
	for _, attribute := range r.attributes {
		switch {
		case attribute.Equal(oidExtensionRequest):
		case attribute.Equal(oidChallengePassword):
			wrong = append(wrong, errors.New("it holds a challenge password, which everybody who may read the request would read: make it without one"))
		default:
			wrong = append(wrong, fmt.Errorf("it has the attribute %s: the only one that means something here is the request for extensions (RFC 6487 section 6.1.1); leave it out", attribute))
		}
	}
	return wrong
}

// routerName is the common name that RFC 8209 section 3.1.1 recommends.
var (
	routerName   = regexp.MustCompile(`^ROUTER-([0-9A-Fa-f]{8})$`)
	routerSerial = regexp.MustCompile(`^[0-9A-Fa-f]{8}$`)
)

func (r *signingRequest) checkRouterSubject(asn client.ASN) (wrong []error) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	wanted := fmt.Sprintf("ROUTER-%08X", uint32(asn))
	seen := map[string]bool{}
	for _, name := range r.Subject.Names {
		value, isText := name.Value.(string)
		if seen[name.Type.String()] {
			say("its subject has the attribute %s twice: write CN=%s, or an empty subject", name.Type, wanted)
		}
		seen[name.Type.String()] = true
		switch {
		case name.Type.Equal(oidCommonName) && isText:
			// Another name is no fault: the issuer names the subject.
			if m := routerName.FindStringSubmatch(value); m != nil && !strings.EqualFold(value, wanted) {
				say("its subject names %s, and the certificate is for %s: make a request with CN=%s, or create the certificate for the other AS number", routerASN(m[1]), asn, wanted)
			}
		case name.Type.Equal(oidSerialNumber) && isText:
			if !routerSerial.MatchString(value) {
				say("its subject's serial number is %q: it is the router's BGP identifier as eight hexadecimal digits (RFC 8209 section 3.1.1)", value)
			}
		default:
			say("its subject has the attribute %s: a router's has a common name and at most a serial number (RFC 8209 section 3.1.1); write CN=%s", name.Type, wanted)
		}
	}
	return wrong
}

func routerASN(hex string) client.ASN {
	var n uint32
	_, _ = fmt.Sscanf(hex, "%x", &n) // eight hexadecimal digits
	return client.ASN(n)
}

// readWhole reads DER without anything behind it.
func readWhole(der []byte, into any) bool {
	rest, err := asn1.Unmarshal(der, into)
	return err == nil && len(rest) == 0
}

func extensionName(id asn1.ObjectIdentifier) string {
	if name, ok := extensionNames[id.String()]; ok {
		return name + " (" + id.String() + ")"
	}
	return id.String()
}

// checkConstraints is RFC 6487 section 6.3 on basicConstraints.
func checkConstraints(der []byte) error {
	var c struct {
		IsCA       bool `asn1:"optional"`
		PathLength int  `asn1:"optional,default:-1"`
	}
	switch {
	case !readWhole(der, &c):
		return errors.New("its basicConstraints cannot be read: make a new request with CA:TRUE")
	case !c.IsCA:
		return errors.New("its basicConstraints say that it is no CA: ask for CA:TRUE")
	case c.PathLength != -1:
		return fmt.Errorf("its basicConstraints limit the length of paths to %d: a resource certificate has no such limit (RFC 6487 section 4.8.1); leave pathlen out", c.PathLength)
	}
	return nil
}

// checkKeyUsage is RFC 6487 section 6.3 on keyUsage; bits 5 and 6 are those of
// RFC 5280 section 4.2.1.3.
func checkKeyUsage(der []byte) error {
	var bits asn1.BitString
	if !readWhole(der, &bits) {
		return errors.New("its keyUsage cannot be read: make a new request with keyCertSign and cRLSign")
	}
	for i := range max(bits.BitLength, 7) {
		if wanted := i == 5 || i == 6; (bits.At(i) == 1) != wanted {
			return errors.New("its keyUsage is not exactly keyCertSign and cRLSign, which a CA's is (RFC 6487 section 4.8.4): ask for those, or leave it out")
		}
	}
	return nil
}

// accessDescription is AccessDescription of RFC 5280 section 4.2.2.1.
type accessDescription struct {
	Method   asn1.ObjectIdentifier
	Location asn1.RawValue
}

// checkAccess is RFC 6487 sections 4.8.8.1 and 6.3 on where a CA publishes.
func checkAccess(der []byte) (wrong []error) {
	var all []accessDescription
	if !readWhole(der, &all) {
		return []error{errors.New("its subjectInfoAccess cannot be read: make a new request")}
	}
	at := map[string][]string{}
	for _, d := range all {
		// uniformResourceIdentifier [6] of GeneralName.
		if d.Location.Class != asn1.ClassContextSpecific || d.Location.Tag != 6 {
			wrong = append(wrong, fmt.Errorf("its subjectInfoAccess has a location of %s that is no URI: write URIs", d.Method))
			continue
		}
		at[d.Method.String()] = append(at[d.Method.String()], string(d.Location.Bytes))
		switch {
		case d.Method.Equal(oidCARepository), d.Method.Equal(oidRPKIManifest), d.Method.Equal(oidRPKINotify):
		default:
			wrong = append(wrong, fmt.Errorf("its subjectInfoAccess has the method %s: a CA's has caRepository, rpkiManifest and rpkiNotify (RFC 6487 section 4.8.8.1); leave the others out", d.Method))
		}
	}
	say := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	repository, err := onlyURI("caRepository", "rsync", at[oidCARepository.String()])
	say(err)
	manifest, errManifest := onlyURI("rpkiManifest", "rsync", at[oidRPKIManifest.String()])
	say(errManifest)
	if notify := at[oidRPKINotify.String()]; len(notify) > 0 {
		_, err := onlyURI("rpkiNotify", "https", notify)
		say(err)
	}
	// Relying parties refuse a manifest that is not in the repository.
	if folder := strings.TrimSuffix(repository, "/") + "/"; repository != "" && manifest != "" &&
		(!strings.HasPrefix(manifest, folder) || !strings.HasSuffix(manifest, ".mft") || strings.Contains(manifest[len(folder):], "/")) {
		say(fmt.Errorf("its rpkiManifest %s is not a file with the ending .mft in its caRepository %s: name one there", manifest, folder))
	}
	return wrong
}

// onlyURI is the one URI with a scheme among those of an access method; URIs with
// other schemes stand beside it.
func onlyURI(method, scheme string, uris []string) (string, error) {
	var found []string
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" ||
			slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return part == "." || part == ".." }) {
			return "", fmt.Errorf("the URI %q of %s cannot be used: write %s://HOST/PATH", text, method, scheme)
		}
		if strings.EqualFold(u.Scheme, scheme) {
			found = append(found, text)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("its subjectInfoAccess has no %s URI of %s: add it", scheme, method)
	}
	return "", fmt.Errorf("its subjectInfoAccess has several %s URIs of %s: keep one", scheme, method)
}
