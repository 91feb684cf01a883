package app

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestClientWithItsOwnAuthoritiesIsElseTheUsualOne(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := httpClient(file)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if transport := c.Transport.(*http.Transport); transport.Proxy == nil || transport.TLSHandshakeTimeout == 0 {
		t.Errorf("the transport has no proxy of the environment or no timeout: %+v", transport)
	}
	response, err := c.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
}
