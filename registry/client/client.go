package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"hubn/app/problem"
)

// The headers that the Registry adds to its answers.
const (
	// LineageHeader carries the current lineage; every answer of the Registry has it.
	LineageHeader = "HubN-Lineage"
	// ProducedHeader lists the versions that a change made: "prefix:17@4, ptr:192.0.2.1@2".
	ProducedHeader = "HubN-Produced"
)

// The bounds of a call. None of them is a setting: they protect the caller, and
// no sound answer comes near them.
const (
	// dialTimeout: a Registry that does not accept a connection in this time is not there.
	dialTimeout = 5 * time.Second
	// callTimeout is for one whole call, its body included. A page of 1,000
	// sources takes some 50 ms; the Registry's own statement timeout is below this.
	callTimeout = 60 * time.Second
	// streamSilence ends a stream that sends nothing for so long.
	streamSilence = 60 * time.Second
	// maxBody bounds an answer: 500 sources of the largest kind stay far below.
	maxBody = 64 << 20
	// maxProblem bounds a problem document.
	maxProblem = 1 << 20
)

// Options say where the Registry is and who asks.
type Options struct {
	// URL is the base URL without a path: "http://127.0.0.1:8080".
	URL string
	// Token is the bearer token; empty sends none.
	Token string
	// CAFile is a PEM file with the authorities that the Registry's certificate
	// is checked against; empty means the system's.
	CAFile string
	// UserAgent names the caller in the Registry's log; empty means "hubn".
	UserAgent string
	// Timeout bounds a whole call; zero means 60 s.
	Timeout time.Duration
}

// Client calls one Registry. It is safe for concurrent use; it never retries,
// and never follows a redirect, since what redirects is not the Registry.
type Client struct {
	base      *url.URL
	token     string
	userAgent string
	timeout   time.Duration
	silence   time.Duration
	maxBody   int64
	lineage   string
	http      *http.Client
}

// New makes a client; it makes no call.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a Registry: write http://HOST:PORT or https://HOST:PORT", o.URL)
	}
	if strings.Trim(base.Path, "/") != "" {
		return nil, fmt.Errorf("the URL of the Registry has no path, %q has %q: leave it out", o.URL, base.Path)
	}
	base.Path = ""
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: callTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          32,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the Registry's certificate authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c := &Client{
		base:      base,
		token:     o.Token,
		userAgent: o.UserAgent,
		timeout:   o.Timeout,
		silence:   streamSilence,
		maxBody:   maxBody,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if c.userAgent == "" {
		c.userAgent = "hubn"
	}
	if c.timeout <= 0 {
		c.timeout = callTimeout
	}
	return c, nil
}

// In answers a client that takes answers of one lineage only: whatever else is
// served is unavailable with a *LineageError. It shares c's connections. An
// empty lineage takes any.
func (c *Client) In(lineage string) *Client {
	in := *c
	in.lineage = lineage
	return &in
}

// URL is the base URL.
func (c *Client) URL() string { return c.base.String() }

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	method string
	path   string // escaped, begins with /v1/
	query  url.Values
	header http.Header
	body   any
	// raw is sent as it is, instead of body, with its media type.
	raw     io.Reader
	rawType string
}

// answer is what is known of a response whose body was decoded.
type answer struct {
	lineage string
	header  http.Header
}

// do carries out a call and decodes the JSON body of a 2xx answer into out (nil
// ignores it). An error is a *problem.Error where the Registry itself states
// it, and an *UnavailableError in every other case.
func (c *Client) do(ctx context.Context, call call, out any) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no complete answer within %s", c.timeout))
	defer cancel()
	resp, err := c.send(ctx, call)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got := answer{lineage: resp.Header.Get(LineageHeader), header: resp.Header}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.maxBody+1))
	if err != nil {
		return got, unreachable(ctx, call, err)
	}
	if int64(len(body)) > c.maxBody {
		return got, unavailable(NotRegistry, call, "the answer is larger than %d bytes", c.maxBody)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return got, nil
	}
	if err := expectMedia(resp, "application/json"); err != nil {
		return got, unavailable(NotRegistry, call, "%v", err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return got, unavailable(NotRegistry, call, "the answer is not what the Registry writes: %v", err)
	}
	return got, nil
}

// send carries out a call and answers a 2xx response of the Registry and of the
// wanted lineage, with its body open; everything else is an error as of do.
func (c *Client) send(ctx context.Context, call call) (*http.Response, error) {
	req, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, call, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		if err := c.ours(call, resp.Header.Get(LineageHeader)); err != nil {
			resp.Body.Close()
			return nil, err
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refusal(ctx, call, resp)
}

func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	target := c.base.String() + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	body, media := call.raw, call.rawType
	if body == nil && call.body != nil {
		b, err := json.Marshal(call.body)
		if err != nil {
			return nil, problem.New(problem.Invalid, "the body of %s %s cannot be written as JSON: %v", call.method, call.path, err)
		}
		body, media = bytes.NewReader(b), "application/json"
		if call.method == http.MethodPatch {
			media = "application/merge-patch+json" // RFC 7396
		}
	}
	req, err := http.NewRequestWithContext(ctx, call.method, target, body)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%s %s is not a request: %v", call.method, target, err)
	}
	for name, values := range call.header {
		req.Header[name] = values
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	req.Header.Set("User-Agent", c.userAgent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// ours tells whether an answer proves to be of the Registry, and of the lineage
// that the client asks in.
func (c *Client) ours(call call, lineage string) error {
	if lineage == "" {
		return unavailable(NotRegistry, call, "the answer carries no %s header: this is not the Registry", LineageHeader)
	}
	if c.lineage != "" && lineage != c.lineage {
		return foreign(call, c.lineage, lineage)
	}
	return nil
}

// refusal turns an answer that is not 2xx into an error.
func (c *Client) refusal(ctx context.Context, call call, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem+1))
	if err != nil {
		return unreachable(ctx, call, err)
	}
	lineage := resp.Header.Get(LineageHeader)
	doc, err := parseProblem(resp, body)
	if err != nil {
		return unavailable(NotRegistry, call, "HTTP status %d, and %v", resp.StatusCode, err)
	}
	if resp.StatusCode >= 500 {
		return unavailable(Failing, call, "HTTP status %d: %s", resp.StatusCode, doc.Detail).because(doc)
	}
	if c.lineage != "" && lineage != "" && lineage != c.lineage {
		return foreign(call, c.lineage, lineage)
	}
	// Only what states an absence has to prove where it comes from.
	if doc.Kind == problem.NotFound || doc.Kind == problem.Deleted {
		if stated, _ := doc.Extra["lineage"].(string); lineage == "" || stated != lineage {
			return unavailable(NotRegistry, call, "HTTP status %d without a lineage: %s", resp.StatusCode, doc.Detail)
		}
	}
	return doc
}

// parseProblem reads a problem document of HubN (RFC 9457).
func parseProblem(resp *http.Response, body []byte) (*problem.Error, error) {
	if err := expectMedia(resp, problem.ContentType); err != nil {
		return nil, err
	}
	if len(body) > maxProblem {
		return nil, fmt.Errorf("its problem document is larger than %d bytes", maxProblem)
	}
	return problemOf(body, resp.StatusCode)
}

// problemOf reads the text of a problem document that came with a status.
func problemOf(text []byte, status int) (*problem.Error, error) {
	var doc struct {
		Type   string          `json:"type"`
		Detail string          `json:"detail"`
		Errors []problem.Field `json:"errors"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("its problem document cannot be read: %w", err)
	}
	if !strings.HasPrefix(doc.Type, problem.TypePrefix) {
		return nil, fmt.Errorf("its problem type %q is not one of HubN", doc.Type)
	}
	extra := map[string]any{}
	if err := json.Unmarshal(text, &extra); err != nil {
		return nil, fmt.Errorf("its problem document cannot be read: %w", err)
	}
	for _, known := range []string{"type", "title", "status", "detail", "errors"} {
		delete(extra, known)
	}
	e := problem.New(problem.KindOfStatus(doc.Type, status), "%s", doc.Detail)
	e.Fields, e.Extra = doc.Errors, extra
	return e, nil
}

func expectMedia(resp *http.Response, want string) error {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != want {
		return fmt.Errorf("its media type is %q, not %s: this is not the Registry", resp.Header.Get("Content-Type"), want)
	}
	return nil
}

// unreachable is the error of a call that got no complete answer.
func unreachable(ctx context.Context, call call, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return unavailable(Unreachable, call, "%v", err).because(err)
}
