package rpsl

// DS is the data of a DS record (RFC 4034 section 5.1).
type DS struct {
	KeyTag     uint16 `json:"key_tag"`
	Algorithm  uint8  `json:"algorithm"`
	DigestType uint8  `json:"digest_type"`
	// Digest is in lower-case hexadecimal.
	Digest string `json:"digest"`
}
