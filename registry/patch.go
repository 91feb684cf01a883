package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hubn/app/problem"
)

// mergePatch is the media type of RFC 7396.
const mergePatch = "application/merge-patch+json"

// input is what a client writes of a noun: the same for a creation, a replacement
// and, merged into what the noun is now, a change.
type input interface {
	// check reports everything that is wrong beyond what the schema says.
	check(f *faults)
}

// PatchBody is a merge patch as it came.
type PatchBody struct {
	RawBody []byte
}

// patchBody describes a merge patch of a noun's input: the same members, none of
// them required.
func patchBody[I input](s *service) *huma.RequestBody {
	whole := *inputSchema[I](s)
	whole.Required = nil
	whole.Description = "A merge patch (RFC 7396): members that are left out stay as they are, null takes the default"
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		mergePatch: {Schema: &whole},
	}}
}

// inputSchema is the schema of a noun's input.
func inputSchema[I input](s *service) *huma.Schema {
	types := s.api.OpenAPI().Components.Schemas
	schema := types.Schema(reflect.TypeFor[I](), true, "")
	if schema.Ref != "" {
		schema = types.SchemaFromRef(schema.Ref)
	}
	return schema
}

// patched is a noun's input after a merge patch. The result is checked as if it
// had been written whole.
func patched[I input](s *service, current I, patch []byte) (I, error) {
	var (
		merged I
		change any
		target any
	)
	if err := unmarshal(patch, &change); err != nil {
		return merged, notJSON(err)
	}
	members, isObject := change.(map[string]any)
	if !isObject {
		return merged, problem.New(problem.Malformed, "a merge patch is a JSON object with the members that change")
	}
	now, err := json.Marshal(current)
	if err != nil {
		return merged, err
	}
	if err := json.Unmarshal(now, &target); err != nil {
		return merged, err
	}
	forgetHolder(target, members)
	return decoded[I](s, merge(target, change))
}

// forgetHolder lets a patch name the holder by id or by handle alone: what the
// object says of the other is about the former holder.
func forgetHolder(target any, change map[string]any) {
	_, byID := change["organisation_id"]
	_, byHandle := change["organisation"]
	if now, ok := target.(map[string]any); ok && (byID || byHandle) {
		delete(now, "organisation_id")
		delete(now, "organisation")
	}
}

// merge is MergePatch of RFC 7396 section 2.
func merge(target, patch any) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	into, ok := target.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for name, value := range change {
		if value == nil {
			delete(into, name)
			continue
		}
		into[name] = merge(into[name], value)
	}
	return into
}

// decoded validates a document by the input's schema and its own check, and
// answers all faults at once.
func decoded[I input](s *service, document any) (I, error) {
	var (
		in     I
		result huma.ValidateResult
		path   = huma.NewPathBuffer(nil, 0)
	)
	path.Push("body")
	huma.Validate(s.api.OpenAPI().Components.Schemas, inputSchema[I](s), path, huma.ModeWriteToServer, document, &result)
	text, err := json.Marshal(document)
	if err != nil {
		return in, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	f := faults{list: result.Errors}
	var unfit *json.UnmarshalTypeError
	switch err := decoder.Decode(&in); {
	case err == nil || len(result.Errors) > 0:
	case errors.As(err, &unfit): // a number that the schema allows and the type does not hold
		parts := slices.DeleteFunc(strings.Split(unfit.Field, "."), func(part string) bool { return part != strings.ToLower(part) }) // embedded types
		f.add("body."+strings.Join(parts, "."), errors.New("the number is too large, or not whole"), nil)
	default:
		return in, fmt.Errorf("decode a valid document: %w", err)
	}
	in.check(&f)
	if len(f.list) > 0 {
		return in, fromHuma(http.StatusUnprocessableEntity, "validation failed", f.list)
	}
	return in, nil
}

// checked is what an input's Resolve method calls: huma then answers the faults
// together with those of the schema.
func checked(in input) []error {
	var f faults
	in.check(&f)
	return f.list
}
