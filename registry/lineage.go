package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) lineageRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/lineage", id: "get-lineage", tag: "lineage",
		summary: "Read the current lineage and its ancestors", needs: readSources, unlogged: true,
	}, s.getLineage)
	register(s, operation{
		method: http.MethodPost, path: "/v1/lineage/regressions", id: "report-regression", tag: "lineage",
		summary: "Report that the Registry serves an older version than was seen", needs: report,
		description: "The Registry compares, and begins a new lineage where the version was never reached in this history.",
	}, s.reportRegression)
}

type lineagesOutput struct {
	Body client.Lineages
}

// The bound is far above the number of restores that an installation sees.
const sqlAncestry = `
WITH RECURSIVE ancestry AS (
  (SELECT l.id, l.parent, l.reason, l.created_at, 1 AS depth
   FROM registry.lineage l
   ORDER BY l.ordinal DESC
   LIMIT 1)
  UNION ALL
  SELECT p.id, p.parent, p.reason, p.created_at, a.depth + 1
  FROM ancestry a
  JOIN registry.lineage p ON p.id = a.parent
  WHERE a.depth < 10000
)
SELECT id::text, coalesce(parent::text, ''), reason, created_at
FROM ancestry
ORDER BY depth`

func (s *service) getLineage(ctx context.Context, _ *struct{}) (*lineagesOutput, error) {
	var out lineagesOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body.Lineage = tx.Lineage
		rows, err := tx.Query(ctx, sqlAncestry)
		if err != nil {
			return err
		}
		out.Body.Ancestry, err = pgx.CollectRows(rows, pgx.RowToStructByPos[client.Lineage])
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type regressionInput struct {
	Body client.Regression
}

type regressionOutput struct {
	Body client.RegressionAnswer
}

const (
	sqlLaneVersion = `
SELECT l.last_seq
FROM registry.outbox_lane l
WHERE l.agg_type = $1
  AND l.agg_key = $2
FOR UPDATE`
	sqlIDIssued     = `SELECT registry.id_issued($1, $2)`
	sqlLineageBegin = `SELECT registry.lineage_begin($1::text::uuid, $2)::text`
)

// reportRegression starts a new lineage where a module holds a version that this
// history never reached. The lane is locked while it is compared, so that no
// writer's version is missed. A lane that does not exist proves nothing if its
// resource may have been deleted and forgotten.
func (s *service) reportRegression(ctx context.Context, in *regressionInput) (*regressionOutput, error) {
	r := in.Body
	if err := callOf(ctx).principal.mayActAs(r.Module); err != nil {
		return nil, err
	}
	src, err := sourceOf(r.Resource.Kind)
	if err != nil {
		return nil, err
	}
	if r.Resource.Key, err = src.parse(r.Resource.Key); err != nil {
		return nil, err
	}
	if r.Version < 1 {
		return nil, problem.New(problem.Invalid, "a version is at least 1").At("body.version", "is not a version", r.Version)
	}
	var out regressionOutput
	err = s.write(ctx, func(ctx context.Context, tx *writing) error {
		out.Body = client.RegressionAnswer{Lineage: tx.Lineage}
		err := tx.QueryRow(ctx, sqlLaneVersion, string(r.Resource.Kind), r.Resource.Key).Scan(&out.Body.Version)
		if errors.Is(err, pgx.ErrNoRows) {
			var issued bool
			err = tx.QueryRow(ctx, sqlIDIssued, string(r.Resource.Kind), r.Resource.Key).Scan(&issued)
			if err == nil && issued {
				return nil
			}
		}
		if err != nil || r.Lineage != tx.Lineage || r.Version <= out.Body.Version {
			return err
		}
		why := fmt.Sprintf("module %s holds %s version %d, and the Registry has %d", r.Module, r.Resource, r.Version, out.Body.Version)
		if err := tx.QueryRow(ctx, sqlLineageBegin, r.Lineage, why).Scan(&out.Body.Lineage); err != nil {
			return err
		}
		out.Body.Begun = out.Body.Lineage != r.Lineage
		return nil
	})
	if err != nil {
		return nil, err
	}
	if out.Body.Begun {
		s.log.WarnContext(ctx, "a new lineage begins", "lineage", out.Body.Lineage, "module", r.Module,
			"resource", r.Resource, "held", r.Version, "served", out.Body.Version)
	}
	return &out, nil
}
