package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"hubn/app/cli"
	"hubn/app/problem"
)

// statusTimeout bounds a question to a running process; it answers from memory.
const statusTimeout = 5 * time.Second

// maxStatusBody bounds the answer; the largest status is some kilobytes.
const maxStatusBody = 1 << 20

// ask asks a running process for one of its own documents.
func ask(ctx context.Context, t cli.Target, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL+path, nil)
	if err != nil {
		return usageError{fmt.Errorf("--url: %w", err)}
	}
	request.Header.Set("Authorization", "Bearer "+t.Token)
	httpClient, err := httpClient(t.CAFile)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	response, err := httpClient.Do(request)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", t.URL, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBody))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return refusal(t.URL+path, response, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s%s is not answered by a hubn: %w", t.URL, path, err)
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

// httpClient checks certificates against a file of authorities, or the system's.
func httpClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile == "" {
		return &http.Client{Transport: transport}, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file: %s holds no PEM certificate", caFile)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: transport}, nil
}
