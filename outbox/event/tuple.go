package event

import (
	"context"
	"slices"

	"hubn/registry/client"
)

// StillNeeded answers the active sources of a route origin, in the store's
// lineage: make before break. A module asks before the given version of a
// source withdraws what it derived from the tuple, and keeps it while there is
// another source, or a newer version of this one. An error means that nothing
// is known: then it keeps it too, and the change is tried again.
//
// A source that is answered here in a newer version than the store holds has an
// event on the way (PostgresStore.Expected).
func StillNeeded(ctx context.Context, registry *client.Client, lineage string, tuple client.Tuple, source client.Resource, version int64) ([]client.TupleSource, error) {
	answer, err := registry.In(lineage).TupleSources(ctx, tuple)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(answer.Items, func(s client.TupleSource) bool {
		return s.Resource == source && s.Version <= version
	}), nil
}
