package registry

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// changedLimit bounds how many changes one answer lists: a consumer that
	// meets more reads everything again, which then costs less.
	changedLimit = 10000
	// streamTimeout bounds the statement behind a stream of ids, which also ends
	// the snapshot that a reader who stopped reading would hold open.
	streamTimeout = 10 * time.Minute
	// streamWrite is how long a reader may take for one buffer of a stream.
	streamWrite = 30 * time.Second
	// maxToken bounds a token: its snapshot lists the transactions that ran.
	maxToken = 64 << 10
)

// scanToken says what a page was read from: one snapshot of one history. It is
// all the state of a scan, and the consumer holds it.
type scanToken struct {
	Lineage  string `json:"l"`
	Timeline int64  `json:"t"`
	Snapshot string `json:"s"` // pg_current_snapshot()
}

func (t scanToken) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

var snapshotPattern = regexp.MustCompile(`^\d{1,19}:\d{1,19}:(\d{1,19}(,\d{1,19})*)?$`)

func parseScanToken(s string) (scanToken, error) {
	var t scanToken
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err != nil || len(s) > maxToken || t.Lineage == "" || !snapshotPattern.MatchString(t.Snapshot) {
		return t, problem.New(problem.Invalid, "the token is not one that a scan of this Registry answered").
			At("query.since", "is not a scan token; leave it out to begin a scan", cut(s, valueLimit))
	}
	return t, nil
}

// cut shortens a text that is only shown.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// running splits the snapshot into its end and the transactions that ran.
func (t scanToken) running() (xmax string, xip []string) {
	parts := strings.SplitN(t.Snapshot, ":", 3)
	if parts[2] == "" {
		return parts[1], []string{}
	}
	return parts[1], strings.Split(parts[2], ",")
}

// begunBefore is nil if t was issued before now, in the same history: otherwise
// its transaction ids name other transactions than those of this cluster.
func (t scanToken) begunBefore(now scanToken) error {
	stale := func(format string, args ...any) error {
		return problem.New(problem.Stale, "the token cannot be compared any more: %s; begin the scan again", fmt.Sprintf(format, args...)).
			With("lineage", now.Lineage)
	}
	xmax, _ := t.running()
	current, _ := now.running()
	switch {
	case t.Lineage != now.Lineage:
		return stale("it belongs to lineage %s, and the Registry is now in %s", t.Lineage, now.Lineage)
	case t.Timeline != now.Timeline:
		return stale("it was issued on timeline %d, and PostgreSQL is now on %d", t.Timeline, now.Timeline)
	case len(xmax) > len(current) || len(xmax) == len(current) && xmax > current:
		return stale("it was issued by a server that was ahead of this one")
	}
	return nil
}

// The timeline is null on a standby, whose snapshots leave running transactions out.
const sqlScanPoint = `
SELECT CASE WHEN NOT pg_is_in_recovery() THEN (SELECT timeline FROM registry.fingerprint()) END,
       (SELECT timeline FROM registry.lineage ORDER BY ordinal DESC LIMIT 1),
       pg_current_snapshot()::text`

// scanPoint is the token of the transaction's snapshot.
func scanPoint(ctx context.Context, tx *reading) (scanToken, error) {
	var here *int64
	var lineage int64
	t := scanToken{Lineage: tx.Lineage}
	if err := tx.QueryRow(ctx, sqlScanPoint).Scan(&here, &lineage, &t.Snapshot); err != nil {
		return t, err
	}
	if here == nil {
		return t, problem.New(problem.Unavailable, "this PostgreSQL server is a standby: scans need the primary")
	}
	if *here != lineage {
		return t, problem.New(problem.Unavailable, "PostgreSQL is on timeline %d and the lineage on %d: a new lineage is about to begin", *here, lineage)
	}
	t.Timeline = *here
	return t, nil
}

// What the snapshot of a token did not see and this one does, as two questions
// that each walk the index (kind, xid) alone.
const (
	sqlChangedColumns = `
SELECT agg_key
FROM registry.change_log
WHERE kind = $1
  AND lineage = $2::text::uuid
  AND `
	sqlChangedAfter = sqlChangedColumns + `xid >= $3::text::xid8
ORDER BY xid DESC
LIMIT $4`
	sqlChangedRunning = sqlChangedColumns + `xid = ANY ($3::text[]::xid8[])
LIMIT $4`
	// One generic plan for all sizes would read the whole table.
	sqlCustomPlans = `SET LOCAL plan_cache_mode = force_custom_plan`
)

// changedSince lists the keys of a kind that were committed between the token's
// snapshot and the transaction's, sorted; tooMany says that the list is cut.
func changedSince(ctx context.Context, tx *reading, kind client.Kind, since scanToken) (changed []string, tooMany bool, err error) {
	if _, err := tx.Exec(ctx, sqlCustomPlans); err != nil {
		return nil, false, err
	}
	xmax, xip := since.running()
	keys := map[string]bool{}
	ask := func(sql string, xids any) error {
		rows, err := tx.Query(ctx, sql, string(kind), since.Lineage, xids, changedLimit+1)
		if err != nil {
			return err
		}
		var key string
		tag, err := pgx.ForEachRow(rows, []any{&key}, func() error {
			keys[key] = true
			return nil
		})
		tooMany = tooMany || tag.RowsAffected() > changedLimit
		return err
	}
	if err := ask(sqlChangedAfter, xmax); err != nil {
		return nil, false, err
	}
	if len(xip) > 0 {
		if err := ask(sqlChangedRunning, xip); err != nil {
			return nil, false, err
		}
	}
	for key := range keys {
		changed = append(changed, key)
	}
	slices.Sort(changed)
	return changed, tooMany, nil
}

func (s *service) scanRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/sources/{kind}", id: "scan-sources", tag: "sources",
		summary: "Read all sources of a kind, page by page", needs: readSources, unlogged: true,
		description: "Pages are ordered by the immutable key. Each carries the token of the snapshot that it was read in; " +
			"a request with such a token as since is answered with the keys that were committed after it.",
		problems: []problem.Kind{problem.Stale},
	}, s.scanSources)
	register(s, operation{
		method: http.MethodGet, path: "/v1/sources/{kind}/ids", id: "scan-source-ids", tag: "sources",
		summary: "Stream key and version of all sources of a kind", needs: readSources, unlogged: true,
		description: "NDJSON, all of one snapshot: a head (lineage, token, read_at, changed), a line {key, version} for each source, " +
			"and a tail {complete, count}. A stream without its tail is broken.",
		problems: []problem.Kind{problem.Stale},
	}, s.scanSourceIDs)
}

type scanInput struct {
	Kind  client.Kind `path:"kind"`
	Limit int         `query:"limit" minimum:"1" maximum:"1000" default:"500"`
	After string      `query:"after" maxLength:"200" doc:"The next of the page before"`
	Since string      `query:"since" doc:"A token of this scan"`
}

type scanOutput struct {
	Body client.SourcePage
}

func (s *service) scanSources(ctx context.Context, in *scanInput) (*scanOutput, error) {
	src, err := sourceOf(in.Kind)
	if err != nil {
		return nil, err
	}
	after, err := src.cursor(in.After)
	if err != nil {
		return nil, err
	}
	var out scanOutput
	err = s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body = client.SourcePage{Lineage: tx.Lineage, ReadAt: tx.At}
		page := &out.Body
		page.Token, page.Changed, page.TooMany, err = scanHead(ctx, tx, src.kind, in.Since)
		if err != nil {
			return err
		}
		// One more than asked for tells whether anything follows.
		rows, err := tx.Query(ctx, src.page, after, in.Limit+1)
		if err != nil {
			return err
		}
		if page.Items, err = src.collect(rows, in.Limit+1); err != nil {
			return err
		}
		page.Complete = len(page.Items) <= in.Limit
		if !page.Complete {
			page.Items = page.Items[:in.Limit]
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(page.Items[in.Limit-1].Resource.Key))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// cursor is the key after which a page begins.
func (src source) cursor(after string) (string, error) {
	if after == "" {
		return src.first, nil
	}
	key, err := base64.RawURLEncoding.DecodeString(after)
	if err == nil {
		var parsed string
		if parsed, err = src.parse(string(key)); err == nil {
			return parsed, nil
		}
	}
	return "", problem.New(problem.Invalid, "the page cannot be found").
		At("query.after", "is not the next of a page of this kind", cut(after, valueLimit))
}

// scanHead is the token of the snapshot, and what changed since an earlier one.
func scanHead(ctx context.Context, tx *reading, kind client.Kind, since string) (token string, changed []string, tooMany bool, err error) {
	now, err := scanPoint(ctx, tx)
	if err != nil || since == "" {
		return now.String(), nil, false, err
	}
	then, err := parseScanToken(since)
	if err != nil {
		return "", nil, false, err
	}
	if err := then.begunBefore(now); err != nil {
		return "", nil, false, err
	}
	changed, tooMany, err = changedSince(ctx, tx, kind, then)
	return now.String(), changed, tooMany, err
}

type scanIDsInput struct {
	Kind  client.Kind `path:"kind"`
	Since string      `query:"since" doc:"A token of this scan"`
}

func (s *service) scanSourceIDs(ctx context.Context, in *scanIDsInput) (*huma.StreamResponse, error) {
	src, err := sourceOf(in.Kind)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(h huma.Context) {
		_, w := humago.Unwrap(h)
		stream := &idStream{w: w, out: bufio.NewWriterSize(w, 32<<10), clock: s.clock}
		err := s.read(ctx, func(ctx context.Context, tx *reading) error {
			token, changed, tooMany, err := scanHead(ctx, tx, src.kind, in.Since)
			if err != nil {
				return err
			}
			head := client.SourceIDsHead{Lineage: tx.Lineage, Token: token, ReadAt: tx.At, Changed: changed, TooMany: tooMany}
			return stream.send(ctx, tx, src, head)
		})
		switch {
		case err == nil:
		case !stream.begun:
			s.refuse(w, callOf(ctx), err)
		default:
			// What was sent cannot be taken back; without its tail line it is
			// known to be broken.
			callOf(ctx).cause = err
			s.log.WarnContext(ctx, "a stream of ids broke off", "kind", in.Kind, "ids", stream.count, "error", err)
		}
	}}, nil
}

// idStream writes ids as lines, with memory that does not grow with their number.
type idStream struct {
	w     http.ResponseWriter
	out   *bufio.Writer
	clock func() time.Time
	begun bool
	count int64
}

var sqlStreamTimeout = `SET LOCAL statement_timeout = ` + strconv.FormatInt(streamTimeout.Milliseconds(), 10)

func (st *idStream) send(ctx context.Context, tx *reading, src source, head client.SourceIDsHead) error {
	if _, err := tx.Exec(ctx, sqlStreamTimeout); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, src.ids)
	if err != nil {
		return err
	}
	st.w.Header().Set("Content-Type", "application/x-ndjson")
	st.begun = true
	if err := st.line(head); err != nil {
		rows.Close()
		return err
	}
	if err := st.flush(); err != nil {
		rows.Close()
		return err
	}
	var id struct {
		key     string
		version *int64
	}
	if _, err := pgx.ForEachRow(rows, []any{&id.key, &id.version}, func() error {
		if id.version == nil {
			return errNoLane(client.Resource{Kind: src.kind, Key: id.key})
		}
		st.count++
		return st.line(client.SourceID{Key: id.key, Version: *id.version})
	}); err != nil {
		return err
	}
	if err := st.line(client.SourceIDsTail{Complete: true, Count: st.count}); err != nil {
		return err
	}
	return st.flush()
}

func (st *idStream) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if st.out.Available() <= len(b) {
		if err := st.flush(); err != nil {
			return err
		}
	}
	_, err = st.out.Write(append(b, '\n'))
	return err
}

// flush gives the reader a bounded time for what is in the buffer.
func (st *idStream) flush() error {
	if st.out.Buffered() == 0 {
		return nil
	}
	// A server that has no deadlines (a test's recorder) is not an error.
	_ = http.NewResponseController(st.w).SetWriteDeadline(st.clock().Add(streamWrite))
	if err := st.out.Flush(); err != nil {
		return err
	}
	return http.NewResponseController(st.w).Flush()
}

// errNoLane is a fault of the database: every source's row was written with a
// trigger that made its lane. Leaving the row out would read as a withdrawal.
func errNoLane(r client.Resource) error {
	return fmt.Errorf("%s exists without an outbox lane: a trigger did not run", r)
}
