package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"

	"hubn/app/problem"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// PageParams are the query parameters of every list.
type PageParams struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many items one page holds"`
	After string `query:"after" doc:"The next of the page before; opaque"`
}

func (p PageParams) limit() int {
	if p.Limit == 0 {
		return defaultLimit
	}
	return min(p.Limit, maxLimit)
}

// cursor writes where a page ended: the list's name, so that one list's cursor is
// refused by another, and the order key of its last item.
func cursor(list string, key ...any) string {
	b, err := json.Marshal(append([]any{list}, key...))
	if err != nil {
		panic("registry: cursor of " + list + ": " + err.Error()) // a key without a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// decode reads a cursor into the parts of its key; it answers whether there is one.
func (p PageParams) decode(list string, key ...any) (bool, error) {
	if p.After == "" {
		return false, nil
	}
	if err := decodeCursor(p.After, list, key); err != nil {
		return false, problem.New(problem.Invalid, "after is not a place in this list: leave it out to begin anew").
			At("query.after", "give the next of the page before, as it was", p.After).Because(err)
	}
	return true, nil
}

func decodeCursor(after, list string, key []any) error {
	b, err := base64.RawURLEncoding.DecodeString(after)
	if err != nil {
		return err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var name string
	if len(parts) != len(key)+1 || json.Unmarshal(parts[0], &name) != nil || name != list {
		return errors.New("a cursor of another list")
	}
	for i := range key {
		if err := json.Unmarshal(parts[i+1], key[i]); err != nil {
			return err
		}
	}
	return nil
}

// paged cuts the one row too many that tells whether there is a next page.
func paged[T any](items []T, limit int, next func(last T) string) ([]T, string) {
	if len(items) <= limit {
		if items == nil {
			items = []T{}
		}
		return items, ""
	}
	items = items[:limit]
	return items, next(items[limit-1])
}
