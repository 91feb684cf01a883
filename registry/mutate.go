package registry

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// ChangeParams are the query parameters of every change.
type ChangeParams struct {
	Reason string `query:"reason" maxLength:"1000" doc:"Why; it is kept in the change log"`
	DryRun bool   `query:"dry_run" doc:"Answer as if it were done, and change nothing"`
}

// CreateParams are the parameters of every POST that creates something.
type CreateParams struct {
	ChangeParams
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeated request with the same key gets the first one's answer, for 24 hours"`
}

// AlterParams are the parameters of every change of something that exists.
type AlterParams struct {
	ChangeParams
	IfMatch string `header:"If-Match" doc:"The ETag of the object that the change was decided on; required"`
}

// answer is what a change of a noun is answered with.
type answer[T any] struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Produced string `header:"HubN-Produced" doc:"The versions that the change made: prefix:17@4"`
	Body     T
}

// gone is what a deletion is answered with.
type gone struct {
	Produced string `header:"HubN-Produced" doc:"The versions that the change made: prefix:17@5"`
}

// found is what reading a noun is answered with.
type found[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

// list is a page of a noun's list.
type list[T any] struct {
	Body client.Page[T]
}

// made is what a change made.
type made[T any] struct {
	object   T
	revision int64
	location string // of what was created; empty for a change
}

// mutate runs a change of nouns with the conventions that all of them share.
// request is what an Idempotency-Key stands for; it may be nil without a key.
func mutate[T any](ctx context.Context, s *service, params CreateParams, request any,
	f func(context.Context, *writing) (made[T], error)) (*answer[T], error) {
	if w := joined(ctx); w != nil {
		result, err := f(ctx, w)
		if err != nil {
			return nil, err
		}
		return settle(ctx, w, result)
	}
	var out *answer[T]
	err := s.writeBecause(ctx, params.Reason, func(ctx context.Context, w *writing) (err error) {
		key := idempotency{principal: callOf(ctx).principal.id(), key: params.IdempotencyKey}
		if key.key != "" && !params.DryRun {
			if key.hash, err = s.hashRequest(callOf(ctx).operation, request); err != nil {
				return err
			}
			if out, err = recall[T](ctx, w, key); out != nil || err != nil {
				return err
			}
		}
		result, err := f(ctx, w)
		if err != nil {
			return err
		}
		if out, err = finish(ctx, w, result); err != nil {
			return err
		}
		if params.DryRun {
			return errRollback
		}
		if key.key == "" {
			return nil
		}
		return remember(ctx, w, key, out)
	})
	if errors.Is(err, errRollback) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// alter is mutate for a change of something that exists.
func alter[T any](ctx context.Context, s *service, params ChangeParams, f func(context.Context, *writing) (made[T], error)) (*answer[T], error) {
	return mutate(ctx, s, CreateParams{ChangeParams: params}, nil, f)
}

// remove is alter for a deletion.
func remove(ctx context.Context, s *service, params ChangeParams, f func(context.Context, *writing) error) (*gone, error) {
	out, err := alter(ctx, s, params, func(ctx context.Context, w *writing) (made[struct{}], error) {
		return made[struct{}]{}, f(ctx, w)
	})
	if err != nil {
		return nil, err
	}
	return &gone{Produced: out.Produced}, nil
}

const sqlConstraintsNow = `SET CONSTRAINTS ALL IMMEDIATE`

// finish settles a change and collects the versions that it made.
func finish[T any](ctx context.Context, w *writing, result made[T]) (*answer[T], error) {
	out, err := settle(ctx, w, result)
	if err != nil {
		return nil, err
	}
	versions, err := w.produced(ctx)
	if err != nil {
		return nil, err
	}
	out.Produced = client.FormatProduced(versions)
	return out, nil
}

// settle checks what was deferred, while its errors can still be told from those
// of the commit, and makes the answer.
func settle[T any](ctx context.Context, w *writing, result made[T]) (*answer[T], error) {
	if w.deferred {
		if _, err := w.Exec(ctx, sqlConstraintsNow); err != nil {
			return nil, err
		}
	}
	out := &answer[T]{Status: http.StatusOK, Location: result.location, Body: result.object}
	if result.location != "" {
		out.Status = http.StatusCreated
	}
	if result.revision != 0 {
		out.ETag = etag(result.revision)
	}
	return out, nil
}

type joinedKey struct{}

// joining makes the changes of nouns that are called with the context part of a
// transaction that the caller ends: several of them, all or nothing.
func joining(ctx context.Context, w *writing) context.Context {
	return context.WithValue(ctx, joinedKey{}, w)
}

// joined is the transaction that a change is part of; nil for one of its own.
func joined(ctx context.Context) *writing {
	w, _ := ctx.Value(joinedKey{}).(*writing)
	return w
}

// idempotency is a key, whose it is, and the request that it stands for.
type idempotency struct {
	principal, key string
	hash           []byte
}

// hashRequest is what tells a request from another one. With a key, since a request
// may hold a password, which a plain hash of it would let anybody try.
func (s *service) hashRequest(operation string, request any) ([]byte, error) {
	b, err := json.Marshal([]any{operation, request})
	if err != nil {
		return nil, err
	}
	if s.seal != nil {
		return s.seal.Fingerprint(b), nil
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

const (
	sqlClaimKey = `SELECT pg_try_advisory_xact_lock(hashtextextended($1 || chr(10) || $2, 0))`
	sqlRecall   = `
SELECT request_hash,
       status,
       coalesce(etag, ''),
       coalesce(location, ''),
       coalesce(produced, ''),
       response
FROM registry.idempotency_key
WHERE principal = $1
  AND key = $2`
	sqlRemember = `
INSERT INTO registry.idempotency_key (principal, key, request_hash, status, etag, location, produced, response)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
)

// recall is the answer that the key's first request got; nil if this is the first.
func recall[T any](ctx context.Context, w *writing, key idempotency) (*answer[T], error) {
	var mine bool
	if err := w.QueryRow(ctx, sqlClaimKey, key.principal, key.key).Scan(&mine); err != nil {
		return nil, err
	}
	if !mine {
		return nil, problem.New(problem.Conflict, "a request with the Idempotency-Key %q is still running: wait for its answer", key.key)
	}
	var (
		out            answer[T]
		hash, response []byte
	)
	err := w.QueryRow(ctx, sqlRecall, key.principal, key.key).
		Scan(&hash, &out.Status, &out.ETag, &out.Location, &out.Produced, &response)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	case string(hash) != string(key.hash):
		return nil, problem.New(problem.Invalid, "the Idempotency-Key %q was used for another request: take a new key for a new request", key.key).
			At("header.Idempotency-Key", "it belongs to another request", key.key)
	}
	return &out, json.Unmarshal(response, &out.Body)
}

// remember keeps the answer in the transaction that did the work.
func remember[T any](ctx context.Context, w *writing, key idempotency, out *answer[T]) error {
	response, err := json.Marshal(out.Body)
	if err != nil {
		return err
	}
	_, err = w.Exec(ctx, sqlRemember, key.principal, key.key, key.hash, out.Status, out.ETag, out.Location, out.Produced, response)
	return err
}
