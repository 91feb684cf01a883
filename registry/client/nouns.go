package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Page is one page of a list.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// ListPage reads one page of a list: path is "/v1/prefixes"; filters, limit and
// after are in query.
func ListPage[T any](ctx context.Context, c *Client, path string, query url.Values) (page Page[T], err error) {
	return page, c.get(ctx, path, query, &page)
}

// List yields every item of a list, page by page, and ends with the first error.
func List[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := url.Values{}
		for k, v := range query {
			q[k] = v
		}
		for {
			page, err := ListPage[T](ctx, c, path, q)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("after", page.Next)
		}
	}
}

// Write is how a change is made: why, and whether only to try it.
type Write struct {
	Reason string
	DryRun bool
	// IfMatch is the ETag that the change was decided on; every change of an
	// existing object needs it.
	IfMatch string
	// IdempotencyKey makes a repeated Create answer as the first one did.
	IdempotencyKey string
}

func (w Write) call(method, path string, body any) call {
	c := call{method: method, path: path, body: body, query: url.Values{}, header: http.Header{}}
	if w.Reason != "" {
		c.query.Set("reason", w.Reason)
	}
	if w.DryRun {
		c.query.Set("dry_run", "true")
	}
	if w.IfMatch != "" {
		c.header.Set("If-Match", w.IfMatch)
	}
	if w.IdempotencyKey != "" {
		c.header.Set("Idempotency-Key", w.IdempotencyKey)
	}
	return c
}

// Written is what a change made.
type Written struct {
	ETag     string
	Lineage  string
	Produced []Produced
}

// Get reads one object, "/v1/prefixes/17", and answers its ETag.
func (c *Client) Get(ctx context.Context, path string, out any) (etag string, err error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: path}, out)
	return got.header.Get("ETag"), err
}

// Create makes an object with a POST to its collection; out receives it.
func (c *Client) Create(ctx context.Context, path string, w Write, in, out any) (Written, error) {
	return c.write(ctx, w.call(http.MethodPost, path, in), out)
}

// Patch changes an object by a JSON merge patch (RFC 7396); out receives it as
// it is afterwards.
func (c *Client) Patch(ctx context.Context, path string, w Write, patch, out any) (Written, error) {
	return c.write(ctx, w.call(http.MethodPatch, path, patch), out)
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, path string, w Write) (Written, error) {
	return c.write(ctx, w.call(http.MethodDelete, path, nil), nil)
}

func (c *Client) write(ctx context.Context, call call, out any) (Written, error) {
	got, err := c.do(ctx, call, out)
	if err != nil {
		return Written{}, err
	}
	produced, err := ParseProduced(got.header.Get(ProducedHeader))
	if err != nil {
		return Written{}, unavailable(NotRegistry, call, "%v", err)
	}
	return Written{ETag: got.header.Get("ETag"), Lineage: got.lineage, Produced: produced}, nil
}

// patient is the transport without its bound on the wait for a header: the
// answer to an import begins when the import is done.
func patient(rt http.RoundTripper) http.RoundTripper {
	t, ok := rt.(*http.Transport)
	if !ok {
		return rt
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = 0
	t.DisableKeepAlives = true
	return t
}

// Open makes a GET whose answer is not JSON, such as an export, and answers its
// body; the caller closes it. ctx alone bounds it in time.
func (c *Client) Open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// FormatProduced writes the produced versions as the header's value.
func FormatProduced(produced []Produced) string {
	parts := make([]string, len(produced))
	for i, p := range produced {
		parts[i] = p.Resource.String() + "@" + strconv.FormatInt(p.Version, 10)
	}
	return strings.Join(parts, ", ")
}

// ParseProduced reads the header's value; empty is no version.
func ParseProduced(header string) ([]Produced, error) {
	var out []Produced
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, number, _ := strings.Cut(part, "@")
		resource, err := ParseResource(name)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", ProducedHeader, part, err)
		}
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %q is not a version", ProducedHeader, part, number)
		}
		out = append(out, Produced{resource, version})
	}
	return out, nil
}
