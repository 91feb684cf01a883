package registry

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) asnRoutes() {
	const tag = "asns"
	register(s, operation{
		method: http.MethodGet, path: "/v1/asns", id: "list-asns", tag: tag,
		summary: "List AS numbers", needs: readNouns,
	}, s.listASNs)
	register(s, operation{
		method: http.MethodPost, path: "/v1/asns", id: "create-asn", tag: tag,
		summary: "Register an AS number", needs: writeNouns, status: http.StatusCreated,
		problems: []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createASN)
	register(s, operation{
		method: http.MethodGet, path: "/v1/asns/{number}", id: "get-asn", tag: tag,
		summary: "Read an AS number", needs: readNouns, problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getASN)
	register(s, operation{
		method: http.MethodPatch, path: "/v1/asns/{number}", id: "change-asn", tag: tag,
		summary: "Change the holder or the name of an AS number", needs: writeNouns, problems: changeProblems,
		body: patchBody[*asnInput](s),
	}, s.changeASN)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/asns/{number}", id: "delete-asn", tag: tag,
		summary: "Remove an AS number", needs: writeNouns, problems: changeProblems, status: http.StatusNoContent,
	}, s.deleteASN)
}

type asnInput struct {
	Number ASN `json:"number"`
	OrganisationRef
	Name string `json:"name,omitempty" maxLength:"1000"`
}

func (in *asnInput) check(f *faults) {
	in.Number.check(f, "body.number")
	if in.Number.err == nil && in.Number.text != "" && in.Number.value == 0 {
		f.add("body.number", errors.New("AS0 is reserved and nobody's (RFC 7607): an AS number in the registry is 1 to 4294967295"), 0)
	}
}

// Resolve implements huma.Resolver.
func (in *asnInput) Resolve(huma.Context) []error { return checked(in) }

// specialASNs are the ranges that are not globally unique or never assigned.
var specialASNs = []struct {
	first, last client.ASN
	word        string
}{
	{0, 0, "reserved"},                   // RFC 7607
	{23456, 23456, "reserved"},           // AS_TRANS, RFC 6793
	{64496, 64511, "documentation"},      // RFC 5398
	{64512, 65534, "private"},            // RFC 6996
	{65535, 65535, "reserved"},           // RFC 7300
	{65536, 65551, "documentation"},      // RFC 5398
	{4200000000, 4294967294, "private"},  // RFC 6996
	{4294967295, 4294967295, "reserved"}, // RFC 7300
}

// specialASN is the word for an AS number that is not an ordinary one; empty for
// those that are.
func specialASN(n client.ASN) string {
	for _, r := range specialASNs {
		if r.first <= n && n <= r.last {
			return r.word
		}
	}
	return ""
}

const (
	sqlASNs = `
SELECT a.number,
       coalesce(a.organisation_id, 0),
       coalesce(o.handle, ''),
       a.name,
       a.revision
FROM registry.asn a
LEFT JOIN registry.organisation o ON o.id = a.organisation_id`
	sqlASN       = sqlASNs + ` WHERE a.number = $1`
	sqlLockASN   = sqlASN + ` FOR NO KEY UPDATE OF a`
	sqlCreateASN = `
INSERT INTO registry.asn (number, organisation_id, name)
VALUES ($1, $2, $3)`
	sqlChangeASN = `
UPDATE registry.asn
SET organisation_id = $2,
    name = $3
WHERE number = $1`
	sqlDeleteASN = `DELETE FROM registry.asn WHERE number = $1`
)

func scanASN(row pgx.CollectableRow) (a client.ASNHolder, err error) {
	err = row.Scan(&a.Number, &a.OrganisationID, &a.Organisation, &a.Name, &a.Revision)
	a.Special = specialASN(a.Number)
	return a, err
}

func readASN(ctx context.Context, q querier, sql string, number client.ASN) (client.ASNHolder, error) {
	rows, err := q.Query(ctx, sql, int64(number))
	if err != nil {
		return client.ASNHolder{}, err
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanASN)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, absent(ctx, q, client.KindASN, strconv.FormatUint(uint64(number), 10))
	}
	return a, err
}

type listASNsInput struct {
	PageParams
	Organisation string `query:"organisation" maxLength:"80" doc:"Those that this organisation holds: its id or handle"`
	Text         string `query:"text" maxLength:"200" doc:"Part of the name"`
}

func (in *listASNsInput) query() (*query, error) {
	q := newQuery(sqlASNs)
	var after int64
	if ok, err := in.decode("asns", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`a.number > ?`, after)
	}
	if in.Organisation != "" {
		q.heldBy("a.organisation_id", in.Organisation)
	}
	if in.Text != "" {
		q.and(`a.name ILIKE ?`, contains(in.Text))
	}
	q.page(`a.number`, in.limit())
	return q, nil
}

func (s *service) listASNs(ctx context.Context, in *listASNsInput) (*list[client.ASNHolder], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanASN, func(a client.ASNHolder) string { return cursor("asns", int64(a.Number)) })
}

// ASNPath is the path parameter of one AS number.
type ASNPath struct {
	Number ASN `path:"number" doc:"64496 or AS64496"`
}

// Resolve implements huma.Resolver.
func (in *ASNPath) Resolve(huma.Context) []error {
	var f faults
	in.Number.check(&f, "path.number")
	return f.list
}

type getASNInput struct{ ASNPath }

func (s *service) getASN(ctx context.Context, in *getASNInput) (*found[client.ASNHolder], error) {
	out := &found[client.ASNHolder]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = readASN(ctx, tx, sqlASN, in.Number.value)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type createASNInput struct {
	CreateParams
	Body asnInput
}

func (s *service) createASN(ctx context.Context, in *createASNInput) (*answer[client.ASNHolder], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.ASNHolder], err error) {
		holder, err := in.Body.find(ctx, w)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, writeNouns, target{organisations: []int64{0, holderID(holder)}}); err != nil {
			return m, err
		}
		number := in.Body.Number.value
		if _, err := w.Exec(ctx, sqlCreateASN, int64(number), holder, in.Body.Name); err != nil {
			return m, err
		}
		a, err := readASN(ctx, w, sqlASN, number)
		return made[client.ASNHolder]{a, a.Revision, "/v1/asns/" + strconv.FormatUint(uint64(number), 10)}, err
	})
}

type changeASNInput struct {
	ASNPath
	AlterParams
	PatchBody
}

func (s *service) changeASN(ctx context.Context, in *changeASNInput) (*answer[client.ASNHolder], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.ASNHolder], err error) {
		a, err := lockASN(ctx, w, in.Number.value, in.IfMatch)
		if err != nil {
			return m, err
		}
		now := &asnInput{Number: ASN{value: a.Number}, OrganisationRef: holderRef(a.OrganisationID, a.Organisation), Name: a.Name}
		next, err := patched(s, now, in.RawBody)
		if err != nil {
			return m, err
		}
		if next.Number.value != a.Number {
			return m, invalid("body.number", next.Number.text, "the number of %s cannot change: register the other AS number and remove this one", a.Number)
		}
		holder, err := next.find(ctx, w)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, writeNouns, target{organisations: []int64{a.OrganisationID, holderID(holder)}}); err != nil {
			return m, err
		}
		if _, err := w.Exec(ctx, sqlChangeASN, int64(a.Number), holder, next.Name); err != nil {
			return m, err
		}
		a, err = readASN(ctx, w, sqlASN, a.Number)
		return made[client.ASNHolder]{object: a, revision: a.Revision}, err
	})
}

func lockASN(ctx context.Context, w *writing, number client.ASN, ifMatch string) (client.ASNHolder, error) {
	a, err := readASN(ctx, w, sqlLockASN, number)
	if err != nil {
		return a, err
	}
	return a, matches(ifMatch, a.Revision, a)
}

type deleteASNInput struct {
	ASNPath
	AlterParams
}

func (s *service) deleteASN(ctx context.Context, in *deleteASNInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		a, err := lockASN(ctx, w, in.Number.value, in.IfMatch)
		if err != nil {
			return err
		}
		if err := w.allowOn(ctx, writeNouns, target{organisations: []int64{a.OrganisationID}}); err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeleteASN, int64(in.Number.value))
		return err
	})
}
