package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
)

// A token is "hubn_", a public id, a secret and a checksum, all in base32 without
// padding and in lower case: a double click selects it, a scanner for leaked
// secrets finds it, and a mistyped one is refused without asking the database.
const (
	tokenPrefix    = "hubn_"
	publicIDBytes  = 10
	secretBytes    = 32
	checksumBytes  = 4
	publicIDLength = 16 // 10 bytes in base32
	secretLength   = 52 // 32 bytes
	checksumLength = 7  // 4 bytes
	tokenLength    = len(tokenPrefix) + publicIDLength + secretLength + checksumLength
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newSecret makes a token.
func newSecret() (token string, publicID string) {
	random := make([]byte, publicIDBytes+secretBytes)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	publicID = tokenEncoding.EncodeToString(random[:publicIDBytes])
	body := tokenPrefix + publicID + tokenEncoding.EncodeToString(random[publicIDBytes:])
	return body + checksum(body), publicID
}

// NewSecret makes a token in the form of those that the Registry stores, for
// tokens that a process makes at its start.
func NewSecret() string {
	token, _ := newSecret()
	return token
}

// parseSecret takes a token apart; the error never repeats it.
func parseSecret(token string) (publicID string, hash [sha256.Size]byte, err error) {
	if len(token) != tokenLength || !strings.HasPrefix(token, tokenPrefix) {
		return "", hash, errors.New("it does not have the form of a token of HubN")
	}
	body := token[:tokenLength-checksumLength]
	if checksum(body) != token[len(body):] {
		return "", hash, errors.New("its checksum is wrong: it was not copied as it was made")
	}
	return body[len(tokenPrefix) : len(tokenPrefix)+publicIDLength], sha256.Sum256([]byte(token)), nil
}

func checksum(body string) string {
	sum := binary.BigEndian.AppendUint32(make([]byte, 0, checksumBytes), crc32.ChecksumIEEE([]byte(body)))
	return tokenEncoding.EncodeToString(sum)
}
