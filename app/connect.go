package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/app/problem"
)

// statusTimeout bounds a question to a running process; it answers from memory.
const statusTimeout = 5 * time.Second

// maxStatusBody bounds the answer; the largest status is some kilobytes.
const maxStatusBody = 1 << 20

// connection says which running process a command asks: the one at --url, else
// the one that runs on the data folder.
type connection struct {
	url, token, caFile, dataDir string
}

func (c *connection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", os.Getenv("HUBN_URL"), "base URL of a running hubn (HUBN_URL)")
	cmd.Flags().StringVar(&c.token, "token", "", "token to show it (HUBN_TOKEN)")
	cmd.Flags().StringVar(&c.caFile, "ca-file", os.Getenv("HUBN_CA_FILE"), "PEM file with the authorities that its certificate is checked against (HUBN_CA_FILE)")
	cmd.Flags().StringVar(&c.dataDir, "data-dir", cmp.Or(os.Getenv("HUBN_DATA_DIR"), DefaultConfig().DataDir), "data folder of a hubn on this machine (HUBN_DATA_DIR)")
}

// find fills in what was not given from the process on the data folder.
func (c *connection) find() error {
	if c.token == "" {
		c.token = os.Getenv("HUBN_TOKEN")
	}
	if c.url != "" {
		c.url = strings.TrimRight(c.url, "/")
		return nil
	}
	e, err := readEndpoints(c.dataDir)
	if err != nil {
		return err
	}
	if e.RegistryURL == "" {
		return fmt.Errorf("the hubn on %s does not run the registry: name one that does with --url", c.dataDir)
	}
	c.url = e.RegistryURL
	if c.token == "" {
		content, err := os.ReadFile(e.AdminTokenFile)
		if err != nil {
			return err
		}
		c.token = strings.TrimSpace(string(content))
	}
	return nil
}

// get asks the process for one of its own documents.
func (c *connection) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return usageError{fmt.Errorf("--url: %w", err)}
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	httpClient, err := c.httpClient()
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	response, err := httpClient.Do(request)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", c.url, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBody))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return refusal(c.url+path, response, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s%s is not answered by a hubn: %w", c.url, path, err)
	}
	return nil
}

// refusal is the problem document of an answer, or what can be said without one.
func refusal(url string, response *http.Response, body []byte) error {
	var document struct{ Type, Detail string }
	if response.Header.Get("Content-Type") == problem.ContentType && json.Unmarshal(body, &document) == nil {
		return problem.New(problem.KindOfStatus(document.Type, response.StatusCode), "%s", document.Detail)
	}
	return fmt.Errorf("%s answers %s", url, response.Status)
}

func (c *connection) httpClient() (*http.Client, error) {
	if c.caFile == "" {
		return &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, nil
	}
	pem, err := os.ReadFile(c.caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file: %s holds no PEM certificate", c.caFile)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}, nil
}
