package registry

import (
	"context"
	"errors"
	"net/netip"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	sqlQuarantine = `
SELECT q.id,
       q.prefix,
       q.agg_type,
       q.agg_key,
       q.version,
       q.since,
       registry.withdrawal_missing(q.agg_type, q.agg_key, q.version, q.lineage, q.since)
FROM registry.quarantine q`
	sqlQuarantinedPrefix = `SELECT prefix FROM registry.quarantine WHERE id = $1`
	sqlRelease           = `SELECT registry.quarantine_release($1)`
	sqlSweepQuarantine   = `SELECT registry.quarantine_sweep($1)`
)

type listQuarantineInput struct {
	PageParams
	Within Prefix `query:"within" doc:"What lies in this prefix"`
}

// Resolve implements huma.Resolver.
func (in *listQuarantineInput) Resolve(huma.Context) []error {
	var f faults
	in.Within.check(&f, "query.within")
	return f.list
}

func (in *listQuarantineInput) query() (*query, error) {
	q := newQuery(sqlQuarantine)
	var (
		after netip.Prefix
		id    int64
	)
	if ok, err := in.decode("quarantine", &after, &id); err != nil {
		return nil, err
	} else if ok {
		q.and(`(q.prefix, q.id) > (?::cidr, ?)`, after, id)
	}
	if p := in.Within.value; p.IsValid() {
		last := netipx.PrefixLastIP(p)
		q.and(`q.prefix BETWEEN ?::cidr AND ?::cidr`, p, netip.PrefixFrom(last, last.BitLen()))
	}
	q.page(`q.prefix, q.id`, in.limit())
	return q, nil
}

func scanQuarantine(row pgx.CollectableRow) (q client.Quarantine, err error) {
	return q, row.Scan(&q.ID, &q.Prefix, &q.Resource.Kind, &q.Resource.Key, &q.Version, &q.Since, &q.Waiting)
}

func (s *service) listQuarantine(ctx context.Context, in *listQuarantineInput) (*list[client.Quarantine], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanQuarantine, func(last client.Quarantine) string { return cursor("quarantine", last.Prefix, last.ID) })
}

type releaseRequest struct {
	ID int64 `path:"id" minimum:"1"`
	ChangeParams
}

func (s *service) releaseQuarantine(ctx context.Context, in *releaseRequest) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		var p netip.Prefix
		err := w.QueryRow(ctx, sqlQuarantinedPrefix, in.ID).Scan(&p)
		if errors.Is(err, pgx.ErrNoRows) {
			return inNoQuarantine(in.ID)
		}
		if err != nil {
			return err
		}
		if err := w.allowOn(ctx, releaseSpace, target{prefixes: []netip.Prefix{p}}); err != nil {
			return err
		}
		var released bool
		if err := w.QueryRow(ctx, sqlRelease, in.ID).Scan(&released); err != nil {
			return err
		}
		if !released {
			return inNoQuarantine(in.ID)
		}
		return nil
	})
}

func inNoQuarantine(id int64) error {
	return problem.New(problem.NotFound, "there is no quarantine %d: it is over, or it was released", id)
}

// sweepQuarantine forgets the space that every module has left.
func (s *service) sweepQuarantine(ctx context.Context) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	for full := true; full; {
		var over int
		if err := db.pool.QueryRow(ctx, sqlSweepQuarantine, purgeBatch).Scan(&over); err != nil {
			return err
		}
		s.metrics.purged.WithLabelValues("quarantine").Add(float64(over))
		full = over == purgeBatch
	}
	return nil
}
