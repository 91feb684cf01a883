package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// defaultDataDir is where a hubn of this folder keeps its data.
const defaultDataDir = ".hubn"

// connection says which Registry a command asks: the one at --url, else the one
// of the hubn that runs on the data folder.
type connection struct {
	shell                       *shell
	url, token, caFile, dataDir string
}

// connect adds the flags that say where the Registry is.
func (s *shell) connect(cmd *cobra.Command) *connection {
	c := &connection{shell: s}
	flags := cmd.Flags()
	flags.StringVar(&c.url, "url", "", "base URL of the Registry (HUBN_URL)")
	flags.StringVar(&c.token, "token", "", "token to show it (HUBN_TOKEN)")
	flags.StringVar(&c.caFile, "ca-file", "", "PEM file with the authorities that its certificate is checked against (HUBN_CA_FILE)")
	flags.StringVar(&c.dataDir, "data-dir", "", "data folder of a hubn on this machine (HUBN_DATA_DIR; else .hubn)")
	return c
}

// endpoints is what a running hubn writes into its data folder, as far as these
// commands need it.
type endpoints struct {
	RegistryURL    string `json:"registry_url"`
	AdminTokenFile string `json:"admin_token_file"`
	RedisURL       string `json:"redis_url"`
}

// folder is the data folder that is asked for.
func (c *connection) folder() string {
	return cmp.Or(c.dataDir, os.Getenv("HUBN_DATA_DIR"), defaultDataDir)
}

// endpoints reads what the hubn on the data folder wrote.
func (c *connection) endpoints() (endpoints, error) {
	path := filepath.Join(c.folder(), "endpoints.json")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return endpoints{}, fmt.Errorf("no hubn runs on %s (there is no %s): start one with `hubn dev`, "+
			"name its folder with --data-dir, or name a Registry with --url and --token", c.folder(), path)
	}
	if err != nil {
		return endpoints{}, err
	}
	var e endpoints
	if err := json.Unmarshal(content, &e); err != nil {
		return endpoints{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// open makes the client; it makes no call.
func (c *connection) open() (*client.Client, error) {
	url := cmp.Or(c.url, os.Getenv("HUBN_URL"))
	token := cmp.Or(c.token, os.Getenv("HUBN_TOKEN"))
	if url == "" {
		e, err := c.endpoints()
		if err != nil {
			return nil, err
		}
		if e.RegistryURL == "" {
			return nil, fmt.Errorf("the hubn on %s does not run the Registry: name one that does with --url", c.folder())
		}
		url = e.RegistryURL
		if token == "" && e.AdminTokenFile != "" {
			content, err := os.ReadFile(e.AdminTokenFile)
			if err != nil {
				return nil, fmt.Errorf("read the admin token: %w; name another with --token", err)
			}
			token = strings.TrimSpace(string(content))
		}
	}
	c.url = url
	cl, err := client.New(client.Options{
		URL:       strings.TrimRight(url, "/"),
		Token:     token,
		CAFile:    cmp.Or(c.caFile, os.Getenv("HUBN_CA_FILE")),
		UserAgent: "hubn-cli/" + cmp.Or(c.shell.Version, "development"),
	})
	if err != nil {
		return nil, c.shell.Usage(err)
	}
	return cl, nil
}
