package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hubn/registry/client"
)

// bodyFlags are the flags of one create or set command.
type bodyFlags struct {
	flags  *pflag.FlagSet
	fields []field
}

// bodyFlags adds the flags of the noun's fields.
func (n *noun[T]) bodyFlags(cmd *cobra.Command, creating bool) *bodyFlags {
	b := &bodyFlags{flags: cmd.Flags()}
	for _, f := range n.fields {
		if f.fixed && !creating {
			continue
		}
		b.fields = append(b.fields, f)
		switch {
		case f.truth:
			b.flags.Bool(f.flag, false, f.usage)
		case f.many:
			b.flags.StringArray(f.flag, nil, f.usage)
		default:
			b.flags.String(f.flag, "", f.usage)
		}
		if f.values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.flag, cobra.FixedCompletions(f.values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	return b
}

// body is what the flags that were given say, as a JSON object; also a merge
// patch, where null removes a member (RFC 7396).
func (b *bodyFlags) body() (map[string]any, error) {
	body := map[string]any{}
	for _, f := range b.fields {
		if !b.flags.Changed(f.flag) {
			continue
		}
		value, err := f.value(b.flags)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", f.flag, err)
		}
		put(body, f.member, value)
	}
	return body, nil
}

func (f field) value(flags *pflag.FlagSet) (any, error) {
	switch {
	case f.truth:
		return flags.GetBool(f.flag)
	case f.many:
		texts, err := flags.GetStringArray(f.flag)
		if err != nil {
			return nil, err
		}
		list := []any{}
		for _, text := range texts {
			if text == f.clear {
				continue // an empty value alone makes an empty list
			}
			value, err := f.parsed(text)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	text, err := flags.GetString(f.flag)
	if err != nil {
		return nil, err
	}
	if f.clear != "" && (text == f.clear || text == "") {
		return nil, nil
	}
	return f.parsed(text)
}

func (f field) parsed(text string) (any, error) {
	if f.parse == nil {
		return text, nil
	}
	return f.parse(text)
}

// put writes a member at a path such as routing.origin.
func put(body map[string]any, path string, value any) {
	for {
		head, rest, deeper := strings.Cut(path, ".")
		if !deeper {
			body[path] = value
			return
		}
		inner, ok := body[head].(map[string]any)
		if !ok {
			inner = map[string]any{}
			body[head] = inner
		}
		body, path = inner, rest
	}
}

// given tells whether a member at a path is in the body, and its value.
func given(body map[string]any, path string) (any, bool) {
	for {
		head, rest, deeper := strings.Cut(path, ".")
		value, ok := body[head]
		if !deeper || !ok {
			return value, ok
		}
		if body, ok = value.(map[string]any); !ok {
			return nil, false
		}
		path = rest
	}
}

// parseASN is an AS number as JSON carries it.
func parseASN(text string) (any, error) {
	n, err := client.ParseASN(text)
	if err != nil {
		return nil, err
	}
	return uint32(n), nil
}

func parseInt(text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

// parseDS reads a DS record as it stands in a zone file: [ZONE] KEYTAG ALGORITHM
// DIGESTTYPE DIGEST, where the digest may hold blanks (RFC 4034 section 5.3).
func parseDS(text string) (any, error) {
	parts := strings.Fields(text)
	ds := map[string]any{}
	if len(parts) > 0 && strings.Contains(parts[0], ".") {
		ds["zone"], parts = strings.TrimSuffix(parts[0], "."), parts[1:]
	}
	if len(parts) < 4 {
		return nil, fmt.Errorf("%q is not a DS record: write KEYTAG ALGORITHM DIGESTTYPE DIGEST", text)
	}
	for i, member := range []string{"key_tag", "algorithm", "digest_type"} {
		n, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not a DS record: %q is not a number", text, parts[i])
		}
		ds[member] = n
	}
	ds["digest"] = strings.ToLower(strings.Join(parts[3:], ""))
	return ds, nil
}

// parseOrigin reads a route origin: AS64496, or AS64496,24 with its maxLength.
func parseOrigin(text string) (any, error) {
	number, length, hasLength := strings.Cut(text, ",")
	asn, err := parseASN(strings.TrimSpace(number))
	if err != nil {
		return nil, err
	}
	origin := map[string]any{"asn": asn}
	if hasLength {
		n, err := parseInt(strings.TrimPrefix(strings.TrimSpace(length), "/"))
		if err != nil {
			return nil, fmt.Errorf("%q is not an origin: write AS64496, or AS64496,24 with the maxLength", text)
		}
		origin["max_length"] = n
	}
	return origin, nil
}
