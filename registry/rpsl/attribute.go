package rpsl

import (
	"fmt"
	"strings"
)

// parseAttributes splits the text of an object, whose first line is line, by RFC
// 2622 section 2: an attribute goes on in lines that begin with a blank, a tab or
// a plus sign; comments run from # to the end of the line.
func parseAttributes(text string, line int) ([]Attribute, *Refusal) {
	attributes := make([]Attribute, 0, 8)
	for l := range strings.Lines(text) {
		at := line
		line++
		l = strings.TrimRight(l, " \t\r\n")
		if l == "" || l[0] == '#' || l[0] == '%' {
			continue
		}
		if l[0] == ' ' || l[0] == '\t' || l[0] == '+' {
			if len(attributes) == 0 {
				return nil, &Refusal{Line: at, Reason: "the object begins with a continuation line"}
			}
			last := &attributes[len(attributes)-1]
			last.Value = strings.TrimSpace(last.Value + " " + valueOf(l[1:]))
			continue
		}
		name, value, ok := strings.Cut(l, ":")
		if !ok || !isAttributeName([]byte(name)) {
			return nil, &Refusal{Line: at, Value: l,
				Reason: fmt.Sprintf("%.60q is neither an attribute (name: value) nor its continuation", l)}
		}
		attributes = append(attributes, Attribute{Name: strings.ToLower(name), Value: valueOf(value), Line: at})
	}
	if len(attributes) == 0 {
		return nil, &Refusal{Line: line, Reason: "the object has no attribute"}
	}
	return attributes, nil
}

// valueOf is the value without its comment and surrounding blanks.
func valueOf(s string) string {
	s, _, _ = strings.Cut(s, "#")
	return strings.TrimSpace(s)
}

// all are the attributes with a name, in order.
func (h *Header) all(name string) []Attribute {
	var found []Attribute
	for _, a := range h.Attributes {
		if a.Name == name {
			found = append(found, a)
		}
	}
	return found
}

// first is the first attribute with the name that has a value.
func (h *Header) first(name string) (Attribute, bool) {
	for _, a := range h.Attributes {
		if a.Name == name && a.Value != "" {
			return a, true
		}
	}
	return Attribute{}, false
}
