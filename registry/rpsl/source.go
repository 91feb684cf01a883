package rpsl

import (
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Source is something to read objects from.
type Source struct {
	// Name is the path, or "stdin".
	Name string
	// Open is called once; the caller closes.
	Open func() (io.ReadCloser, error)
}

// Sources finds the files that paths name: a file, a folder with all files under
// it in the order of their names, or Stdin. Hidden folders (.git) inside a folder
// are not entered, nor are folders behind symbolic links. An error is about one
// path; the iteration goes on after it.
func Sources(paths []string, stdin io.Reader) iter.Seq2[Source, error] {
	return func(yield func(Source, error) bool) {
		for _, path := range paths {
			if path == Stdin {
				open := func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }
				if !yield(Source{Name: "stdin", Open: open}, nil) {
					return
				}
				continue
			}
			if !sourcesOf(path, yield) {
				return
			}
		}
	}
}

// sourcesOf yields what one path names, and returns false if yield wants no more.
func sourcesOf(path string, yield func(Source, error) bool) bool {
	info, err := os.Stat(path)
	if err != nil {
		return yield(Source{}, err)
	}
	if !info.IsDir() { // a pipe may be named, but is not looked for in folders
		return yield(fileSource(path), nil)
	}
	more := true
	// A final separator makes WalkDir enter a path that is a symbolic link.
	root := filepath.Clean(path) + string(filepath.Separator)
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			more = yield(Source{}, err)
		case entry.IsDir():
			if name != root && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		case isRegular(name, entry):
			more = yield(fileSource(filepath.Clean(name)), nil)
		}
		if !more {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil && more {
		more = yield(Source{}, err)
	}
	return more
}

// isRegular tells whether a folder's entry is a file or a symbolic link to one.
func isRegular(name string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type().IsRegular()
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func fileSource(path string) Source {
	return Source{Name: path, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// Walk returns the objects of all that paths name, in a stable order, and counts
// what it read in tally. An error is about one file or folder, the rest of which
// is missing from the objects; the iteration goes on with the next. A caller that
// prunes must not go on after an error.
func Walk(paths []string, stdin io.Reader, tally *Tally) iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		for source, err := range Sources(paths, stdin) {
			if err != nil {
				if !yield(Raw{}, err) {
					return
				}
				continue
			}
			if !source.read(tally, yield) {
				return
			}
		}
	}
}

// read yields the objects of a source, and returns false if yield wants no more.
func (s Source) read(tally *Tally, yield func(Raw, error) bool) bool {
	in, err := s.Open()
	if err != nil {
		return yield(Raw{}, err)
	}
	defer in.Close()
	for raw, err := range Read(s.Name, in, tally) {
		if err != nil {
			err = fmt.Errorf("cannot read %w", err)
		}
		if !yield(raw, err) {
			return false
		}
	}
	return true
}
