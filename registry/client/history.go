package client

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// Change is one entry of the change log: a row that was inserted, updated or deleted.
type Change struct {
	TraceChange
	Resource Resource `json:"resource"`
	// Name is what people called the resource then; empty where the row has none.
	Name string `json:"name,omitempty"`
	// Row is the row's key in its table.
	Row   string `json:"row"`
	Token string `json:"token,omitempty"` // the public part
	// Changed are the members of the row that an update changed.
	Changed []string `json:"changed,omitempty"`
}

// ChangeFilter selects entries of the change log.
type ChangeFilter struct {
	// Resource is prefix:17, or a name that resources have or had: 192.0.2.0/24,
	// AS64496, a handle.
	Resource     string
	Actor        string
	Token        string
	Request      string
	Op           string
	Since, Until time.Time
	After        string
	Limit        int
}

// Changes reads one page of the change log, newest first.
func (c *Client) Changes(ctx context.Context, f ChangeFilter) (page Page[Change], err error) {
	query := url.Values{}
	for name, value := range map[string]string{"resource": f.Resource, "actor": f.Actor, "token": f.Token, "request": f.Request, "op": f.Op} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !value.IsZero() {
			query.Set(name, value.UTC().Format(time.RFC3339Nano))
		}
	}
	setPage(query, f.After, f.Limit)
	return page, c.get(ctx, "/v1/changes", query, &page)
}

// Change reads one entry of the change log.
func (c *Client) Change(ctx context.Context, id int64) (out Change, err error) {
	return out, c.get(ctx, changePath(id), nil, &out)
}

func changePath(id int64) string { return "/v1/changes/" + strconv.FormatInt(id, 10) }

// Past is a resource as it was at a time.
type Past struct {
	Lineage  string    `json:"lineage"`
	Resource Resource  `json:"resource"`
	Name     string    `json:"name,omitempty"`
	Time     time.Time `json:"time"`
	// Exists is false where it was not yet created, or deleted already.
	Exists bool `json:"exists"`
	// Change made it what it was; 0 where the change log does not reach back that far.
	Change    int64     `json:"change,omitempty"`
	ChangedAt time.Time `json:"changed_at,omitzero"`
	// Object is what the API answered of it then: an Organisation, ASNHolder, Prefix
	// or Anycast, or the list of an address's PTRRecords. Other kinds have rows only.
	Object json.RawMessage `json:"object,omitempty"`
	Rows   []PastRow       `json:"rows"`
}

// PastRow is one row of a resource as it was.
type PastRow struct {
	Table string          `json:"table"`
	Row   string          `json:"row"`
	Data  json.RawMessage `json:"data"`
}

// At reads a resource as it was at a time. r.Key may be a name that the resource
// had then: prefix:192.0.2.0/24.
func (c *Client) At(ctx context.Context, r Resource, at time.Time) (out Past, err error) {
	query := url.Values{"time": {at.UTC().Format(time.RFC3339Nano)}}
	return out, c.get(ctx, resourcePath("/v1/changes/", r)+"/at", query, &out)
}

// Holding is a time during which one organisation, or nobody, held a resource.
type Holding struct {
	Resource       Resource  `json:"resource"`
	OrganisationID int64     `json:"organisation_id,omitempty"` // 0 is nobody
	Organisation   string    `json:"organisation,omitempty"`    // its handle, the last one where it is gone
	Since          time.Time `json:"since,omitzero"`            // zero where the change log does not reach back that far
	Until          time.Time `json:"until,omitzero"`            // zero where it still does
	Change         int64     `json:"change,omitempty"`          // that gave it
	Actor          string    `json:"actor,omitempty"`
	Reason         string    `json:"reason,omitempty"`
}

// Holders answers who held a resource, newest first.
type Holders struct {
	Lineage string    `json:"lineage"`
	Items   []Holding `json:"items"`
}

// Holders reads who held a resource, and since when. r.Key may be a name that
// resources had; then all of them are answered.
func (c *Client) Holders(ctx context.Context, r Resource) (out Holders, err error) {
	return out, c.get(ctx, resourcePath("/v1/changes/", r)+"/holders", nil, &out)
}

// StateCounts answers GET /v1/state/counts.
type StateCounts struct {
	Lineage string `json:"lineage"`
	// CountedAt is the snapshot that the numbers are of; a count is kept for a
	// while, the longer the more it cost.
	CountedAt time.Time `json:"counted_at"`
	Total     int64     `json:"total"`
	// Overall has all the words, and Kinds the same for each kind of resource.
	Overall map[Overall]int64          `json:"overall"`
	Kinds   map[Kind]map[Overall]int64 `json:"kinds"`
	// Modules are who makes resources fail, be held or stale, or is waited for.
	Modules []ModuleCounts `json:"modules"`
}

// ModuleCounts says of how many resources one module keeps them from being
// applied, by its last report or for want of one. Other modules may too.
type ModuleCounts struct {
	Module  string `json:"module"`
	Stale   bool   `json:"stale,omitempty"` // it is not heard of
	Failed  int64  `json:"failed"`
	Held    int64  `json:"held"`
	Waiting int64  `json:"waiting"` // it has not reported the requested version
}

// StateCounts counts the resources by their overall word.
func (c *Client) StateCounts(ctx context.Context) (out StateCounts, err error) {
	return out, c.get(ctx, "/v1/state/counts", nil, &out)
}
