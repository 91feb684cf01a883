package registry

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// revertible says of each table how a row of it is written through the API.
var revertible = map[string]func(row map[string]any) map[string]any{
	"organisation":       taking("handle", "name", "contact"),
	"asn":                taking("number", "organisation_id", "name"),
	"anycast_allocation": taking("prefix", "organisation_id", "service"),
	"name_server_set":    taking("name", "servers"),
	"ptr_record": func(row map[string]any) map[string]any {
		return map[string]any{"address": row["address"], "target": row["target_typed"], "ttl": row["ttl"]}
	},
	"prefix": func(row map[string]any) map[string]any {
		out := taking("prefix", "organisation_id", "kind", "status", "name")(row)
		out["routing"] = map[string]any{"announced": row["announced"], "origin": row["origin_asn"], "max_length": row["max_length"]}
		out["reverse"] = map[string]any{"mode": row["reverse_mode"], "name_servers": row["name_servers"], "name_server_set_id": row["name_server_set_id"],
			"ds": row["ds"], "rfc2317_style": row["rfc2317_style"], "zone_cut": row["zone_cut"]}
		return out
	},
}

// taking is a document of columns that have the names of its members.
func taking(columns ...string) func(map[string]any) map[string]any {
	return func(row map[string]any) map[string]any {
		out := map[string]any{}
		for _, name := range columns {
			out[name] = row[name]
		}
		return out
	}
}

// writtenForm is a row as a client would write it; nil of no row.
func writtenForm(table string, row json.RawMessage) (map[string]any, error) {
	if row == nil {
		return nil, nil
	}
	columns := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(row)))
	decoder.UseNumber()
	if err := decoder.Decode(&columns); err != nil {
		return nil, err
	}
	return revertible[table](columns), nil
}

// backPatch is the merge patch (RFC 7396) that makes what a row is what it was.
func backPatch(was, is map[string]any) map[string]any {
	patch := map[string]any{}
	for name, value := range was {
		before, isObject := value.(map[string]any)
		if now, both := is[name].(map[string]any); isObject && both {
			if inner := backPatch(before, now); len(inner) > 0 {
				patch[name] = inner
			}
			continue
		}
		if !reflect.DeepEqual(value, is[name]) {
			patch[name] = value
		}
	}
	return patch
}

// differing are the paths of a patch at which two documents differ.
func differing(patch, a, b map[string]any) []string {
	var out []string
	for name, value := range patch {
		inner, isObject := value.(map[string]any)
		x, inA := a[name].(map[string]any)
		y, inB := b[name].(map[string]any)
		if isObject && inA && inB {
			for _, path := range differing(inner, x, y) {
				out = append(out, name+"."+path)
			}
			continue
		}
		if !reflect.DeepEqual(a[name], b[name]) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// withoutNulls is a document for something new: what is null is not set.
func withoutNulls(document map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range document {
		switch v := value.(type) {
		case nil:
		case map[string]any:
			out[name] = withoutNulls(v)
		default:
			out[name] = v
		}
	}
	return out
}
