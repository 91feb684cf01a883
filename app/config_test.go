package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

const exampleFile = "../config.example.yaml"

// noEnvironment is an environment without any variable.
func noEnvironment(string) (string, bool) { return "", false }

func environment(of map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := of[name]
		return value, ok
	}
}

func writeConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hubn.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExampleHoldsTheDefaults(t *testing.T) {
	got, err := LoadConfig(Config{}, exampleFile, noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultConfig(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("config.example.yaml differs from the defaults (-default +example):\n%s", diff)
	}
}

func TestExampleListsAndExplainsEverySetting(t *testing.T) {
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	var listed []string
	collectKeys(t, "", document.Content[0], &listed)
	var want []string
	for _, s := range settings(new(Config)) {
		want = append(want, s.path)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("settings of the program and of config.example.yaml differ (-program +example):\n%s", diff)
	}
}

// collectKeys lists the paths of the settings below a mapping, and misses a
// comment above each of them.
func collectKeys(t *testing.T, prefix string, mapping *yaml.Node, into *[]string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if value.Kind == yaml.MappingNode {
			collectKeys(t, prefix+key.Value+".", value, into)
			continue
		}
		if key.HeadComment == "" {
			t.Errorf("config.example.yaml line %d: %s%s has no comment that says why", key.Line, prefix, key.Value)
		}
		*into = append(*into, prefix+key.Value)
	}
}

func TestFileAndEnvironmentGoOverTheDefaults(t *testing.T) {
	file := writeConfig(t, "listen: 192.0.2.1:80\nshutdown_timeout: 3s\ndatabase:\n  url: postgresql:///file\n  migrate: false\n")
	got, err := LoadConfig(DefaultConfig(), file, environment(map[string]string{
		"HUBN_DATABASE_URL":          "postgresql:///environment",
		"HUBN_REGISTRY_DATABASE_URL": "postgresql:///registry",
		"HUBN_DNS_NAMESERVERS":       "*.ns.example.net, a.example.com",
		"HUBN_DATA_DIR":              "/srv/hubn",
		"HUBN_PEERS":                 "required", // not a setting
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Listen = "192.0.2.1:80"
	want.ShutdownTimeout = 3 * time.Second
	want.DataDir = "/srv/hubn"
	want.Database = DatabaseConfig{URL: "postgresql:///environment", Migrate: false}
	want.Registry.DatabaseURL = "postgresql:///registry"
	want.DNS.Nameservers = []string{"*.ns.example.net", "a.example.com"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	cases := []struct {
		name, file string
		env        map[string]string
		want       string
	}{
		{"unknown key with its line", "listen: :80\n\nlisetn: :81\n", nil, "line 3: field lisetn not found"},
		{"unknown key of a section", "redis:\n  uri: x\n", nil, "line 2: field uri not found"},
		{"key given twice", "listen: :80\nlisten: :81\n", nil, "line 2"},
		{"wrong type", "shutdown_timeout: soon\n", nil, "line 1"},
		{"two documents", "listen: :80\n---\nlisten: :81\n", nil, "more than one YAML document"},
		{"environment", "", map[string]string{"HUBN_SHUTDOWN_TIMEOUT": "soon"}, `HUBN_SHUTDOWN_TIMEOUT: "soon" is no value for shutdown_timeout`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := LoadConfig(DefaultConfig(), writeConfig(t, c.file), environment(c.env))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := LoadConfig(DefaultConfig(), "/nonexistent.yaml", noEnvironment); err == nil {
		t.Error("a configuration file that does not exist was taken")
	}
	if got, err := LoadConfig(DefaultConfig(), writeConfig(t, ""), noEnvironment); err != nil || got.Listen != DefaultListen {
		t.Errorf("empty file: got %v, %v, want the defaults", got, err)
	}
}

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"listen", func(c *Config) { c.Listen = "8480" }, `listen is "8480"`},
		{"data folder", func(c *Config) { c.DataDir = "" }, "data_dir"},
		{"shutdown timeout", func(c *Config) { c.ShutdownTimeout = 0 }, `shutdown_timeout is "0s"`},
		{"half a certificate", func(c *Config) { c.TLS.Certificate = "a.pem" }, "tls.key"},
		{"log level", func(c *Config) { c.Log.Level = "loud" }, `log.level is "loud"`},
		{"log format", func(c *Config) { c.Log.Format = "xml" }, `log.format is "xml"`},
		{"a bound of the registry", func(c *Config) { c.Registry.MaxConnections = 0 }, `registry.max_connections is "0"`},
		{"a setting of the outbox", func(c *Config) { c.Outbox.Workers = -1 }, "outbox.workers is -1"},
		{"redis prefix", func(c *Config) { c.Redis.Prefix = "a{b}" }, `redis.prefix is "a{b}"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			config := DefaultConfig()
			c.change(&config)
			if err := config.validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	config := DefaultConfig()
	if err := config.validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	config.Listen = "" // chosen once and kept
	if err := config.validate(); err != nil {
		t.Errorf("without listen: %v", err)
	}
}

func TestSplitProcessNeedsTheServicesOfTheOther(t *testing.T) {
	config := DefaultConfig()
	if err := config.validateSplit([]string{nameRegistry, nameOutbox}); err != nil {
		t.Errorf("all in one process: %v", err)
	}
	if err := config.validateSplit([]string{nameOutbox}); err == nil || !strings.Contains(err.Error(), "database.url") {
		t.Errorf("worker without a database: got %v", err)
	}
	config.Outbox.DatabaseURL = "postgresql:///hubn"
	if err := config.validateSplit([]string{nameOutbox}); err == nil || !strings.Contains(err.Error(), "redis.url") {
		t.Errorf("worker without a Redis: got %v", err)
	}
	config.Redis.URL = "redis://127.0.0.1:6379/0"
	if err := config.validateSplit([]string{nameOutbox}); err != nil {
		t.Errorf("worker with both: %v", err)
	}
}
