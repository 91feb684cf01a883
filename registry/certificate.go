package registry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// The profiles of certificates.
const (
	profileChildCA = "child-ca"
	profileRouter  = "bgpsec-router" // RFC 8209
)

func (s *service) certificateRoutes() {
	const tag, path = "certificates", "/v1/certificates"
	register(s, operation{
		method: http.MethodGet, path: path, id: "list-certificates", tag: tag,
		summary: "List certificates", needs: readNouns,
	}, s.listCertificates)
	register(s, operation{
		method: http.MethodPost, path: path, id: "create-certificate", tag: tag,
		summary: "Have a CA certify a key", needs: certify, status: http.StatusCreated,
		description: "The request's form, signature, key, subject and extensions are checked (child-ca: RFC 6487 section 6, RFC 7935; " +
			"bgpsec-router: RFC 8209, RFC 8608). A certificate never changes and is never deleted: it is revoked.",
		problems: []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createCertificate)
	register(s, operation{
		method: http.MethodGet, path: path + "/{id}", id: "get-certificate", tag: tag,
		summary: "Read a certificate", needs: readNouns, problems: []problem.Kind{problem.NotFound},
	}, s.getCertificate)
}

type certificateInput struct {
	CA        string     `json:"ca" minLength:"1" maxLength:"80" doc:"The CA that issues it, by id or name"`
	Profile   string     `json:"profile" enum:"child-ca,bgpsec-router"`
	CSR       CSR        `json:"csr"`
	Resources Resources  `json:"resources" doc:"What it is for; one AS number for a router"`
	NotBefore *time.Time `json:"not_before,omitempty" doc:"From when it holds, in whole seconds; from now on if it is left out"`
	NotAfter  time.Time  `json:"not_after" doc:"Until when it holds, in whole seconds"`
}

// Resolve implements huma.Resolver.
func (in *certificateInput) Resolve(huma.Context) []error { return checked(in) }

func (in *certificateInput) check(f *faults) {
	in.CSR.check(f, "body.csr")
	in.Resources.check(f, "body.resources")
	if in.Resources.ofOrganisation {
		f.add("body.resources", errors.New("a certificate names its resources: write for example AS64496"), resourcesOfOrganisation)
	}
	if !in.NotAfter.IsZero() && in.NotBefore != nil && !in.NotBefore.Before(in.NotAfter) {
		f.add("body.not_after", errors.New("it ends before it begins: write a later time"), in.NotAfter)
	}
	if year := in.NotAfter.UTC().Year(); year > 9999 {
		f.add("body.not_after", fmt.Errorf("a certificate cannot name the year %d (RFC 5280 section 4.1.2.5)", year), nil)
	}
	request := in.CSR.value
	switch in.Profile {
	case profileChildCA:
		if request != nil {
			for _, err := range request.checkAuthority() {
				f.add("body.csr", err, nil)
			}
		}
	case profileRouter:
		asn, err := in.routerASN()
		f.add("body.resources", err, in.Resources.text)
		if request != nil && err == nil {
			for _, err := range request.checkRouter(asn) {
				f.add("body.csr", err, nil)
			}
		}
	}
}

// routerASN is the AS number of a router. RFC 8209 section 3.1.3.4 has room for
// several, and relying parties take no notice of certificates that use it.
func (in *certificateInput) routerASN() (client.ASN, error) {
	r := in.Resources
	switch {
	case r.err != nil || r.ofOrganisation:
		return 0, nil // said already
	case len(r.prefixes) > 0:
		return 0, errors.New("a router's certificate has no IP resources (RFC 8209 section 3.1.3.4): write one AS number")
	case len(r.asns) != 1 || r.asns[0].First != r.asns[0].Last:
		return 0, errors.New("a router's certificate is for one AS number: create one certificate for each")
	case r.asns[0].First == 0:
		return 0, errors.New("AS0 is nobody (RFC 7607): write the AS number that the router speaks for")
	}
	return r.asns[0].First, nil
}

const (
	sqlCertificates = `
SELECT c.id,
       c.ca_id,
       a.name,
       c.profile,
       c.csr,
       c.key_id,
       c.prefixes,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('first', lower(r), 'last', upper(r) - 1)), '[]')
        FROM unnest(c.asns) r),
       c.not_before,
       c.not_after,
       c.created_at,
       v.reason,
       v.revoked_at,
       c.revision + coalesce(v.revision, 0)
FROM registry.certificate c
JOIN registry.certificate_authority a ON a.id = c.ca_id
LEFT JOIN registry.revocation v ON v.certificate_id = c.id`
	sqlCertificate       = sqlCertificates + ` WHERE c.id = $1`
	sqlCreateCertificate = `
INSERT INTO registry.certificate (ca_id, profile, csr, key_id, prefixes, asns, not_before, not_after)
SELECT $1, $2, $3, $4, $5, $6::text::int8multirange,
       date_trunc('second', coalesce($7::timestamptz, statement_timestamp())), date_trunc('second', $8::timestamptz)
RETURNING id`
	sqlNow = `SELECT statement_timestamp()`
)

func scanCertificate(row pgx.CollectableRow) (c client.Certificate, err error) {
	var (
		csr, key []byte
		reason   *string
		revoked  *time.Time
	)
	err = row.Scan(&c.ID, &c.CAID, &c.CA, &c.Profile, &csr, &key, &c.Prefixes, &c.ASNs, &c.NotBefore, &c.NotAfter, &c.CreatedAt,
		&reason, &revoked, &c.Revision)
	c.CSR, c.Key, c.Resources = requestPEM(csr), hex.EncodeToString(key), resourcesText(c.Prefixes, c.ASNs)
	c.NotBefore, c.NotAfter, c.CreatedAt = c.NotBefore.UTC(), c.NotAfter.UTC(), c.CreatedAt.UTC()
	if reason != nil {
		c.Revoked = &client.RevocationSource{Reason: *reason, RevokedAt: revoked.UTC()}
	}
	return c, err
}

func findCertificate(ctx context.Context, q querier, id int64) (client.Certificate, error) {
	rows, err := q.Query(ctx, sqlCertificate, id)
	if err != nil {
		return client.Certificate{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanCertificate)
	if errors.Is(err, pgx.ErrNoRows) {
		err = unknown("certificate", strconv.FormatInt(id, 10))
	}
	return c, err
}

type listCertificatesInput struct {
	PageParams
	CA            string    `query:"ca" maxLength:"80" doc:"Those of this CA: its id or name"`
	Profile       string    `query:"profile" enum:"child-ca,bgpsec-router"`
	ASN           ASN       `query:"asn" doc:"Those for this AS number"`
	Covers        Network   `query:"covers" doc:"Those for this prefix or address"`
	Key           string    `query:"key" maxLength:"40" pattern:"^([0-9A-Fa-f]{40})?$" doc:"Those of the key with this identifier, in hexadecimal"`
	Revoked       string    `query:"revoked" enum:"true,false" doc:"Only those that are revoked, or only those that are not"`
	ExpiresBefore time.Time `query:"expires_before" doc:"Those that end before this time"`
}

// Resolve implements huma.Resolver.
func (in *listCertificatesInput) Resolve(huma.Context) []error {
	var f faults
	in.ASN.check(&f, "query.asn")
	in.Covers.check(&f, "query.covers")
	return f.list
}

func (in *listCertificatesInput) query() (*query, error) {
	q := newQuery(sqlCertificates)
	var after int64
	if ok, err := in.decode("certificates", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`c.id > ?`, after)
	}
	if in.CA != "" {
		q.byAuthority("c.ca_id", in.CA)
	}
	if in.Profile != "" {
		q.and(`c.profile = ?`, in.Profile)
	}
	if in.ASN.text != "" {
		q.and(`c.asns @> ?::bigint`, int64(in.ASN.value))
	}
	if p := in.Covers.value; p.IsValid() {
		q.and(`?::cidr <<= ANY(c.prefixes)`, p)
	}
	if key, err := hex.DecodeString(in.Key); err == nil && len(key) > 0 {
		q.and(`c.key_id = ?`, key)
	}
	switch in.Revoked {
	case "true":
		q.and(`v.id IS NOT NULL`)
	case "false":
		q.and(`v.id IS NULL`)
	}
	if !in.ExpiresBefore.IsZero() {
		q.and(`c.not_after < ?`, in.ExpiresBefore)
	}
	q.page(`c.id`, in.limit())
	return q, nil
}

func (s *service) listCertificates(ctx context.Context, in *listCertificatesInput) (*list[client.Certificate], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanCertificate, func(c client.Certificate) string { return cursor("certificates", c.ID) })
}

type getCertificateInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *service) getCertificate(ctx context.Context, in *getCertificateInput) (*found[client.Certificate], error) {
	out := &found[client.Certificate]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = findCertificate(ctx, tx, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type createCertificateInput struct {
	CreateParams
	Body certificateInput
}

func (s *service) createCertificate(ctx context.Context, in *createCertificateInput) (*answer[client.Certificate], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.Certificate], err error) {
		b := in.Body
		ca, err := findAuthority(ctx, w, b.CA)
		if isAbsent(err) {
			return m, invalid("body.ca", b.CA, "there is no CA %q: create it first, or name another", b.CA)
		}
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, certify, target{organisations: []int64{ca.OrganisationID}}); err != nil {
			return m, err
		}
		if err := b.checkAgainst(ctx, w, ca); err != nil {
			return m, err
		}
		prefixes := b.Resources.prefixes
		if prefixes == nil {
			prefixes = []netip.Prefix{}
		}
		var id int64
		err = w.QueryRow(ctx, sqlCreateCertificate, ca.ID, b.Profile, b.CSR.value.Raw, b.CSR.value.keyID, prefixes,
			multirange(b.Resources.asns), b.NotBefore, b.NotAfter).Scan(&id)
		if err != nil {
			return m, err
		}
		c, err := findCertificate(ctx, w, id)
		return made[client.Certificate]{c, c.Revision, "/v1/certificates/" + strconv.FormatInt(id, 10)}, err
	})
}

// checkAgainst refuses what the CA could not issue as things are now. What it has
// may change later; then whoever issues has to say so.
func (in *certificateInput) checkAgainst(ctx context.Context, w *writing, ca client.CertificateAuthority) error {
	var now time.Time
	if err := w.QueryRow(ctx, sqlNow).Scan(&now); err != nil {
		return err
	}
	if !in.NotAfter.After(now) {
		return invalid("body.not_after", in.NotAfter, "it would have ended at %s: write a time to come", in.NotAfter.UTC().Format(time.RFC3339))
	}
	missing, err := in.Resources.missingFrom(ca.Prefixes, ca.ASNs), error(nil)
	if ca.Resources == resourcesOfOrganisation {
		missing, err = in.Resources.notHeldBy(ctx, w, ca.OrganisationID)
	}
	if err != nil || missing == "" {
		return err
	}
	return problem.New(problem.Conflict, "the CA %s does not have %s: give it that resource first, or leave it out", ca.Name, missing).
		At("body.resources", "the CA does not have "+missing, in.Resources.text)
}

const (
	// The prefixes among $2 that no prefix of the organisation covers.
	sqlPrefixNotHeld = `
SELECT w.prefix::text
FROM unnest($2::cidr[]) w (prefix)
WHERE NOT EXISTS (
  SELECT FROM registry.prefix p
  WHERE p.organisation_id = $1
    AND p.prefix = ANY(ARRAY(SELECT set_masklen(w.prefix, n) FROM generate_series(0, masklen(w.prefix)) n)))
ORDER BY w.prefix
LIMIT 1`
	// The ranges among $2 of which the organisation holds not every number.
	sqlASNNotHeld = `
SELECT lower(r),
       upper(r) - 1
FROM unnest($2::text::int8multirange) r
WHERE (SELECT count(*) FROM registry.asn a WHERE a.organisation_id = $1 AND a.number <@ r) < upper(r) - lower(r)
ORDER BY r
LIMIT 1`
)

// notHeldBy is the first resource of a set that the organisation does not hold;
// empty when it holds all.
func (r Resources) notHeldBy(ctx context.Context, q querier, organisation int64) (string, error) {
	var text string
	err := q.QueryRow(ctx, sqlPrefixNotHeld, organisation, r.prefixes).Scan(&text)
	if !errors.Is(err, pgx.ErrNoRows) {
		return text, err
	}
	var first, last int64
	err = q.QueryRow(ctx, sqlASNNotHeld, organisation, multirange(r.asns)).Scan(&first, &last)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return resourcesText(nil, []client.ASNRange{{First: client.ASN(first), Last: client.ASN(last)}}), err
}
