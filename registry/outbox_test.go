package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"hubn/app/problem"
	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

func lane(name string) client.OutboxTarget { return client.OutboxTarget{Lane: name} }

func TestOutboxStatusCountsWhatLanesDo(t *testing.T) {
	s := serve(t, nil)
	for i := range 8 {
		s.prefix(fmt.Sprintf("10.0.%d.0/24", i))
	}
	s.exec(`UPDATE registry.prefix SET status = 'planned' WHERE id = 3`)
	for id, sql := range map[int]string{
		1: `pub_seq = last_seq`,
		2: `claimed_by = 'w', next_at = now() + interval '1 minute'`,
		4: `claimed_by = 'w', next_at = now() - interval '1 minute', head_at = now() - interval '90 seconds'`,
		5: `attempts = 3, next_at = now() + interval '1 minute', last_error = 'too large', last_error_at = now()`,
		6: `attempts = 20, next_at = now() + interval '1 minute'`,
		7: `state = 'paused'`,
	} {
		s.exec(`UPDATE registry.outbox_lane SET `+sql+` WHERE agg_key = $1`, fmt.Sprint(id))
	}
	o := must[client.OutboxStatus](t)(s.viewer.OutboxStatus(t.Context()))
	type counts struct{ pending, ready, claimed, overdue, backing, failing, paused int64 }
	got := counts{o.Pending, o.Ready, o.Claimed, o.Overdue, o.BackingOff, o.Failing, o.Paused}
	if want := (counts{8, 2, 1, 1, 1, 1, 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if o.OldestSeconds < 90 || o.OldestSeconds > 3600 || o.Deepest == nil || o.Deepest.Resource != named("prefix:3") || o.Deepest.Pending != 2 {
		t.Errorf("oldest %f s, deepest %+v", o.OldestSeconds, o.Deepest)
	}
	if len(o.Streams) != event.Streams || o.Partitions < 60 || o.LastDay == "" || o.OldestDay == "" || o.RedisError == "" {
		t.Errorf("%d streams, %d partitions from %s to %s, Redis: %q", len(o.Streams), o.Partitions, o.OldestDay, o.LastDay, o.RedisError)
	}
	for state, want := range map[client.LaneState][]string{
		client.LaneIdle: {"prefix:1"}, client.LaneClaimed: {"prefix:2"}, client.LaneReady: {"prefix:3", "prefix:4", "prefix:8"},
		client.LaneBackoff: {"prefix:5"}, client.LaneFailing: {"prefix:6"}, client.LanePaused: {"prefix:7"},
		"": {"prefix:1", "prefix:2", "prefix:3", "prefix:4", "prefix:5", "prefix:6", "prefix:7", "prefix:8"},
	} {
		for _, limit := range []int{2, 0} {
			if got := s.lanes(client.LaneFilter{State: state, Limit: limit}); !cmp.Equal(got, want) {
				t.Errorf("lanes that are %q: %v, want %v", state, got, want)
			}
		}
	}
	if got := s.lanes(client.LaneFilter{Older: time.Minute}); !cmp.Equal(got, []string{"prefix:4"}) {
		t.Errorf("lanes older than a minute: %v", got)
	}
	if got := s.lanes(client.LaneFilter{Kind: client.KindASN}); len(got) != 0 {
		t.Errorf("lanes of ASNs: %v", got)
	}
}

func (s *serving) lanes(f client.LaneFilter) (out []string) {
	s.t.Helper()
	for {
		page := must[client.OutboxLanePage](s.t)(s.viewer.OutboxLanes(s.t.Context(), f))
		for _, l := range page.Items {
			out = append(out, l.Resource.String())
		}
		if f.After = page.Next; f.After == "" {
			return out
		}
	}
}

func TestALaneShowsItsFenceAndEvents(t *testing.T) {
	server := eventtest.Server(t)
	s := serve(t, server.Client())
	s.prefix("192.0.2.0/24")
	s.exec(`UPDATE registry.prefix SET status = 'planned'`)
	d := must[client.OutboxLaneDetail](t)(s.viewer.OutboxLane(t.Context(), "prefix:1"))
	if d.Fence != nil || d.FenceError == "" || d.Epoch != "" || d.Pending != 2 || len(d.Events) != 2 || d.Events[0].Version != 2 || d.Events[0].Lane != d.Lane {
		t.Errorf("before an epoch the lane is %+v", d)
	}
	s.exec(`UPDATE registry.outbox_stream SET lineage = registry.lineage_current(), epoch = gen_random_uuid(), epoch_at = now()`)
	d = must[client.OutboxLaneDetail](t)(s.viewer.OutboxLane(t.Context(), fmt.Sprint(d.Lane)))
	if d.Fence != nil || d.FenceError != "" || !strings.HasPrefix(d.Epoch, s.lineage()+"/") {
		t.Errorf("without a fence the lane is %+v", d)
	}
	if err := server.Client().HSet(t.Context(), s.names.Fence(d.Stream, d.Epoch), d.Lane, 1).Err(); err != nil {
		t.Fatal(err)
	}
	e := must[client.OutboxEventDetail](t)(s.viewer.OutboxEvent(t.Context(), d.Events[1].EventID))
	if e.Event.Version != 1 || e.Event.Resource != named("prefix:1") || e.Lane.Lane != d.Lane || e.Lane.Fence == nil || *e.Lane.Fence != 1 {
		t.Errorf("the event is %+v", e)
	}
	server.Stop()
	d = must[client.OutboxLaneDetail](t)(s.viewer.OutboxLane(t.Context(), "prefix:1"))
	if d.Fence != nil || d.FenceError == "" {
		t.Errorf("without Redis the lane is %+v", d)
	}
	for name, kind := range map[string]problem.Kind{"999": problem.NotFound, "prefix:999": problem.NotFound, "nothing": problem.Invalid, "barrier:9": problem.Invalid} {
		_, err := s.viewer.OutboxLane(t.Context(), name)
		refused(t, err, kind, "")
	}
	_, err := s.viewer.OutboxEvent(t.Context(), "11111111-1111-1111-1111-111111111111")
	refused(t, err, problem.NotFound, "kept for a week")
	_, err = s.viewer.OutboxEvent(t.Context(), "x")
	refused(t, err, problem.Invalid, "")
}

func TestStatusShowsStreamsAndGroups(t *testing.T) {
	r := eventtest.Server(t).Client()
	s := serve(t, r)
	ctx := t.Context()
	key := s.names.Stream(2)
	for i := range 5 {
		r.XAdd(ctx, xadd(key, i))
	}
	r.XGroupCreate(ctx, key, "mirror", "0")
	r.XReadGroup(ctx, xread(key, "mirror", 3))
	r.XGroupCreate(ctx, key, "late", "0")
	if err := r.XTrimMaxLen(ctx, key, 3).Err(); err != nil {
		t.Fatal(err)
	}
	stream := must[client.OutboxStatus](t)(s.viewer.OutboxStatus(ctx)).Streams[2]
	if stream.Length == nil || *stream.Length != 3 || len(stream.Groups) != 2 {
		t.Fatalf("the stream is %+v", stream)
	}
	late, mirror := stream.Groups[0], stream.Groups[1]
	if late.Group != "late" || late.Lag == nil || *late.Lag != 5 || !late.Trimmed {
		t.Errorf("a group that read nothing of what was trimmed is %+v", late)
	}
	if mirror.Group != "mirror" || mirror.Lag == nil || *mirror.Lag != 2 || mirror.Trimmed || mirror.Pending != 3 {
		t.Errorf("a group that read what was trimmed is %+v", mirror)
	}
}

func TestRetryChangesWhenAndNothingElse(t *testing.T) {
	s := serve(t, nil)
	for i := range 4 {
		s.prefix(fmt.Sprintf("10.0.%d.0/24", i))
	}
	s.exec(`UPDATE registry.outbox_lane SET attempts = 7, next_at = now() + interval '1 hour', claim_token = 5`)
	s.exec(`UPDATE registry.outbox_lane SET claimed_by = 'w' WHERE agg_key = '3'`)
	s.exec(`UPDATE registry.outbox_lane SET state = 'paused' WHERE agg_key = '4'`)
	before := one[string](s, `SELECT string_agg(md5((to_jsonb(l) - 'next_at' - 'ready_at')::text), ',' ORDER BY lane_id) FROM registry.outbox_lane l`)
	ctx := t.Context()
	dry := must[client.OutboxResult](t)(s.operator.OutboxRetry(ctx, client.OutboxOrder{OutboxTarget: client.OutboxTarget{All: true}, DryRun: true}))
	if dry.Matched != 2 || dry.Changed != 0 || !dry.DryRun {
		t.Errorf("the dry run answers %+v", dry)
	}
	single := must[client.OutboxResult](t)(s.operator.OutboxRetry(ctx, client.OutboxOrder{OutboxTarget: lane("prefix:1"), Reason: "fixed"}))
	if single.Matched != 1 || single.Changed != 1 {
		t.Errorf("one lane: %+v", single)
	}
	all := must[client.OutboxResult](t)(s.operator.OutboxRetry(ctx, client.OutboxOrder{OutboxTarget: client.OutboxTarget{All: true}}))
	if all.Matched != 1 || all.Changed != 1 {
		t.Errorf("all lanes: %+v", all)
	}
	if after := one[string](s, `SELECT string_agg(md5((to_jsonb(l) - 'next_at' - 'ready_at')::text), ',' ORDER BY lane_id) FROM registry.outbox_lane l`); after != before {
		t.Error("retry changed more than next_at")
	}
	if n := one[int](s, `SELECT count(*) FROM registry.outbox_lane WHERE next_at <= now()`); n != 2 {
		t.Errorf("%d lanes are ready, want 2", n)
	}
	if got := one[string](s, `SELECT string_agg(actor || ' ' || action || ' ' || target || ' ' || reason, '; ' ORDER BY id) FROM registry.outbox_audit`); got != "operator retry lane:prefix:1 fixed; operator retry all " {
		t.Errorf("the audit says %q", got)
	}
}

func TestRetryPassesOverALaneThatAWriterHolds(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.prefix("198.51.100.0/24")
	s.exec(`UPDATE registry.outbox_lane SET attempts = 7, next_at = now() + interval '1 hour'`)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `UPDATE registry.prefix SET status = 'planned' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	got := must[client.OutboxResult](t)(s.operator.OutboxRetry(t.Context(), client.OutboxOrder{OutboxTarget: client.OutboxTarget{All: true}}))
	if got.Matched != 2 || got.Changed != 1 {
		t.Errorf("got %+v, want 1 of 2 changed", got)
	}
}

func TestPauseAndResume(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.prefix("192.0.2.0/24")
	one64 := func(v int) *int { return &v }
	for n, step := range []struct {
		call    func(context.Context, client.OutboxOrder) (client.OutboxResult, error)
		order   client.OutboxOrder
		changed int64
		lanes   int
		streams int
	}{
		{s.operator.OutboxPause, client.OutboxOrder{OutboxTarget: lane("prefix:1"), DryRun: true}, 0, 0, 0},
		{s.operator.OutboxPause, client.OutboxOrder{OutboxTarget: lane("prefix:1")}, 1, 1, 0},
		{s.operator.OutboxPause, client.OutboxOrder{OutboxTarget: lane("prefix:1")}, 0, 1, 0},
		{s.operator.OutboxPause, client.OutboxOrder{OutboxTarget: client.OutboxTarget{Stream: one64(3)}}, 1, 1, 1},
		{s.operator.OutboxPause, client.OutboxOrder{OutboxTarget: client.OutboxTarget{All: true}}, 7, 1, 8},
		{s.operator.OutboxResume, client.OutboxOrder{OutboxTarget: client.OutboxTarget{Stream: one64(0)}}, 1, 1, 7},
		{s.operator.OutboxResume, client.OutboxOrder{OutboxTarget: client.OutboxTarget{All: true}}, 7, 1, 0},
		{s.operator.OutboxResume, client.OutboxOrder{OutboxTarget: lane("prefix:1")}, 1, 0, 0},
	} {
		got, err := step.call(ctx, step.order)
		lanes := one[int](s, `SELECT count(*) FROM registry.outbox_lane WHERE state = 'paused'`)
		streams := one[int](s, `SELECT count(*) FROM registry.outbox_stream WHERE paused`)
		if err != nil || got.Changed != step.changed || lanes != step.lanes || streams != step.streams {
			t.Errorf("step %d changed %d (%v): %d lanes and %d streams are paused, want %d changed, %d and %d", n, got.Changed, err, lanes, streams, step.changed, step.lanes, step.streams)
		}
	}
	for _, target := range []client.OutboxTarget{{}, {All: true, Lane: "1"}, {Stream: one64(8)}} {
		_, err := s.operator.OutboxPause(ctx, client.OutboxOrder{OutboxTarget: target})
		refused(t, err, problem.Invalid, "")
	}
}

func TestSkipMakesGapMarkersInPlace(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.prefix("192.0.2.0/24")
	s.published()
	for i := range 3 {
		s.exec(`UPDATE registry.prefix SET announced = true, origin_asn = $1`, i+1)
	}
	s.exec(`UPDATE registry.outbox_lane SET attempts = 30, next_at = now() + interval '1 hour', last_error = 'too large'`)
	dry := must[client.OutboxResult](t)(s.operator.OutboxSkip(ctx, client.OutboxSkip{Lane: "prefix:1", Through: 3, Reason: "poisoned", DryRun: true}))
	if dry.Events != 2 || dry.Changed != 0 {
		t.Errorf("the dry run answers %+v", dry)
	}
	for _, through := range []int64{1, 5} {
		for _, dryRun := range []bool{true, false} {
			_, err := s.operator.OutboxSkip(ctx, client.OutboxSkip{Lane: "prefix:1", Through: through, Reason: "x", DryRun: dryRun})
			refused(t, err, problem.Conflict, "from 2 to 4")
		}
	}
	_, err := s.operator.OutboxSkip(ctx, client.OutboxSkip{Lane: "prefix:1", Through: 3})
	refused(t, err, problem.Invalid, "reason")
	done := must[client.OutboxResult](t)(s.operator.OutboxSkip(ctx, client.OutboxSkip{Lane: "prefix:1", Through: 3, Reason: "poisoned"}))
	if done.Events != 2 || done.Changed != 1 {
		t.Errorf("the skip answers %+v", done)
	}
	d := must[client.OutboxLaneDetail](t)(s.viewer.OutboxLane(ctx, "prefix:1"))
	kinds := []string{}
	for _, e := range d.Events {
		kinds = append(kinds, fmt.Sprintf("%d %s %s", e.Version, e.Kind, e.State))
	}
	if want := []string{"4 changed pending", "3 gap pending", "2 gap pending", "1 created published"}; !cmp.Equal(kinds, want) {
		t.Errorf("the events are %v, want %v", kinds, want)
	}
	if d.State != client.LaneReady || d.PubSeq != 1 || d.Attempts != 0 {
		t.Errorf("the lane is %+v", d.OutboxLane)
	}
	if got := one[string](s, `SELECT actor || ' ' || action || ' ' || target || ' ' || reason FROM registry.outbox_audit`); got != "operator skip prefix:1 poisoned" {
		t.Errorf("the audit says %q", got)
	}
	s.published()
	_, err = s.operator.OutboxSkip(ctx, client.OutboxSkip{Lane: "prefix:1", Through: 4, Reason: "x", DryRun: true})
	refused(t, err, problem.Conflict, "nothing to skip")
}

func TestReplayAppendsOneEventForEachAggregate(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	crowd(s, 1203)
	s.exec(`INSERT INTO registry.asn (number) VALUES (64496)`)
	s.exec(`DELETE FROM registry.prefix WHERE id = 2`)
	s.register(client.KindPrefix)
	must[client.Command](t)(s.operator.Order(ctx, "mirror", client.CommandOrder{Name: "publish-now"}))
	s.published()
	versions := func() int64 { return one[int64](s, `SELECT sum(last_seq)::bigint FROM registry.outbox_lane`) }
	rewound := func() int {
		return one[int](s, `SELECT count(*) FROM registry.outbox_lane WHERE pub_seq < last_seq AND pub_seq < last_seq - 1`)
	}
	before := versions()
	all := client.OutboxTarget{All: true}
	dry := must[client.OutboxResult](t)(s.operator.OutboxReplay(ctx, client.OutboxReplay{OutboxTarget: all, DryRun: true}))
	if dry.Matched != 1204 || dry.Events != 0 || versions() != before {
		t.Errorf("the dry run answers %+v, versions %d and %d", dry, before, versions())
	}
	since := one[time.Time](s, `SELECT clock_timestamp()`)
	s.exec(`UPDATE registry.prefix SET status = 'planned' WHERE id = 7`)
	s.published()
	before = versions()
	for n, tt := range []struct {
		order  client.OutboxReplay
		events int64
	}{
		{client.OutboxReplay{OutboxTarget: lane("prefix:2")}, 1}, // a tombstone is told of again, too
		{client.OutboxReplay{OutboxTarget: all, Kind: client.KindASN}, 1},
		{client.OutboxReplay{OutboxTarget: all, Since: since}, 3}, // 7, and the two above
		{client.OutboxReplay{OutboxTarget: all}, 1204},
	} {
		got := must[client.OutboxResult](t)(s.operator.OutboxReplay(ctx, tt.order))
		before += tt.events
		if got.Matched != tt.events || got.Changed != tt.events || got.Events != tt.events || versions() != before {
			t.Errorf("replay %d answers %+v, want %d events; the versions sum up to %d, want %d", n, got, tt.events, versions(), before)
		}
		if n := rewound(); n > 0 && tt.events == 1204 {
			// Those replayed twice since they were published have two events.
			if n != 3 {
				t.Errorf("%d lanes have more than one unpublished event, want 3", n)
			}
		}
	}
	kinds := one[string](s, `SELECT string_agg(DISTINCT e.kind, ',') FROM registry.outbox_event e JOIN registry.outbox_lane l USING (lane_id) WHERE e.seq > l.pub_seq`)
	if kinds != "replay" {
		t.Errorf("the new events are of kind %s", kinds)
	}
	if f := s.viewer.Fetch(ctx, named("prefix:2")); f.Outcome() != client.Deleted || f.Version() != 5 {
		t.Errorf("the deleted prefix is %s at version %d", f.Outcome(), f.Version())
	}
	_, err := s.operator.OutboxReplay(ctx, client.OutboxReplay{OutboxTarget: all, Kind: client.KindCommand})
	refused(t, err, problem.Invalid, "kind")
}

func TestAnAuditIsWantedAndWaitedFor(t *testing.T) {
	s := serve(t, nil)
	stream := 3
	answer := must[client.OutboxAuditAnswer](t)(s.operator.OutboxAudit(t.Context(), client.OutboxAudit{Stream: &stream, Fix: true, Reason: "test"}))
	if answer.Done || len(answer.Streams) != 1 {
		t.Errorf("without a worker the answer is %+v", answer)
	}
	if fix := one[bool](s, `SELECT audit_wanted_fix FROM registry.outbox_stream WHERE audit_wanted_at IS NOT NULL`); !fix {
		t.Error("the wish does not ask for repair")
	}
	// A wish without repair does not take one with it back.
	must[client.OutboxAuditAnswer](t)(s.operator.OutboxAudit(t.Context(), client.OutboxAudit{}))
	if fix := one[bool](s, `SELECT audit_wanted_fix FROM registry.outbox_stream WHERE stream_no = 3`); !fix {
		t.Error("the wish for repair is lost")
	}
	// What a worker does when it sees a wish.
	s.exec(`UPDATE registry.outbox_stream SET audit_wanted_at = NULL`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventtest.Eventually(t, "a wish for an audit", func() bool {
			tag, err := s.pool.Exec(context.Background(), `UPDATE registry.outbox_stream
				SET audited_at = clock_timestamp(), audit_wanted_at = NULL, audit_result = '{"lost": 2}'
				WHERE audit_wanted_at IS NOT NULL`)
			return err == nil && tag.RowsAffected() == 1
		})
	}()
	stream = 5
	answer = must[client.OutboxAuditAnswer](t)(s.operator.OutboxAudit(t.Context(), client.OutboxAudit{Stream: &stream, WaitSeconds: 50}))
	<-done
	if !answer.Done {
		t.Error("the audit that was carried out is not done")
	}
	if len(answer.Streams) != 1 || string(answer.Streams[0].AuditResult) != `{"lost":2}` {
		t.Errorf("the answer is %+v", answer)
	}
}

func TestCleanupListsAndDropsWhatIsDue(t *testing.T) {
	s := serve(t, nil)
	for days, rows := range map[int]string{
		20: `SELECT 1, 1, now() - interval '20 days', 'changed', '{}', now() - interval '20 days'`,
		15: `SELECT 99999, 1, now() - interval '15 days', 'changed', '{}', NULL`,
		10: `SELECT 1, 2, now() - interval '10 days', 'changed', '{}', now() - interval '1 day'`,
	} {
		s.exec(`DO $$ BEGIN
			EXECUTE format('CREATE TABLE registry.outbox_event_%s PARTITION OF registry.outbox_event FOR VALUES FROM (%L) TO (%L)',
			  to_char(current_date - ` + fmt.Sprint(days) + `, 'YYYYMMDD'), current_date - ` + fmt.Sprint(days) + `, current_date - ` + fmt.Sprint(days-1) + `);
		END $$`)
		s.exec(`INSERT INTO registry.outbox_event (lane_id, seq, created_at, kind, payload, published_at) ` + rows)
	}
	s.prefix("192.0.2.0/24")
	s.exec(`UPDATE registry.prefix SET status = 'planned'`)
	s.published()
	dry := must[client.OutboxCleanupAnswer](t)(s.operator.OutboxCleanup(t.Context(), client.OutboxCleanup{DryRun: true}))
	reasons := []string{}
	for _, p := range dry.Partitions {
		reasons = append(reasons, fmt.Sprintf("%d %d %t %s", p.Rows, p.Unpublished, p.Due, p.Reason))
	}
	if len(reasons) != 3 || !strings.HasPrefix(reasons[0], "1 0 true everything") || !strings.HasPrefix(reasons[1], "1 1 false 1 events are not published") ||
		!strings.HasPrefix(reasons[2], "1 0 false the last") || len(dry.Dropped) != 0 {
		t.Errorf("the dry run answers %v, dropped %v", reasons, dry.Dropped)
	}
	done := must[client.OutboxCleanupAnswer](t)(s.operator.OutboxCleanup(t.Context(), client.OutboxCleanup{}))
	if len(done.Dropped) != 1 {
		t.Errorf("dropped are %v", done.Dropped)
	}
	if again := must[client.OutboxCleanupAnswer](t)(s.operator.OutboxCleanup(t.Context(), client.OutboxCleanup{})); len(again.Partitions) != 2 || len(again.Dropped) != 0 {
		t.Errorf("the second cleanup answers %+v", again)
	}
}

// findings is the doctor's levels by check.
func (s *serving) findings() map[string]string {
	s.t.Helper()
	levels := map[string]string{}
	for _, f := range must[client.OutboxDoctor](s.t)(s.viewer.OutboxDoctor(s.t.Context())).Findings {
		levels[f.Check] = f.Level
		if (f.Level == "ok") != (f.Advice == "") {
			s.t.Errorf("%+v: advice goes with what is not ok", f)
		}
	}
	return levels
}

func TestTheDoctorFindsWhatIsWrong(t *testing.T) {
	server := eventtest.Server(t, "appendonly yes", "maxmemory-policy noeviction")
	s := serve(t, server.Client())
	want := map[string]string{"pooler": "ok", "locks on lanes": "ok", "oldest snapshot": "ok", "dead rows": "ok", "partitions ahead": "ok",
		"clock of PostgreSQL": "ok", "redis": "ok", "eviction": "ok", "append-only file": "ok", "clock of Redis": "ok"}
	if got := s.findings(); !cmp.Equal(got, want) {
		t.Errorf("with all well: %v", cmp.Diff(want, got))
	}
	server.Set("maxmemory-policy", "allkeys-lru")
	server.Set("appendonly", "no")
	s.exec(`DO $$ DECLARE p text; BEGIN
		FOR p IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'registry.outbox_event'::regclass
		         AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') > current_date + 5 LOOP
			EXECUTE 'DROP TABLE ' || p;
		END LOOP;
	END $$`)
	want["eviction"], want["append-only file"], want["partitions ahead"] = "warning", "warning", "warning"
	if got := s.findings(); !cmp.Equal(got, want) {
		t.Errorf("with faults: %v", cmp.Diff(want, got))
	}
	server.Stop()
	if got := s.findings(); got["redis"] != "error" || got["pooler"] != "ok" {
		t.Errorf("without Redis: %v", got)
	}
}

func TestTheDoctorSaysWhatItCannotExamine(t *testing.T) {
	_, inProcess := eventtest.InProcess(t)
	s := serve(t, inProcess)
	got := s.findings()
	if got["redis"] != "ok" || got["eviction"] != "unknown" || got["append-only file"] != "unknown" {
		t.Errorf("with a Redis in the process: %v", got)
	}
	if got := serve(t, nil).findings(); got["redis"] != "unknown" {
		t.Errorf("without any Redis: %v", got)
	}
}

func xadd(key string, n int) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: key, ID: fmt.Sprintf("%d-0", n+1), Values: []any{"n", n}}
}

func xread(key, group string, count int64) *redis.XReadGroupArgs {
	return &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{key, ">"}, Count: count}
}
