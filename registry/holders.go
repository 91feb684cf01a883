package registry

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

type holdersInput struct{ PastPath }

type holdersOutput struct {
	Body client.Holders
}

const (
	// The entries at which a resource came, changed hands or went.
	sqlHandovers = `
SELECT c.id,
       c.at,
       c.op,
       coalesce((c.before ->> 'organisation_id')::bigint, 0),
       coalesce((c.after ->> 'organisation_id')::bigint, 0),
       c.actor,
       coalesce(c.reason, '')
FROM registry.change_log c
WHERE c.kind = $1
  AND c.agg_key = $2
  AND c.table_name = $3
  AND (c.op <> 'update' OR c.before ->> 'organisation_id' IS DISTINCT FROM c.after ->> 'organisation_id')
ORDER BY c.id
LIMIT 10000`
	sqlNewestOfTable = sqlChangeLog + `
WHERE c.kind = $1
  AND c.agg_key = $2
  AND c.table_name = $3
ORDER BY c.id DESC
LIMIT 1`
	// What an organisation holds, each with the entry that gave it.
	sqlHoldings = `
SELECT h.kind,
       h.key,
       g.id,
       g.at,
       g.actor,
       g.reason
FROM (
  SELECT 'prefix' AS kind, id::text AS key FROM registry.prefix WHERE organisation_id = $1
  UNION ALL
  SELECT 'asn', number::text FROM registry.asn WHERE organisation_id = $1
  UNION ALL
  SELECT 'anycast', id::text FROM registry.anycast_allocation WHERE organisation_id = $1
  UNION ALL
  SELECT 'ca', id::text FROM registry.certificate_authority WHERE organisation_id = $1
  LIMIT 1000
) h
LEFT JOIN LATERAL (
  SELECT c.id, c.at, c.actor, coalesce(c.reason, '') AS reason
  FROM registry.change_log c
  WHERE c.kind = h.kind COLLATE "C"
    AND c.agg_key = h.key COLLATE "C"
    AND (c.after ->> 'organisation_id')::bigint = $1
    AND c.before ->> 'organisation_id' IS DISTINCT FROM c.after ->> 'organisation_id'
  ORDER BY c.id DESC
  LIMIT 1
) g ON true
ORDER BY g.at DESC NULLS LAST, h.kind, h.key`
)

func (s *service) listHolders(ctx context.Context, in *holdersInput) (*holdersOutput, error) {
	out := &holdersOutput{Body: client.Holders{Items: []client.Holding{}}}
	if in.Kind == client.KindPTR {
		return nil, invalid("path.kind", in.Kind, "a PTR record belongs to who holds the prefix around it: ask for the prefix")
	}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body.Lineage = tx.Lineage
		resources, err := resourcesOf(ctx, tx, in.Kind, in.Key)
		if err != nil {
			return err
		}
		for _, r := range resources {
			if err := mayReadOf(ctx, tx, r); err != nil {
				return err
			}
			read := readHolders
			if r.Kind == client.KindOrganisation {
				read = readHoldings
			}
			items, err := read(ctx, tx, r)
			if err != nil {
				return err
			}
			out.Body.Items = append(out.Body.Items, items...)
		}
		return nil
	})
	return out, err
}

// mayReadOf is nil or the refusal to show the history of a resource: who may read
// the newest entry of its own row may.
func mayReadOf(ctx context.Context, q querier, r client.Resource) error {
	if callOf(ctx).principal.may(readHistory) {
		return nil
	}
	rows, err := q.Query(ctx, sqlNewestOfTable, string(r.Kind), r.Key, mainTables[r.Kind])
	if err != nil {
		return err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanChange)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return readable(ctx, q, c)
}

// readHolders is who held a resource, newest first.
func readHolders(ctx context.Context, q querier, r client.Resource) ([]client.Holding, error) {
	rows, err := q.Query(ctx, sqlHandovers, string(r.Kind), r.Key, mainTables[r.Kind])
	if err != nil {
		return nil, err
	}
	var (
		out           []client.Holding
		id, was, is   int64
		at            time.Time
		op            string
		actor, reason string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &op, &was, &is, &actor, &reason}, func() error {
		if op != "insert" {
			if len(out) == 0 { // the log does not reach back to its creation
				out = append(out, client.Holding{Resource: r, OrganisationID: was})
			}
			out[len(out)-1].Until = at
		}
		if op != "delete" {
			out = append(out, client.Holding{Resource: r, OrganisationID: is, Since: at, Change: id, Actor: actor, Reason: reason})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(out)
	for i := range out {
		if out[i].Organisation, err = calledOnce(ctx, q, out[i].OrganisationID); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readHoldings is what an organisation holds now, the newest first.
func readHoldings(ctx context.Context, q querier, r client.Resource) ([]client.Holding, error) {
	organisation, err := strconv.ParseInt(r.Key, 10, 64)
	if err != nil {
		return nil, err
	}
	handle, err := calledOnce(ctx, q, organisation)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, sqlHoldings, organisation)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h client.Holding, err error) {
		var (
			id            *int64
			at            *time.Time
			actor, reason *string
		)
		err = row.Scan(&h.Resource.Kind, &h.Resource.Key, &id, &at, &actor, &reason)
		h.OrganisationID, h.Organisation = organisation, handle
		h.Change, h.Since, h.Actor, h.Reason = value(id), value(at), value(actor), value(reason)
		return h, err
	})
}
