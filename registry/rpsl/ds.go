package rpsl

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// DS is the data of a DS record (RFC 4034 section 5.1).
type DS struct {
	KeyTag     uint16 `json:"key_tag"`
	Algorithm  uint8  `json:"algorithm"`
	DigestType uint8  `json:"digest_type"`
	// Digest is in lower-case hexadecimal.
	Digest string `json:"digest"`
}

// digestSizes are the bytes of a digest by its type: SHA-1 (RFC 3658), SHA-256
// (RFC 4509), GOST R 34.11-94 (RFC 5933), SHA-384 (RFC 6605), GOST R 34.11-2012
// (RFC 9558) and SM3 (RFC 9563).
var digestSizes = map[uint8]int{1: 20, 2: 32, 3: 32, 4: 48, 5: 32, 6: 32}

// DigestSize is the number of bytes of a digest of a type, where it is assigned.
func DigestSize(digestType int) (size int, assigned bool) {
	if digestType < 0 || digestType > 255 {
		return 0, false
	}
	size, assigned = digestSizes[uint8(digestType)]
	return size, assigned
}

// ParseDS reads DS data in presentation form: key tag, algorithm, digest type
// and digest, which may hold blanks (RFC 4034 section 5.3) and stand in
// parentheses.
func ParseDS(s string) (DS, error) {
	fields := strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(s))
	if len(fields) < 4 {
		return DS{}, fmt.Errorf("%q is no DS data; it is a key tag, an algorithm, a digest type and a digest", s)
	}
	tag, err := strconv.ParseUint(fields[0], 10, 16)
	if err != nil {
		return DS{}, fmt.Errorf("%q is no key tag, in %q; it is a number up to 65535", fields[0], s)
	}
	algorithm, err := strconv.ParseUint(fields[1], 10, 8)
	if err != nil || algorithm == 0 {
		return DS{}, fmt.Errorf("%q is no DNSSEC algorithm, in %q; it is a number from 1 to 255", fields[1], s)
	}
	kind, err := strconv.ParseUint(fields[2], 10, 8)
	size, known := digestSizes[uint8(kind)]
	if err != nil || !known {
		return DS{}, fmt.Errorf("%q is no digest type that is assigned, in %q; 2 is SHA-256", fields[2], s)
	}
	digest := strings.ToLower(strings.Join(fields[3:], ""))
	if bytes, err := hex.DecodeString(digest); err != nil {
		return DS{}, fmt.Errorf("digest %q is not hexadecimal: %w", digest, err)
	} else if len(bytes) != size {
		return DS{}, fmt.Errorf("digest %q has %d bytes; one of type %d has %d", digest, len(bytes), kind, size)
	}
	return DS{KeyTag: uint16(tag), Algorithm: uint8(algorithm), DigestType: uint8(kind), Digest: digest}, nil
}

// compare orders DS data; equal ones are the same.
func (d DS) compare(e DS) int {
	return cmp.Or(
		cmp.Compare(d.KeyTag, e.KeyTag),
		cmp.Compare(d.Algorithm, e.Algorithm),
		cmp.Compare(d.DigestType, e.DigestType),
		strings.Compare(d.Digest, e.Digest))
}

// String is the DS data in presentation form (RFC 4034 section 5.3).
func (d DS) String() string {
	return fmt.Sprintf("%d %d %d %s", d.KeyTag, d.Algorithm, d.DigestType, strings.ToUpper(d.Digest))
}
