package app

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// environmentPrefix begins the name of every environment variable of a setting:
// registry.database_url is HUBN_REGISTRY_DATABASE_URL.
const environmentPrefix = "HUBN_"

// setting is one setting: its path in the file and where its value is kept.
type setting struct {
	path  string
	value reflect.Value
}

// variable is the name of the setting's environment variable.
func (s setting) variable() string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(s.path, ".", "_"))
}

// settings lists every setting of a configuration in the order of its fields.
func settings(config *Config) []setting {
	return collectSettings("", reflect.ValueOf(config).Elem(), nil)
}

func collectSettings(prefix string, v reflect.Value, into []setting) []setting {
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		field := v.Field(i)
		switch {
		case name == "-":
		case options == "inline":
			into = collectSettings(prefix, field, into)
		case field.Kind() == reflect.Struct && !readsText(field):
			into = collectSettings(prefix+name+".", field, into)
		default:
			into = append(into, setting{path: prefix + name, value: field})
		}
	}
	return into
}

// readsText tells whether a type has a text form of its own, such as an address.
func readsText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// applyEnvironment lays the environment over a configuration.
func applyEnvironment(config *Config, environ func(string) (string, bool)) error {
	for _, s := range settings(config) {
		text, ok := environ(s.variable())
		if !ok {
			continue
		}
		if err := s.set(text); err != nil {
			return fmt.Errorf("environment variable %s: %w", s.variable(), err)
		}
	}
	return nil
}

// set reads a value as one writes it in an environment variable: text as it is,
// lists with commas, everything else as in YAML.
func (s setting) set(text string) error {
	switch s.value.Kind() {
	case reflect.String:
		s.value.SetString(text)
		return nil
	case reflect.Slice:
		if s.value.Type().Elem().Kind() == reflect.String {
			s.value.Set(reflect.ValueOf(splitList(text)).Convert(s.value.Type()))
			return nil
		}
	}
	if err := yaml.Unmarshal([]byte(text), s.value.Addr().Interface()); err != nil {
		return fmt.Errorf("%q is no value for %s (%s)", text, s.path, s.value.Type())
	}
	return nil
}

// splitList reads "a, b,c"; empty parts are left out.
func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
