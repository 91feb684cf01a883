package outbox

import "context"

// point is a moment in the life of a batch.
type point string

// The points, in their order.
const (
	claimed   point = "claimed"
	fetched   point = "fetched"
	published point = "published"
	beforeAck point = "before ack"
)

// signals let a test wait at a point, or kill the batch there as a crash would:
// an error leaves everything as it is. In production they are nothing.
type signals struct {
	reach func(ctx context.Context, p point) error
}

func (s signals) at(ctx context.Context, p point) error {
	if s.reach == nil {
		return nil
	}
	return s.reach(ctx, p)
}
