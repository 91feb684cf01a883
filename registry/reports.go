package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// maxDetail bounds what a module says of one resource beyond the state.
	maxDetail = 16 << 10
	// maxReason is where a reason is cut off.
	maxReason = 2000
)

func (s *service) reportRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/reports", id: "report", tag: "reports",
		summary: "Report what became active of up to 1,000 resources", needs: report, unlogged: true,
		description: "A report never makes an event. One for an older version, or in another lineage than the current one, is ignored and counted.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.takeReport)
	register(s, operation{
		method: http.MethodGet, path: "/v1/reports", id: "list-reports", tag: "reports",
		summary: "Read back what a module reported last", needs: readState, unlogged: true,
	}, s.listReports)
}

type reportInput struct {
	Body client.Report
}

type reportOutput struct {
	Body client.ReportResult
}

// The newest of several items about one resource counts. The stored report gives
// way to a newer version, to another word on the same version from a fetch that
// is not older, and to anything of the current lineage when it is of another.
const sqlReport = `
INSERT INTO registry.applied_state AS s
  (module, agg_type, agg_key, lineage, version, state, reason, retry_at, detail, instance, fetched_at, reported_at)
SELECT $1, i.agg_type, i.agg_key, $3::text::uuid, i.version, i.state, i.reason, i.retry_at, i.detail::jsonb, $2, i.fetched_at, clock_timestamp()
FROM (
  SELECT DISTINCT ON (agg_type COLLATE "C", agg_key COLLATE "C") *
  FROM unnest($4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::timestamptz[], $10::text[], $11::timestamptz[])
    WITH ORDINALITY AS u (agg_type, agg_key, version, state, reason, retry_at, detail, fetched_at, n)
  ORDER BY agg_type COLLATE "C", agg_key COLLATE "C", version DESC, fetched_at DESC, n DESC
) i
WHERE $3::text::uuid = (SELECT registry.lineage_current())
ORDER BY i.agg_type COLLATE "C", i.agg_key COLLATE "C"
ON CONFLICT (agg_type, agg_key, module) DO UPDATE
SET lineage = EXCLUDED.lineage,
    version = EXCLUDED.version,
    state = EXCLUDED.state,
    reason = EXCLUDED.reason,
    retry_at = EXCLUDED.retry_at,
    detail = EXCLUDED.detail,
    instance = EXCLUDED.instance,
    fetched_at = EXCLUDED.fetched_at,
    reported_at = EXCLUDED.reported_at
WHERE s.lineage <> EXCLUDED.lineage
   OR s.version < EXCLUDED.version
   OR s.version = EXCLUDED.version AND s.fetched_at <= EXCLUDED.fetched_at`

func (s *service) takeReport(ctx context.Context, in *reportInput) (*reportOutput, error) {
	r := in.Body
	if err := callOf(ctx).principal.mayActAs(r.Module); err != nil {
		return nil, err
	}
	if err := parseLineage("body.lineage", r.Lineage); err != nil {
		return nil, err
	}
	columns, err := reportColumns(r.Items)
	if err != nil {
		return nil, err
	}
	var out reportOutput
	err = s.record(ctx, func(ctx context.Context, tx *writing) error {
		if err := checkKinds(ctx, tx, r.Module, columns.kinds); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlLineageHeld); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlReport, r.Module, r.Instance, r.Lineage, columns.kinds, columns.keys, columns.versions,
			columns.states, columns.reasons, columns.retries, columns.details, columns.fetched)
		stored := int(tag.RowsAffected())
		out.Body = client.ReportResult{Stored: stored, Ignored: len(r.Items) - stored}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// checkKinds refuses reports on kinds that the module did not register for: the
// state of such a resource would not wait for it.
func checkKinds(ctx context.Context, tx *writing, module string, kinds []string) error {
	registered, err := kindsOf(ctx, tx, module)
	if err != nil {
		return err
	}
	registered = append(registered, string(client.KindCommand), string(client.KindBarrier))
	for i, kind := range kinds {
		if !slices.Contains(registered, kind) {
			return problem.New(problem.Invalid, "module %s did not register for the kind %s: its heartbeat names the kinds that it consumes", module, kind).
				At("body.items["+strconv.Itoa(i)+"].resource", "is of a kind that the module is not registered for", kind)
		}
	}
	return nil
}

// columnsOfReport are the items of a report, column by column.
type columnsOfReport struct {
	kinds, keys, states, reasons, details []string
	versions                              []int64
	retries                               []*time.Time
	fetched                               []time.Time
}

func reportColumns(items []client.ReportItem) (columnsOfReport, error) {
	c := columnsOfReport{kinds: []string{}}
	if len(items) > client.MaxReport {
		return c, problem.New(problem.TooLarge, "a report has at most %d items, this one has %d", client.MaxReport, len(items))
	}
	bad := problem.New(problem.Invalid, "the report cannot be taken")
	for i, item := range items {
		at := "body.items[" + strconv.Itoa(i) + "]"
		resource, err := parseReported(item.Resource)
		if err != nil {
			bad.At(at+".resource", err.Error(), item.Resource.String())
		}
		if item.Version < 1 {
			bad.At(at+".version", "is at least 1", item.Version)
		}
		switch item.State {
		case client.ReportApplied, client.ReportFailed, client.ReportWithdrawn, client.ReportHeld:
		default:
			bad.At(at+".state", "is applied, failed, withdrawn or held", string(item.State))
		}
		if item.FetchedAt.IsZero() {
			bad.At(at+".fetched_at", "says when the version was fetched", nil)
		}
		if len(item.Detail) > maxDetail {
			bad.At(at+".detail", "is larger than 16 KiB", len(item.Detail))
		}
		c.kinds = append(c.kinds, string(resource.Kind))
		c.keys = append(c.keys, resource.Key)
		c.versions = append(c.versions, item.Version)
		c.states = append(c.states, string(item.State))
		c.reasons = append(c.reasons, cut(item.Reason, maxReason))
		c.details = append(c.details, orEmptyObject(item.Detail))
		c.fetched = append(c.fetched, item.FetchedAt)
		c.retries = append(c.retries, nil)
		if !item.RetryAt.IsZero() {
			c.retries[i] = &item.RetryAt
		}
	}
	if len(bad.Fields) > 0 {
		return c, bad
	}
	return c, nil
}

type reportsInput struct {
	PageParams
	Module string      `query:"module" required:"true"`
	Kind   client.Kind `query:"kind"`
}

type reportsOutput struct {
	Body client.ReportedPage
}

const (
	sqlReportColumns = `
SELECT s.agg_type, s.agg_key, s.lineage::text, s.module, s.version, s.state, s.reason, s.retry_at,
       s.fetched_at, s.reported_at, s.instance, s.detail::text
FROM registry.applied_state s
`
	sqlReports = sqlReportColumns + `
WHERE s.module = $1
  AND ($2 = '' OR s.agg_type = $2)
  AND (s.agg_type, s.agg_key) > ($3, $4)
ORDER BY s.agg_type, s.agg_key
LIMIT $5`
)

func (s *service) listReports(ctx context.Context, in *reportsInput) (*reportsOutput, error) {
	if err := callOf(ctx).principal.mayReadOf(in.Module); err != nil {
		return nil, err
	}
	var kind, key string
	if _, err := in.decode("reports", &kind, &key); err != nil {
		return nil, err
	}
	var out reportsOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		rows, err := tx.Query(ctx, sqlReports, in.Module, string(in.Kind), kind, key, in.limit()+1)
		if err != nil {
			return err
		}
		items, err := pgx.CollectRows(rows, scanReported)
		out.Body = client.ReportedPage{Lineage: tx.Lineage}
		out.Body.Items, out.Body.Next = paged(items, in.limit(), func(last client.Reported) string {
			return cursor("reports", last.Resource.Kind, last.Resource.Key)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// scanReported reads a row of sqlReportColumns.
func scanReported(row pgx.CollectableRow) (r client.Reported, err error) {
	var retry *time.Time
	var detail string
	err = row.Scan(&r.Resource.Kind, &r.Resource.Key, &r.Lineage, &r.Module, &r.Version, &r.State, &r.Reason, &retry,
		&r.FetchedAt, &r.ReportedAt, &r.Instance, &detail)
	if retry != nil {
		r.RetryAt = *retry
	}
	r.Detail = json.RawMessage(detail)
	return r, err
}
