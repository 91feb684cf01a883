package registry

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) authorityRoutes() {
	const tag, path, one = "certificate authorities", "/v1/certificate-authorities", "/v1/certificate-authorities/{id}"
	register(s, operation{
		method: http.MethodGet, path: path, id: "list-certificate-authorities", tag: tag,
		summary: "List certificate authorities", needs: readNouns,
	}, s.listAuthorities)
	register(s, operation{
		method: http.MethodPost, path: path, id: "create-certificate-authority", tag: tag,
		summary: "Create a certificate authority", needs: certify, status: http.StatusCreated,
		description: "A hosted CA's key is made and kept by the module that certifies; a delegated one sends a request, whose form, signature, " +
			"key and extensions are checked (RFC 6487 section 6, RFC 7935).",
		problems: []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createAuthority)
	register(s, operation{
		method: http.MethodGet, path: one, id: "get-certificate-authority", tag: tag,
		summary: "Read a certificate authority", needs: readNouns, problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getAuthority)
	register(s, operation{
		method: http.MethodPatch, path: one, id: "change-certificate-authority", tag: tag,
		summary:     "Change a certificate authority",
		description: "A delegated CA rolls its key by sending another request. The mode does not change.",
		needs:       certify, problems: changeProblems, body: patchBody[*authorityInput](s),
	}, s.changeAuthority)
	register(s, operation{
		method: http.MethodDelete, path: one, id: "delete-certificate-authority", tag: tag,
		summary:     "Delete a certificate authority that has certified nothing",
		description: "One that has is retired: its certificates are kept for ever.",
		needs:       certify, problems: changeProblems, status: http.StatusNoContent,
	}, s.deleteAuthority)
}

const (
	sqlAuthorities = `
SELECT a.id,
       a.name,
       coalesce(a.parent_id, 0),
       coalesce(p.name, ''),
       coalesce(a.organisation_id, 0),
       coalesce(o.handle, ''),
       a.mode,
       a.csr,
       a.key_id,
       a.resources,
       a.prefixes,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('first', lower(r), 'last', upper(r) - 1)), '[]')
        FROM unnest(a.asns) r),
       a.state,
       a.revision
FROM registry.certificate_authority a
LEFT JOIN registry.certificate_authority p ON p.id = a.parent_id
LEFT JOIN registry.organisation o ON o.id = a.organisation_id`
	sqlAuthorityByID   = sqlAuthorities + ` WHERE a.id = $1`
	sqlAuthorityByName = sqlAuthorities + ` WHERE a.name = $1`
	sqlLockAuthority   = sqlAuthorityByID + ` FOR NO KEY UPDATE OF a`
	sqlCreateAuthority = `
INSERT INTO registry.certificate_authority
  (name, parent_id, organisation_id, mode, csr, key_id, resources, prefixes, asns, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::int8multirange, $10)
RETURNING id`
	sqlChangeAuthority = `
UPDATE registry.certificate_authority
SET name = $1,
    parent_id = $2,
    organisation_id = $3,
    mode = $4,
    csr = $5,
    key_id = $6,
    resources = $7,
    prefixes = $8,
    asns = $9::text::int8multirange,
    state = $10
WHERE id = $11`
	sqlDeleteAuthority     = `DELETE FROM registry.certificate_authority WHERE id = $1`
	sqlAuthorityDependants = `
SELECT kind,
       key,
       label,
       count(*) OVER ()
FROM (
  SELECT 'ca' AS kind, id::text AS key, name AS label
  FROM registry.certificate_authority
  WHERE parent_id = $1
  UNION ALL
  SELECT 'ca', ca_id::text, 'certificate ' || id || ' (' || profile || ')'
  FROM registry.certificate
  WHERE ca_id = $1
) certified
LIMIT $2`
	sqlActiveChildren = `
SELECT 'ca',
       id::text,
       name,
       count(*) OVER ()
FROM registry.certificate_authority
WHERE parent_id = $1
  AND state = 'active'
ORDER BY id
LIMIT $2`
)

func scanAuthority(row pgx.CollectableRow) (a client.CertificateAuthority, err error) {
	var (
		csr, key []byte
		kind     string
	)
	err = row.Scan(&a.ID, &a.Name, &a.ParentID, &a.Parent, &a.OrganisationID, &a.Organisation, &a.Mode, &csr, &key,
		&kind, &a.Prefixes, &a.ASNs, &a.State, &a.Revision)
	if csr != nil {
		a.CSR = requestPEM(csr)
	}
	a.Key = hex.EncodeToString(key)
	a.Resources = resourcesText(a.Prefixes, a.ASNs)
	if kind == resourcesOfOrganisation {
		a.Resources = resourcesOfOrganisation
	}
	return a, err
}

func oneAuthority(ctx context.Context, q querier, sql string, arg any) (client.CertificateAuthority, error) {
	rows, err := q.Query(ctx, sql, arg)
	if err != nil {
		return client.CertificateAuthority{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanAuthority)
}

// findAuthority reads one by its id or name.
func findAuthority(ctx context.Context, q querier, ref string) (client.CertificateAuthority, error) {
	id, err := strconv.ParseInt(ref, 10, 64)
	if err != nil {
		a, err := oneAuthority(ctx, q, sqlAuthorityByName, ref)
		if errors.Is(err, pgx.ErrNoRows) {
			err = unknown("CA", ref)
		}
		return a, err
	}
	a, err := oneAuthority(ctx, q, sqlAuthorityByID, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = absent(ctx, q, client.KindCA, strconv.FormatInt(id, 10))
	}
	return a, err
}

// isAbsent tells whether an error says that something is not there.
func isAbsent(err error) bool {
	return problem.Is(err, problem.NotFound) || problem.Is(err, problem.Deleted)
}

// lockAuthority reads one and holds off other changes of it.
func lockAuthority(ctx context.Context, w *writing, ref, ifMatch string) (client.CertificateAuthority, error) {
	a, err := findAuthority(ctx, w, ref)
	if err != nil {
		return a, err
	}
	id := a.ID
	a, err = oneAuthority(ctx, w, sqlLockAuthority, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, absent(ctx, w, client.KindCA, strconv.FormatInt(id, 10))
	}
	if err != nil {
		return a, err
	}
	return a, matches(ifMatch, a.Revision, a)
}

type listAuthoritiesInput struct {
	PageParams
	Organisation string  `query:"organisation" maxLength:"80" doc:"Those of this organisation: its id or handle"`
	Parent       string  `query:"parent" maxLength:"80" doc:"Those that this CA certifies: its id or name"`
	Mode         string  `query:"mode" enum:"hosted,delegated"`
	State        string  `query:"state" enum:"active,retired"`
	Covers       Network `query:"covers" doc:"Those whose named resources contain this prefix or address"`
	ASN          ASN     `query:"asn" doc:"Those whose named resources contain this AS number"`
	Text         string  `query:"text" maxLength:"200" doc:"Part of the name"`
}

// Resolve implements huma.Resolver.
func (in *listAuthoritiesInput) Resolve(huma.Context) []error {
	var f faults
	in.Covers.check(&f, "query.covers")
	in.ASN.check(&f, "query.asn")
	return f.list
}

func (in *listAuthoritiesInput) query() (*query, error) {
	q := newQuery(sqlAuthorities)
	var after int64
	if ok, err := in.decode("certificate-authorities", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`a.id > ?`, after)
	}
	if in.Organisation != "" {
		q.heldBy("a.organisation_id", in.Organisation)
	}
	if in.Parent != "" {
		q.byAuthority("a.parent_id", in.Parent)
	}
	if in.Mode != "" {
		q.and(`a.mode = ?`, in.Mode)
	}
	if in.State != "" {
		q.and(`a.state = ?`, in.State)
	}
	if p := in.Covers.value; p.IsValid() {
		q.and(`?::cidr <<= ANY(a.prefixes)`, p)
	}
	if in.ASN.text != "" {
		q.and(`a.asns @> ?::bigint`, int64(in.ASN.value))
	}
	if in.Text != "" {
		q.and(`a.name ILIKE ?`, contains(in.Text))
	}
	q.page(`a.id`, in.limit())
	return q, nil
}

// byAuthority adds the condition that a column names the CA with an id or a name.
func (q *query) byAuthority(column, ref string) {
	if id, err := strconv.ParseInt(ref, 10, 64); err == nil {
		q.and(column+` = ?`, id)
		return
	}
	q.and(column+` = (SELECT id FROM registry.certificate_authority WHERE name = ?)`, ref)
}

func (s *service) listAuthorities(ctx context.Context, in *listAuthoritiesInput) (*list[client.CertificateAuthority], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanAuthority, func(a client.CertificateAuthority) string {
		return cursor("certificate-authorities", a.ID)
	})
}

// AuthorityPath is the path parameter of one CA.
type AuthorityPath struct {
	ID string `path:"id" maxLength:"80" doc:"The id or the name"`
}

type getAuthorityInput struct{ AuthorityPath }

func (s *service) getAuthority(ctx context.Context, in *getAuthorityInput) (*found[client.CertificateAuthority], error) {
	out := &found[client.CertificateAuthority]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = findAuthority(ctx, tx, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type createAuthorityInput struct {
	CreateParams
	Body authorityInput
}

func (s *service) createAuthority(ctx context.Context, in *createAuthorityInput) (*answer[client.CertificateAuthority], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.CertificateAuthority], err error) {
		row, parent, err := in.Body.row(ctx, w)
		if err != nil {
			return m, err
		}
		if err := w.allowAll(ctx, certify, in.Body.targets(nil, row.holder, parent)); err != nil {
			return m, err
		}
		var id int64
		if err := w.QueryRow(ctx, sqlCreateAuthority, row.args()...).Scan(&id); err != nil {
			return m, err
		}
		a, err := oneAuthority(ctx, w, sqlAuthorityByID, id)
		return made[client.CertificateAuthority]{a, a.Revision, "/v1/certificate-authorities/" + strconv.FormatInt(id, 10)}, err
	})
}

// allowAll is allowOn for each of several targets.
func (w *writing) allowAll(ctx context.Context, needs permission, targets []target) error {
	for _, t := range targets {
		if err := w.allowOn(ctx, needs, t); err != nil {
			return err
		}
	}
	return nil
}

type changeAuthorityInput struct {
	AuthorityPath
	AlterParams
	PatchBody
}

func (s *service) changeAuthority(ctx context.Context, in *changeAuthorityInput) (*answer[client.CertificateAuthority], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.CertificateAuthority], err error) {
		now, err := lockAuthority(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return m, err
		}
		before, err := authorityInputOf(now)
		if err != nil {
			return m, err
		}
		next, err := patched(s, before, in.RawBody)
		if err != nil {
			return m, err
		}
		row, parent, err := next.row(ctx, w)
		if err != nil {
			return m, err
		}
		if err := w.allowAll(ctx, certify, next.targets(&now, row.holder, parent)); err != nil {
			return m, err
		}
		if err := modeKept(now, next); err != nil {
			return m, err
		}
		if next.State == stateRetired && now.State != stateRetired {
			if err := dependants(ctx, w, "the CA "+now.Name, "retire or move those first", sqlActiveChildren, now.ID); err != nil {
				return m, err
			}
		}
		if _, err := w.Exec(ctx, sqlChangeAuthority, append(row.args(), now.ID)...); err != nil {
			return m, err
		}
		a, err := oneAuthority(ctx, w, sqlAuthorityByID, now.ID)
		return made[client.CertificateAuthority]{object: a, revision: a.Revision}, err
	})
}

type deleteAuthorityInput struct {
	AuthorityPath
	AlterParams
}

func (s *service) deleteAuthority(ctx context.Context, in *deleteAuthorityInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		a, err := lockAuthority(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return err
		}
		if err := w.allowOn(ctx, certify, target{organisations: []int64{a.OrganisationID}}); err != nil {
			return err
		}
		if err := dependants(ctx, w, "the CA "+a.Name, "what it certified is kept for ever: retire it instead", sqlAuthorityDependants, a.ID); err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeleteAuthority, a.ID)
		return err
	})
}
