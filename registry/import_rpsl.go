package registry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
	"hubn/registry/rpsl"
)

const (
	// importBody bounds the body of an import: the RPSL of the largest regional
	// registry is some 3 GB, of which a million objects are a part that one
	// transaction can carry.
	importBody = 1 << 30
	// importLine bounds one object as JSON, where every character may be escaped.
	importLine = 2*rpsl.MaxObject + 64<<10
	// importObjects bounds the objects of one import, which are all in memory
	// while it is planned.
	importObjects = 1_000_000
	// importsAtOnce bounds the imports whose objects are in memory: one that is
	// carried out, and one that is read or waits for it.
	importsAtOnce = 2
	// importSilence ends an import whose sender does not go on.
	importSilence = 60 * time.Second
	// importBeat is the pause between two lines of progress: less than the time
	// after which clients and proxies give up on a silent answer.
	importBeat = 5 * time.Second
)

const ndjson = "application/x-ndjson"

func (s *service) importRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/import/rpsl", id: "import-rpsl", tag: "import and export",
		summary: "Import RPSL objects", needs: importData,
		description: "The body is NDJSON, one object a line: {\"file\", \"line\", \"text\"}. All objects are taken in one transaction; " +
			"those that cannot be taken are named in the answer, with the reason, and the others are taken all the same. " +
			"Asked for as " + ndjson + ", the answer is lines of progress, of which the last has the result or the problem.",
		problems: []problem.Kind{problem.Conflict, problem.TooLarge},
		maxBody:  -1, bodyTimeout: -1,
		body: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			// A text: huma would read and check what is one JSON value.
			ndjson: {Schema: &huma.Schema{Type: huma.TypeString, Description: "Lines of JSON: {\"file\", \"line\", \"text\"}"}},
		}},
	}, s.importRPSL)
}

type importInput struct {
	DryRun         bool     `query:"dry_run" doc:"Change nothing, and answer what would change"`
	Prune          bool     `query:"prune" doc:"Make the Registry equal to the input: what it does not name goes"`
	OwnNameservers []string `query:"own_nameserver,explode" doc:"HubN's own name servers, beside those of the configuration: ns1.example.net or *.example.net"`
	Reason         string   `query:"reason" maxLength:"1000" doc:"Why, for the change log"`
	Accept         string   `header:"Accept"`
}

func (s *service) importRPSL(ctx context.Context, in *importInput) (*huma.StreamResponse, error) {
	req := importRequest{actor: callOf(ctx).principal.Name, dryRun: in.DryRun}
	req.options.Prune = in.Prune
	var err error
	if req.options.OwnNameServers, err = s.nameServerPatterns(in.OwnNameservers); err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(h huma.Context) {
		r, w := humago.Unwrap(h)
		s.answerImport(ctx, w, r, req, in)
	}}, nil
}

// nameServerPatterns are HubN's own name servers: those of the configuration
// and those of a request.
func (s *service) nameServerPatterns(requested []string) ([]rpsl.NameServerPattern, error) {
	var f faults
	var patterns []rpsl.NameServerPattern
	for i, text := range requested {
		pattern, err := rpsl.ParseNameServerPattern(text)
		f.add("query.own_nameserver["+strconv.Itoa(i)+"]", err, text)
		patterns = append(patterns, pattern)
	}
	for _, text := range s.ownNameservers {
		pattern, err := rpsl.ParseNameServerPattern(text)
		if err != nil {
			return nil, fmt.Errorf("dns.nameservers: %w", err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, f.problem()
}

// answerImport reads the objects, imports them and answers: with the result, or
// with lines of progress before it.
func (s *service) answerImport(ctx context.Context, w http.ResponseWriter, r *http.Request, req importRequest, in *importInput) {
	fail := func(err error) { s.refuse(w, callOf(ctx), s.document(ctx, err).fault) }
	select {
	case s.importSlots <- struct{}{}:
		defer func() { <-s.importSlots }()
	default:
		fail(problem.New(problem.Conflict, "%d imports are under way already; nothing was changed; try again when one of them is done", importsAtOnce))
		return
	}
	if err := readImport(w, r, &req); err != nil {
		fail(err)
		return
	}
	if !strings.Contains(in.Accept, ndjson) {
		result, err := s.runImport(ctx, req, in.Reason, func(client.ImportProgress) {})
		if err != nil {
			fail(err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
		return
	}
	lines := newProgressLines(w)
	result, err := s.runImport(ctx, req, in.Reason, lines.tell)
	if err != nil {
		lines.end(client.ImportProgress{Problem: s.problemText(ctx, err)})
		return
	}
	lines.end(client.ImportProgress{Result: result})
}

// problemText is the problem document of an error after the answer began.
func (s *service) problemText(ctx context.Context, err error) json.RawMessage {
	text, jsonErr := json.Marshal(s.document(ctx, err))
	if jsonErr != nil {
		return json.RawMessage(`{"type":"` + problem.TypePrefix + string(problem.Internal) + `","status":500}`)
	}
	return text
}

// runImport imports in the caller's name and wakes the outbox's workers.
func (s *service) runImport(ctx context.Context, req importRequest, reason string, stage func(client.ImportProgress)) (*client.ImportResult, error) {
	db, err := s.open()
	if err != nil {
		return nil, err
	}
	c := callOf(ctx)
	im := importer{pool: db.pool, log: s.log, stage: stage, act: func(ctx context.Context, tx pgx.Tx, job int64) error {
		if reason == "" {
			reason = "RPSL import " + strconv.FormatInt(job, 10)
		}
		_, err := tx.Exec(ctx, sqlActing, c.principal.Name, c.principal.TokenID, c.requestID, reason)
		return err
	}}
	result, err := im.run(ctx, req)
	if err != nil {
		return nil, databaseProblem(err)
	}
	s.sawLineage(ctx, result.Lineage)
	if !req.dryRun {
		s.wake.hint()
	}
	return result, nil
}

// readImport reads the body's objects, one a line, within the bounds.
func readImport(w http.ResponseWriter, r *http.Request, req *importRequest) error {
	body := &steadyReader{from: http.MaxBytesReader(w, r.Body, importBody), control: http.NewResponseController(w)}
	defer body.done()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), importLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if req.objects == importObjects {
			return problem.New(problem.TooLarge, "an import holds at most %d objects; import it in parts, without prune", importObjects)
		}
		var object client.ImportObject
		if err := decodeStrictly(line, &object); err != nil {
			return problem.New(problem.Malformed, "the body is NDJSON, one object {\"file\", \"line\", \"text\"} a line; line %d is not: %v", n, err).
				At("body", "cannot be read at line "+strconv.Itoa(n), nil)
		}
		req.add(rpsl.Raw{File: object.File, Line: object.Line, Text: object.Text, Refused: object.Refused})
	}
	return bodyProblem(lines.Err())
}

// decodeStrictly reads one JSON value without unknown members.
func decodeStrictly(text []byte, into any) error {
	if !keepable(text) {
		return errCharacters
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// bodyProblem is what the client is told of a body that could not be read to its end.
func bodyProblem(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return problem.New(problem.TooLarge, "an import holds at most %d bytes; import it in parts, without prune", tooLarge.Limit)
	case errors.Is(err, bufio.ErrTooLong):
		return problem.New(problem.TooLarge, "a line of the body is longer than %d bytes; no object may be", importLine)
	}
	return problem.New(problem.Malformed, "the body broke off: %v; nothing was imported", err).Because(err)
}

// steadyReader reads a body whose sender has to go on.
type steadyReader struct {
	from    io.Reader
	control *http.ResponseController
}

func (r *steadyReader) Read(p []byte) (int, error) {
	// Deadlines are the connection's and of the process's clock; a transport
	// without them has its own.
	_ = r.control.SetReadDeadline(time.Now().Add(importSilence))
	return r.from.Read(p)
}

func (r *steadyReader) done() { _ = r.control.SetReadDeadline(time.Time{}) }

// progressLines writes progress as NDJSON, and repeats the last line while
// nothing new happens.
type progressLines struct {
	mu      sync.Mutex
	out     *json.Encoder
	control *http.ResponseController
	last    client.ImportProgress
	beat    *time.Ticker
	stop    chan struct{}
	stopped sync.WaitGroup
}

func newProgressLines(w http.ResponseWriter) *progressLines {
	w.Header().Set("Content-Type", ndjson)
	p := &progressLines{
		out:     json.NewEncoder(w),
		control: http.NewResponseController(w),
		beat:    time.NewTicker(importBeat),
		stop:    make(chan struct{}),
	}
	p.stopped.Go(func() {
		for {
			select {
			case <-p.beat.C:
				p.mu.Lock()
				p.write(p.last)
				p.mu.Unlock()
			case <-p.stop:
				return
			}
		}
	})
	return p
}

// tell writes a line of progress.
func (p *progressLines) tell(progress client.ImportProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = progress
	p.write(progress)
}

// end writes the last line.
func (p *progressLines) end(progress client.ImportProgress) {
	p.beat.Stop()
	close(p.stop)
	p.stopped.Wait()
	p.write(progress)
}

// write sends a line; a client that went away is noticed by the request's context.
func (p *progressLines) write(progress client.ImportProgress) {
	_ = p.out.Encode(progress)
	_ = p.control.Flush()
}
