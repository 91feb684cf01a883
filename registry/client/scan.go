package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// MaxPage is how many sources a page of a scan may hold.
const MaxPage = 1000

// maxLine bounds one line of an NDJSON stream; the longest is the head with the
// keys that changed.
const maxLine = 8 << 20

// PageRequest asks for one page of a scan. The zero value asks for the first
// page, of the Registry's own size.
type PageRequest struct {
	Limit int
	// After is the Next of the page before.
	After string
	// Since is a token of this scan: the answer then lists what changed since.
	Since string
}

// ScanPage reads one page of all sources of a kind. An error means that nothing
// is known of the page; a scan that met one proves no absence.
func (c *Client) ScanPage(ctx context.Context, kind Kind, req PageRequest) (SourcePage, error) {
	query := url.Values{}
	if req.Limit > 0 {
		query.Set("limit", strconv.Itoa(req.Limit))
	}
	if req.After != "" {
		query.Set("after", req.After)
	}
	if req.Since != "" {
		query.Set("since", req.Since)
	}
	call := call{method: http.MethodGet, path: "/v1/sources/" + url.PathEscape(string(kind)), query: query}
	var page SourcePage
	got, err := c.do(ctx, call, &page)
	if err != nil {
		return SourcePage{}, err
	}
	if page.Lineage != got.lineage || page.Token == "" || page.ReadAt.IsZero() {
		return SourcePage{}, unavailable(NotRegistry, call, "the page lacks its lineage, its token or the time of reading")
	}
	if page.Complete == (page.Next != "") {
		return SourcePage{}, unavailable(NotRegistry, call, "the page says neither that it is the last nor what comes next")
	}
	for _, s := range page.Items {
		f := fetched(call, Resource{kind, s.Resource.Key}, s, Reading{page.Lineage, page.ReadAt}, got.lineage)
		if f.Outcome() != Present {
			return SourcePage{}, unavailable(NotRegistry, call, "an item of the page is not a present %s: %s is %s", kind, s.Resource, s.State)
		}
	}
	return page, nil
}

// Fetched is the items of the page as outcomes; ScanPage made sure that each is
// present.
func (p SourcePage) Fetched() []Fetched {
	out := make([]Fetched, len(p.Items))
	for i, s := range p.Items {
		out[i] = PresentSource(s.Resource, s.Version, s.Changed, s.Body, Reading{p.Lineage, p.ReadAt})
	}
	return out
}

// ScanIDs streams the key and version of every source of a kind, read in one
// snapshot and ordered as the pages are, to each; since may be empty. It answers
// the head and the number of lines once the stream has proven to be whole: what
// each was given before an error proves no absence. An error of each ends the
// stream and is answered as it is.
func (c *Client) ScanIDs(ctx context.Context, kind Kind, since string, each func(SourceID) error) (SourceIDsHead, int64, error) {
	call := call{method: http.MethodGet, path: "/v1/sources/" + url.PathEscape(string(kind)) + "/ids"}
	if since != "" {
		call.query = url.Values{"since": {since}}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(c.silence, func() {
		cancel(fmt.Errorf("the stream was silent for %s", c.silence))
	})
	defer watchdog.Stop()
	resp, err := c.send(ctx, call)
	if err != nil {
		return SourceIDsHead{}, 0, err
	}
	defer resp.Body.Close()
	if err := expectMedia(resp, "application/x-ndjson"); err != nil {
		return SourceIDsHead{}, 0, unavailable(NotRegistry, call, "%v", err)
	}
	r := idReader{ctx: ctx, call: call, lines: bufio.NewReaderSize(resp.Body, 64<<10), watchdog: watchdog, silence: c.silence}
	head, count, err := r.read(resp.Header.Get(LineageHeader), each)
	if err == nil {
		// The end of the stream is read too: a connection that is dropped before
		// it looks to the Registry like a caller who gave up.
		_, _ = io.Copy(io.Discard, io.LimitReader(r.lines, maxProblem))
	}
	return head, count, err
}

// idReader reads one stream of ids.
type idReader struct {
	ctx      context.Context
	call     call
	lines    *bufio.Reader
	watchdog *time.Timer
	silence  time.Duration
}

func (r *idReader) read(lineage string, each func(SourceID) error) (SourceIDsHead, int64, error) {
	var head SourceIDsHead
	line, err := r.line()
	if err != nil {
		return head, 0, err
	}
	if err := json.Unmarshal(line, &head); err != nil || head.Lineage != lineage || head.Token == "" || head.ReadAt.IsZero() {
		return head, 0, unavailable(NotRegistry, r.call, "the first line %.100q is not the head of a stream of ids", line)
	}
	for count := int64(0); ; count++ {
		if line, err = r.line(); err != nil {
			return head, count, err
		}
		var next struct {
			SourceID
			Complete *bool  `json:"complete"`
			Count    *int64 `json:"count"`
		}
		if err := json.Unmarshal(line, &next); err != nil {
			return head, count, unavailable(NotRegistry, r.call, "line %d of the stream cannot be read: %v", count+2, err)
		}
		if next.Complete != nil {
			if !*next.Complete || next.Count == nil || *next.Count != count {
				return head, count, unavailable(NotRegistry, r.call, "%d ids came, and the last line says %.100q", count, line)
			}
			return head, count, nil
		}
		if next.Key == "" || next.Version < 1 {
			return head, count, unavailable(NotRegistry, r.call, "line %d of the stream names no key and version: %.100q", count+2, line)
		}
		if err := each(next.SourceID); err != nil {
			return head, count, err
		}
	}
}

// line reads one line; the end of the stream is an error, since the tail line
// was not there.
func (r *idReader) line() ([]byte, error) {
	var long []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			r.watchdog.Reset(r.silence)
			return bytes.TrimSuffix(part, []byte("\n")), nil
		case err == nil:
			r.watchdog.Reset(r.silence)
			return bytes.TrimSuffix(append(long, part...), []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > maxLine {
				return nil, unavailable(NotRegistry, r.call, "a line of the stream is longer than %d bytes", maxLine)
			}
		case errors.Is(err, io.EOF):
			return nil, unavailable(Unreachable, r.call, "the stream broke off before its last line")
		default:
			return nil, unreachable(r.ctx, r.call, err)
		}
	}
}

// TupleSources answers the active sources of a tuple.
func (c *Client) TupleSources(ctx context.Context, t Tuple) (TupleSources, error) {
	call := call{method: http.MethodGet, path: "/v1/sources", query: url.Values{"tuple": {t.String()}}}
	var out TupleSources
	got, err := c.do(ctx, call, &out)
	if err != nil {
		return TupleSources{}, err
	}
	if out.Lineage != got.lineage || out.Tuple != t || out.Items == nil {
		return TupleSources{}, unavailable(NotRegistry, call, "the answer speaks of tuple %s in lineage %q", out.Tuple, out.Lineage)
	}
	return out, nil
}
