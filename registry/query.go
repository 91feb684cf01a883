package registry

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// query is a SELECT whose conditions depend on the request's filters. Each
// condition is a constant with a ? for every argument.
type query struct {
	sql   strings.Builder
	args  []any
	where bool
}

// newQuery begins with a SELECT … FROM … that has no WHERE.
func newQuery(base string) *query {
	q := &query{}
	q.sql.WriteString(base)
	return q
}

// and adds a condition.
func (q *query) and(condition string, args ...any) {
	word := "\nWHERE "
	if q.where {
		word = "\n  AND "
	}
	q.where = true
	q.sql.WriteString(word)
	q.add(condition, args...)
}

// add appends a piece of SQL.
func (q *query) add(piece string, args ...any) {
	for _, arg := range args {
		before, after, ok := strings.Cut(piece, "?")
		if !ok {
			panic("registry: more arguments than ? in " + piece)
		}
		q.args = append(q.args, arg)
		q.sql.WriteString(before + "$" + strconv.Itoa(len(q.args)))
		piece = after
	}
	q.sql.WriteString(piece)
}

// page orders the rows and cuts one page and the one row that tells of the next.
func (q *query) page(order string, limit int) {
	q.add("\nORDER BY "+order+"\nLIMIT ?", limit+1)
}

func (q *query) String() string { return q.sql.String() }

// contains is a LIKE pattern for text anywhere, with its wildcards taken literally.
func contains(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// readPage reads one page of a list.
func readPage[T any](ctx context.Context, s *service, q *query, limit int,
	scan func(pgx.CollectableRow) (T, error), next func(last T) string) (*list[T], error) {
	out := &list[T]{}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		rows, err := tx.Query(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		items, err := pgx.CollectRows(rows, scan)
		out.Body.Items, out.Body.Next = paged(items, limit, next)
		return err
	})
	return out, err
}

// heldBy adds the condition that a column names the organisation with an id or a
// handle; one that does not exist holds nothing.
func (q *query) heldBy(column, organisation string) {
	if id, err := strconv.ParseInt(organisation, 10, 64); err == nil {
		q.and(column+` = ?`, id)
		return
	}
	q.and(column+` = (SELECT id FROM registry.organisation WHERE lower(handle) = lower(?))`, organisation)
}
