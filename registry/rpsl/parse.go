package rpsl

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest netname or as-name that is kept, in bytes: that of the
// RIPE database is 80.
const maxName = 200

// Parse makes a typed object of a Raw. Its error is always a *Refusal.
func Parse(raw Raw) (Object, error) {
	object, refusal := parse(raw)
	if refusal != nil {
		return nil, refusal
	}
	return object, nil
}

// ParseAll parses what was read, in order.
func ParseAll(raws []Raw) Input {
	input := Input{Objects: make([]Object, 0, len(raws))}
	for _, raw := range raws {
		input.Add(raw)
	}
	return input
}

// Add parses one more object.
func (in *Input) Add(raw Raw) {
	object, refusal := parse(raw)
	if refusal != nil {
		in.Refused = append(in.Refused, refusal)
		return
	}
	in.Objects = append(in.Objects, object)
}

func parse(raw Raw) (Object, *Refusal) {
	attributes, refusal := parseAttributes(raw.Text, raw.Line)
	h := Header{File: raw.File, Line: raw.Line, Attributes: attributes}
	if len(attributes) > 0 {
		h.Class, h.Key, h.Line = Class(attributes[0].Name), attributes[0].Value, attributes[0].Line
		_, h.Delete = deleteAttribute(attributes)
	} else {
		h.Class, h.Key = beginning(raw.Text)
	}
	switch {
	case raw.Refused != "":
		return nil, h.refuse(Attribute{Line: h.Line}, raw.Refused)
	case refusal != nil:
		refusal.File, refusal.Class, refusal.Key, refusal.names = h.File, h.Class, h.Key, h.names()
		return nil, refusal
	}
	if refusal := h.checkSingle(); refusal != nil {
		return nil, refusal
	}
	switch h.Class {
	case ClassInetnum, ClassInet6num:
		return orNil(parseNetwork(h))
	case ClassRoute, ClassRoute6:
		return orNil(parseRoute(h))
	case ClassAutNum:
		return orNil(parseAutNum(h))
	}
	return nil, h.refuse(attributes[0], fmt.Sprintf("class %.40q is not one that is imported", string(h.Class)))
}

// orNil keeps a nil pointer from becoming an Object that is not nil.
func orNil[T Object](object T, refusal *Refusal) (Object, *Refusal) {
	if refusal != nil {
		return nil, refusal
	}
	return object, nil
}

// beginning is the class and key on the first line of a text whose attributes
// cannot be read.
func beginning(text string) (Class, string) {
	line, _, _ := strings.Cut(text, "\n")
	class := classOf([]byte(line))
	if class == "" {
		return "", ""
	}
	return class, valueOf(line[len(class)+1:])
}

func deleteAttribute(attributes []Attribute) (Attribute, bool) {
	for _, a := range attributes {
		if a.Name == "delete" {
			return a, true
		}
	}
	return Attribute{}, false
}

// checkSingle refuses an object that is really several, with no blank line
// between them.
func (h *Header) checkSingle() *Refusal {
	for _, a := range h.Attributes[1:] {
		if Class(a.Name).Taken() {
			r := h.refuse(a, fmt.Sprintf("%s: %s is inside another object; part objects by a blank line", a.Name, a.Value))
			r.names = names{classes: h.classes()}
			return r
		}
	}
	return nil
}

// classes are all class attributes of an object that is really several.
func (h *Header) classes() (classes []Class) {
	for _, a := range h.Attributes {
		if Class(a.Name).Taken() {
			classes = append(classes, Class(a.Name))
		}
	}
	return classes
}

// refuse makes a refusal for one attribute.
func (h *Header) refuse(a Attribute, reason string) *Refusal {
	r := &Refusal{File: h.File, Line: a.Line, Class: h.Class, Key: h.Key, Reason: reason, names: h.names()}
	if a.Name != "" {
		r.Attribute, r.Value = a.Name, a.Value
	}
	return r
}

// names is what the class attribute speaks of, as far as it can be read: also
// the prefix that was meant where there are host bits, or the other family.
func (h *Header) names() names {
	switch h.Class {
	case ClassInetnum, ClassInet6num, ClassRoute, ClassRoute6:
		if r, err := parseRange(h.Key); err == nil {
			return names{prefixes: splitRange(r)}
		}
		if p, err := netip.ParsePrefix(h.Key); err == nil && !p.Addr().Is4In6() {
			return names{prefixes: []netip.Prefix{p.Masked()}}
		}
	case ClassAutNum:
		if n, err := parseASN(h.Key); err == nil {
			return names{asn: n, hasASN: true}
		}
	}
	return names{}
}

// one is the value of an attribute that may stand once; ok is false if it does
// not stand at all or without a value.
func (h *Header) one(name string) (a Attribute, ok bool, refusal *Refusal) {
	found := h.all(name)
	if len(found) > 1 {
		return Attribute{}, false, h.refuse(found[1],
			fmt.Sprintf("%s stands %d times (%s, %s, …); keep one", name, len(found), found[0].Value, found[1].Value))
	}
	if len(found) == 0 || found[0].Value == "" {
		return Attribute{}, false, nil
	}
	return found[0], true, nil
}

// organisation is the handle of the object's holder: org names the holder itself
// where a registry has organisation objects; else the first mnt-by stands for it.
func (h *Header) organisation() (string, *Refusal) {
	for _, name := range []string{"org", "mnt-by"} {
		if a, ok := h.first(name); ok {
			handle, err := firstHandle(a.Value)
			if err != nil {
				return "", h.refuse(a, err.Error())
			}
			return handle, nil
		}
	}
	return "", nil
}

// firstHandle is the first of the names in a list that is parted by commas or
// blanks (RFC 2622 section 3.1: mnt-by is a list).
func firstHandle(list string) (string, error) {
	handles := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	if len(handles) == 0 {
		return "", fmt.Errorf("%q holds no name", list)
	}
	if err := checkHandle(handles[0]); err != nil {
		return "", err
	}
	return handles[0], nil
}

// maxHandle is the longest handle that the Registry keeps.
const maxHandle = 80

// checkHandle: letters, digits, underscores, hyphens and dots, a letter or digit
// first (RFC 2622 section 2 object names, and the dots of some registries).
func checkHandle(s string) error {
	if len(s) > maxHandle {
		return fmt.Errorf("%.20q… has %d characters; a handle has at most %d", s, len(s), maxHandle)
	}
	for i, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '-' || c == '_' || c == '.'):
		default:
			return fmt.Errorf("%q is no handle: %q at position %d; letters, digits, -, _ and . are possible", s, c, i+1)
		}
	}
	return nil
}

// name is a netname or as-name in a form that every database stores: valid UTF-8
// without control characters, of bounded length.
func (h *Header) name(attribute string) string {
	a, ok := h.first(attribute)
	if !ok {
		return ""
	}
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(a.Value, "\uFFFD"))
	for len(s) > maxName {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

var errNoOrigin = errors.New("a route needs at least one origin (origin: AS64496); AS0 says that nobody may announce it")
