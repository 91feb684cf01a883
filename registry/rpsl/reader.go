package rpsl

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Bounds of what is read. Both are far above what registries hold (the largest
// aut-num of the RIPE database has some 300 kB), and keep a wrong file from
// filling the memory.
const (
	MaxLine   = 64 << 10
	MaxObject = 1 << 20
)

// Read returns the objects of one source. Gzip is recognised by its first bytes.
// A source whose first line, after comments and blank lines, is not the class
// attribute of an RPSL object is counted as skipped and gives none.
//
// The error that ends the iteration is one of reading; what is wrong with an
// object stands in its Raw.
func Read(name string, r io.Reader, tally *Tally) iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		plain, err := gunzip(r)
		if err != nil {
			yield(Raw{}, fmt.Errorf("%s: %w", name, err))
			return
		}
		s := &scanner{name: name, in: bufio.NewReaderSize(plain, MaxLine), tally: tally}
		if err := s.scan(func(raw Raw) bool { return yield(raw, nil) }); err != nil {
			yield(Raw{}, fmt.Errorf("%s:%d: %w", name, s.line, err))
		}
	}
}

// gunzip unpacks r if it is gzip (RFC 1952 section 2.3.1).
func gunzip(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	magic, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("cannot be unpacked: %w", err)
	}
	return z, nil
}

// scanner splits a source into objects.
type scanner struct {
	name  string
	in    *bufio.Reader
	tally *Tally
	line  int
	begun bool // the first object was seen

	open    bool // inside an object
	class   Class
	start   int
	text    strings.Builder
	refused string
}

// scan calls emit for each object that is taken or refused, until emit returns
// false. Its error is one of reading.
func (s *scanner) scan(emit func(Raw) bool) error {
	for first := true; ; first = false {
		line, tooLong, err := s.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		end := err != nil
		if isBlank(line) {
			if s.open && !s.finish(emit) {
				return nil
			}
		} else if !s.take(line, tooLong) {
			s.tally.SkippedFiles++
			return nil
		}
		if end {
			break
		}
	}
	if s.open {
		s.finish(emit)
	}
	if !s.begun {
		s.tally.SkippedFiles++
	}
	return nil
}

// next reads one line without its end. Of a line that is too long it returns the
// beginning. The last line comes with io.EOF.
func (s *scanner) next() (line []byte, tooLong bool, err error) {
	s.line++
	line, err = s.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line[:MaxLine/64]) // enough to say what it is
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = s.in.ReadSlice('\n')
		}
		return line, true, err
	}
	return bytes.TrimRight(line, "\r\n"), false, err
}

// take adds a line that is not blank. It returns false if the source is not RPSL.
func (s *scanner) take(line []byte, tooLong bool) bool {
	if !s.open {
		if isComment(line) {
			return true
		}
		s.class = classOf(line)
		if !s.begun {
			if !s.class.Known() {
				return false
			}
			s.begun = true
			s.tally.Files++
		}
		s.open = true
		s.start = s.line
		s.refused = ""
		if !s.class.Known() {
			s.refuse("it begins with %.40q, which is no class of RPSL; a blank line inside an object parts it", line)
		}
	}
	if s.class.Known() && !s.class.Taken() {
		return true
	}
	if tooLong {
		s.refuse("line %d is longer than %d bytes", s.line, MaxLine)
	}
	if s.text.Len()+len(line) > MaxObject {
		s.refuse("the object is longer than %d bytes", MaxObject)
		return true
	}
	s.text.Write(line)
	s.text.WriteByte('\n')
	return true
}

// refuse keeps the first reason.
func (s *scanner) refuse(format string, args ...any) {
	if s.refused == "" {
		s.refused = fmt.Sprintf(format, args...)
	}
}

// finish ends the open object, and returns what emit says.
func (s *scanner) finish(emit func(Raw) bool) bool {
	raw := Raw{File: s.name, Line: s.start, Text: s.text.String(), Refused: s.refused}
	s.open = false
	s.text.Reset()
	if s.class.Known() && !s.class.Taken() {
		if s.tally.Others == nil {
			s.tally.Others = map[Class]int{}
		}
		s.tally.Others[s.class]++
		return true
	}
	s.tally.Objects++
	return emit(raw)
}

// classOf is the name of the attribute that begins on a line, in lower case;
// empty if none does.
func classOf(line []byte) Class {
	name, _, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isAttributeName(name) {
		return ""
	}
	return Class(strings.ToLower(string(name)))
}

// isAttributeName: RFC 2622 section 2 has letters, digits, underscores and
// hyphens, a letter first.
func isAttributeName(name []byte) bool {
	for i, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return len(name) > 0
}

func isBlank(line []byte) bool { return len(bytes.Trim(line, " \t\r")) == 0 }

func isComment(line []byte) bool { return line[0] == '#' || line[0] == '%' }
