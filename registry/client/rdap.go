package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"hubn/app/problem"
)

// rdapContentType is the media type of RDAP's answers (RFC 7480 section 4.2).
const rdapContentType = "application/rdap+json"

// RDAP asks what the Registry tells everybody: path is the lookup below /rdap/,
// such as "ip/192.0.2.1". It answers the document (RFC 9083) as it came.
func (c *Client) RDAP(ctx context.Context, path string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no complete answer within %s", c.timeout))
	defer cancel()
	call := call{method: http.MethodGet, path: "/rdap/" + path}
	req, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, call, err)
	}
	defer resp.Body.Close()
	if err := expectMedia(resp, rdapContentType); err != nil {
		if resp.StatusCode >= 400 {
			return nil, c.refusal(ctx, call, resp) // RDAP is off, or nothing is up
		}
		return nil, unavailable(NotRegistry, call, "%v", err)
	}
	if err := c.ours(call, resp.Header.Get(LineageHeader)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem+1))
	switch {
	case err != nil:
		return nil, unreachable(ctx, call, err)
	case len(body) > maxProblem:
		return nil, unavailable(NotRegistry, call, "the answer is larger than %d bytes", maxProblem)
	case resp.StatusCode >= 400:
		return nil, rdapRefusal(call, resp.StatusCode, body)
	case !json.Valid(body):
		return nil, unavailable(NotRegistry, call, "the answer is not JSON")
	}
	return body, nil
}

// rdapRefusal reads an error of RDAP (RFC 9083 section 6).
func rdapRefusal(call call, status int, body []byte) error {
	var doc struct {
		Description []string `json:"description"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return unavailable(NotRegistry, call, "HTTP status %d, and its error cannot be read: %v", status, err)
	}
	detail := strings.Join(doc.Description, " ")
	if status >= 500 && status != http.StatusNotImplemented {
		return unavailable(Failing, call, "HTTP status %d: %s", status, detail)
	}
	kind := problem.KindOfStatus("", status)
	if status == http.StatusNotImplemented {
		kind = problem.Invalid
	}
	return problem.New(kind, "%s", detail)
}
