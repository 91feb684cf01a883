package registry

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"hubn/app/problem"
)

// errCharacters is what is wrong with text that the database cannot keep. Decoding
// it would not fail, it would put U+FFFD in the place of what was written.
var errCharacters = errors.New("it holds the character NUL, half of a surrogate pair, or bytes that are not UTF-8: leave them out")

// checkCharacters looks at the path and the query of a request.
func checkCharacters(u *url.URL) error {
	var f faults
	check := func(location, text string) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			f.add(location, errCharacters, strconv.QuoteToASCII(text))
		}
	}
	check("path", u.Path)
	query := u.Query()
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		check("query", name)
		for _, value := range query[name] {
			check("query."+name, value)
		}
	}
	return f.problem()
}

// unmarshal is json.Unmarshal of text that the database can keep.
func unmarshal(text []byte, into any) error {
	if !keepable(text) {
		return errCharacters
	}
	return json.Unmarshal(text, into)
}

// notJSON is the problem of a body that unmarshal refused.
func notJSON(err error) error {
	if errors.Is(err, errCharacters) {
		var f faults
		f.add("body", err, nil)
		return f.problem()
	}
	return problem.New(problem.Malformed, "the body is not JSON: %v", err)
}

// holdsCharacters tells whether huma was told of such text; it keeps words alone.
func holdsCharacters(errs []error) bool {
	return slices.ContainsFunc(errs, func(err error) bool {
		var detail *huma.ErrorDetail
		return errors.As(err, &detail) && detail.Message == errCharacters.Error()
	})
}

// jsonFormat reads and writes the bodies of requests and answers.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}

// keepable tells whether the strings of a JSON text are text: UTF-8, without NUL,
// their escapes in whole surrogate pairs (RFC 8259 section 8.2). A backslash stands
// in strings only, so that strings need not be told from what is between them.
func keepable(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		r, escaped := escape(text[i:])
		switch {
		case !escaped:
			i++ // \\ and its like
		case r == 0:
			return false
		case utf16.IsSurrogate(r):
			low, follows := escape(text[i+6:])
			if !follows || utf16.DecodeRune(r, low) == utf8.RuneError {
				return false
			}
			i += 11
		default:
			i += 5
		}
	}
	return true
}

// escape is the code unit of the \uXXXX that a text begins with.
func escape(text []byte) (r rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
