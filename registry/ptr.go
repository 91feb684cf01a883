package registry

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) ptrRoutes() {
	const tag = "ptr-records"
	register(s, operation{
		method: http.MethodGet, path: "/v1/ptr-records", id: "list-ptr-records", tag: tag,
		summary: "List PTR records by address", needs: readNouns,
	}, s.listPTRRecords)
	register(s, operation{
		method: http.MethodPost, path: "/v1/ptr-records", id: "create-ptr-record", tag: tag,
		summary: "Create a PTR record", needs: writeNouns, status: http.StatusCreated,
		description: "The address lies in a prefix of the registry. It may have several records.",
		problems:    []problem.Kind{problem.Conflict, problem.TooLarge},
	}, s.createPTRRecord)
	register(s, operation{
		method: http.MethodGet, path: "/v1/ptr-records/{id}", id: "get-ptr-record", tag: tag,
		summary: "Read a PTR record", needs: readNouns, problems: []problem.Kind{problem.NotFound},
		description: "The aggregate is the address: its tombstone is at /v1/sources/ptr/{address}.",
	}, s.getPTRRecord)
	register(s, operation{
		method: http.MethodPatch, path: "/v1/ptr-records/{id}", id: "change-ptr-record", tag: tag,
		summary: "Change the target or the TTL of a PTR record", needs: writeNouns, problems: changeProblems, body: patchBody[*ptrInput](s),
	}, s.changePTRRecord)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/ptr-records/{id}", id: "delete-ptr-record", tag: tag,
		summary: "Delete a PTR record", needs: writeNouns, problems: changeProblems, status: http.StatusNoContent,
	}, s.deletePTRRecord)
}

type ptrInput struct {
	Address Address  `json:"address"`
	Target  HostName `json:"target" doc:"The host name, in Unicode or in A-labels; it is kept as typed and published in A-labels"`
	TTL     *int     `json:"ttl,omitempty" minimum:"0" maximum:"2147483647" doc:"Seconds (RFC 2181 section 8); the zone's default if it is left out"`
}

// Resolve implements huma.Resolver.
func (in *ptrInput) Resolve(huma.Context) []error { return checked(in) }

func (in *ptrInput) check(f *faults) {
	in.Address.check(f, "body.address")
	in.Target.check(f, "body.target")
}

const (
	sqlPTRRecords = `
SELECT r.id,
       r.address,
       r.target,
       r.target_typed,
       r.ttl,
       r.revision
FROM registry.ptr_record r`
	sqlPTRRecord       = sqlPTRRecords + ` WHERE r.id = $1`
	sqlLockPTRRecord   = sqlPTRRecord + ` FOR NO KEY UPDATE`
	sqlCreatePTRRecord = `
INSERT INTO registry.ptr_record (address, target, target_typed, ttl)
VALUES ($1, $2, $3, $4)
RETURNING id`
	sqlChangePTRRecord = `
UPDATE registry.ptr_record
SET target = $2,
    target_typed = $3,
    ttl = $4
WHERE id = $1`
	sqlDeletePTRRecord = `DELETE FROM registry.ptr_record WHERE id = $1`
	sqlCovered         = `SELECT id IS NOT NULL FROM registry.prefix_covering($1, false)`
)

func scanPTRRecord(row pgx.CollectableRow) (r client.PTRRecord, err error) {
	return r, row.Scan(&r.ID, &r.Address, &r.Target, &r.TargetTyped, &r.TTL, &r.Revision)
}

func onePTRRecord(ctx context.Context, q querier, sql string, id int64) (client.PTRRecord, error) {
	rows, err := q.Query(ctx, sql, id)
	if err != nil {
		return client.PTRRecord{}, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanPTRRecord)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, unknown("PTR record", strconv.FormatInt(id, 10))
	}
	return r, err
}

type listPTRRecordsInput struct {
	PageParams
	Address Address `query:"address" doc:"Those of this address"`
	Within  Network `query:"within" doc:"Those of addresses inside of this prefix"`
	Text    string  `query:"text" maxLength:"200" doc:"Part of the target"`
}

// Resolve implements huma.Resolver.
func (in *listPTRRecordsInput) Resolve(huma.Context) []error {
	var f faults
	in.Address.check(&f, "query.address")
	in.Within.check(&f, "query.within")
	return f.list
}

func (in *listPTRRecordsInput) query() (*query, error) {
	q := newQuery(sqlPTRRecords)
	var (
		address netip.Addr
		target  string
	)
	if ok, err := in.decode("ptr-records", &address, &target); err != nil {
		return nil, err
	} else if ok {
		q.and(`(r.address, r.target) > (?::inet, ?::text)`, address, target)
	}
	if in.Address.value.IsValid() {
		q.and(`r.address = ?`, in.Address.value)
	}
	if p := in.Within.value; p.IsValid() {
		q.and(`r.address BETWEEN ? AND ?`, p.Addr(), netipx.PrefixLastIP(p))
	}
	if in.Text != "" {
		q.and(`(r.target ILIKE ? OR r.target_typed ILIKE ?)`, contains(in.Text), contains(in.Text))
	}
	q.page(`r.address, r.target`, in.limit())
	return q, nil
}

func (s *service) listPTRRecords(ctx context.Context, in *listPTRRecordsInput) (*list[client.PTRRecord], error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	return readPage(ctx, s, q, in.limit(), scanPTRRecord, func(r client.PTRRecord) string { return cursor("ptr-records", r.Address, r.Target) })
}

// PTRPath is the path parameter of one PTR record.
type PTRPath struct {
	ID int64 `path:"id" minimum:"1"`
}

type getPTRRecordInput struct{ PTRPath }

func (s *service) getPTRRecord(ctx context.Context, in *getPTRRecordInput) (*found[client.PTRRecord], error) {
	out := &found[client.PTRRecord]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = onePTRRecord(ctx, tx, sqlPTRRecord, in.ID)
		out.ETag = etag(out.Body.Revision)
		return err
	})
	return out, err
}

// checkCovered refuses an address that lies in no prefix.
func checkCovered(ctx context.Context, w *writing, address netip.Addr) error {
	var covered bool
	err := w.QueryRow(ctx, sqlCovered, address).Scan(&covered)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !covered {
		return problem.New(problem.Conflict, "no prefix of the registry covers %s: create the prefix first", address).
			At("body.address", "no prefix covers it", address.String())
	}
	return err
}

type createPTRRecordInput struct {
	CreateParams
	Body ptrInput
}

func (s *service) createPTRRecord(ctx context.Context, in *createPTRRecordInput) (*answer[client.PTRRecord], error) {
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.PTRRecord], err error) {
		b := in.Body
		if err := w.allowOn(ctx, writeNouns, ptrTarget(b.Address.value)); err != nil {
			return m, err
		}
		if err := checkCovered(ctx, w, b.Address.value); err != nil {
			return m, err
		}
		var id int64
		if err := w.QueryRow(ctx, sqlCreatePTRRecord, b.Address.value, b.Target.value, b.Target.text, b.TTL).Scan(&id); err != nil {
			return m, err
		}
		r, err := onePTRRecord(ctx, w, sqlPTRRecord, id)
		return made[client.PTRRecord]{r, r.Revision, "/v1/ptr-records/" + strconv.FormatInt(id, 10)}, err
	})
}

// ptrTarget is what PTR records of some addresses touch: they belong to who holds
// the space.
func ptrTarget(addresses ...netip.Addr) target {
	t := target{organisations: []int64{0}}
	for _, a := range addresses {
		t.prefixes = append(t.prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return t
}

func lockPTRRecord(ctx context.Context, w *writing, id int64, ifMatch string) (client.PTRRecord, error) {
	r, err := onePTRRecord(ctx, w, sqlLockPTRRecord, id)
	if err != nil {
		return r, err
	}
	return r, matches(ifMatch, r.Revision, r)
}

type changePTRRecordInput struct {
	PTRPath
	AlterParams
	PatchBody
}

func (s *service) changePTRRecord(ctx context.Context, in *changePTRRecordInput) (*answer[client.PTRRecord], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.PTRRecord], err error) {
		r, err := lockPTRRecord(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, writeNouns, ptrTarget(r.Address)); err != nil {
			return m, err
		}
		next, err := patched(s, &ptrInput{
			Address: Address{value: r.Address},
			Target:  HostName{given: given{text: r.TargetTyped}, value: r.Target},
			TTL:     r.TTL,
		}, in.RawBody)
		if err != nil {
			return m, err
		}
		if next.Address.value != r.Address {
			return m, invalid("body.address", next.Address.text, "the address of a PTR record does not change: create one for %s and delete this one", next.Address.value)
		}
		if _, err := w.Exec(ctx, sqlChangePTRRecord, r.ID, next.Target.value, next.Target.text, next.TTL); err != nil {
			return m, err
		}
		r, err = onePTRRecord(ctx, w, sqlPTRRecord, r.ID)
		return made[client.PTRRecord]{object: r, revision: r.Revision}, err
	})
}

type deletePTRRecordInput struct {
	PTRPath
	AlterParams
}

func (s *service) deletePTRRecord(ctx context.Context, in *deletePTRRecordInput) (*gone, error) {
	return remove(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) error {
		r, err := lockPTRRecord(ctx, w, in.ID, in.IfMatch)
		if err != nil {
			return err
		}
		if err := w.allowOn(ctx, writeNouns, ptrTarget(r.Address)); err != nil {
			return err
		}
		_, err = w.Exec(ctx, sqlDeletePTRRecord, r.ID)
		return err
	})
}
