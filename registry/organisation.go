package registry

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// changeProblems are what a change of an existing noun may answer.
var changeProblems = []problem.Kind{problem.NotFound, problem.Deleted, problem.Conflict, problem.Stale, problem.PreconditionRequired, problem.TooLarge}

func (s *service) organisationRoutes() {
	const tag = "organisations"
	register(s, operation{
		method: http.MethodGet, path: "/v1/organisations", id: "list-organisations", tag: tag,
		summary: "List organisations", needs: readNouns,
	}, s.listOrganisations)
	register(s, operation{
		method: http.MethodPost, path: "/v1/organisations", id: "create-organisation", tag: tag,
		summary: "Create an organisation", needs: writeNouns, status: http.StatusCreated,
		problems: []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createOrganisation)
	register(s, operation{
		method: http.MethodGet, path: "/v1/organisations/{id}", id: "get-organisation", tag: tag,
		summary: "Read an organisation", needs: readNouns, problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getOrganisation)
	register(s, operation{
		method: http.MethodPatch, path: "/v1/organisations/{id}", id: "change-organisation", tag: tag,
		summary: "Change an organisation", needs: writeNouns, problems: changeProblems,
		body: patchBody[*organisationInput](s),
	}, s.changeOrganisation)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/organisations/{id}", id: "delete-organisation", tag: tag,
		summary: "Delete an organisation that holds nothing", needs: writeNouns, problems: changeProblems,
		status: http.StatusNoContent,
	}, s.deleteOrganisation)
}

type organisationInput struct {
	Handle  string `json:"handle" maxLength:"80" doc:"Unique; case does not count" example:"EXAMPLE-ORG"`
	Name    string `json:"name,omitempty" maxLength:"1000"`
	Contact string `json:"contact,omitempty" maxLength:"1000"`
}

var (
	handlePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$`)
	numberPattern = regexp.MustCompile(`^[0-9]+$`)
)

func (in *organisationInput) check(f *faults) {
	switch {
	case !handlePattern.MatchString(in.Handle):
		f.add("body.handle", errors.New("a handle has 1 to 80 letters, digits, dots, dashes and underscores, and begins with a letter or digit"), in.Handle)
	case numberPattern.MatchString(in.Handle):
		f.add("body.handle", errors.New("a handle of digits alone looks like an id: add a letter"), in.Handle)
	}
}

// Resolve implements huma.Resolver.
func (in *organisationInput) Resolve(huma.Context) []error { return checked(in) }

const (
	sqlOrganisations = `
SELECT id,
       handle,
       name,
       contact,
       revision
FROM registry.organisation`
	sqlOrganisationByID     = sqlOrganisations + ` WHERE id = $1`
	sqlOrganisationByHandle = sqlOrganisations + ` WHERE lower(handle) = lower($1)`
	sqlLockOrganisation     = sqlOrganisationByID + ` FOR NO KEY UPDATE`
	sqlCreateOrganisation   = `
INSERT INTO registry.organisation (handle, name, contact)
VALUES ($1, $2, $3)
RETURNING id, handle, name, contact, revision`
	sqlChangeOrganisation = `
UPDATE registry.organisation
SET handle = $2,
    name = $3,
    contact = $4
WHERE id = $1
RETURNING id, handle, name, contact, revision`
	sqlDeleteOrganisation     = `DELETE FROM registry.organisation WHERE id = $1`
	sqlOrganisationDependants = `
SELECT kind,
       key,
       label,
       count(*) OVER ()
FROM (
  SELECT 'prefix' AS kind, id::text AS key, prefix::text AS label
  FROM registry.prefix
  WHERE organisation_id = $1 OR route_organisation_id = $1
  UNION ALL
  SELECT 'asn', number::text, 'AS' || number
  FROM registry.asn
  WHERE organisation_id = $1
  UNION ALL
  SELECT 'anycast', id::text, prefix::text || ' ' || service
  FROM registry.anycast_allocation
  WHERE organisation_id = $1
  UNION ALL
  SELECT 'ca', id::text, name
  FROM registry.certificate_authority
  WHERE organisation_id = $1
) held
LIMIT $2`
)

func scanOrganisation(row pgx.CollectableRow) (o client.Organisation, err error) {
	return o, row.Scan(&o.ID, &o.Handle, &o.Name, &o.Contact, &o.Revision)
}

// findOrganisation reads one by its id or handle.
func findOrganisation(ctx context.Context, q querier, ref string) (client.Organisation, error) {
	sql, arg := sqlOrganisationByHandle, any(ref)
	id, err := strconv.ParseInt(ref, 10, 64)
	byID := err == nil
	if byID {
		sql, arg = sqlOrganisationByID, id
	}
	rows, err := q.Query(ctx, sql, arg)
	if err != nil {
		return client.Organisation{}, err
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanOrganisation)
	if !errors.Is(err, pgx.ErrNoRows) {
		return o, err
	}
	if byID {
		return o, absent(ctx, q, client.KindOrganisation, strconv.FormatInt(id, 10))
	}
	return o, unknown("organisation", ref)
}

// lockOrganisation reads one and holds off other changes of it.
func lockOrganisation(ctx context.Context, w *writing, ref, ifMatch string) (client.Organisation, error) {
	o, err := findOrganisation(ctx, w, ref)
	if err != nil {
		return o, err
	}
	rows, err := w.Query(ctx, sqlLockOrganisation, o.ID)
	if err != nil {
		return o, err
	}
	o, err = pgx.CollectExactlyOneRow(rows, scanOrganisation)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, absent(ctx, w, client.KindOrganisation, strconv.FormatInt(o.ID, 10))
	}
	if err != nil {
		return o, err
	}
	// Before the ETag is compared: that refusal shows the object, with its contact.
	if err := w.allowOn(ctx, writeNouns, target{organisations: []int64{o.ID}}); err != nil {
		return o, err
	}
	return o, matches(ifMatch, o.Revision, o)
}

type listOrganisationsInput struct {
	PageParams
	Text string `query:"text" maxLength:"200" doc:"Part of the handle, the name or, for those who may see it, the contact"`
}

// query leaves contacts out of the search of who may not see all of them.
func (in *listOrganisationsInput) query(contacts bool) (*query, error) {
	q := newQuery(sqlOrganisations)
	var after int64
	if ok, err := in.decode("organisations", &after); err != nil {
		return nil, err
	} else if ok {
		q.and(`id > ?`, after)
	}
	switch {
	case in.Text != "" && contacts:
		q.and(`(handle ILIKE ? OR name ILIKE ? OR contact ILIKE ?)`, contains(in.Text), contains(in.Text), contains(in.Text))
	case in.Text != "":
		q.and(`(handle ILIKE ? OR name ILIKE ?)`, contains(in.Text), contains(in.Text))
	}
	q.page(`id`, in.limit())
	return q, nil
}

func (s *service) listOrganisations(ctx context.Context, in *listOrganisationsInput) (*list[client.Organisation], error) {
	p := callOf(ctx).principal
	q, err := in.query(p.may(readContacts))
	if err != nil {
		return nil, err
	}
	out, err := readPage(ctx, s, q, in.limit(), scanOrganisation, func(o client.Organisation) string { return cursor("organisations", o.ID) })
	if err != nil {
		return nil, err
	}
	for i, o := range out.Body.Items {
		out.Body.Items[i] = p.sees(o)
	}
	return out, nil
}

// sees is an organisation without its contact where the principal may not see it:
// contacts are often people.
func (p principal) sees(o client.Organisation) client.Organisation {
	if !p.mayOn(readContacts, target{organisations: []int64{o.ID}}) {
		o.Contact, o.ContactHidden = "", true
	}
	return o
}

// OrganisationPath is the path parameter of one organisation.
type OrganisationPath struct {
	ID string `path:"id" maxLength:"80" doc:"The id or the handle"`
}

func (s *service) getOrganisation(ctx context.Context, in *OrganisationPath) (*found[client.Organisation], error) {
	out := &found[client.Organisation]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		o, err := findOrganisation(ctx, tx, in.ID)
		out.Body, out.ETag = callOf(ctx).principal.sees(o), etag(o.Revision)
		return err
	})
	return out, err
}

type createOrganisationInput struct {
	CreateParams
	Body organisationInput
}

func (s *service) createOrganisation(ctx context.Context, in *createOrganisationInput) (*answer[client.Organisation], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (made[client.Organisation], error) {
		// Nobody's yet: only who may change everything makes one.
		if err := w.allowOn(ctx, writeNouns, target{}); err != nil {
			return made[client.Organisation]{}, err
		}
		o, err := writeOrganisation(ctx, w, sqlCreateOrganisation, in.Body.Handle, in.Body.Name, in.Body.Contact)
		return made[client.Organisation]{o, o.Revision, "/v1/organisations/" + strconv.FormatInt(o.ID, 10)}, err
	})
}

func writeOrganisation(ctx context.Context, w *writing, sql string, args ...any) (client.Organisation, error) {
	rows, err := w.Query(ctx, sql, args...)
	if err != nil {
		return client.Organisation{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanOrganisation)
}

type changeOrganisationInput struct {
	OrganisationPath
	AlterParams
	PatchBody
}

func (s *service) changeOrganisation(ctx context.Context, in *changeOrganisationInput) (*answer[client.Organisation], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Organisation], err error) {
		o, err := lockOrganisation(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return m, err
		}
		next, err := patched(s, &organisationInput{o.Handle, o.Name, o.Contact}, in.RawBody)
		if err != nil {
			return m, err
		}
		o, err = writeOrganisation(ctx, w, sqlChangeOrganisation, o.ID, next.Handle, next.Name, next.Contact)
		return made[client.Organisation]{object: o, revision: o.Revision}, err
	})
}

type deleteOrganisationInput struct {
	OrganisationPath
	AlterParams
}

func (s *service) deleteOrganisation(ctx context.Context, in *deleteOrganisationInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		o, err := lockOrganisation(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return err
		}
		// Who holds resources does not leave the Registry by itself.
		if err := w.allowOn(ctx, writeNouns, target{}); err != nil {
			return err
		}
		if err := dependants(ctx, w, "the organisation "+o.Handle, "give them to another organisation or delete them",
			sqlOrganisationDependants, o.ID); err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeleteOrganisation, o.ID)
		return err
	})
}
