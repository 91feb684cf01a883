package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// maxArguments bounds the arguments of a command; the schema has the same bound.
const maxArguments = 64 << 10

func (s *service) commandRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/modules/{name}/commands", id: "create-command", tag: "modules",
		summary: "Give a module a command", needs: command, status: http.StatusCreated,
		description: "It travels as the event command:<id>; the module's report on that resource is the answer.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.createCommand)
	register(s, operation{
		method: http.MethodGet, path: "/v1/modules/{name}/commands", id: "list-commands", tag: "modules",
		summary: "List the commands of a module, newest first", needs: readCommands,
	}, s.listCommands)
	register(s, operation{
		method: http.MethodGet, path: "/v1/commands/{id}", id: "get-command", tag: "modules",
		summary: "Read a command and its answer", needs: readCommands, unlogged: true,
		problems: []problem.Kind{problem.NotFound},
	}, s.getCommand)
}

type createCommandInput struct {
	Name string `path:"name"`
	Body client.CommandOrder
}

type commandOutput struct {
	Body client.Command
}

const (
	sqlCreateCommand = `
INSERT INTO registry.module_command (module, name, arguments, actor, reason)
VALUES ($1, $2, $3::text::jsonb, $4, $5)
RETURNING id`
	sqlCommandColumns = `
SELECT c.id,
       c.module,
       c.name,
       c.arguments::text,
       c.actor,
       c.reason,
       c.created_at,
       l.last_seq,
       a.version,
       a.state,
       a.reason,
       a.retry_at,
       a.fetched_at,
       a.reported_at,
       a.instance,
       a.detail::text
FROM registry.module_command c
LEFT JOIN registry.outbox_lane l ON l.agg_type = 'command' AND l.agg_key = c.id::text
LEFT JOIN registry.applied_state a ON a.agg_type = 'command' AND a.agg_key = c.id::text AND a.module = c.module
`
	sqlCommand  = sqlCommandColumns + `WHERE c.id = $1`
	sqlCommands = sqlCommandColumns + `
WHERE c.module = $1
  AND c.id < $2
  AND (NOT $3 OR a.module IS NULL)
ORDER BY c.id DESC
LIMIT $4`
)

func (s *service) createCommand(ctx context.Context, in *createCommandInput) (*commandOutput, error) {
	if len(in.Body.Arguments) > maxArguments {
		return nil, problem.New(problem.Invalid, "the arguments are larger than %d bytes", maxArguments).
			At("body.arguments", "is too large", len(in.Body.Arguments))
	}
	var out commandOutput
	err := s.writeBecause(ctx, in.Body.Reason, func(ctx context.Context, tx *writing) error {
		if _, err := kindsOf(ctx, tx, in.Name); err != nil {
			return err
		}
		var id int64
		row := tx.QueryRow(ctx, sqlCreateCommand, in.Name, in.Body.Name, orEmptyObject(in.Body.Arguments),
			callOf(ctx).principal.Name, in.Body.Reason)
		if err := row.Scan(&id); err != nil {
			return err
		}
		var err error
		out.Body, err = readCommand(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type listCommandsInput struct {
	PageParams
	Name string `path:"name"`
	Open bool   `query:"open" doc:"Only those that the module has not answered"`
}

type commandsOutput struct {
	Body client.CommandPage
}

func (s *service) listCommands(ctx context.Context, in *listCommandsInput) (*commandsOutput, error) {
	if err := callOf(ctx).principal.mayReadOf(in.Name); err != nil {
		return nil, err
	}
	before := int64(1<<63 - 1)
	if _, err := in.decode("commands", &before); err != nil {
		return nil, err
	}
	var out commandsOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		rows, err := tx.Query(ctx, sqlCommands, in.Name, before, in.Open, in.limit()+1)
		if err != nil {
			return err
		}
		items, err := pgx.CollectRows(rows, scanCommand)
		out.Body.Items, out.Body.Next = paged(items, in.limit(), func(last client.Command) string {
			return cursor("commands", last.ID)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

type commandInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *service) getCommand(ctx context.Context, in *commandInput) (*commandOutput, error) {
	var out commandOutput
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		out.Body, err = readCommand(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		return callOf(ctx).principal.mayReadOf(out.Body.Module)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func readCommand(ctx context.Context, q querier, id int64) (client.Command, error) {
	rows, err := q.Query(ctx, sqlCommand, id)
	if err != nil {
		return client.Command{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanCommand)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, problem.New(problem.NotFound, "there is no command %s", strconv.FormatInt(id, 10))
	}
	return c, err
}

// scanCommand reads a row of sqlCommandColumns.
func scanCommand(row pgx.CollectableRow) (c client.Command, err error) {
	var (
		arguments                string
		sent, version            *int64
		state                    *client.ReportState
		reason, instance, detail *string
		retry, fetched, reported *time.Time
	)
	err = row.Scan(&c.ID, &c.Module, &c.Name, &arguments, &c.Actor, &c.Reason, &c.CreatedAt, &sent,
		&version, &state, &reason, &retry, &fetched, &reported, &instance, &detail)
	if err != nil {
		return c, err
	}
	c.Arguments = json.RawMessage(arguments)
	if sent != nil {
		c.Version = *sent
	}
	if version != nil {
		c.Answer = &client.AppliedState{Module: c.Module, Version: *version, State: *state, Reason: *reason,
			FetchedAt: *fetched, ReportedAt: *reported, Instance: *instance, Detail: json.RawMessage(*detail)}
		if retry != nil {
			c.Answer.RetryAt = *retry
		}
	}
	return c, nil
}
