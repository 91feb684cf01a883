// Package demo puts a small registry of documentation prefixes (RFC 5737, 3849,
// 9637), names (RFC 2606) and AS numbers (RFC 5398) into an empty Registry, as
// any client would: over its HTTP API. What is in it stands in demo.json.
package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"

	"hubn/app/problem"
	"hubn/registry/client"
)

//go:embed demo.json
var documents []byte

// object is one object of the demo: what is posted, and where.
type object struct {
	Path string          `json:"path"`
	Body json.RawMessage `json:"body"`
}

// reason stands beside every object in the change log.
const reason = "demo registry of documentation prefixes"

// Put creates the demo's objects if the Registry holds no organisation and no
// prefix yet, and answers how many it created. A registry that somebody uses is
// left alone.
func Put(ctx context.Context, registry *client.Client) (created int, err error) {
	for _, path := range []string{"/v1/organisations", "/v1/prefixes"} {
		empty, err := isEmpty(ctx, registry, path)
		if err != nil || !empty {
			return 0, err
		}
	}
	var objects []object
	if err := json.Unmarshal(documents, &objects); err != nil {
		return 0, fmt.Errorf("demo.json: %w", err)
	}
	for _, o := range objects {
		_, err := registry.Create(ctx, o.Path, client.Write{Reason: reason}, o.Body, nil)
		switch {
		case problem.Is(err, problem.Conflict):
			// Somebody else makes it at the same time.
		case err != nil:
			return created, fmt.Errorf("%s %s: %w", o.Path, o.Body, err)
		default:
			created++
		}
	}
	return created, nil
}

func isEmpty(ctx context.Context, registry *client.Client, path string) (bool, error) {
	page, err := client.ListPage[json.RawMessage](ctx, registry, path, url.Values{"limit": {"1"}})
	return len(page.Items) == 0, err
}
