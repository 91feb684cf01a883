package outbox

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubn/outbox/event"
)

// row is one event to be published. It follows after: the number that the fence
// must have reached for it.
type row struct {
	after     int64
	seq       int64
	createdAt time.Time // UTC
	id        uuid.UUID
	kind      string
	payload   string
}

// postgresEpoch is where PostgreSQL counts microseconds from.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// kinds are the known kinds, so that none needs memory of its own.
var kinds = func() map[string]string {
	known := map[string]string{}
	for _, k := range []event.Kind{event.Created, event.Changed, event.Deleted, event.Replay, event.Gap, event.Command, event.Barrier} {
		known[string(k)] = string(k)
	}
	return known
}()

// scanEvent reads lane_id, seq, created_at, event_id, kind, payload. It takes the
// binary form apart itself: this is the one result with a row for each event, and
// the general way costs as much as all else that the worker does with an event.
func scanEvent(rows pgx.Rows) (lane int64, r row, err error) {
	raw := rows.RawValues()
	for i, length := range []int{8, 8, 8, 16} {
		if rows.FieldDescriptions()[i].Format != pgx.BinaryFormatCode || len(raw[i]) != length {
			err = rows.Scan(&lane, &r.seq, &r.createdAt, (*[16]byte)(&r.id), &r.kind, &r.payload)
			r.after, r.createdAt = r.seq-1, r.createdAt.UTC()
			return lane, r, err
		}
	}
	if raw[4] == nil || raw[5] == nil {
		return 0, r, fmt.Errorf("an event of the outbox has no kind or no payload")
	}
	lane = int64(binary.BigEndian.Uint64(raw[0]))
	r.seq = int64(binary.BigEndian.Uint64(raw[1]))
	r.after = r.seq - 1
	r.createdAt = postgresEpoch.Add(time.Duration(binary.BigEndian.Uint64(raw[2])) * time.Microsecond)
	r.id = uuid.UUID(raw[3])
	kind, known := kinds[string(raw[4])]
	if !known {
		kind = string(raw[4])
	}
	r.kind, r.payload = kind, string(raw[5])
	return lane, r, nil
}
