package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"hubn/registry/client"
	"hubn/registry/rpsl"
)

// csvColumn is a column of CSV: a member of the noun's body, in a group of members
// or at its top.
type csvColumn struct {
	name          string
	group, member string
	parse         func(string) (any, error)
	// write is the value of an exported body's member.
	write func(any) string
}

// csvKind is a kind of noun that CSV can carry: its columns, in the order in which
// they are exported, of which key tells the kind and is required.
type csvKind struct {
	kind    client.Kind
	key     string
	columns []csvColumn
}

func csvText(name string) csvColumn { return csvColumn{name, "", name, readText, writeText} }

func csvIn(name, group, member string, parse func(string) (any, error), write func(any) string) csvColumn {
	return csvColumn{name, group, member, parse, write}
}

// csvKinds are in the order in which their keys are looked for: a file with the
// column service is of anycast allocations, though it has prefixes.
var csvKinds = []csvKind{
	{client.KindOrganisation, "handle", []csvColumn{csvText("handle"), csvText("name"), csvText("contact")}},
	{client.KindASN, "number", []csvColumn{csvText("number"), csvText("organisation"), csvText("name")}},
	{client.KindPTR, "address", []csvColumn{csvText("address"), csvText("target"), csvIn("ttl", "", "ttl", readNumber, writeNumber)}},
	{client.KindAnycast, "service", []csvColumn{csvText("prefix"), csvText("service"), csvText("organisation"),
		csvIn("origins", "", "origins", readOrigins, writeOrigins)}},
	{client.KindPrefix, "prefix", []csvColumn{
		csvText("prefix"), csvText("organisation"), csvText("kind"), csvText("status"), csvText("name"),
		csvIn("announced", "routing", "announced", readYesNo, writeYesNo),
		csvIn("origin", "routing", "origin", readText, writeASN),
		csvIn("max_length", "routing", "max_length", readNumber, writeNumber),
		csvIn("reverse", "reverse", "mode", readText, writeText),
		csvIn("name_servers", "reverse", "name_servers", readWords, writeWords),
		csvIn("ds", "reverse", "ds", readDSList, writeDSList),
		csvIn("rfc2317_style", "reverse", "rfc2317_style", readText, writeText),
		csvIn("zone_cut", "reverse", "zone_cut", readNumber, writeNumber),
		csvText("provenance"), csvText("route_organisation"), csvText("range"),
	}},
}

// csvHeader is the header of a file: the kind of its rows and its columns in order.
type csvHeader struct {
	kind    client.Kind
	columns []csvColumn
}

// csvColumnsOf reads a header.
func csvColumnsOf(header []string, kind client.Kind) (*csvHeader, error) {
	names := make([]string, len(header))
	for i, name := range header {
		names[i] = strings.ToLower(strings.TrimSpace(name))
	}
	of, err := csvKindOf(names, kind)
	if err != nil {
		return nil, err
	}
	out := &csvHeader{kind: of.kind}
	var f faults
	for i, name := range names {
		at := slices.IndexFunc(of.columns, func(c csvColumn) bool { return c.name == name })
		switch {
		case at < 0:
			f.add(csvLine(i), fmt.Errorf("there is no column %q of kind %s: there are %s", header[i], of.kind, of.names()), header[i])
			continue
		case slices.Contains(names[:i], name):
			f.add(csvLine(i), errors.New("this column stands twice"), header[i])
		}
		out.columns = append(out.columns, of.columns[at])
	}
	if !slices.Contains(names, of.key) {
		f.add("body.header", fmt.Errorf("the column %s is missing", of.key), nil)
	}
	if len(f.list) > 0 {
		return nil, fromHuma(http.StatusUnprocessableEntity, "", f.list)
	}
	return out, nil
}

// csvKindOf is the kind of the rows under a header.
func csvKindOf(names []string, kind client.Kind) (csvKind, error) {
	var keys []string
	for _, k := range csvKinds {
		if kind == k.kind || kind == "" && slices.Contains(names, k.key) {
			return k, nil
		}
		keys = append(keys, k.key+" for "+string(k.kind))
	}
	if kind != "" {
		return csvKind{}, invalid("query.kind", string(kind), "CSV carries no rows of the kind %q: write NDJSON", kind)
	}
	return csvKind{}, invalid("body.header", strings.Join(names, ","),
		"the header does not tell what the rows are: it has none of the columns %s", strings.Join(keys, ", "))
}

func (k csvKind) names() string {
	var names []string
	for _, c := range k.columns {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// complete says what a file without the column leaves to be understood, as on the
// command line: an origin is announced, and name servers are delegated to.
func (h *csvHeader) complete(body map[string]any) {
	has := func(name string) bool {
		return slices.ContainsFunc(h.columns, func(c csvColumn) bool { return c.name == name })
	}
	if routing, ok := body["routing"].(map[string]any); ok && routing["origin"] != nil && !has("announced") {
		routing["announced"] = true
	}
	if reverse, ok := body["reverse"].(map[string]any); ok && reverse["name_servers"] != nil && !has("reverse") {
		reverse["mode"] = "delegated"
	}
}

// column is the name of the column that a member of the body comes from:
// routing.origin is origin, reverse.ds[1].digest is ds.
func (h *csvHeader) column(location string) string {
	for _, c := range h.columns {
		member := c.member
		if c.group != "" {
			member = c.group + "." + c.member
		}
		if rest, ok := strings.CutPrefix(location, member); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return c.name
		}
	}
	return location
}

func readText(s string) (any, error) { return s, nil }
func readWords(s string) (any, error) {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == ';' || r == '\t' }), nil
}

func readNumber(s string) (any, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	return n, nil
}

func readYesNo(s string) (any, error) {
	switch strings.ToLower(s) {
	case "yes", "true", "1":
		return true, nil
	case "no", "false", "0":
		return false, nil
	}
	return nil, fmt.Errorf("%q is neither yes nor no", s)
}

// readOrigins reads origins as AS64496 AS64497/26, with a max-length behind the
// slash, and a dash before one that is not active.
func readOrigins(s string) (any, error) {
	var origins []map[string]any
	for word := range strings.FieldsSeq(s) {
		text, inactive := strings.CutPrefix(word, "-")
		asn, length, stated := strings.Cut(text, "/")
		origin := map[string]any{"asn": asn}
		if stated {
			n, err := strconv.Atoi(length)
			if err != nil {
				return nil, fmt.Errorf("%q has no max-length behind the slash: write AS64496 or AS64496/26", word)
			}
			origin["max_length"] = n
		}
		if inactive {
			origin["active"] = false
		}
		origins = append(origins, origin)
	}
	return origins, nil
}

// readDSList reads DS data in presentation form, parted by semicolons, each with
// the name of its zone before it where the prefix has several.
func readDSList(s string) (any, error) {
	var all []client.DS
	for text := range strings.SplitSeq(s, ";") {
		zone, rest := "", strings.TrimSpace(text)
		if first, after, ok := strings.Cut(rest, " "); ok && strings.HasSuffix(strings.TrimSuffix(strings.ToLower(first), "."), ".arpa") {
			zone, rest = first, after
		}
		ds, err := rpsl.ParseDS(rest)
		if err != nil {
			return nil, err
		}
		all = append(all, client.DS{Zone: zone, KeyTag: ds.KeyTag, Algorithm: ds.Algorithm, DigestType: ds.DigestType, Digest: ds.Digest})
	}
	return all, nil
}

func writeText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

func writeNumber(v any) string {
	if n, ok := v.(json.Number); ok {
		return n.String()
	}
	return fmt.Sprint(v)
}

func writeASN(v any) string { return "AS" + writeNumber(v) }

func writeYesNo(v any) string {
	if v == true {
		return "yes"
	}
	return "no"
}

func writeWords(v any) string {
	var words []string
	for _, word := range items(v) {
		words = append(words, writeText(word))
	}
	return strings.Join(words, " ")
}

func writeOrigins(v any) string {
	var words []string
	for _, item := range items(v) {
		o, _ := item.(map[string]any)
		word := writeASN(o["asn"])
		if length, ok := o["max_length"]; ok {
			word += "/" + writeNumber(length)
		}
		if o["active"] == false {
			word = "-" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func writeDSList(v any) string {
	var all []string
	for _, item := range items(v) {
		d, _ := item.(map[string]any)
		text := fmt.Sprintf("%v %v %v %v", d["key_tag"], d["algorithm"], d["digest_type"], d["digest"])
		if zone, ok := d["zone"].(string); ok && zone != "" {
			text = zone + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func items(v any) []any {
	list, _ := v.([]any)
	return list
}
