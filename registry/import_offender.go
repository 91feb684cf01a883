package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"hubn/app/problem"
	"hubn/registry/rpsl"
)

// dropOffender finds the first object that the database refuses and moves it to
// the refused ones.
func (im *importer) dropOffender(ctx context.Context, req *importRequest, refused *pgconn.PgError) error {
	im.log.WarnContext(ctx, "the database refuses an import; looking for the object", "job", req.job,
		"code", refused.Code, "constraint", refused.ConstraintName, "error", refused.Message)
	fails := func(n int) (*pgconn.PgError, error) {
		part := *req
		part.input.Objects = req.input.Objects[:n]
		part.options.Prune = false
		return im.tryOnly(ctx, part)
	}
	worst, err := fails(len(req.input.Objects))
	if err != nil {
		return err
	}
	if worst == nil {
		return problem.New(problem.Conflict, "the database refuses the import because %s; nothing was changed", refusedBecause(refused)).Because(refused)
	}
	good, bad := 0, len(req.input.Objects) // the first good objects pass, the first bad do not
	for bad-good > 1 {
		middle := (good + bad) / 2
		got, err := fails(middle)
		switch {
		case err != nil:
			return err
		case got != nil:
			bad, worst = middle, got
		default:
			good = middle
		}
	}
	offender := req.input.Objects[bad-1].Head()
	_, refusal := rpsl.Parse(rpsl.Raw{
		File:    offender.File,
		Line:    offender.Line,
		Text:    string(offender.Class) + ": " + offender.Key,
		Refused: refusedBecause(worst),
	})
	var r *rpsl.Refusal
	if !errors.As(refusal, &r) {
		return fmt.Errorf("refuse %s %s: %w", offender.Class, offender.Key, worst)
	}
	objects := append([]rpsl.Object(nil), req.input.Objects[:bad-1]...)
	req.input.Objects = append(objects, req.input.Objects[bad:]...)
	req.input.Refused = append(req.input.Refused[:len(req.input.Refused):len(req.input.Refused)], r)
	return nil
}

// refusedBecause says why the database refuses something, in the words that the
// rule has everywhere.
func refusedBecause(e *pgconn.PgError) string {
	var known *problem.Error
	if errors.As(databaseProblem(e), &known) {
		return known.Detail
	}
	rule := e.ConstraintName
	if rule == "" {
		rule = e.Message
	}
	return "a rule of the database refuses it: " + rule
}

// tryOnly plans and writes without a trace, and answers what the database refuses.
func (im *importer) tryOnly(ctx context.Context, req importRequest) (*pgconn.PgError, error) {
	for attempt := 1; ; attempt++ {
		err := im.tryOnce(ctx, req)
		refused := refusedByDatabase(err)
		if err == nil || refused != nil || attempt == importAttempts || !isTransient(err) {
			if refused != nil {
				err = nil
			}
			return refused, err
		}
		pause(ctx, time.Duration(attempt)*20*time.Millisecond)
	}
}

func (im *importer) tryOnce(ctx context.Context, req importRequest) error {
	tx, err := im.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := im.enter(ctx, tx, req.job); err != nil {
		return err
	}
	state, plan, err := planImport(ctx, tx, req)
	if err != nil {
		return err
	}
	return applyImport(ctx, tx, state, plan)
}
