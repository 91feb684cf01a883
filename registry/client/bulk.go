package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// BulkLine is a line of NDJSON, as bulk imports read it and exports write it.
type BulkLine struct {
	// Kind is the kind of noun: prefix, ptr, asn, organisation, anycast, ….
	Kind Kind `json:"kind"`
	// Body is what a POST to the noun's collection takes.
	Body json.RawMessage `json:"body"`
}

// BulkImport are the parameters of POST /v1/imports.
type BulkImport struct {
	// CSV tells that the body is CSV with a header; else it is NDJSON.
	CSV bool
	// Kind is what the rows of a CSV body are; empty where the header tells.
	Kind Kind
	// Existing says what is done with a row whose resource is there already: it is
	// an error ("refuse", the default) or left as it is ("skip").
	Existing string
	DryRun   bool
	Reason   string
	// IdempotencyKey makes a repeated request answer the first one's job.
	IdempotencyKey string
}

// JobState is where a job of import is.
type JobState string

// The states of a job. All but running are final.
const (
	JobRunning   JobState = "running"
	JobDone      JobState = "done"
	JobFailed    JobState = "failed" // nothing was written
	JobCancelled JobState = "cancelled"
)

// ImportJob is a job of import.
type ImportJob struct {
	ID     int64    `json:"id"`
	Format string   `json:"format"` // csv, ndjson, rpsl
	State  JobState `json:"state"`
	Actor  string   `json:"actor"`
	Reason string   `json:"reason,omitempty"`
	DryRun bool     `json:"dry_run"`
	// Stage is what a running job does: waiting (for another import), checking,
	// writing; Done of Total rows have been written.
	Stage string `json:"stage,omitempty"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
	// Kinds counts the rows of each kind; Skipped those that were there already.
	Kinds   map[Kind]int `json:"kinds,omitempty"`
	Skipped int          `json:"skipped,omitempty"`
	// Errors are the rows that cannot be taken, all at once; ErrorsCount is how
	// many there are where not all are listed.
	Errors      []ImportError `json:"errors,omitempty"`
	ErrorsCount int           `json:"errors_count,omitempty"`
	// Error is why a job failed for another reason than its rows.
	Error       string     `json:"error,omitempty"`
	CancelledBy string     `json:"cancelled_by,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	FinishedAt  *time.Time `json:"finished_at,omitempty"`
}

// ImportError is one thing that is wrong with a row.
type ImportError struct {
	File string `json:"file,omitempty"` // of RPSL objects
	Line int    `json:"line,omitempty"` // in the body, 1 is the first; of CSV the header is line 1
	Kind string `json:"kind,omitempty"`
	// Field is the column of CSV, or the member of the body (routing.origin).
	Field  string `json:"field,omitempty"`
	Value  any    `json:"value,omitempty"`
	Reason string `json:"reason"`
}

// StartImport sends rows and answers the job that takes them. ctx alone bounds the
// sending in time.
func (c *Client) StartImport(ctx context.Context, o BulkImport, body io.Reader) (job ImportJob, err error) {
	query, header, media := url.Values{}, http.Header{}, ndjson
	if o.CSV {
		media = "text/csv"
	}
	if o.Kind != "" {
		query.Set("kind", string(o.Kind))
	}
	if o.Existing != "" {
		query.Set("existing", o.Existing)
	}
	if o.DryRun {
		query.Set("dry_run", "true")
	}
	if o.Reason != "" {
		query.Set("reason", o.Reason)
	}
	if o.IdempotencyKey != "" {
		header.Set("Idempotency-Key", o.IdempotencyKey)
	}
	resp, err := c.unhurried().send(ctx, call{method: http.MethodPost, path: "/v1/imports", query: query, header: header, raw: body, rawType: media})
	if err != nil {
		return job, err
	}
	defer resp.Body.Close()
	return job, json.NewDecoder(io.LimitReader(resp.Body, c.maxBody)).Decode(&job)
}

// ImportJob reads a job of import.
func (c *Client) ImportJob(ctx context.Context, id int64) (job ImportJob, err error) {
	return job, c.get(ctx, importPath(id), nil, &job)
}

// ImportJobs reads a page of the jobs, the newest first.
func (c *Client) ImportJobs(ctx context.Context, after string, limit int) (page Page[ImportJob], err error) {
	query := url.Values{}
	setPage(query, after, limit)
	return page, c.get(ctx, "/v1/imports", query, &page)
}

// CancelImport asks a running job to stop, which then has written nothing.
func (c *Client) CancelImport(ctx context.Context, id int64) (job ImportJob, err error) {
	return job, c.post(ctx, importPath(id)+"/cancel", nil, &job)
}

func importPath(id int64) string { return "/v1/imports/" + strconv.FormatInt(id, 10) }

// Download opens an answer that may take as long as it takes, such as a whole
// export; the caller closes it. ctx alone bounds it in time.
func (c *Client) Download(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.unhurried().send(ctx, call{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// unhurried is the client without bounds on how long an answer may take to begin.
func (c *Client) unhurried() *Client {
	patiently := *c
	patiently.http = &http.Client{Transport: patient(c.http.Transport), CheckRedirect: c.http.CheckRedirect}
	return &patiently
}
