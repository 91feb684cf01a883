package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hubn/app/seal"
)

func TestSealKeysComeFromTheEnvironmentOrAFile(t *testing.T) {
	dir := t.TempDir()
	keys := func(config SealConfig) (string, error) {
		p := &process{folder: openTestFolder(t, t.TempDir()), config: Config{Seal: config}}
		ring, err := p.sealKeys()
		if err != nil {
			return "", err
		}
		return ring.Current().String(), nil
	}
	first, second := seal.NewKey(), seal.NewKey()
	named := filepath.Join(dir, "named.key")
	if err := os.WriteFile(named, []byte("# of June\n"+first+"\n"+second+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := seal.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keys(SealConfig{KeyFile: named}); err != nil || got != ring.Current().String() {
		t.Errorf("from a file: %s, %v; want %s", got, err, ring.Current())
	}
	if got, err := keys(SealConfig{KeyFile: "/nonexistent/seal.key", Keys: []string{first, second}}); err != nil || got != ring.Current().String() {
		t.Errorf("from the environment: %s, %v; want %s", got, err, ring.Current())
	}
	for what, config := range map[string]SealConfig{
		"seal.keys": {Keys: []string{first[:20]}}, "seal.key_file": {KeyFile: filepath.Join(dir, "other.key")},
	} {
		if _, err := keys(config); err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), first[:20]) {
			t.Errorf("got %v; want an error that names %s and not the key", err, what)
		}
	}
}

func TestSealKeyIsMadeOnceForItsOwnerAlone(t *testing.T) {
	p := &process{folder: openTestFolder(t, t.TempDir())}
	one, err := p.sealKeys()
	if err != nil {
		t.Fatal(err)
	}
	two, err := p.sealKeys()
	if err != nil || two.Current() != one.Current() {
		t.Errorf("second start: another key (%v)", err)
	}
	info, err := os.Stat(p.folder.path(sealKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v; want mode 600", info, err)
	}
}
