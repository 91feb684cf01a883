package registry

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) observationRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/observations", id: "observe", tag: "reports",
		summary: "Report what is seen of the world for up to 1,000 subjects", needs: report, unlogged: true,
		description: "An observation that is older than the stored one of its subject is ignored and counted.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.takeObservations)
}

type observationsInput struct {
	Body client.ObservationReport
}

const (
	sqlObserve = `
INSERT INTO registry.observation AS o (module, agg_type, agg_key, subject, state, detail, observed_at)
SELECT $1, i.agg_type, i.agg_key, i.subject, i.state, i.detail::jsonb, i.observed_at
FROM (
  SELECT DISTINCT ON (agg_type COLLATE "C", agg_key COLLATE "C", subject) *
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
    WITH ORDINALITY AS u (agg_type, agg_key, subject, state, detail, observed_at, n)
  ORDER BY agg_type COLLATE "C", agg_key COLLATE "C", subject, observed_at DESC, n DESC
) i
WHERE i.state <> 'gone'
ORDER BY i.agg_type COLLATE "C", i.agg_key COLLATE "C", i.subject
ON CONFLICT (agg_type, agg_key, module, subject) DO UPDATE
SET state = EXCLUDED.state,
    detail = EXCLUDED.detail,
    observed_at = EXCLUDED.observed_at
WHERE o.observed_at <= EXCLUDED.observed_at`
	sqlObserveGone = `
DELETE FROM registry.observation o
USING unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[]) AS i (agg_type, agg_key, subject, state, observed_at)
WHERE i.state = 'gone'
  AND o.module = $1
  AND o.agg_type = i.agg_type
  AND o.agg_key = i.agg_key
  AND o.subject = i.subject
  AND o.observed_at <= i.observed_at`
	// gone is no state of a row: it is how an item says that there is none.
	observationGone = "gone"
)

func (s *service) takeObservations(ctx context.Context, in *observationsInput) (*reportOutput, error) {
	module, items := in.Body.Module, in.Body.Items
	if err := callOf(ctx).principal.mayActAs(module); err != nil {
		return nil, err
	}
	c, err := observationColumns(items)
	if err != nil {
		return nil, err
	}
	var out reportOutput
	err = s.record(ctx, func(ctx context.Context, tx *writing) error {
		if _, err := kindsOf(ctx, tx, module); err != nil {
			return err
		}
		seen, err := tx.Exec(ctx, sqlObserve, module, c.kinds, c.keys, c.subjects, c.states, c.details, c.observed)
		if err != nil {
			return err
		}
		gone, err := tx.Exec(ctx, sqlObserveGone, module, c.kinds, c.keys, c.subjects, c.states, c.observed)
		stored := int(seen.RowsAffected() + gone.RowsAffected())
		out.Body = client.ReportResult{Stored: stored, Ignored: len(items) - stored}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// columnsOfObservations are observations, column by column.
type columnsOfObservations struct {
	kinds, keys, subjects, states, details []string
	observed                               []time.Time
}

func observationColumns(items []client.ObservationItem) (columnsOfObservations, error) {
	var c columnsOfObservations
	if len(items) > client.MaxReport {
		return c, problem.New(problem.TooLarge, "at most %d observations at a time, these are %d", client.MaxReport, len(items))
	}
	bad := problem.New(problem.Invalid, "the observations cannot be taken")
	for i, item := range items {
		at := "body.items[" + strconv.Itoa(i) + "]"
		resource, err := parseReported(item.Resource)
		if err != nil {
			bad.At(at+".resource", err.Error(), item.Resource.String())
		}
		state := string(item.State)
		switch {
		case item.Gone:
			state = observationGone
		case item.State == "":
			bad.At(at+".state", "is matches, diverged or unknown, unless the item is gone", nil)
		}
		if item.ObservedAt.IsZero() {
			bad.At(at+".observed_at", "says when it was seen", nil)
		}
		if len(item.Detail) > maxDetail {
			bad.At(at+".detail", "is larger than 16 KiB", len(item.Detail))
		}
		c.kinds = append(c.kinds, string(resource.Kind))
		c.keys = append(c.keys, resource.Key)
		c.subjects = append(c.subjects, item.Subject)
		c.states = append(c.states, state)
		c.details = append(c.details, orEmptyObject(item.Detail))
		c.observed = append(c.observed, item.ObservedAt)
	}
	if len(bad.Fields) > 0 {
		return c, bad
	}
	return c, nil
}
