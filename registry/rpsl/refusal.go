package rpsl

import (
	"fmt"
	"net/netip"
	"strings"
)

// Refusal names an object that could not be taken, or a change that was not
// made, and says why. It is an error.
type Refusal struct {
	// File and Line are where: the line of the attribute at fault, or of the
	// object. Both are empty for what prune would have removed.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Class and Key name the object as it is written; Key is empty when the
	// object does not even say which it is.
	Class Class  `json:"class,omitempty"`
	Key   string `json:"key,omitempty"`
	// Attribute and Value are what is wrong, where it is one attribute.
	Attribute string `json:"attribute,omitempty"`
	Value     string `json:"value,omitempty"`
	// Reason says what is wrong and what to do about it.
	Reason string `json:"reason"`

	names names
}

// Error is "file:line: class key: reason".
func (r *Refusal) Error() string {
	var b strings.Builder
	if r.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", r.File, r.Line)
	}
	if r.Class != "" {
		b.WriteString(strings.TrimSpace(string(r.Class)+" "+r.Key) + ": ")
	}
	b.WriteString(r.Reason)
	return b.String()
}

// names is what a refused object speaks of, as far as it can be read. Prune
// leaves that alone: a mistake in an object is no proof that its resource is gone.
type names struct {
	prefixes []netip.Prefix
	asn      uint32
	hasASN   bool
	// classes are those of an object that is several at once; it may speak of
	// anything in them.
	classes []Class
}

func (n names) empty() bool { return len(n.prefixes) == 0 && !n.hasASN }

// Note is a remark on an object that was taken all the same, or was not needed.
type Note struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Class Class  `json:"class"`
	Key   string `json:"key"`
	Text  string `json:"text"`
}

// String is "file:line: class key: text".
func (n Note) String() string {
	return fmt.Sprintf("%s:%d: %s %s: %s", n.File, n.Line, n.Class, n.Key, n.Text)
}
