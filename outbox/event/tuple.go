package event

import (
	"context"
	"slices"

	"hubn/registry/client"
)

// StillNeeded answers the active sources of a route origin other than those
// named, in the store's lineage: make before break. A module asks before a
// change of a source withdraws what it derived from the tuple, and keeps it
// while there is one. An error means that nothing is known: then it keeps it
// too, and the change is tried again.
//
// A source that is answered here and whose version the store does not hold yet
// has an event on the way.
func StillNeeded(ctx context.Context, registry *client.Client, lineage string, tuple client.Tuple, except ...client.Resource) ([]client.TupleSource, error) {
	answer, err := registry.In(lineage).TupleSources(ctx, tuple)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(answer.Items, func(s client.TupleSource) bool { return slices.Contains(except, s.Resource) }), nil
}
