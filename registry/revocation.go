package registry

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) revocationRoutes() {
	const tag, path = "certificates", "/v1/revocations"
	register(s, operation{
		method: http.MethodGet, path: path, id: "list-revocations", tag: tag,
		summary: "List revocations", needs: readNouns,
	}, s.listRevocations)
	register(s, operation{
		method: http.MethodPost, path: path, id: "create-revocation", tag: tag,
		summary: "Revoke a certificate", needs: certify, status: http.StatusCreated,
		description: "Nothing takes a revocation back: certify the key again where it was a mistake.",
		problems:    []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createRevocation)
	register(s, operation{
		method: http.MethodGet, path: path + "/{id}", id: "get-revocation", tag: tag,
		summary: "Read a revocation", needs: readNouns, problems: []problem.Kind{problem.NotFound},
	}, s.getRevocation)
}

type revocationInput struct {
	CertificateID int64  `json:"certificate_id" minimum:"1"`
	Reason        string `json:"reason,omitempty" enum:"unspecified,key-compromise,ca-compromise,affiliation-changed,superseded,cessation-of-operation" doc:"Of RFC 5280 section 5.3.1; unspecified if it is left out"`
}

const (
	sqlRevocations = `
SELECT v.id,
       v.certificate_id,
       c.ca_id,
       a.name,
       v.reason,
       v.revoked_at,
       v.revision
FROM registry.revocation v
JOIN registry.certificate c ON c.id = v.certificate_id
JOIN registry.certificate_authority a ON a.id = c.ca_id`
	sqlRevocation       = sqlRevocations + ` WHERE v.id = $1`
	sqlCreateRevocation = `
INSERT INTO registry.revocation (certificate_id, reason)
VALUES ($1, $2)
RETURNING id`
)

func scanRevocation(row pgx.CollectableRow) (v client.Revocation, err error) {
	err = row.Scan(&v.ID, &v.CertificateID, &v.CAID, &v.CA, &v.Reason, &v.RevokedAt, &v.Revision)
	v.RevokedAt = v.RevokedAt.UTC()
	return v, err
}

func findRevocation(ctx context.Context, q querier, id int64) (client.Revocation, error) {
	rows, err := q.Query(ctx, sqlRevocation, id)
	if err != nil {
		return client.Revocation{}, err
	}
	v, err := pgx.CollectExactlyOneRow(rows, scanRevocation)
	if errors.Is(err, pgx.ErrNoRows) {
		err = unknown("revocation", strconv.FormatInt(id, 10))
	}
	return v, err
}

type listRevocationsInput struct {
	PageParams
	CA          string `query:"ca" maxLength:"80" doc:"Those of this CA's certificates: its id or name"`
	Certificate int64  `query:"certificate" minimum:"1" doc:"That of this certificate"`
	Reason      string `query:"revoked_for" enum:"unspecified,key-compromise,ca-compromise,affiliation-changed,superseded,cessation-of-operation" doc:"Those for this reason"`
}

func (in *listRevocationsInput) query() (*query, error) {
	q := newQuery(sqlRevocations)
	var after int64
	if ok, err := in.decode("revocations", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`v.id > ?`, after)
	}
	if in.CA != "" {
		q.byAuthority("c.ca_id", in.CA)
	}
	if in.Certificate != 0 {
		q.and(`v.certificate_id = ?`, in.Certificate)
	}
	if in.Reason != "" {
		q.and(`v.reason = ?`, in.Reason)
	}
	q.page(`v.id`, in.limit())
	return q, nil
}

func (s *service) listRevocations(ctx context.Context, in *listRevocationsInput) (*list[client.Revocation], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanRevocation, func(v client.Revocation) string { return cursor("revocations", v.ID) })
}

type getRevocationInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *service) getRevocation(ctx context.Context, in *getRevocationInput) (*found[client.Revocation], error) {
	out := &found[client.Revocation]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = findRevocation(ctx, tx, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type createRevocationInput struct {
	CreateParams
	Body revocationInput
}

func (s *service) createRevocation(ctx context.Context, in *createRevocationInput) (*answer[client.Revocation], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.Revocation], err error) {
		c, err := findCertificate(ctx, w, in.Body.CertificateID)
		if isAbsent(err) {
			return m, invalid("body.certificate_id", in.Body.CertificateID, "there is no certificate %d: `hubn certificate list` shows them", in.Body.CertificateID)
		}
		if err != nil {
			return m, err
		}
		ca, err := oneAuthority(ctx, w, sqlAuthorityByID, c.CAID)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, certify, target{organisations: []int64{ca.OrganisationID}}); err != nil {
			return m, err
		}
		var id int64
		if err := w.QueryRow(ctx, sqlCreateRevocation, c.ID, orDefault(in.Body.Reason, "unspecified")).Scan(&id); err != nil {
			return m, err
		}
		v, err := findRevocation(ctx, w, id)
		return made[client.Revocation]{v, v.Revision, "/v1/revocations/" + strconv.FormatInt(id, 10)}, err
	})
}
