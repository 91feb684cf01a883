package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) anycastRoutes() {
	const tag = "anycast"
	register(s, operation{
		method: http.MethodGet, path: "/v1/anycast", id: "list-anycast", tag: tag,
		summary: "List anycast allocations with their route origins", needs: readNouns,
	}, s.listAnycast)
	register(s, operation{
		method: http.MethodPost, path: "/v1/anycast", id: "create-anycast", tag: tag,
		summary: "Create an anycast allocation", needs: writeNouns, status: http.StatusCreated,
		description: "It lies in a prefix of the same organisation, whose holder is its own.",
		problems:    []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createAnycast)
	register(s, operation{
		method: http.MethodGet, path: "/v1/anycast/{id}", id: "get-anycast", tag: tag,
		summary: "Read an anycast allocation", needs: readNouns, problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getAnycast)
	register(s, operation{
		method: http.MethodPatch, path: "/v1/anycast/{id}", id: "change-anycast", tag: tag,
		summary:     "Change an anycast allocation",
		description: "The origins are a set: those that the patch names replace all.",
		needs:       writeNouns, problems: changeProblems, body: patchBody[*anycastInput](s),
	}, s.changeAnycast)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/anycast/{id}", id: "delete-anycast", tag: tag,
		summary: "Delete an anycast allocation with its route origins", needs: writeNouns, problems: changeProblems,
		status: http.StatusNoContent,
	}, s.deleteAnycast)
}

type anycastInput struct {
	Prefix Prefix `json:"prefix"`
	OrganisationRef
	Service string        `json:"service" minLength:"1" maxLength:"200" doc:"What is announced from several places: one prefix may serve several"`
	Origins []originInput `json:"origins,omitempty" maxItems:"1000"`
}

type originInput struct {
	ASN       ASN   `json:"asn" doc:"AS0 is nobody (RFC 6483 section 4)"`
	MaxLength *int  `json:"max_length,omitempty" minimum:"0" maximum:"128" doc:"The prefix's own length if it is left out"`
	Active    *bool `json:"active,omitempty" doc:"true if it is left out"`
}

// Resolve implements huma.Resolver.
func (in *anycastInput) Resolve(huma.Context) []error { return checked(in) }

func (in *anycastInput) check(f *faults) {
	in.Prefix.check(f, "body.prefix")
	for i, o := range in.Origins {
		location := fmt.Sprintf("body.origins[%d]", i)
		o.ASN.check(f, location+".asn")
		checkLength(f, location+".max_length", "max_length", o.MaxLength, in.Prefix.value)
		if slices.ContainsFunc(in.Origins[:i], o.same) {
			f.add(location, errors.New("this origin is named twice"), nil)
		}
	}
}

func (o originInput) same(other originInput) bool {
	if o.ASN.value != other.ASN.value || (o.MaxLength == nil) != (other.MaxLength == nil) {
		return false
	}
	return o.MaxLength == nil || *o.MaxLength == *other.MaxLength
}

const (
	// The revision covers the origins too: their changes raise the version.
	sqlAnycasts = `
SELECT a.id,
       a.prefix,
       a.container_id,
       coalesce(a.organisation_id, 0),
       coalesce(o.handle, ''),
       a.service,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'id', r.id, 'asn', r.asn, 'max_length', r.max_length, 'active', r.active, 'revision', r.revision)
                 ORDER BY r.asn, r.max_length NULLS FIRST), '[]')
        FROM registry.anycast_route_origin r
        WHERE r.allocation_id = a.id),
       a.revision + (SELECT coalesce(max(l.last_seq), 0)
                     FROM registry.outbox_lane l
                     WHERE l.agg_type = 'anycast' AND l.agg_key = a.id::text)
FROM registry.anycast_allocation a
LEFT JOIN registry.organisation o ON o.id = a.organisation_id`
	sqlAnycast       = sqlAnycasts + ` WHERE a.id = $1`
	sqlLockAnycast   = sqlAnycast + ` FOR NO KEY UPDATE OF a`
	sqlCreateAnycast = `
INSERT INTO registry.anycast_allocation (prefix, organisation_id, service)
VALUES ($1, $2, $3)
RETURNING id`
	sqlChangeAnycast = `
UPDATE registry.anycast_allocation
SET prefix = $2,
    organisation_id = coalesce($3, organisation_id),
    service = $4
WHERE id = $1`
	sqlDeleteAnycast = `DELETE FROM registry.anycast_allocation WHERE id = $1`

	// The origins as they shall be, in arrays; equal ones are not touched.
	sqlDropOrigins = `
DELETE FROM registry.anycast_route_origin r
WHERE r.allocation_id = $1
  AND NOT EXISTS (
    SELECT FROM unnest($2::bigint[], $3::smallint[]) w (asn, max_length)
    WHERE w.asn = r.asn AND w.max_length IS NOT DISTINCT FROM r.max_length)`
	sqlSwitchOrigins = `
UPDATE registry.anycast_route_origin r
SET active = w.active
FROM unnest($2::bigint[], $3::smallint[], $4::boolean[]) w (asn, max_length, active)
WHERE r.allocation_id = $1
  AND w.asn = r.asn
  AND w.max_length IS NOT DISTINCT FROM r.max_length
  AND w.active <> r.active`
	sqlAddOrigins = `
INSERT INTO registry.anycast_route_origin (allocation_id, asn, max_length, active)
SELECT $1, w.asn, w.max_length, w.active
FROM unnest($2::bigint[], $3::smallint[], $4::boolean[]) w (asn, max_length, active)
WHERE NOT EXISTS (
  SELECT FROM registry.anycast_route_origin r
  WHERE r.allocation_id = $1 AND w.asn = r.asn AND w.max_length IS NOT DISTINCT FROM r.max_length)
ORDER BY w.asn, w.max_length`
)

func scanAnycast(row pgx.CollectableRow) (a client.Anycast, err error) {
	return a, row.Scan(&a.ID, &a.Prefix, &a.ContainerID, &a.OrganisationID, &a.Organisation, &a.Service, &a.Origins, &a.Revision)
}

func oneAnycast(ctx context.Context, q querier, sql string, id int64) (client.Anycast, error) {
	rows, err := q.Query(ctx, sql, id)
	if err != nil {
		return client.Anycast{}, err
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanAnycast)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, absent(ctx, q, client.KindAnycast, strconv.FormatInt(id, 10))
	}
	return a, err
}

type listAnycastInput struct {
	PageParams
	Covers       Network `query:"covers" doc:"Those whose prefix contains this prefix or address, or is it"`
	Within       Prefix  `query:"within" doc:"Those whose prefix lies inside of this one, or is it"`
	Exact        Prefix  `query:"exact" doc:"Those of this prefix"`
	Organisation string  `query:"organisation" maxLength:"80" doc:"Those that this organisation holds: its id or handle"`
	Text         string  `query:"text" maxLength:"200" doc:"Part of the service's name"`
}

// Resolve implements huma.Resolver.
func (in *listAnycastInput) Resolve(huma.Context) []error {
	var f faults
	in.Covers.check(&f, "query.covers")
	in.Within.check(&f, "query.within")
	in.Exact.check(&f, "query.exact")
	return f.list
}

func (in *listAnycastInput) query() (*query, error) {
	q := newQuery(sqlAnycasts)
	var (
		after netip.Prefix
		id    int64
	)
	if ok, err := in.decode("anycast", &after, &id); err != nil {
		return nil, err
	} else if ok {
		q.and(`(a.prefix, a.id) > (?::cidr, ?::bigint)`, after, id)
	}
	if p := in.Covers.value; p.IsValid() {
		q.and(`a.prefix = ANY(?::cidr[])`, covering(p))
	}
	if p := in.Within.value; p.IsValid() {
		last := netipx.PrefixLastIP(p)
		q.and(`a.prefix BETWEEN ?::cidr AND ?::cidr`, p, netip.PrefixFrom(last, last.BitLen()))
	}
	if p := in.Exact.value; p.IsValid() {
		q.and(`a.prefix = ?::cidr`, p)
	}
	if in.Organisation != "" {
		q.heldBy("a.organisation_id", in.Organisation)
	}
	if in.Text != "" {
		q.and(`a.service ILIKE ?`, contains(in.Text))
	}
	q.page(`a.prefix, a.id`, in.limit())
	return q, nil
}

func (s *service) listAnycast(ctx context.Context, in *listAnycastInput) (*list[client.Anycast], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanAnycast, func(a client.Anycast) string { return cursor("anycast", a.Prefix, a.ID) })
}

// AnycastPath is the path parameter of one anycast allocation.
type AnycastPath struct {
	ID int64 `path:"id" minimum:"1"`
}

type getAnycastInput struct{ AnycastPath }

func (s *service) getAnycast(ctx context.Context, in *getAnycastInput) (*found[client.Anycast], error) {
	out := &found[client.Anycast]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = oneAnycast(ctx, tx, sqlAnycast, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

type createAnycastInput struct {
	CreateParams
	Body anycastInput
}

func (s *service) createAnycast(ctx context.Context, in *createAnycastInput) (*answer[client.Anycast], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.Anycast], err error) {
		holder, err := in.Body.find(ctx, w)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, writeNouns, target{[]int64{0, holderID(holder)}, []netip.Prefix{in.Body.Prefix.value}}); err != nil {
			return m, err
		}
		if err := checkContained(ctx, w, in.Body.Prefix.value); err != nil {
			return m, err
		}
		var id int64
		if err := w.QueryRow(ctx, sqlCreateAnycast, in.Body.Prefix.value, holder, in.Body.Service).Scan(&id); err != nil {
			return m, err
		}
		if err := replaceOrigins(ctx, w, id, in.Body.Origins); err != nil {
			return m, err
		}
		a, err := oneAnycast(ctx, w, sqlAnycast, id)
		return made[client.Anycast]{a, a.Revision, "/v1/anycast/" + strconv.FormatInt(id, 10)}, err
	})
}

// checkContained refuses an anycast prefix that lies in no prefix.
func checkContained(ctx context.Context, w *writing, p netip.Prefix) error {
	var covered bool
	err := w.QueryRow(ctx, sqlCovered, p).Scan(&covered)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !covered {
		return problem.New(problem.Conflict, "no prefix of the registry covers %s: create the prefix first", p).
			At("body.prefix", "no prefix covers it", p.String())
	}
	return err
}

// replaceOrigins makes the route origins those that are wanted.
func replaceOrigins(ctx context.Context, w *writing, id int64, wanted []originInput) error {
	numbers, lengths, active := make([]int64, len(wanted)), make([]*int16, len(wanted)), make([]bool, len(wanted))
	for i, o := range wanted {
		numbers[i], active[i] = int64(o.ASN.value), o.Active == nil || *o.Active
		if o.MaxLength != nil {
			lengths[i] = new(int16(*o.MaxLength))
		}
	}
	// What comes is there before what goes: a tuple that only changes its
	// max_length is never without a source inside of this transaction either.
	if _, err := w.Exec(ctx, sqlAddOrigins, id, numbers, lengths, active); err != nil {
		return err
	}
	if _, err := w.Exec(ctx, sqlSwitchOrigins, id, numbers, lengths, active); err != nil {
		return err
	}
	_, err := w.Exec(ctx, sqlDropOrigins, id, numbers, lengths)
	return err
}

type changeAnycastInput struct {
	AnycastPath
	AlterParams
	PatchBody
}

func (s *service) changeAnycast(ctx context.Context, in *changeAnycastInput) (*answer[client.Anycast], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Anycast], err error) {
		a, err := lockAnycast(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return m, err
		}
		next, err := patched(s, anycastInputOf(a), in.RawBody)
		if err != nil {
			return m, err
		}
		holder, err := next.find(ctx, w)
		if err != nil {
			return m, err
		}
		// The space that an allocation moves to is somebody's already: 0 asks them.
		if err := w.allowOn(ctx, writeNouns, target{[]int64{a.OrganisationID, holderID(holder), 0}, []netip.Prefix{a.Prefix, next.Prefix.value}}); err != nil {
			return m, err
		}
		if next.Prefix.value != a.Prefix {
			if err := moveAnycast(ctx, w, a, next, holder); err != nil {
				return m, err
			}
		} else if next.Service != a.Service || holder != nil && *holder != a.OrganisationID {
			if _, err := w.Exec(ctx, sqlChangeAnycast, a.ID, a.Prefix, holder, next.Service); err != nil {
				return m, err
			}
		}
		if err := replaceOrigins(ctx, w, a.ID, next.Origins); err != nil {
			return m, err
		}
		a, err = oneAnycast(ctx, w, sqlAnycast, a.ID)
		return made[client.Anycast]{object: a, revision: a.Revision}, err
	})
}

// moveAnycast gives an allocation another prefix. Its origins go first: the bounds
// of their max_length are those of the prefix; the caller writes the new ones.
func moveAnycast(ctx context.Context, w *writing, a client.Anycast, next *anycastInput, holder *int64) error {
	if err := checkContained(ctx, w, next.Prefix.value); err != nil {
		return err
	}
	if err := replaceOrigins(ctx, w, a.ID, nil); err != nil {
		return err
	}
	_, err := w.Exec(ctx, sqlChangeAnycast, a.ID, next.Prefix.value, holder, next.Service)
	return err
}

func anycastInputOf(a client.Anycast) *anycastInput {
	in := &anycastInput{Prefix: Prefix{value: a.Prefix}, OrganisationRef: holderRef(a.OrganisationID, a.Organisation), Service: a.Service}
	for _, o := range a.Origins {
		in.Origins = append(in.Origins, originInput{ASN: ASN{value: o.ASN}, MaxLength: o.MaxLength, Active: &o.Active})
	}
	return in
}

func lockAnycast(ctx context.Context, w *writing, id int64, ifMatch string) (client.Anycast, error) {
	if _, err := oneAnycast(ctx, w, sqlLockAnycast, id); err != nil {
		return client.Anycast{}, err
	}
	// Read after the lock: the origins and the version of a locked row are those
	// of the statement's own snapshot, which may be older.
	a, err := oneAnycast(ctx, w, sqlAnycast, id)
	if err != nil {
		return a, err
	}
	return a, matches(ifMatch, a.Revision, a)
}

type deleteAnycastInput struct {
	AnycastPath
	AlterParams
}

func (s *service) deleteAnycast(ctx context.Context, in *deleteAnycastInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		a, err := lockAnycast(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return err
		}
		if err := w.allowOn(ctx, writeNouns, target{[]int64{a.OrganisationID}, []netip.Prefix{a.Prefix}}); err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeleteAnycast, a.ID)
		return err
	})
}
