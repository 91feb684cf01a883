package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

const (
	// maxModuleStatus bounds what an instance says of itself.
	maxModuleStatus = 64 << 10
	// silentIntervals is how many heartbeats may be missing before an instance
	// counts as stale: one may be lost, two are a long pause.
	silentIntervals = 3
)

func (s *service) moduleRoutes() {
	register(s, operation{
		method: http.MethodPut, path: "/v1/modules/{name}/instances/{instance}", id: "heartbeat", tag: "modules",
		summary: "Say that an instance of a module is alive", needs: report, unlogged: true,
		description: "The first heartbeat registers the module: from then on barriers wait for it.",
	}, s.heartbeat)
	register(s, operation{
		method: http.MethodGet, path: "/v1/modules", id: "list-modules", tag: "modules",
		summary: "List the registered modules and their instances", needs: readState,
	}, s.listModules)
	register(s, operation{
		method: http.MethodDelete, path: "/v1/modules/{name}", id: "forget-module", tag: "modules",
		summary: "Forget a module with everything that it reported", needs: forgetModules,
		description: "For a module that will not come back: nothing waits for it any more. One that is alive registers again.",
		problems:    []problem.Kind{problem.NotFound},
	}, s.forgetModule)
}

type heartbeatInput struct {
	Name     string `path:"name" pattern:"^[a-z][a-z0-9_-]{0,39}$"`
	Instance string `path:"instance" minLength:"1" maxLength:"200"`
	Body     client.Heartbeat
}

type heartbeatOutput struct {
	Body client.HeartbeatAnswer
}

const (
	// xmax is 0 in a row that this statement inserted. Kinds that are as they
	// were write nothing.
	sqlRegisterModule = `
INSERT INTO registry.module AS m (name, kinds)
VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE
SET kinds = EXCLUDED.kinds
WHERE m.kinds IS DISTINCT FROM EXCLUDED.kinds
RETURNING xmax::text = '0'`
	sqlHeartbeat = `
INSERT INTO registry.module_instance
  (module, instance, address, lineage, behind, status, interval_seconds, started_at, seen_at)
VALUES ($1, $2, $3, nullif($4::text, '')::uuid, $5, $6::text::jsonb, $7, $8, clock_timestamp())
ON CONFLICT (module, instance) DO UPDATE
SET address = EXCLUDED.address,
    lineage = EXCLUDED.lineage,
    behind = EXCLUDED.behind,
    status = EXCLUDED.status,
    interval_seconds = EXCLUDED.interval_seconds,
    started_at = EXCLUDED.started_at,
    seen_at = EXCLUDED.seen_at`
	sqlStreamBarriers = `
SELECT l.agg_key::integer, l.last_seq, l.last_event_at
FROM registry.outbox_lane l
WHERE l.agg_type = 'barrier'
ORDER BY l.agg_key`
	// An instance that ended without a word is listed for a day.
	sqlForgetInstances = `
DELETE FROM registry.module_instance
WHERE module = $1
  AND instance <> $2
  AND seen_at < clock_timestamp() - interval '1 day'`
)

func (s *service) heartbeat(ctx context.Context, in *heartbeatInput) (*heartbeatOutput, error) {
	if err := callOf(ctx).principal.mayActAs(in.Name); err != nil {
		return nil, err
	}
	h := in.Body
	if err := checkHeartbeat(h); err != nil {
		return nil, err
	}
	kinds := []string{}
	for _, k := range h.Kinds {
		kinds = append(kinds, string(k))
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	var out heartbeatOutput
	err := s.record(ctx, func(ctx context.Context, tx *writing) error {
		out.Body = client.HeartbeatAnswer{Lineage: tx.Lineage}
		err := tx.QueryRow(ctx, sqlRegisterModule, in.Name, kinds).Scan(&out.Body.Registered)
		if err != nil && err != pgx.ErrNoRows {
			return err
		}
		if _, err := tx.Exec(ctx, sqlHeartbeat, in.Name, in.Instance, h.Address, h.Lineage, h.Behind,
			orEmptyObject(h.Status), h.IntervalSeconds, h.StartedAt); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlForgetInstances, in.Name, in.Instance); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sqlStreamBarriers)
		if err != nil {
			return err
		}
		out.Body.Barriers, err = pgx.CollectRows(rows, pgx.RowToStructByPos[client.StreamBarrier])
		return err
	})
	if err != nil {
		return nil, err
	}
	if out.Body.Registered {
		s.log.InfoContext(ctx, "a module is registered", "module", in.Name, "kinds", kinds)
	}
	return &out, nil
}

func checkHeartbeat(h client.Heartbeat) error {
	bad := problem.New(problem.Invalid, "the heartbeat cannot be taken")
	for _, k := range h.Kinds {
		if _, err := sourceOf(k); err != nil {
			bad.At("body.kinds", "is not a kind of sources", string(k))
		}
	}
	if h.Address != "" {
		u, err := url.Parse(h.Address)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
			bad.At("body.address", "is not an http or https URL", h.Address)
		}
	}
	if h.Lineage != "" && !uuidPattern.MatchString(h.Lineage) {
		bad.At("body.lineage", "is not a UUID in lower case", h.Lineage)
	}
	if h.Behind < 0 {
		bad.At("body.behind", "is at least 0", h.Behind)
	}
	if h.IntervalSeconds < 1 || h.IntervalSeconds > 3600 {
		bad.At("body.interval_seconds", "is 1 to 3600", h.IntervalSeconds)
	}
	if h.StartedAt.IsZero() {
		bad.At("body.started_at", "says when the instance started", nil)
	}
	if len(h.Status) > maxModuleStatus {
		bad.At("body.status", "is larger than 64 KiB", len(h.Status))
	}
	if len(bad.Fields) > 0 {
		return bad
	}
	return nil
}

// orEmptyObject is JSON for a column that is never null.
func orEmptyObject(b json.RawMessage) string {
	if len(b) == 0 || string(b) == "null" {
		return "{}"
	}
	return string(b)
}

type modulesOutput struct {
	Body client.ModuleList
}

const sqlModuleInstances = `
SELECT i.module,
       i.instance,
       i.address,
       coalesce(i.lineage::text, ''),
       i.behind,
       i.started_at,
       i.seen_at,
       i.seen_at < statement_timestamp() - $1::integer * make_interval(secs => i.interval_seconds),
       i.status::text
FROM registry.module_instance i
ORDER BY i.module, i.instance`

func (s *service) listModules(ctx context.Context, _ *struct{}) (*modulesOutput, error) {
	out := modulesOutput{Body: client.ModuleList{Items: []client.Module{}}}
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		consumers, err := readConsumers(ctx, tx)
		if err != nil {
			return err
		}
		for _, c := range consumers {
			m := client.Module{Name: c.name, RegisteredAt: c.registeredAt, Stale: c.stale, Kinds: []client.Kind{}, Instances: []client.ModuleInstance{}}
			for _, k := range c.kinds {
				m.Kinds = append(m.Kinds, client.Kind(k))
			}
			out.Body.Items = append(out.Body.Items, m)
		}
		rows, err := tx.Query(ctx, sqlModuleInstances, silentIntervals)
		if err != nil {
			return err
		}
		var i client.ModuleInstance
		var module, status string
		_, err = pgx.ForEachRow(rows, []any{&module, &i.Instance, &i.Address, &i.Lineage, &i.Behind, &i.StartedAt, &i.SeenAt, &i.Stale, &status}, func() error {
			i.Status = json.RawMessage(status)
			at := slices.IndexFunc(out.Body.Items, func(m client.Module) bool { return m.Name == module })
			out.Body.Items[at].Instances = append(out.Body.Items[at].Instances, i)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// consumer is a registered module as far as the state of resources depends on it.
type consumer struct {
	name         string
	kinds        []string
	registeredAt time.Time
	// stale: none of its instances was heard of for three intervals.
	stale bool
}

// of tells whether the module derives something from resources of the kind.
func (c consumer) of(kind client.Kind) bool { return slices.Contains(c.kinds, string(kind)) }

const sqlConsumers = `
SELECT m.name,
       m.kinds,
       m.registered_at,
       NOT EXISTS (
         SELECT
         FROM registry.module_instance i
         WHERE i.module = m.name
           AND i.seen_at >= statement_timestamp() - $1::integer * make_interval(secs => i.interval_seconds))
FROM registry.module m
ORDER BY m.name`

func readConsumers(ctx context.Context, q querier) ([]consumer, error) {
	rows, err := q.Query(ctx, sqlConsumers, silentIntervals)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c consumer, err error) {
		return c, row.Scan(&c.name, &c.kinds, &c.registeredAt, &c.stale)
	})
}

type forgetModuleInput struct {
	Name   string `path:"name"`
	Reason string `query:"reason" maxLength:"1000"`
}

const (
	sqlForgetModule = `DELETE FROM registry.module WHERE name = $1`
	sqlAuditAction  = `
INSERT INTO registry.outbox_audit (actor, action, target, reason, detail)
VALUES ($1, $2, $3, $4, $5::text::jsonb)`
)

func (s *service) forgetModule(ctx context.Context, in *forgetModuleInput) (*struct{}, error) {
	return nil, s.record(ctx, func(ctx context.Context, tx *writing) error {
		if _, err := kindsOf(ctx, tx, in.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlForgetModule, in.Name); err != nil {
			return err
		}
		return audit(ctx, tx, "forget module", in.Name, in.Reason, nil)
	})
}

// audit records an operator's action.
func audit(ctx context.Context, tx *writing, action, target, reason string, detail map[string]any) error {
	if detail == nil {
		detail = map[string]any{}
	}
	b, err := json.Marshal(detail)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sqlAuditAction, callOf(ctx).principal.Name, action, target, reason, string(b))
	return err
}
