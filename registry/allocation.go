package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/problem"
	"hubn/registry/client"
)

// maxAtOnce bounds how many prefixes one request makes.
const maxAtOnce = 256

// allocationProblems are what the operations on a prefix's place may answer.
var allocationProblems = changeProblems

func (s *service) allocationRoutes() {
	const tag = "allocation"
	register(s, operation{
		method: http.MethodPost, path: "/v1/prefixes/{id}/next-free", id: "next-free", tag: tag,
		summary: "Create the first free prefixes of a length in a pool", needs: allocate, status: http.StatusCreated,
		description: "A pool is a container or an allocation. The lowest free blocks are taken, all of them or none. " +
			"Free is what no prefix and no anycast allocation right inside the pool holds, and what is not in quarantine. " +
			"A retired prefix in which nothing lies gives way once every module has reported it withdrawn. " +
			"PTR records in the block become those of the new prefix.",
		problems: []problem.Kind{problem.NotFound, problem.Deleted, problem.Conflict, problem.TooLarge},
	}, s.nextFree)
	register(s, operation{
		method: http.MethodPost, path: "/v1/prefixes/{id}/split", id: "split-prefix", tag: tag,
		summary: "Divide a prefix into parts of a length", needs: writeNouns, problems: allocationProblems,
		description: "The prefix becomes its first part; the others are new and have its settings. What lies in it goes to the part around it.",
	}, s.splitPrefix)
	register(s, operation{
		method: http.MethodPost, path: "/v1/prefixes/{id}/merge", id: "merge-prefixes", tag: tag,
		summary: "Make one prefix of several that lie side by side", needs: writeNouns, problems: allocationProblems,
		description: "The prefix of the path becomes the whole; the others, which have the same settings, are deleted and what lies in them goes to it.",
	}, s.mergePrefixes)
	register(s, operation{
		method: http.MethodPost, path: "/v1/prefixes/{id}/resize", id: "resize-prefix", tag: tag,
		summary: "Make a prefix larger or smaller", needs: writeNouns, problems: allocationProblems,
		description: "It does not grow over what is not its own, nor shrink away from what lies in it.",
	}, s.resizePrefix)
	register(s, operation{
		method: http.MethodPost, path: "/v1/prefixes/{id}/move", id: "move-prefix", tag: tag,
		summary: "Give a prefix other addresses", needs: writeNouns, problems: allocationProblems,
		description: "To the prefix that is named, or to the first free one of its size in a pool. Its settings, its id and its history stay.",
	}, s.movePrefix)
	register(s, operation{
		method: http.MethodGet, path: "/v1/prefixes/{id}/free", id: "list-free-space", tag: tag,
		summary: "List the free blocks right inside a prefix", needs: readNouns,
		problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.listFree)
	register(s, operation{
		method: http.MethodGet, path: "/v1/prefixes/{id}/utilisation", id: "get-utilisation", tag: tag,
		summary: "Read how much of a prefix is taken", needs: readNouns,
		problems: []problem.Kind{problem.NotFound, problem.Deleted},
	}, s.getUtilisation)
	register(s, operation{
		method: http.MethodGet, path: "/v1/utilisation", id: "list-utilisation", tag: tag,
		summary: "List how much of each pool is taken, in tree order", needs: readNouns,
	}, s.listUtilisation)
	register(s, operation{
		method: http.MethodGet, path: "/v1/quarantine", id: "list-quarantine", tag: tag,
		summary: "List the space that is not offered until modules have reported it withdrawn", needs: readNouns,
	}, s.listQuarantine)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/quarantine/{id}", id: "release-quarantine", tag: tag,
		summary: "Offer space again although modules have not reported", needs: releaseSpace, status: http.StatusNoContent,
		problems: []problem.Kind{problem.NotFound},
	}, s.releaseQuarantine)
}

// nextFreeInput is a prefix's input with a length in place of the prefix.
type nextFreeInput struct {
	Length int `json:"length" minimum:"1" maximum:"128" doc:"The prefix length of what is taken"`
	Count  int `json:"count,omitempty" minimum:"1" maximum:"256" doc:"How many of them; 1 if it is left out"`
	OrganisationRef
	Kind    string       `json:"kind,omitempty" enum:"container,allocation,assignment,reserved" doc:"assignment if it is left out"`
	Status  string       `json:"status,omitempty" enum:"planned,active" doc:"active if it is left out"`
	Name    string       `json:"name,omitempty" maxLength:"1000"`
	Routing routingInput `json:"routing,omitempty"`
	Reverse reverseInput `json:"reverse,omitempty"`
}

// Resolve implements huma.Resolver.
func (in *nextFreeInput) Resolve(huma.Context) []error {
	var f faults
	in.Routing.check(&f, netip.Prefix{})
	in.Reverse.check(&f, netip.Prefix{})
	return f.list
}

// at is the input of one of the prefixes.
func (in *nextFreeInput) at(p netip.Prefix) *prefixInput {
	return &prefixInput{Prefix: Prefix{value: p}, OrganisationRef: in.OrganisationRef,
		Kind: in.Kind, Status: in.Status, Name: in.Name, Routing: in.Routing, Reverse: in.Reverse}
}

type nextFreeRequest struct {
	PrefixPath
	CreateParams
	Body nextFreeInput
}

func (s *service) nextFree(ctx context.Context, in *nextFreeRequest) (*answer[client.Prefixes], error) {
	request := []any{in.ID, in.Body}
	return mutate(ctx, s, in.CreateParams, request, func(ctx context.Context, w *writing) (m made[client.Prefixes], err error) {
		pool, err := in.lockPool(ctx, w)
		if err != nil {
			return m, err
		}
		holder, err := in.Body.find(ctx, w)
		if err != nil {
			return m, err
		}
		if err := w.allowOn(ctx, allocate, target{organisations: []int64{pool.OrganisationID, holderID(holder)}, prefixes: []netip.Prefix{pool.Prefix}}); err != nil {
			return m, err
		}
		blocks, err := takeFree(ctx, w, pool, in.Body.Length, max(in.Body.Count, 1))
		if err != nil {
			return m, err
		}
		ids, err := fillBlocks(ctx, w, pool, blocks, holder, &in.Body)
		if err != nil {
			return m, raced(err)
		}
		m.object.Items, err = prefixesByID(ctx, w, ids)
		m.location = "/v1/prefixes/" + strconv.FormatInt(ids[0], 10)
		return m, err
	})
}

// lockPool reads the prefix that space is taken from, one taker at a time. Those who
// create a prefix by its name do not wait: the constraints tell them apart.
func (in PrefixPath) lockPool(ctx context.Context, w *writing) (client.Prefix, error) {
	pool, err := in.lock(ctx, w, "*")
	switch {
	case err != nil:
		return pool, err
	case pool.Kind != "container" && pool.Kind != "allocation":
		return pool, problem.New(problem.Conflict, "%s is of kind %s: space is taken from a container or an allocation", pool.Prefix, pool.Kind)
	case pool.Status == "retired":
		return pool, problem.New(problem.Conflict, "%s is retired: name another pool, or make it active again", pool.Prefix)
	}
	return pool, nil
}

// takeFree finds free blocks in a locked pool, and clears away the retired prefixes
// that gave way to them.
func takeFree(ctx context.Context, w *writing, pool client.Prefix, bits, count int) ([]netip.Prefix, error) {
	if bits <= pool.Prefix.Bits() || bits > hostBits(pool.Prefix) {
		return nil, invalid("body.length", bits, "a prefix in %s is a /%d to a /%d, not a /%d", pool.Prefix, pool.Prefix.Bits()+1, hostBits(pool.Prefix), bits)
	}
	space, err := readSpace(ctx, w, pool)
	if err != nil {
		return nil, err
	}
	blocks := firstFit(pool.Prefix, space.taken(), bits, count)
	if len(blocks) < count {
		return nil, space.full(bits, count, len(blocks))
	}
	return blocks, clearRetired(ctx, w, space.retired, blocks)
}

const sqlDeletePrefixes = `DELETE FROM registry.prefix WHERE id = ANY($1)`

// clearRetired deletes the retired prefixes that overlap blocks.
func clearRetired(ctx context.Context, w *writing, retired []retiredPrefix, blocks []netip.Prefix) error {
	var ids []int64
	for _, r := range retired {
		for _, block := range blocks {
			if len(r.waiting) == 0 && block.Overlaps(r.prefix) {
				ids = append(ids, r.id)
				break
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := w.Exec(ctx, sqlDeletePrefixes, ids)
	return err
}

// fillBlocks creates the prefixes in a pool's free blocks.
func fillBlocks(ctx context.Context, w *writing, pool client.Prefix, blocks []netip.Prefix, holder *int64, in *nextFreeInput) ([]int64, error) {
	ids := make([]int64, len(blocks))
	for i, block := range blocks {
		one := in.at(block)
		var f faults
		one.check(&f)
		if err := f.problem(); err != nil {
			return nil, err
		}
		args := append([]any{block, pool.ID, pool.Prefix, holder}, one.columns()...)
		if err := w.QueryRow(ctx, sqlCreatePrefix, args...).Scan(&ids[i]); err != nil {
			return nil, err
		}
		if err := adoptPTR(ctx, w, ids[i], block, pool.ID); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

const sqlPrefixesByID = sqlPrefixes + `
WHERE p.id = ANY($1)
ORDER BY p.prefix`

func prefixesByID(ctx context.Context, q querier, ids []int64) ([]client.Prefix, error) {
	rows, err := q.Query(ctx, sqlPrefixesByID, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanPrefix)
}

// racedError is a conflict with what another transaction did since this one looked:
// the same again finds other space.
type racedError struct{ error }

func (e racedError) Unwrap() error { return e.error }

// raced tells a block that somebody created by its name meanwhile.
func raced(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.ConstraintName == "prefix_key" {
		return racedError{problem.New(problem.Conflict, "the free space was taken at the same time: try again").Because(err)}
	}
	return err
}

// full is the refusal of a pool without enough room, with what is known of the way out.
func (sp *space) full(bits, count, found int) error {
	free := sp.free()
	text := fmt.Sprintf("%s has no free /%d", sp.pool, bits)
	if count > 1 {
		text = fmt.Sprintf("%s has %d free /%d, not %d", sp.pool, found, bits, count)
	}
	most, some := largest(free)
	switch {
	case !some:
		text += ": nothing in it is free"
	case count == 1:
		text += fmt.Sprintf(": the largest free block is a /%d", most)
	}
	e := &problem.Error{Kind: problem.Conflict}
	if some {
		e.With("largest_free", most)
	}
	held, waiting := sp.waiting()
	if len(held) > 0 {
		text += fmt.Sprintf("; %s would be, as soon as %s reported the former artefacts withdrawn (hubn prefix quarantine)",
			held[0], strings.Join(waiting, " and "))
		e.With("quarantined", held[:min(len(held), dependantsShown)]).With("waiting", waiting)
	}
	e.Detail = text
	return e
}
