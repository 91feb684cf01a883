package registry

import (
	"fmt"
	"testing"
	"time"

	"hubn/registry/client"
)

func TestCleanupKeepsWhatTheWorkersKeep(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.OutboxRetention = 12 * 24 * time.Hour })
	for _, days := range []int{20, 10} {
		h.db.Exec(t, fmt.Sprintf(`DO $$ BEGIN
			EXECUTE format('CREATE TABLE registry.outbox_event_%%s PARTITION OF registry.outbox_event FOR VALUES FROM (%%L) TO (%%L)',
			  to_char(current_date - %[1]d, 'YYYYMMDD'), current_date - %[1]d, current_date - %[1]d + 1);
		END $$`, days))
	}
	answer := as[client.OutboxCleanupAnswer](h.post("/v1/outbox/cleanup", client.OutboxCleanup{}).want(200))
	if len(answer.Partitions) != 1 || len(answer.Dropped) != 1 ||
		answer.Partitions[0].Reason != "everything in it was published more than 12 days ago" {
		t.Errorf("with a retention of 12 days, the cleanup of partitions of 20 and 10 days ago answers %+v", answer)
	}
}

func TestSpanNamesWholeDays(t *testing.T) {
	for d, want := range map[time.Duration]string{24 * time.Hour: "1 day", 7 * 24 * time.Hour: "7 days", 36 * time.Hour: "36h0m0s"} {
		check(t, d.String(), span(d), want)
	}
}
