package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// MaxReport is how many items one report may hold.
const MaxReport = 1000

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, out)
	return err
}

func (c *Client) post(ctx context.Context, path string, body, out any) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: path, body: body}, out)
	return err
}

func resourcePath(prefix string, r Resource) string {
	return prefix + url.PathEscape(string(r.Kind)) + "/" + url.PathEscape(r.Key)
}

// Lineage answers the current lineage and its ancestors.
func (c *Client) Lineage(ctx context.Context) (out Lineages, err error) {
	return out, c.get(ctx, "/v1/lineage", nil, &out)
}

// Regression tells the Registry that it serves an older version than one that
// was seen in the same lineage, and answers the lineage that holds after it
// looked into that.
func (c *Client) Regression(ctx context.Context, r Regression) (out RegressionAnswer, err error) {
	return out, c.post(ctx, "/v1/lineage/regressions", r, &out)
}

// Report sends what a module says of resources, MaxReport at a time. Where it
// fails, the result counts what was taken before.
func (c *Client) Report(ctx context.Context, r Report) (sum ReportResult, err error) {
	items := r.Items
	for start := 0; start < len(items); start += MaxReport {
		r.Items = items[start:min(start+MaxReport, len(items))]
		var one ReportResult
		if err := c.post(ctx, "/v1/reports", r, &one); err != nil {
			return sum, err
		}
		sum.Stored += one.Stored
		sum.Ignored += one.Ignored
	}
	return sum, nil
}

// Observe sends what a module sees of the world, MaxReport items at a time.
func (c *Client) Observe(ctx context.Context, o ObservationReport) (sum ReportResult, err error) {
	items := o.Items
	for start := 0; start < len(items); start += MaxReport {
		o.Items = items[start:min(start+MaxReport, len(items))]
		var one ReportResult
		if err := c.post(ctx, "/v1/observations", o, &one); err != nil {
			return sum, err
		}
		sum.Stored += one.Stored
		sum.Ignored += one.Ignored
	}
	return sum, nil
}

// Reports reads a module's own last reports back, page by page: kind may be
// empty, after is the Next of the page before.
func (c *Client) Reports(ctx context.Context, module string, kind Kind, after string, limit int) (out ReportedPage, err error) {
	query := url.Values{"module": {module}}
	if kind != "" {
		query.Set("kind", string(kind))
	}
	setPage(query, after, limit)
	return out, c.get(ctx, "/v1/reports", query, &out)
}

func setPage(query url.Values, after string, limit int) {
	if after != "" {
		query.Set("after", after)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
}

// Heartbeat says that an instance is alive; the first one registers its module.
func (c *Client) Heartbeat(ctx context.Context, module, instance string, h Heartbeat) (out HeartbeatAnswer, err error) {
	if h.Kinds == nil {
		h.Kinds = []Kind{} // lists are never null
	}
	path := "/v1/modules/" + url.PathEscape(module) + "/instances/" + url.PathEscape(instance)
	_, err = c.do(ctx, call{method: http.MethodPut, path: path, body: h}, &out)
	return out, err
}

// Modules answers the registered modules.
func (c *Client) Modules(ctx context.Context) ([]Module, error) {
	var out ModuleList
	err := c.get(ctx, "/v1/modules", nil, &out)
	return out.Items, err
}

// ForgetModule removes a module with everything that it reported.
func (c *Client) ForgetModule(ctx context.Context, module, reason string) error {
	query := url.Values{}
	if reason != "" {
		query.Set("reason", reason)
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: "/v1/modules/" + url.PathEscape(module), query: query}, nil)
	return err
}

// Order gives a module a command.
func (c *Client) Order(ctx context.Context, module string, o CommandOrder) (out Command, err error) {
	return out, c.post(ctx, "/v1/modules/"+url.PathEscape(module)+"/commands", o, &out)
}

// Commands lists the commands of a module, newest first; with open, only those
// that the module has not answered yet.
func (c *Client) Commands(ctx context.Context, module string, open bool, after string, limit int) (out CommandPage, err error) {
	query := url.Values{}
	if open {
		query.Set("open", "true")
	}
	setPage(query, after, limit)
	return out, c.get(ctx, "/v1/modules/"+url.PathEscape(module)+"/commands", query, &out)
}

// Command answers one command with the module's answer.
func (c *Client) Command(ctx context.Context, id int64) (out Command, err error) {
	return out, c.get(ctx, "/v1/commands/"+strconv.FormatInt(id, 10), nil, &out)
}

// CreateBarrier makes a barrier behind all that is committed now.
func (c *Client) CreateBarrier(ctx context.Context) (out Barrier, err error) {
	return out, c.post(ctx, "/v1/barriers", nil, &out)
}

// Barrier takes a barrier as far as it goes and says where it is.
func (c *Client) Barrier(ctx context.Context, id int64) (out Barrier, err error) {
	return out, c.get(ctx, "/v1/barriers/"+strconv.FormatInt(id, 10), nil, &out)
}

// AcquireLease takes or renews a lease; Held says whether it was got. The
// duration counts by the database's clock from the moment of the answer.
func (c *Client) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (out Lease, err error) {
	body := LeaseRequest{Holder: holder, TTLMilliseconds: ttl.Milliseconds()}
	_, err = c.do(ctx, call{method: http.MethodPut, path: "/v1/leases/" + url.PathEscape(name), body: body}, &out)
	return out, err
}

// ReleaseLease gives a lease back; it changes nothing when another holds it by now.
func (c *Client) ReleaseLease(ctx context.Context, name, holder string, token int64) error {
	query := url.Values{"holder": {holder}, "token": {strconv.FormatInt(token, 10)}}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: "/v1/leases/" + url.PathEscape(name), query: query}, nil)
	return err
}

// State answers what was requested, published and observed of a resource.
func (c *Client) State(ctx context.Context, r Resource) (out State, err error) {
	return out, c.get(ctx, resourcePath("/v1/state/", r), nil, &out)
}

// WorkList lists the resources whose overall word is the given one, page by page.
func (c *Client) WorkList(ctx context.Context, overall Overall, module, after string, limit int) (out WorkPage, err error) {
	query := url.Values{"overall": {string(overall)}}
	if module != "" {
		query.Set("module", module)
	}
	setPage(query, after, limit)
	return out, c.get(ctx, "/v1/state", query, &out)
}

// Trace answers the state of a resource with the history behind it.
func (c *Client) Trace(ctx context.Context, r Resource) (out Trace, err error) {
	return out, c.get(ctx, resourcePath("/v1/trace/", r), nil, &out)
}

// Resolve finds the resource that a person means by "192.0.2.0/24",
// "2001:db8::1", "AS64496", "EXAMPLE-ORG" or "prefix:17".
func (c *Client) Resolve(ctx context.Context, q string) (out Resolved, err error) {
	return out, c.get(ctx, "/v1/resolve", url.Values{"q": {q}}, &out)
}

// Raw makes any call of the API: for what has no method here. body and out may
// be nil.
func (c *Client) Raw(ctx context.Context, method, path string, query url.Values, body, out any) error {
	_, err := c.do(ctx, call{method: method, path: path, query: query, body: body}, out)
	return err
}
