package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

const purpose = "bgp_session/17/password"

func ring(t testing.TB, keys ...string) *Keyring {
	t.Helper()
	r, err := Parse(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestASecretOpensForItsPurposeAlone(t *testing.T) {
	r := ring(t, NewKey())
	for _, secret := range []string{"", "x", "correct horse battery staple", strings.Repeat("s", 4096)} {
		sealed := r.Seal(purpose, []byte(secret))
		if len(secret) > 8 && bytes.Contains(sealed, []byte(secret)) {
			t.Errorf("the sealed form holds %q", secret)
		}
		got, err := r.Open(purpose, sealed)
		if err != nil || string(got) != secret {
			t.Errorf("got %q, %v; want %q", got, err, secret)
		}
		if got, err := r.Open("bgp_session/18/password", sealed); !errors.Is(err, ErrBroken) {
			t.Errorf("for another purpose: got %q, %v; want %v", got, err, ErrBroken)
		}
	}
}

func TestTwoSealsOfOneSecretDiffer(t *testing.T) {
	r := ring(t, NewKey())
	if bytes.Equal(r.Seal(purpose, []byte("same")), r.Seal(purpose, []byte("same"))) {
		t.Error("the nonce is not random")
	}
}

func TestEveryChangedOrMissingOctetIsNoticed(t *testing.T) {
	r := ring(t, NewKey())
	sealed := r.Seal(purpose, []byte("secret"))
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 0x40
		if got, err := r.Open(purpose, changed); err == nil {
			t.Errorf("octet %d changed: opens as %q", i, got)
		}
		if got, err := r.Open(purpose, sealed[:i]); err == nil {
			t.Errorf("cut after %d octets: opens as %q", i, got)
		}
	}
	if _, err := r.Open(purpose, append(sealed, 0)); err == nil {
		t.Error("an octet more: opens")
	}
}

func TestKeysAreChangedOneAfterTheOther(t *testing.T) {
	first, second := NewKey(), NewKey()
	before := ring(t, first)
	sealed := before.Seal(purpose, []byte("secret"))

	// The old key only opens.
	both := ring(t, second, first)
	if got, err := both.Open(purpose, sealed); err != nil || string(got) != "secret" {
		t.Fatalf("with the new key first: %q, %v", got, err)
	}
	anew := both.Seal(purpose, []byte("secret"))
	if id, err := KeyOf(anew); err != nil || id != both.Current() || id == before.Current() {
		t.Errorf("sealed anew with %s, %v; want %s", id, err, both.Current())
	}

	// Without the old key, what is left of it says which key it needs.
	var unknown *UnknownKeyError
	after := ring(t, second)
	if _, err := after.Open(purpose, sealed); !errors.As(err, &unknown) || unknown.ID != before.Current() {
		t.Errorf("without the old key: %v; want an UnknownKeyError of %s", err, before.Current())
	}
	if got, err := after.Open(purpose, anew); err != nil || string(got) != "secret" {
		t.Errorf("what was sealed anew: %q, %v", got, err)
	}
}

func TestFingerprintsCompareSecretsOfOneKey(t *testing.T) {
	one, other := ring(t, NewKey()), ring(t, NewKey())
	if !bytes.Equal(one.Fingerprint([]byte("a")), one.Fingerprint([]byte("a"))) {
		t.Error("one secret has two fingerprints")
	}
	if bytes.Equal(one.Fingerprint([]byte("a")), one.Fingerprint([]byte("b"))) {
		t.Error("two secrets have one fingerprint")
	}
	if bytes.Equal(one.Fingerprint([]byte("a")), other.Fingerprint([]byte("a"))) {
		t.Error("a fingerprint does not depend on the key")
	}
}

func TestKeysAsTheyAreWritten(t *testing.T) {
	a, b := NewKey(), NewKey()
	for name, text := range map[string]string{
		"lines": a + "\n" + b + "\n", "Windows lines": a + "\r\n" + b, "commas": a + "," + b,
		"remarks": "# made in June\n" + a + " # current\n\n" + b + " # until July\n",
	} {
		r, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := ring(t, a).Current(); r.Current() != want || len(r.keys) != 2 {
			t.Errorf("%s: %d keys, the current one is %s; want 2 and %s", name, len(r.keys), r.Current(), want)
		}
	}
	short := base64.StdEncoding.EncodeToString(make([]byte, 16))
	for name, text := range map[string]string{
		"nothing": "", "remarks alone": "# none\n", "too short": short, "no base64": "correct horse battery staple", "twice": a + "\n" + a,
		"a second one that is none": a + "\n" + b[:20],
	} {
		_, err := Parse(text)
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		for _, secret := range []string{a, b[:20], short, "horse"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error repeats the key: %v", name, err)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	r, err := Parse(NewKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.Seal(purpose, []byte("secret")))
	f.Add([]byte{version})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		// What opens was sealed here: nobody else has the key.
		if secret, err := r.Open(purpose, sealed); err == nil && string(secret) != "secret" {
			t.Errorf("%x opens as %q", sealed, secret)
		}
	})
}
