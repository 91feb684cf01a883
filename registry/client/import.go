package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// ImportObject is one line of the body of POST /v1/import/rpsl (NDJSON): an
// RPSL object as it stands in its file.
type ImportObject struct {
	File string `json:"file"`
	Line int    `json:"line"` // of the object's first attribute
	Text string `json:"text"`
	// Refused is why whoever read the file could not take the object; it is sent
	// all the same, so that a pruning import leaves alone what it speaks of.
	Refused string `json:"refused,omitempty"`
}

// ImportOptions are the query parameters of POST /v1/import/rpsl.
type ImportOptions struct {
	DryRun bool // change nothing, and answer what would change
	Prune  bool // make the Registry equal to the input
	// OwnNameServers are patterns of HubN's own name servers ("ns1.example.net",
	// "*.example.net"), beside those of the Registry's configuration.
	OwnNameServers []string
	Reason         string // for the change log
}

// ImportResult answers POST /v1/import/rpsl.
type ImportResult struct {
	Lineage string `json:"lineage"`
	Job     int64  `json:"job,omitempty"` // its row in the Registry's list of imports; none for an import that found nothing to do
	DryRun  bool   `json:"dry_run"`
	Prune   bool   `json:"prune"`
	// Objects is how many objects the input held, the refused ones included.
	Objects int `json:"objects"`
	// Added, Changed and Deleted count resources; Unchanged counts objects that
	// ask for what already is.
	Added     int `json:"added"`
	Changed   int `json:"changed"`
	Deleted   int `json:"deleted"`
	Unchanged int `json:"unchanged"`
	// Kinds has the same counts of resources for each kind.
	Kinds map[Kind]ImportCounts `json:"kinds"`
	// Produced counts the aggregates that got a new version, for each kind: each
	// is an event to the world.
	Produced map[Kind]int    `json:"produced"`
	Refused  []ImportRefusal `json:"refused"`
	Notes    []ImportNote    `json:"notes"`
	// Changes lists what changed, or would change; it is bounded, and
	// MoreChanges counts what was left out.
	Changes     []ImportChange `json:"changes"`
	MoreChanges int            `json:"more_changes,omitempty"`
	Took        Seconds        `json:"took_seconds"`
}

// ImportCounts counts the resources of one kind that an import touched.
type ImportCounts struct {
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Deleted int `json:"deleted"`
}

// ImportRefusal is an object that could not be taken, or a change that was not
// made, and why.
type ImportRefusal struct {
	File      string `json:"file,omitempty"` // empty for what prune would have removed
	Line      int    `json:"line,omitempty"`
	Class     string `json:"class,omitempty"`
	Key       string `json:"key,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	Value     string `json:"value,omitempty"`
	Reason    string `json:"reason"`
}

// ImportNote is a remark on an object that was taken, or that a later one superseded.
type ImportNote struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Class string `json:"class"`
	Key   string `json:"key"`
	Text  string `json:"text"`
}

// ImportChange is one resource that an import adds, changes or deletes.
type ImportChange struct {
	Op    string   `json:"op"` // add, change, delete
	Kind  Kind     `json:"kind"`
	Label string   `json:"label"`            // the prefix, the AS number, the handle
	What  []string `json:"what,omitempty"`   // what changes, in words
	Old   string   `json:"before,omitempty"` // the old state in one line, where it helps
	New   string   `json:"after,omitempty"`
}

// ImportProgress is one line of the answer to POST /v1/import/rpsl when it is
// asked for as application/x-ndjson: stages while it works, then the result or
// the problem document as the last line.
type ImportProgress struct {
	Stage  string        `json:"stage,omitempty"` // waiting (for another import), planning, writing
	Done   int           `json:"done,omitempty"`
	Total  int           `json:"total,omitempty"`
	Result *ImportResult `json:"result,omitempty"`
	// Problem is the problem document of an import that failed after its answer began.
	Problem json.RawMessage `json:"problem,omitempty"`
}

// Seconds is a duration as JSON's number of seconds.
type Seconds float64

// Duration is s as a time.Duration.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// importSilence ends an import whose answer stops: the Registry sends a line of
// progress every few seconds.
const importSilence = 2 * time.Minute

// ImportRPSL sends objects and imports them, in one transaction of the Registry.
// progress is called with each line of the answer but the last, and may be nil.
// An error of objects ends the import: nothing is changed then. ctx alone bounds
// it in time.
func (c *Client) ImportRPSL(ctx context.Context, o ImportOptions, objects iter.Seq2[ImportObject, error],
	progress func(ImportProgress)) (ImportResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, sent := sendObjects(objects)
	defer body.Close()
	query := url.Values{}
	if o.DryRun {
		query.Set("dry_run", "true")
	}
	if o.Prune {
		query.Set("prune", "true")
	}
	for _, pattern := range o.OwnNameServers {
		query.Add("own_nameserver", pattern)
	}
	if o.Reason != "" {
		query.Set("reason", o.Reason)
	}
	call := call{
		method: http.MethodPost, path: "/v1/import/rpsl", query: query, raw: body, rawType: ndjson,
		header: http.Header{"Accept": {ndjson}},
	}
	resp, err := c.unhurried().send(ctx, call)
	if broken := sent(); broken != nil {
		err = broken
	}
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return ImportResult{}, err
	}
	defer resp.Body.Close()
	if err := expectMedia(resp, ndjson); err != nil {
		return ImportResult{}, unavailable(NotRegistry, call, "%v", err)
	}
	watchdog := time.AfterFunc(importSilence, func() { cancel(fmt.Errorf("the answer was silent for %s", importSilence)) })
	defer watchdog.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxBody)
	for lines.Scan() {
		watchdog.Reset(importSilence)
		var line ImportProgress
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return ImportResult{}, unavailable(NotRegistry, call, "the answer holds %.100q: %v", lines.Bytes(), err)
		}
		switch {
		case line.Result != nil:
			return *line.Result, nil
		case line.Problem != nil:
			return ImportResult{}, streamedProblem(call, line.Problem)
		case progress != nil:
			progress(line)
		}
	}
	if err := lines.Err(); err != nil {
		return ImportResult{}, unreachable(ctx, call, err)
	}
	return ImportResult{}, unavailable(Unreachable, call, "the answer ended without a result: whether the import was done, its job says")
}

const ndjson = "application/x-ndjson"

// sendObjects is objects as NDJSON. The function waits until none is sent any
// more, and answers what broke the iteration.
func sendObjects(objects iter.Seq2[ImportObject, error]) (*io.PipeReader, func() error) {
	body, to := io.Pipe()
	broken := make(chan error, 1)
	go func() {
		out := bufio.NewWriterSize(to, 64<<10)
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		var failure error
		for object, err := range objects {
			if err != nil {
				failure = err
				break
			}
			if encoder.Encode(object) != nil {
				break // the other side closed: its error says why
			}
		}
		if failure == nil {
			_ = out.Flush()
		}
		_ = to.CloseWithError(failure) // nil is the end of the body
		broken <- failure
	}()
	return body, func() error {
		_ = body.Close()
		return <-broken
	}
}

// streamedProblem is a problem document that came after the answer began.
func streamedProblem(call call, text []byte) error {
	var stated struct{ Status int }
	if err := json.Unmarshal(text, &stated); err != nil {
		return unavailable(NotRegistry, call, "the answer ends with the problem %.100q: %v", text, err)
	}
	e, err := problemOf(text, stated.Status)
	if err != nil {
		return unavailable(NotRegistry, call, "the answer ends with a problem, and %v", err)
	}
	if stated.Status >= http.StatusInternalServerError {
		return unavailable(Failing, call, "%s", e.Detail).because(e)
	}
	return e
}
