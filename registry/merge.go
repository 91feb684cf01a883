package registry

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	sqlGrow = `
UPDATE registry.prefix
SET prefix = $2
WHERE id = $1`
	sqlMergeChildren = `
UPDATE registry.prefix
SET parent_id = $1,
    parent_prefix = $2
WHERE parent_id = ANY($3)`
	sqlMergePTR = `
UPDATE registry.ptr_record
SET prefix_id = $1,
    prefix = $2
WHERE prefix_id = ANY($3)`
	sqlMergeAnycast = `
UPDATE registry.anycast_allocation
SET container_id = $1,
    container = $2
WHERE container_id = ANY($3)`
)

type mergeInput struct {
	With []string `json:"with" minItems:"1" maxItems:"255" doc:"The other prefixes: their ids or themselves"`
}

type mergeRequest struct {
	PrefixPath
	AlterParams
	Body mergeInput
}

func (s *service) mergePrefixes(ctx context.Context, in *mergeRequest) (*answer[client.Prefix], error) {
	return alter(ctx, s, in.ChangeParams, func(ctx context.Context, w *writing) (m made[client.Prefix], err error) {
		p, others, err := in.lockAll(ctx, w)
		if err != nil {
			return m, err
		}
		touched := target{organisations: []int64{p.OrganisationID}, prefixes: []netip.Prefix{p.Prefix}}
		for _, o := range others {
			touched.organisations, touched.prefixes = append(touched.organisations, o.OrganisationID), append(touched.prefixes, o.Prefix)
		}
		if err := w.allowOn(ctx, writeNouns, touched); err != nil {
			return m, err
		}
		whole, err := mergeable(p, others)
		if err != nil {
			return m, err
		}
		if err := unite(ctx, w, p, others, whole); err != nil {
			return m, err
		}
		p, err = onePrefix(ctx, w, sqlPrefixByID, p.ID)
		return made[client.Prefix]{object: p, revision: p.Revision}, err
	})
}

// lockAll locks the prefix and those that it is merged with, in the order of their ids.
func (in *mergeRequest) lockAll(ctx context.Context, w *writing) (p client.Prefix, others []client.Prefix, err error) {
	if p, err = in.find(ctx, w); err != nil {
		return p, nil, err
	}
	ids := []int64{p.ID}
	for _, ref := range in.Body.With {
		other, err := (PrefixPath{ID: ref}).find(ctx, w)
		if err != nil {
			e := problem.Of(databaseProblem(err))
			if e.Kind != problem.NotFound && e.Kind != problem.Deleted && e.Kind != problem.Invalid {
				return p, nil, err
			}
			return p, nil, invalid("body.with", ref, "%s", e.Detail)
		}
		if slices.Contains(ids, other.ID) {
			return p, nil, invalid("body.with", ref, "%s is named twice", other.Prefix)
		}
		ids = append(ids, other.ID)
	}
	path := p.ID
	slices.Sort(ids)
	for _, id := range ids {
		ifMatch := "*"
		if id == path {
			ifMatch = in.IfMatch
		}
		one, err := (PrefixPath{ID: idText(id)}).lock(ctx, w, ifMatch)
		if err != nil {
			return p, nil, err
		}
		if id == path {
			p = one
		} else {
			others = append(others, one)
		}
	}
	return p, others, nil
}

// mergeable is the prefix that they make up, or why they do not.
func mergeable(p client.Prefix, others []client.Prefix) (netip.Prefix, error) {
	all := []netip.Prefix{p.Prefix}
	if len(p.Reverse.DS) > 0 {
		return p.Prefix, ofWholeZone(p)
	}
	for _, o := range others {
		all = append(all, o.Prefix)
		if differing := differences(p, o); len(differing) > 0 {
			return p.Prefix, problem.New(problem.Conflict, "%s and %s differ in their %s: make them alike first, since only those of %s would stay",
				p.Prefix, o.Prefix, strings.Join(differing, ", "), p.Prefix).With("differing", differing)
		}
	}
	whole, ok := together(all)
	if !ok {
		sortSpace(all)
		texts := make([]string, len(all))
		for i, one := range all {
			texts[i] = one.String()
		}
		return p.Prefix, invalid("body.with", nil, "%s do not make up one prefix", strings.Join(texts, ", "))
	}
	return whole, nil
}

// differences names the settings that two prefixes do not share.
func differences(a, b client.Prefix) (differing []string) {
	for _, d := range []struct {
		name string
		same bool
	}{
		{"parent", a.ParentID == b.ParentID},
		{"organisation", a.OrganisationID == b.OrganisationID},
		{"kind", a.Kind == b.Kind},
		{"status", a.Status == b.Status},
		{"routing", reflect.DeepEqual(a.Routing, b.Routing)},
		{"reverse DNS", reflect.DeepEqual(a.Reverse, b.Reverse)},
	} {
		if !d.same {
			differing = append(differing, d.name)
		}
	}
	return differing
}

// unite makes the prefix the whole, with what lay in the others, and deletes those.
func unite(ctx context.Context, w *writing, p client.Prefix, others []client.Prefix, whole netip.Prefix) error {
	if around, err := onePrefix(ctx, w, sqlPrefixByPrefix, whole); err == nil {
		return problem.New(problem.Conflict, "together they are %s, which is in the registry already (prefix:%d): delete them to have that alone", whole, around.ID)
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	w.deferred = true
	if _, err := w.Exec(ctx, sqlDividing); err != nil {
		return err
	}
	ids := make([]int64, len(others))
	lanes := []client.Resource{{Kind: client.KindPrefix, Key: idText(p.ID)}}
	for i, o := range others {
		ids[i] = o.ID
		lanes = append(lanes, client.Resource{Kind: client.KindPrefix, Key: idText(o.ID)})
	}
	if err := w.lockLanes(ctx, lanes...); err != nil {
		return err
	}
	if _, err := w.Exec(ctx, sqlGrow, p.ID, whole); err != nil {
		return err
	}
	for _, step := range []string{sqlMergeChildren, sqlMergePTR, sqlMergeAnycast} {
		if _, err := w.Exec(ctx, step, p.ID, whole, ids); err != nil {
			return err
		}
	}
	_, err := w.Exec(ctx, sqlDeletePrefixes, ids)
	return err
}
