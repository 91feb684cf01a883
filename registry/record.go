package registry

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/registry/client"
)

// querier is what a statement that only reads needs: a transaction of either kind.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// record is write for what makes no event: reports, heartbeats, leases. It
// sends no hint, since there is nothing to publish.
func (s *service) record(ctx context.Context, f func(context.Context, *writing) error) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err = s.writeOnce(ctx, db, "", f)
		if err == nil || attempt == retries || !worthRetrying(err) {
			return databaseProblem(err)
		}
		s.metrics.retried.Inc()
	}
}

// sqlLineageHeld keeps the lineage from changing until the transaction ends; a
// statement after it sees the one that is held.
const sqlLineageHeld = `SELECT pg_advisory_xact_lock_shared(hashtextextended('registry.lineage', 0))`

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// parseLineage checks a lineage in a body.
func parseLineage(location, lineage string) error {
	if uuidPattern.MatchString(lineage) {
		return nil
	}
	return problem.New(problem.Invalid, "%q is not a lineage", lineage).At(location, "is not a UUID in lower case", lineage)
}

// parseReported reads a resource that a module may speak of: a source, a command
// or a barrier's stream.
func parseReported(r client.Resource) (client.Resource, error) {
	var err error
	switch r.Kind {
	case client.KindBarrier:
		if n, bad := strconv.Atoi(r.Key); bad != nil || n < 0 || n >= event.Streams {
			err = problem.New(problem.Invalid, "a barrier's key is the number of a stream, 0 to %d", event.Streams-1)
		}
	case client.KindCommand:
		r.Key, err = parseNumber(r.Key)
	default:
		var src source
		if src, err = sourceOf(r.Kind); err == nil {
			r.Key, err = src.parse(r.Key)
		}
	}
	return r, err
}

// speaksFor tells whether the principal is nothing but a module, and which.
func (p principal) speaksFor() (module string, only bool) {
	only = len(p.Roles) > 0 && !slices.ContainsFunc(p.Roles, func(r role) bool { return r != roleModule })
	return p.Module, only
}

// mayReadOf guards what modules may read of themselves alone.
func (p principal) mayReadOf(module string) error {
	if own, only := p.speaksFor(); only && own != module {
		return p.mayActAs(module)
	}
	return nil
}

const sqlModuleKinds = `SELECT kinds FROM registry.module WHERE name = $1`

// kindsOf is the kinds of a registered module.
func kindsOf(ctx context.Context, q querier, module string) ([]string, error) {
	var kinds []string
	err := q.QueryRow(ctx, sqlModuleKinds, module).Scan(&kinds)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, problem.New(problem.NotFound, "no module %q is registered: its first heartbeat registers it", module)
	}
	return kinds, err
}
