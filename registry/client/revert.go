package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// Reverted is what reverting a change made.
type Reverted struct {
	// Change is what was reverted, and Resource what it is now about: another one
	// than the change's where a deleted resource was created anew.
	Change   int64    `json:"change"`
	Resource Resource `json:"resource"`
	// Did is created, changed or deleted.
	Did string `json:"did"`
	// Object is what is there now; absent after a deletion.
	Object json.RawMessage `json:"object,omitempty"`
	// Patch is the merge patch that undid an update.
	Patch json.RawMessage `json:"patch,omitempty"`
}

// Revert undoes one entry of the change log by a new change.
func (c *Client) Revert(ctx context.Context, id int64, w Write) (out Reverted, written Written, err error) {
	written, err = c.write(ctx, w.call(http.MethodPost, changePath(id)+"/revert", nil), &out)
	return out, written, err
}
