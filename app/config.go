package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"hubn/outbox"
	"hubn/registry"
)

// DefaultListen is where a process answers HTTP unless told otherwise: on
// loopback only, since a fresh install has no TLS certificate yet.
const DefaultListen = "127.0.0.1:8480"

// Config is every setting of a process. config.example.yaml shows each with its
// default and says why it is that.
type Config struct {
	Listen           string        `yaml:"listen"`
	DataDir          string        `yaml:"data_dir"`
	ShutdownTimeout  time.Duration `yaml:"shutdown_timeout"`
	AdminTokenFile   string        `yaml:"admin_token_file"`
	MetricsTokenFile string        `yaml:"metrics_token_file"`

	TLS      TLSConfig      `yaml:"tls"`
	Seal     SealConfig     `yaml:"seal"`
	Log      LogConfig      `yaml:"log"`
	Database DatabaseConfig `yaml:"database"`
	Redis    RedisConfig    `yaml:"redis"`
	Embedded EmbeddedConfig `yaml:"embedded"`
	DNS      DNSConfig      `yaml:"dns"`
	Registry RegistryConfig `yaml:"registry"`
	Outbox   OutboxConfig   `yaml:"outbox"`
}

// TLSConfig names the certificate that the listener shows; both or none.
type TLSConfig struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// SealConfig says with which keys secrets in the database are sealed.
type SealConfig struct {
	KeyFile string   `yaml:"key_file"`
	Keys    []string `yaml:"keys"`
}

// LogConfig says what is logged and how.
type LogConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// DatabaseConfig is the PostgreSQL that modules use unless they name their own.
type DatabaseConfig struct {
	URL     string `yaml:"url"`
	Migrate bool   `yaml:"migrate"`
}

// RedisConfig is the Redis of the event path.
type RedisConfig struct {
	URL    string `yaml:"url"`
	Prefix string `yaml:"prefix"`
}

// EmbeddedConfig says how the services run that no URL is given for.
type EmbeddedConfig struct {
	User           string `yaml:"user"`
	PostgresBinDir string `yaml:"postgres_bindir"`
	RedisProgram   string `yaml:"redis_program"`
}

// DNSConfig holds what more than one module must know of HubN's own name servers.
type DNSConfig struct {
	Nameservers []string `yaml:"nameservers"`
}

// RegistryConfig are the settings of the Registry, and where other modules find it.
type RegistryConfig struct {
	URL               string `yaml:"url"`
	DatabaseURL       string `yaml:"database_url"`
	registry.Settings `yaml:",inline"`
}

// OutboxConfig are the settings of the outbox worker.
type OutboxConfig struct {
	DatabaseURL     string `yaml:"database_url"`
	outbox.Settings `yaml:",inline"`
}

// DefaultConfig is the configuration of a process that is told nothing.
func DefaultConfig() Config {
	return Config{
		Listen:          DefaultListen,
		DataDir:         ".hubn",
		ShutdownTimeout: 20 * time.Second,
		Log:             LogConfig{Level: "info", Format: "auto"},
		Database:        DatabaseConfig{Migrate: true},
		Redis:           RedisConfig{Prefix: "hubn"},
		Registry:        RegistryConfig{Settings: registry.DefaultSettings()},
		Outbox:          OutboxConfig{Settings: outbox.DefaultSettings()},
	}
}

// LoadConfig lays a YAML file over base and the environment over that. An empty
// path means no file. A key that does not exist is an error with its line.
func LoadConfig(base Config, path string, environ func(string) (string, bool)) (Config, error) {
	config := base
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return Config{}, fmt.Errorf("read the configuration: %w", err)
		}
		if err := decodeStrictly(content, &config); err != nil {
			return Config{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := applyEnvironment(&config, environ); err != nil {
		return Config{}, err
	}
	return config, nil
}

func decodeStrictly(content []byte, into *Config) error {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one YAML document: keep one")
	}
	return nil
}

// validate names every setting that cannot be, with its value and a way out.
func (c *Config) validate() error {
	var wrong []error
	refuse := func(setting, value, advice string) {
		wrong = append(wrong, fmt.Errorf("%s is %q: %s", setting, value, advice))
	}
	// Empty asks for loopback and a port that is chosen once.
	if _, _, err := net.SplitHostPort(c.Listen); err != nil && c.Listen != "" {
		refuse("listen", c.Listen, "write HOST:PORT, such as "+DefaultListen+", or :443 for every address")
	}
	if c.DataDir == "" {
		refuse("data_dir", "", "name a folder that hubn may write to")
	}
	if c.ShutdownTimeout <= 0 {
		refuse("shutdown_timeout", c.ShutdownTimeout.String(), "write a duration above zero, such as 20s")
	}
	if (c.TLS.Certificate == "") != (c.TLS.Key == "") {
		refuse("tls.certificate", c.TLS.Certificate, "set tls.certificate and tls.key, or neither")
	}
	if _, err := logLevel(c.Log.Level); err != nil {
		refuse("log.level", c.Log.Level, "write debug, info, warn or error")
	}
	switch c.Log.Format {
	case "auto", "text", "json":
	default:
		refuse("log.format", c.Log.Format, "write auto, text or json")
	}
	if c.Redis.Prefix == "" || strings.ContainsAny(c.Redis.Prefix, "{} \t\n") {
		refuse("redis.prefix", c.Redis.Prefix, "write a word without blanks and braces: those mark the hash slot in Redis Cluster")
	}
	wrong = append(wrong, c.validateURLs(), c.Registry.Settings.Validate(), c.Outbox.Settings.Validate())
	for _, s := range settings(c) {
		// Bounds and timeouts: none of the Registry's can be off.
		if strings.HasPrefix(s.path, "registry.") && s.value.CanInt() && s.value.Int() <= 0 {
			refuse(s.path, fmt.Sprint(s.value), "write a value above zero")
		}
	}
	return errors.Join(wrong...)
}

// validateURLs refuses URLs that nothing can connect to. Their text is not
// repeated: they may hold passwords, and what cannot be read cannot be redacted.
func (c *Config) validateURLs() error {
	var wrong []error
	for _, u := range []struct{ setting, url string }{
		{"database.url", c.Database.URL},
		{"registry.database_url", c.Registry.DatabaseURL},
		{"outbox.database_url", c.Outbox.DatabaseURL},
	} {
		if u.url == "" {
			continue
		}
		if _, err := pgconn.ParseConfig(u.url); err != nil {
			wrong = append(wrong, fmt.Errorf("%s cannot be used: write postgresql://USER@HOST/DATABASE, with %%-encoding in the password and with "+
				"files that exist (its text is not repeated here: it may hold a password)", u.setting))
		}
	}
	if c.Redis.URL != "" {
		if _, err := redis.ParseURL(c.Redis.URL); err != nil {
			wrong = append(wrong, errors.New("redis.url cannot be used: write redis://HOST:PORT/DATABASE, or rediss:// for TLS, with %-encoding "+
				"in the password (its text is not repeated here: it may hold one)"))
		}
	}
	return errors.Join(wrong...)
}

// validateSplit refuses what cannot work when the Registry runs in another
// process: an embedded database or Redis would be another than the Registry's.
func (c *Config) validateSplit(modules []string) error {
	if slices.Contains(modules, nameRegistry) {
		return nil
	}
	if c.databaseURL(c.Outbox.DatabaseURL) == "" && slices.Contains(modules, nameOutbox) {
		return errors.New("module outbox without module registry needs database.url or outbox.database_url: the database of the Registry that runs elsewhere")
	}
	if c.Redis.URL == "" {
		return errors.New("a process without module registry needs redis.url: the Redis of the event path that the others use")
	}
	return nil
}

// databaseURL is the database of a module: its own, else the common one; empty
// asks for the embedded PostgreSQL.
func (c *Config) databaseURL(own string) string {
	if own != "" {
		return own
	}
	return c.Database.URL
}
