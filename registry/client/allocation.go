package client

import (
	"context"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Prefixes answers what makes several prefixes at once: next-free and split.
type Prefixes struct {
	Items []Prefix `json:"items"` // in address order
}

// FreeBlock is a prefix of a pool that nobody has and that is not in quarantine.
type FreeBlock struct {
	Prefix    netip.Prefix `json:"prefix"`
	Addresses string       `json:"addresses"` // a decimal number, which may have 39 digits
}

// Utilisation says how much of a pool is taken. The numbers of addresses are
// decimal numbers as text: those of IPv6 have up to 39 digits.
type Utilisation struct {
	ID           int64        `json:"id"`
	Prefix       netip.Prefix `json:"prefix"`
	Kind         string       `json:"kind"`
	Organisation string       `json:"organisation,omitempty"`
	Name         string       `json:"name"`
	Children     int          `json:"children"`  // the prefixes right below
	Addresses    string       `json:"addresses"` // of the pool
	Used         string       `json:"used"`      // in its children and its anycast allocations
	Quarantined  string       `json:"quarantined"`
	Free         string       `json:"free"`
	UsedPercent  float64      `json:"used_percent"`
	// LargestFree is the length of the largest free block; nil where nothing is free.
	LargestFree *int `json:"largest_free,omitempty"`
}

// Quarantine is space that a resource gave up and that is not offered yet, because
// modules may still show what they derived from the resource.
type Quarantine struct {
	ID       int64        `json:"id"`
	Prefix   netip.Prefix `json:"prefix"`
	Resource Resource     `json:"resource"` // which held it
	Version  int64        `json:"version"`  // of the resource, that gave it up
	Since    time.Time    `json:"since"`
	// Waiting are the modules that have not reported its artefacts withdrawn; when
	// there are none, the space is free again.
	Waiting []string `json:"waiting"`
}

// NextFree takes the first free prefixes of a pool, which is its id or its prefix;
// body is a prefix without the prefix, with length and count.
func (c *Client) NextFree(ctx context.Context, pool string, w Write, body any) (out Prefixes, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(pool, "next-free"), w, body, &out)
	return out, written, err
}

// Split divides a prefix into parts of a length.
func (c *Client) Split(ctx context.Context, prefix string, w Write, length int) (out Prefixes, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(prefix, "split"), w, map[string]any{"length": length}, &out)
	return out, written, err
}

// Merge makes one prefix of several, which are ids or prefixes.
func (c *Client) Merge(ctx context.Context, prefix string, w Write, with []string) (out Prefix, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(prefix, "merge"), w, map[string]any{"with": with}, &out)
	return out, written, err
}

// Resize makes a prefix larger or smaller where it lies.
func (c *Client) Resize(ctx context.Context, prefix string, w Write, to netip.Prefix) (out Prefix, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(prefix, "resize"), w, map[string]any{"prefix": to}, &out)
	return out, written, err
}

// ResizeTo makes a prefix as long as length says, around or at its first address.
func (c *Client) ResizeTo(ctx context.Context, prefix string, w Write, length int) (out Prefix, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(prefix, "resize"), w, map[string]any{"length": length}, &out)
	return out, written, err
}

// Move gives a prefix other addresses.
func (c *Client) Move(ctx context.Context, prefix string, w Write, to netip.Prefix) (out Prefix, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(prefix, "move"), w, map[string]any{"prefix": to}, &out)
	return out, written, err
}

// MoveInto gives a prefix the first free addresses of its size in a pool.
func (c *Client) MoveInto(ctx context.Context, prefix string, w Write, pool string) (out Prefix, written Written, err error) {
	written, err = c.Create(ctx, prefixOperation(prefix, "move"), w, map[string]any{"parent": pool}, &out)
	return out, written, err
}

// FreeSpace lists the free blocks of a pool, page by page; with a length, only those
// that have room for it.
func (c *Client) FreeSpace(ctx context.Context, pool string, length int, after string, limit int) (out Page[FreeBlock], err error) {
	query := url.Values{}
	if length > 0 {
		query.Set("length", strconv.Itoa(length))
	}
	setPage(query, after, limit)
	return out, c.get(ctx, prefixOperation(pool, "free"), query, &out)
}

// Utilisation says how much of a pool is taken.
func (c *Client) Utilisation(ctx context.Context, pool string) (out Utilisation, err error) {
	return out, c.get(ctx, prefixOperation(pool, "utilisation"), nil, &out)
}

// ReleaseQuarantine offers space again although modules have not reported.
func (c *Client) ReleaseQuarantine(ctx context.Context, id int64, w Write) error {
	_, err := c.Delete(ctx, "/v1/quarantine/"+strconv.FormatInt(id, 10), w)
	return err
}

func prefixOperation(prefix, operation string) string {
	return "/v1/prefixes/" + url.PathEscape(prefix) + "/" + operation
}
