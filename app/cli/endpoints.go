package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// EndpointsFile is the file in its data folder in which a running hubn says
// where its services are.
const EndpointsFile = "endpoints.json"

// Endpoints is the content of EndpointsFile. It names what runs in the process;
// addresses are IPv4 host:port.
type Endpoints struct {
	// RegistryURL has no path.
	RegistryURL    string `json:"registry_url,omitempty"`
	AdminTokenFile string `json:"admin_token_file,omitempty"`
	// DatabaseURL is the libpq URI of the owner role, as psql takes it.
	DatabaseURL string `json:"database_url,omitempty"`
	RedisURL    string `json:"redis_url,omitempty"`
}

// ReadEndpoints reads the endpoints of the process that runs on a data folder.
func ReadEndpoints(dir string) (Endpoints, error) {
	path := filepath.Join(dir, EndpointsFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Endpoints{}, fmt.Errorf("no hubn runs on %s (there is no %s): start one with `hubn dev`, "+
			"name its folder with --data-dir, or name a Registry with --url and --token", dir, path)
	}
	if err != nil {
		return Endpoints{}, err
	}
	var e Endpoints
	if err := json.Unmarshal(content, &e); err != nil {
		return Endpoints{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}
