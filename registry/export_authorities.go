package registry

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"hubn/registry/client"
)

const (
	sqlExportAuthorities = sqlAuthorities + `
ORDER BY a.id`
	// A revoked certificate must not come to life in a copy, and one that is over is
	// of no use to it.
	sqlExportCertificates = sqlCertificates + `
WHERE v.id IS NULL
  AND c.not_after > statement_timestamp()
ORDER BY c.id`
	sqlExportSessions = sqlSessions + `
ORDER BY b.id`
)

// bodiesOf makes an export of what a list is read with: input is what a row would
// be written as.
func bodiesOf[T any](sql string, scan func(pgx.CollectableRow) (T, error), input func(T) (any, error)) func(context.Context, pgx.Tx, func([]byte) error) error {
	return func(ctx context.Context, tx pgx.Tx, write func([]byte) error) error {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			row, err := scan(rows)
			if err != nil {
				return err
			}
			in, err := input(row)
			if err != nil {
				return err
			}
			body, err := json.Marshal(in)
			if err != nil {
				return err
			}
			if err := write(body); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// exportedAuthority names its holder by handle: ids are another registry's others.
func exportedAuthority(a client.CertificateAuthority) (any, error) {
	in, err := authorityInputOf(a)
	if err == nil {
		in.OrganisationID = nil
	}
	return in, err
}

func exportedCertificate(c client.Certificate) (any, error) {
	in := &certificateInput{CA: c.CA, Profile: c.Profile, NotBefore: &c.NotBefore, NotAfter: c.NotAfter}
	if err := in.CSR.UnmarshalText([]byte(c.CSR)); err != nil {
		return nil, err
	}
	return in, in.Resources.UnmarshalText([]byte(c.Resources))
}

func exportedSession(b client.Session) (any, error) { return sessionInputOf(b), nil }
