// Package rpsltest makes registries in RPSL for tests and benchmarks: of any
// size, the same for the same seed, and of the shape of a real one. Ranges nest;
// routes have one origin or several, with and without max-length, and some have
// no network of their own; name servers are foreign or the registry's own; DS
// digests hold blanks; and some objects carry mistakes. It is no part of the
// program.
package rpsltest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// OwnNameServers is the pattern of the registry's own name servers: networks
// that use them alone are hosted.
const OwnNameServers = "*.delegation-servers.example"

// Object is one object and its key: class and file name in the layout of one
// file for each object.
type Object struct {
	Class, Key, Text string
}

// Edit is one change of one object; its JSON form is that of a line of
// history.jsonl.
type Edit struct {
	Op    string `json:"op"` // put or delete
	Class string `json:"class"`
	Key   string `json:"key"`
	Text  string `json:"object,omitempty"`
}

// RPSL is the edit as an object to import: a deletion is an object with a
// `delete:` attribute and nothing else but its key.
func (e Edit) RPSL() string {
	if e.Op == "put" {
		return e.Text
	}
	return fmt.Sprintf("%s: %s\ndelete: no longer used\n", e.Class, strings.ReplaceAll(e.Key, "_", "/"))
}

// Merge is a set of edits that belong together.
type Merge struct {
	N       int    `json:"n"`
	Changes []Edit `json:"changes"`
}

// Registry is a registry and what happens to it.
type Registry struct {
	// Objects are right and have different keys.
	Objects []Object
	// Mistakes are objects that must be refused. Their keys can be read, and are
	// those of no other object.
	Mistakes []Object
	// History are the changes that lead from Objects to Final.
	History []Merge
	Final   []Object
}

// Text is all objects, with the mistakes, as one file.
func (r *Registry) Text() string {
	return Text(append(append([]Object{}, r.Objects...), r.Mistakes...))
}

// Text is objects as one file, a blank line between them.
func Text(objects []Object) string {
	var b strings.Builder
	for i, o := range objects {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(o.Text)
	}
	return b.String()
}

// WriteFiles writes a file for each class, inetnum.rpsl and so on, and
// history.jsonl into a folder that exists.
func (r *Registry) WriteFiles(folder string) error {
	byClass := map[string][]Object{}
	for _, o := range append(append([]Object{}, r.Objects...), r.Mistakes...) {
		byClass[o.Class] = append(byClass[o.Class], o)
	}
	for class, objects := range byClass {
		if err := os.WriteFile(filepath.Join(folder, class+".rpsl"), []byte(Text(objects)), 0o644); err != nil {
			return err
		}
	}
	var b strings.Builder
	lines := json.NewEncoder(&b)
	for _, m := range r.History {
		if err := lines.Encode(m); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "history.jsonl"), []byte(b.String()), 0o644)
}

// WriteTree writes the objects, without the mistakes, in the layout of one file
// for each object: data/inetnum/10.0.0.0_8 and so on.
func (r *Registry) WriteTree(folder string) error {
	for _, o := range r.Objects {
		path := filepath.Join(folder, "data", o.Class, o.Key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(o.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
