package rdap

import (
	"net/netip"
	"net/url"
	"strings"
)

// The types of lookup (RFC 9082 section 3.1), as they stand in paths.
const (
	LookupIP         = "ip"
	LookupAutnum     = "autnum"
	LookupEntity     = "entity"
	LookupDomain     = "domain"
	LookupNameserver = "nameserver"
)

// Query is one lookup.
type Query struct{ Type, Value string }

// Path is the query's path below the service's base.
func (q Query) Path() string {
	if q.Type == LookupIP {
		// A prefix keeps its slash (RFC 9082 section 3.1.1).
		address, length, ok := strings.Cut(q.Value, "/")
		if ok {
			return q.Type + "/" + url.PathEscape(address) + "/" + url.PathEscape(length)
		}
	}
	return q.Type + "/" + url.PathEscape(q.Value)
}

// Queries are what a person may mean by a word, the likeliest first.
func Queries(text string) []Query {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	address, _, _ := strings.Cut(text, "/")
	if _, err := netip.ParseAddr(address); err == nil {
		return []Query{{LookupIP, text}}
	}
	if IsReverseName(text) {
		return []Query{{LookupDomain, text}}
	}
	if number := strings.TrimPrefix(strings.ToUpper(text), "AS"); strings.Trim(number, "0123456789.") == "" && number != "" {
		return []Query{{LookupAutnum, number}}
	}
	all := []Query{{LookupEntity, text}}
	if strings.Contains(text, ".") {
		all = append(all, Query{LookupNameserver, text})
	}
	return all
}
