package outbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// markLength is how much of a lineage a claimant's name begins with: enough to
// tell it from the one before.
const markLength = 8

// mark is what the names of claims in a lineage begin with.
func mark(lineage string) string { return lineage[:min(markLength, len(lineage))] + "/" }

// voidSQL gives back what was claimed in another lineage: a dump or a standby
// that was taken in the middle of work holds claims that nobody has any more,
// and their leases would hold up the new lineage. A worker that still has one is
// fenced by the token. Claims outlive the begin of a lineage, which an epoch
// tells, by no more than a lease; after that nothing is looked for.
const voidSQL = `
	UPDATE registry.outbox_lane
	SET claim_token = claim_token + 1,
	    claimed_by = NULL,
	    next_at = now()
	WHERE lane_id = ANY (ARRAY(
	  SELECT lane_id
	  FROM registry.outbox_lane
	  WHERE ready_at IS NOT NULL
	    AND next_at > now()
	    AND NOT starts_with(claimed_by, $1)
	    AND EXISTS (SELECT FROM registry.outbox_stream WHERE epoch_at > now() - $2::interval)
	  FOR NO KEY UPDATE SKIP LOCKED))
	RETURNING lane_id`

// releaseVoid gives back the claims of other lineages. Lanes that a writer has
// locked have their turn when it is called again.
func (w *Worker) releaseVoid(ctx context.Context, lineage string) error {
	released := 0
	err := w.transact(ctx, statement{voidSQL, []any{mark(lineage), w.settings.Lease}, func(pgx.Rows) error {
		released++
		return nil
	}})
	if err != nil || released == 0 {
		return err
	}
	w.log.Warn("claims of another lineage were given back", "lanes", released)
	w.wake(again)
	return nil
}
