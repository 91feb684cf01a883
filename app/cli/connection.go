package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// defaultDataDir is where a hubn of this folder keeps its data.
const defaultDataDir = ".hubn"

// Connection says which hubn a command asks: the one at --url, else the one that
// runs on the data folder.
type Connection struct {
	shell                       *shell
	url, token, caFile, dataDir string
}

// Connect adds the flags that say where a running hubn is.
func Connect(w Wiring, cmd *cobra.Command) *Connection { return newShell(w).connect(cmd) }

func (s *shell) connect(cmd *cobra.Command) *Connection {
	c := &Connection{shell: s}
	flags := cmd.Flags()
	flags.StringVar(&c.url, "url", "", "base URL of the Registry (HUBN_URL)")
	flags.StringVar(&c.token, "token", "", "token to show it (HUBN_TOKEN)")
	flags.StringVar(&c.caFile, "ca-file", "", "PEM file with the authorities that its certificate is checked against (HUBN_CA_FILE)")
	flags.StringVar(&c.dataDir, "data-dir", "", "data folder of a hubn on this machine (HUBN_DATA_DIR; else .hubn)")
	return c
}

// folder is the data folder that is asked for.
func (c *Connection) folder() string {
	return cmp.Or(c.dataDir, os.Getenv("HUBN_DATA_DIR"), defaultDataDir)
}

// endpoints reads what the hubn on the data folder wrote.
func (c *Connection) endpoints() (Endpoints, error) { return ReadEndpoints(c.folder()) }

// Target is what the flags and the data folder say of a running hubn.
type Target struct {
	URL, Token string
	// CAFile is empty for the system's authorities.
	CAFile string
}

// Find says where the hubn is and which token to show it.
func (c *Connection) Find() (Target, error) {
	t := Target{
		URL:    cmp.Or(c.url, os.Getenv("HUBN_URL")),
		Token:  cmp.Or(c.token, os.Getenv("HUBN_TOKEN")),
		CAFile: cmp.Or(c.caFile, os.Getenv("HUBN_CA_FILE")),
	}
	if t.URL == "" {
		local, err := Local(c.folder(), t.Token)
		if err != nil {
			return Target{}, err
		}
		t.URL, t.Token = local.URL, local.Token
	}
	t.URL = strings.TrimRight(t.URL, "/")
	c.url = t.URL
	return t, nil
}

// Local is the hubn that runs on a data folder, with the token that is given,
// else its administrator's.
func Local(dataDir, token string) (Target, error) {
	e, err := ReadEndpoints(dataDir)
	if err != nil {
		return Target{}, err
	}
	if e.RegistryURL == "" {
		return Target{}, fmt.Errorf("the hubn on %s does not run the Registry: name one that does with --url", dataDir)
	}
	t := Target{URL: e.RegistryURL, Token: token, CAFile: os.Getenv("HUBN_CA_FILE")}
	if t.Token == "" && e.AdminTokenFile != "" {
		content, err := os.ReadFile(e.AdminTokenFile)
		if err != nil {
			return Target{}, fmt.Errorf("read the admin token: %w; name another with --token", err)
		}
		t.Token = strings.TrimSpace(string(content))
	}
	return t, nil
}

// open makes the client; it makes no call.
func (c *Connection) open() (*client.Client, error) {
	t, err := c.Find()
	if err != nil {
		return nil, err
	}
	cl, err := client.New(client.Options{
		URL:       t.URL,
		Token:     t.Token,
		CAFile:    t.CAFile,
		UserAgent: "hubn-cli/" + cmp.Or(c.shell.Version, "development"),
	})
	if err != nil {
		return nil, c.shell.Usage(err)
	}
	return cl, nil
}
