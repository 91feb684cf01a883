package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"hubn/app/problem"
	"hubn/registry/client"
)

func (s *service) transactionRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/transactions", id: "make-transaction", tag: "transactions",
		summary: "Make several changes at once, all or nothing", needs: writeNouns,
		description: "The changes are made in their order, each as by its own operation, and checked as there; the first that is refused ends it, " +
			"and nothing is written. A change names what an earlier one made by {\"$ref\": name} in its body, or by ref instead of key.",
		problems: append([]problem.Kind{problem.TooLarge}, changeProblems...),
	}, s.makeTransaction)
}

type transactionInput struct {
	CreateParams
	Body client.Transaction
}

// transacting is a transaction on its way.
type transacting struct {
	s       *service
	changes []client.TransactionChange
	// named are what changes made, by their As; etags of what was touched, so that
	// a later change needs none.
	named map[string]client.Resource
	etags map[client.Resource]string
}

func (s *service) makeTransaction(ctx context.Context, in *transactionInput) (*answer[client.TransactionResult], error) {
	if err := s.checkTransaction(ctx, in.Body.Changes); err != nil {
		return nil, err
	}
	return mutate(ctx, s, in.CreateParams, in.Body, func(ctx context.Context, w *writing) (m made[client.TransactionResult], err error) {
		t := &transacting{s: s, changes: in.Body.Changes, named: map[string]client.Resource{}, etags: map[client.Resource]string{}}
		m.object.Results = make([]client.ChangeResult, len(t.changes))
		for i := range t.changes {
			if m.object.Results[i], err = t.make(joining(ctx, w), i); err != nil {
				return m, t.at(i, err)
			}
		}
		return m, nil
	})
}

// checkTransaction reports all that is wrong with the changes by themselves, before
// anything is written. Ids that are not known yet count as right.
func (s *service) checkTransaction(ctx context.Context, changes []client.TransactionChange) error {
	t := &transacting{s: s, changes: changes, named: map[string]client.Resource{}}
	found := problem.New(problem.Invalid, "some of the changes cannot be made: see errors")
	for i, c := range changes {
		if err := t.check(ctx, i); err != nil {
			e := problem.Of(t.at(i, err))
			if e.Kind != problem.Invalid {
				return e
			}
			found.Fields = append(found.Fields, e.Fields...)
		}
		if c.As != "" {
			t.named[c.As] = client.Resource{Kind: c.Kind, Key: "1"}
		}
	}
	if len(found.Fields) == 0 {
		return nil
	}
	return found
}

func (t *transacting) check(ctx context.Context, i int) error {
	c := t.changes[i]
	ops, known := t.s.nouns()[c.Kind]
	if !known {
		return invalid("kind", string(c.Kind), "there is no kind %q that a transaction can change: %s", c.Kind, t.s.nounKinds())
	}
	operation, err := ops.operation(c)
	if err != nil {
		return err
	}
	if err := callOf(ctx).principal.allow(t.s.needs[operation]); err != nil {
		return err
	}
	switch {
	case c.Op == client.OpCreate && (c.Key != "" || c.Ref != ""):
		return invalid("key", c.Key, "what is created has no key yet: leave key and ref out")
	case c.Op != client.OpCreate && (c.Key == "") == (c.Ref == ""):
		return invalid("key", c.Key, "name what is to be changed by either key or ref")
	case c.Op != client.OpCreate && c.As != "":
		return invalid("as", c.As, "only what is created gets a name")
	case c.As != "" && t.named[c.As] != client.Resource{}:
		return invalid("as", c.As, "an earlier change has this name already")
	case c.Ref != "" && t.named[c.Ref].Kind != c.Kind:
		return invalid("ref", c.Ref, "no earlier change made a %s named %q", c.Kind, c.Ref)
	}
	body, err := t.body(c)
	if err != nil || c.Op != client.OpCreate {
		return err
	}
	return ops.check(body)
}

// operation is the id of the operation that a change is made by.
func (n noun) operation(c client.TransactionChange) (string, error) {
	id := map[string]string{client.OpCreate: n.operations[0], client.OpChange: n.operations[1], client.OpDelete: n.operations[2]}[c.Op]
	if id == "" {
		return "", invalid("op", c.Op, "a %s cannot be changed or deleted", c.Kind)
	}
	return id, nil
}

// body is the body of a change with the ids that its references stand for.
func (t *transacting) body(c client.TransactionChange) ([]byte, error) {
	body := c.Body
	if body == nil {
		body = map[string]any{}
	}
	resolved, err := t.resolve(body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(resolved)
}

// resolve replaces references by the ids that they stand for.
func (t *transacting) resolve(value any) (any, error) {
	switch v := value.(type) {
	case map[string]any:
		if name, ok := v["$ref"]; ok && len(v) == 1 {
			return t.referred(name)
		}
		out := make(map[string]any, len(v))
		for member, inner := range v {
			resolved, err := t.resolve(inner)
			if err != nil {
				return nil, err
			}
			out[member] = resolved
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			resolved, err := t.resolve(inner)
			if err != nil {
				return nil, err
			}
			out[i] = resolved
		}
		return out, nil
	}
	return value, nil
}

func (t *transacting) referred(name any) (any, error) {
	text, _ := name.(string)
	resource, ok := t.named[text]
	if !ok {
		return nil, invalid("body", name, "no earlier change has the name %v", name)
	}
	if id, err := strconv.ParseInt(resource.Key, 10, 64); err == nil {
		return id, nil
	}
	return resource.Key, nil
}

// make makes one change in the transaction.
func (t *transacting) make(ctx context.Context, i int) (client.ChangeResult, error) {
	c := t.changes[i]
	resource := client.Resource{Kind: c.Kind, Key: c.Key}
	if c.Ref != "" {
		resource = t.named[c.Ref]
	}
	result := client.ChangeResult{Op: c.Op, Kind: c.Kind, Key: resource.Key}
	body, err := t.body(c)
	if err != nil {
		return result, err
	}
	ifMatch := cmp.Or(c.IfMatch, t.etags[resource])
	ops := t.s.nouns()[c.Kind]
	var out *nounAnswer
	switch c.Op {
	case client.OpCreate:
		out, err = ops.create(ctx, body)
	case client.OpChange:
		out, err = ops.change(ctx, resource.Key, ifMatch, body)
	default:
		out, err = ops.remove(ctx, resource.Key, ifMatch)
	}
	if err != nil {
		return result, err
	}
	if c.Op == client.OpCreate {
		resource.Key = out.key()
		result.Key = resource.Key
		if c.As != "" {
			t.named[c.As] = resource
		}
	}
	t.etags[resource] = out.etag
	result.ETag, result.Location, result.Body = out.etag, out.location, out.body
	return result, nil
}

// at is the problem of one change, which it names. What the database asks to be
// tried again stays as it is.
func (t *transacting) at(i int, err error) error {
	if worthRetrying(err) {
		return err
	}
	e := *problem.Of(databaseProblem(err))
	if e.Kind == problem.Internal || e.Kind == problem.Unavailable {
		return err
	}
	place := fmt.Sprintf("body.changes[%d]", i)
	e.Detail = fmt.Sprintf("change %d (%s %s): %s", i+1, t.changes[i].Op, t.changes[i].Kind, e.Detail)
	fields := e.Fields
	e.Fields = nil
	for _, f := range fields {
		e.At(strings.TrimSuffix(place+"."+f.Location, "."), f.Message, f.Value)
	}
	if len(fields) == 0 && e.Kind == problem.Invalid {
		e.At(place, e.Detail, nil)
	}
	return e.With("change", i+1).Because(err)
}
