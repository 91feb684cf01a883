package rdap

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// VCard is who an entity is, as a jCard (RFC 7095): properties of one text each.
type VCard []Property

// Property is one property of a card.
type Property struct{ Name, Type, Value string }

// MarshalJSON writes ["vcard", [[name, {}, type, value], …]].
func (v VCard) MarshalJSON() ([]byte, error) {
	properties := [][]any{}
	for _, p := range v {
		properties = append(properties, []any{p.Name, map[string]any{}, p.Type, p.Value})
	}
	return json.Marshal([]any{"vcard", properties})
}

// UnmarshalJSON reads the properties whose value is one text.
func (v *VCard) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("a jCard has 2 elements, not %d", len(parts))
	}
	var properties [][]any
	if err := json.Unmarshal(parts[1], &properties); err != nil {
		return err
	}
	*v = nil
	for _, p := range properties {
		if len(p) < 4 {
			return errors.New("a property of a jCard has less than 4 elements")
		}
		name, okName := p[0].(string)
		kind, okType := p[2].(string)
		value, okValue := p[3].(string)
		if okName && okType && okValue {
			*v = append(*v, Property{name, kind, value})
		}
	}
	return nil
}

// all are the values of a property.
func (v VCard) all(name string) []string {
	var values []string
	for _, p := range v {
		if p.Name == name {
			values = append(values, p.Value)
		}
	}
	return values
}

// newVCard is the card of an organisation, without its contact.
func newVCard(o Organisation) VCard {
	name := o.Name
	if name == "" {
		name = o.Handle // a card must have fn (RFC 6350 section 6.2.1)
	}
	return VCard{{"version", "text", "4.0"}, {"fn", "text", name}, {"kind", "text", "org"}}
}

var (
	emailPattern = regexp.MustCompile(`^[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+$`)
	phonePattern = regexp.MustCompile(`^\+?[0-9][0-9 ()./-]{4,}$`)
	notDialled   = regexp.MustCompile(`[^0-9+]`)
)

// contact turns the free text of a contact into properties: what reads as a mail
// address or a telephone number becomes one, the rest stays a note.
func contact(text string) VCard {
	var (
		card VCard
		rest []string
	)
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' || r == '\n' }) {
		part = strings.TrimSpace(part)
		switch address := strings.TrimPrefix(part, "mailto:"); {
		case part == "":
		case emailPattern.MatchString(address):
			card = append(card, Property{"email", "text", address})
		case phonePattern.MatchString(strings.TrimPrefix(part, "tel:")):
			card = append(card, Property{"tel", "uri", "tel:" + notDialled.ReplaceAllString(part, "")})
		default:
			rest = append(rest, part)
		}
	}
	if len(rest) > 0 {
		card = append(card, Property{"note", "text", strings.Join(rest, ", ")})
	}
	return card
}
