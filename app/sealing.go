package app

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"hubn/app/seal"
)

// sealKeys are the keys that seal secrets in the database: those of the
// environment, else those of a file.
func (p *process) sealKeys() (*seal.Keyring, error) {
	if keys := p.config.Seal.Keys; len(keys) > 0 {
		ring, err := seal.Parse(strings.Join(keys, "\n"))
		if err != nil {
			return nil, fmt.Errorf("seal.keys: %w", err)
		}
		return ring, nil
	}
	path, text, err := p.sealKeyText()
	if err != nil {
		return nil, fmt.Errorf("seal.key_file: %w", err)
	}
	ring, err := seal.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("seal.key_file: %s: %w", path, err)
	}
	return ring, nil
}

// sealKeyText reads the file that is named, or the one in the data folder, which is
// made once. One that is named and not there is never made: under a mistyped name
// everything would be sealed with a key that no other process has.
func (p *process) sealKeyText() (path, text string, err error) {
	if path = p.config.Seal.KeyFile; path == "" {
		path = p.folder.path(sealKeyFile)
		text, err = readOrMakeToken(path, seal.NewKey)
		return path, text, err
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, "", fmt.Errorf("%w: copy the file of another replica, or make a key with `openssl rand -base64 32 > %s`", err, path)
	}
	return path, string(content), err
}
