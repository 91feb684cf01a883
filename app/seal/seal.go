// Package seal keeps secrets that a database holds: each is encrypted and
// authenticated with AES-256-GCM (NIST SP 800-38D) under a key that is kept outside
// of the database. It is a leaf: it imports nothing of the project.
//
// A keyring has one key that seals and any number of older ones that only open, so
// that keys can be changed while the program runs: put the new key first, seal
// everything anew, then remove the old one. A sealed secret names the key that it
// needs, and is bound to a purpose: what was sealed for one row opens for no other.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	// keyBytes is the length of a key: AES-256.
	keyBytes = 32
	// version begins every sealed secret, for a form that may come later.
	version = 1
	// nonceBytes is GCM's own length. Nonces are random: far below the 2^32 secrets
	// of one key that SP 800-38D section 8.3 allows.
	nonceBytes = 12
	tagBytes   = 16
	headBytes  = 1 + len(KeyID{})
)

// KeyID names a key without telling anything of it.
type KeyID [8]byte

// String is the id as messages name it.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

// Keyring is the keys of an installation; it is never changed once made.
type Keyring struct {
	current KeyID
	keys    map[KeyID]key
}

// key is one key, prepared for its two uses.
type key struct {
	aead cipher.AEAD
	// mac is a key of its own for fingerprints.
	mac [sha256.Size]byte
}

// NewKey makes a key in the form that Parse reads: 32 random octets in base64.
func NewKey() string {
	raw := make([]byte, keyBytes)
	_, _ = rand.Read(raw) // never fails (crypto/rand)
	return base64.StdEncoding.EncodeToString(raw)
}

// Parse reads keys, one a line or separated by commas, the current one first. What
// stands behind a # is a remark. Errors never repeat a key.
func Parse(text string) (*Keyring, error) {
	ring := &Keyring{keys: map[KeyID]key{}}
	n := 0
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.SplitSeq(line, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			n++
			raw, err := base64.StdEncoding.DecodeString(word)
			if err != nil || len(raw) != keyBytes {
				return nil, fmt.Errorf("key %d is not 32 octets in base64: make one with `openssl rand -base64 32`", n)
			}
			if err := ring.add(raw); err != nil {
				return nil, fmt.Errorf("key %d: %w", n, err)
			}
		}
	}
	if n == 0 {
		return nil, errors.New("there is no key: make one with `openssl rand -base64 32`")
	}
	return ring, nil
}

func (r *Keyring) add(raw []byte) error {
	named := derive(raw, "hubn seal key id")
	id := KeyID(named[:len(KeyID{})])
	if _, twice := r.keys[id]; twice {
		return errors.New("it is given twice")
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	if len(r.keys) == 0 {
		r.current = id
	}
	r.keys[id] = key{aead, derive(raw, "hubn seal fingerprint")}
	return nil
}

// derive makes something else of a key that does not lead back to it.
func derive(raw []byte, use string) (out [sha256.Size]byte) {
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte(use))
	return [sha256.Size]byte(mac.Sum(nil))
}

// Current is the id of the key that seals.
func (r *Keyring) Current() KeyID { return r.current }

// Seal encrypts a secret for a purpose, such as "bgp_session/17/password", which
// Open has to name again. The result is version, key id, nonce, and the encrypted
// secret with its tag.
func (r *Keyring) Seal(purpose string, secret []byte) []byte {
	out := make([]byte, headBytes+nonceBytes, headBytes+nonceBytes+len(secret)+tagBytes)
	out[0] = version
	copy(out[1:], r.current[:])
	nonce := out[headBytes:]
	_, _ = rand.Read(nonce) // never fails (crypto/rand)
	return r.keys[r.current].aead.Seal(out, nonce, secret, bound(out[:headBytes], purpose))
}

// bound is what is authenticated beside the secret.
func bound(head []byte, purpose string) []byte {
	return append(append([]byte{}, head...), purpose...)
}

// UnknownKeyError says that a secret needs a key that the keyring does not have.
type UnknownKeyError struct{ ID KeyID }

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("it is sealed with the key %s, which is not among the keys of this process: add that key behind the current one", e.ID)
}

// ErrBroken says that a secret was changed, cut, or sealed for another purpose.
var ErrBroken = errors.New("it does not open: it was changed, or sealed for something else")

// Open decrypts what Seal made for the same purpose.
func (r *Keyring) Open(purpose string, sealed []byte) ([]byte, error) {
	id, err := KeyOf(sealed)
	if err != nil {
		return nil, err
	}
	k, ok := r.keys[id]
	if !ok {
		return nil, &UnknownKeyError{id}
	}
	head, rest := sealed[:headBytes], sealed[headBytes:]
	secret, err := k.aead.Open(nil, rest[:nonceBytes], rest[nonceBytes:], bound(head, purpose))
	if err != nil {
		return nil, ErrBroken
	}
	return secret, nil
}

// KeyOf is the id of the key that a sealed secret needs.
func KeyOf(sealed []byte) (id KeyID, err error) {
	if len(sealed) < headBytes+nonceBytes+tagBytes || sealed[0] != version {
		return id, ErrBroken
	}
	return KeyID(sealed[1:headBytes]), nil
}

// Fingerprint tells whether two secrets are the same, to whoever has the key alone:
// a plain hash of a short password can be searched for.
func (r *Keyring) Fingerprint(secret []byte) []byte {
	k := r.keys[r.current]
	mac := hmac.New(sha256.New, k.mac[:])
	mac.Write(secret)
	return mac.Sum(nil)
}
