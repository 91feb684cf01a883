package registry_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hubn/app/problem"
	"hubn/registry/client"
)

var started = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func pulse(kinds ...client.Kind) client.Heartbeat {
	return client.Heartbeat{Kinds: kinds, StartedAt: started, IntervalSeconds: 10}
}

// register registers the module mirror for the kinds.
func (s *serving) register(kinds ...client.Kind) {
	s.t.Helper()
	must[client.HeartbeatAnswer](s.t)(s.module.Heartbeat(s.t.Context(), "mirror", "one", pulse(kinds...)))
}

// silence makes the instances of a module look as if they had not been heard of
// for some seconds.
func (s *serving) silence(module string, seconds int) {
	s.t.Helper()
	s.exec(`UPDATE registry.module_instance SET seen_at = seen_at - $2 * interval '1 second' WHERE module = $1`, module, seconds)
}

func item(resource string, version int64, state client.ReportState) client.ReportItem {
	r, err := client.ParseResource(resource)
	if err != nil {
		panic(err)
	}
	return client.ReportItem{Resource: r, Version: version, State: state, FetchedAt: started}
}

// report reports as the module mirror in the current lineage.
func (s *serving) report(items ...client.ReportItem) client.ReportResult {
	s.t.Helper()
	return must[client.ReportResult](s.t)(s.module.Report(s.t.Context(),
		client.Report{Module: "mirror", Instance: "one", Lineage: s.lineage(), Items: items}))
}

func TestTheFirstHeartbeatRegistersAModule(t *testing.T) {
	s := serve(t, nil)
	h := pulse(client.KindPrefix, client.KindASN)
	h.Address, h.Behind, h.Status, h.Lineage = "http://127.0.0.1:1", 312, json.RawMessage(`{"queue":3}`), s.lineage()
	first := must[client.HeartbeatAnswer](t)(s.module.Heartbeat(t.Context(), "mirror", "one", h))
	again := must[client.HeartbeatAnswer](t)(s.module.Heartbeat(t.Context(), "mirror", "two", h))
	if !first.Registered || again.Registered || first.Lineage != s.lineage() {
		t.Errorf("the first heartbeat answers %+v, the second %+v", first, again)
	}
	modules := must[[]client.Module](t)(s.viewer.Modules(t.Context()))
	if len(modules) != 1 || len(modules[0].Instances) != 2 {
		t.Fatalf("modules are %+v", modules)
	}
	m, i := modules[0], modules[0].Instances[0]
	if m.Name != "mirror" || m.Stale || !cmp.Equal(m.Kinds, []client.Kind{client.KindASN, client.KindPrefix}) {
		t.Errorf("module is %+v", m)
	}
	if i.Instance != "one" || i.Address != h.Address || i.Behind != 312 || i.Stale || i.Lineage != s.lineage() || string(i.Status) != `{"queue":3}` || !i.StartedAt.Equal(started) {
		t.Errorf("instance is %+v", i)
	}
}

func TestAModuleIsStaleOnceAllItsInstancesAreSilent(t *testing.T) {
	s := serve(t, nil)
	s.register(client.KindPrefix)
	s.silence("mirror", 29) // three intervals of 10 s are not over
	if m := must[[]client.Module](t)(s.viewer.Modules(t.Context()))[0]; m.Stale || m.Instances[0].Stale {
		t.Errorf("after 29 s the module is stale: %+v", m)
	}
	s.silence("mirror", 2)
	if m := must[[]client.Module](t)(s.viewer.Modules(t.Context()))[0]; !m.Stale || !m.Instances[0].Stale {
		t.Errorf("after 31 s the module is not stale: %+v", m)
	}
	must[client.HeartbeatAnswer](t)(s.module.Heartbeat(t.Context(), "mirror", "two", pulse(client.KindPrefix)))
	if m := must[[]client.Module](t)(s.viewer.Modules(t.Context()))[0]; m.Stale || !m.Instances[0].Stale || m.Instances[1].Stale {
		t.Errorf("with one of two instances alive: %+v", m)
	}
	s.exec(`UPDATE registry.module_instance SET seen_at = seen_at - interval '25 hours' WHERE instance = 'one'`)
	must[client.HeartbeatAnswer](t)(s.module.Heartbeat(t.Context(), "mirror", "two", pulse(client.KindPrefix)))
	if m := must[[]client.Module](t)(s.viewer.Modules(t.Context()))[0]; len(m.Instances) != 1 {
		t.Errorf("an instance that is silent for a day is still listed: %+v", m)
	}
}

func TestAHeartbeatSaysEverythingThatIsWrongWithIt(t *testing.T) {
	s := serve(t, nil)
	h := client.Heartbeat{Kinds: []client.Kind{"nothing"}, Address: "ftp://x", Lineage: "x", Behind: -1}
	_, err := s.module.Heartbeat(t.Context(), "mirror", "one", h)
	for _, field := range []string{"body.kinds", "body.address", "body.lineage", "body.behind", "body.interval_seconds", "body.started_at"} {
		refused(t, err, problem.Invalid, field)
	}
}

func TestAModuleSpeaksForItselfOnly(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.register(client.KindPrefix)
	must[client.HeartbeatAnswer](t)(s.admin.Heartbeat(ctx, "other", "one", pulse(client.KindPrefix)))
	order := client.CommandOrder{Name: "publish-now"}
	command := must[client.Command](t)(s.operator.Order(ctx, "other", order))
	calls := map[string]func(c *client.Client) error{
		"heartbeat": func(c *client.Client) error {
			_, err := c.Heartbeat(ctx, "other", "one", pulse(client.KindPrefix))
			return err
		},
		"report": func(c *client.Client) error {
			_, err := c.Report(ctx, client.Report{Module: "other", Lineage: s.lineage(), Items: []client.ReportItem{item("prefix:1", 1, client.ReportApplied)}})
			return err
		},
		"observe": func(c *client.Client) error {
			_, err := c.Observe(ctx, client.ObservationReport{Module: "other", Items: []client.ObservationItem{
				{Resource: client.Resource{Kind: client.KindPrefix, Key: "1"}, Subject: "x", State: client.ObservationMatches, ObservedAt: started}}})
			return err
		},
		"reports": func(c *client.Client) error { _, err := c.Reports(ctx, "other", "", "", 0); return err },
		"regression": func(c *client.Client) error {
			_, err := c.Regression(ctx, client.Regression{Module: "other", Lineage: s.lineage(), Resource: client.Resource{Kind: client.KindPrefix, Key: "1"}, Version: 1})
			return err
		},
		"commands": func(c *client.Client) error { _, err := c.Commands(ctx, "other", false, "", 0); return err },
		"command":  func(c *client.Client) error { _, err := c.Command(ctx, command.ID); return err },
		"lease":    func(c *client.Client) error { _, err := c.AcquireLease(ctx, "other:x", "me", time.Second); return err },
		"release":  func(c *client.Client) error { return c.ReleaseLease(ctx, "mirrored", "me", 1) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { refused(t, call(s.module), problem.Forbidden, "mirror") })
	}
	for name, call := range map[string]func() error{
		"module orders":   func() error { _, err := s.module.Order(ctx, "mirror", order); return err },
		"module forgets":  func() error { return s.module.ForgetModule(ctx, "mirror", "") },
		"module operates": func() error { _, err := s.module.OutboxReplay(ctx, client.OutboxReplay{}); return err },
		"viewer reports": func() error {
			_, err := s.viewer.Report(ctx, client.Report{Module: "mirror", Items: []client.ReportItem{item("prefix:1", 1, client.ReportApplied)}})
			return err
		},
		"viewer orders":        func() error { _, err := s.viewer.Order(ctx, "mirror", order); return err },
		"viewer takes a lease": func() error { _, err := s.viewer.AcquireLease(ctx, "mirror:x", "me", time.Second); return err },
		"operator leases":      func() error { _, err := s.operator.AcquireLease(ctx, "mirror:x", "me", time.Second); return err },
		"viewer pauses":        func() error { _, err := s.viewer.OutboxPause(ctx, client.OutboxOrder{}); return err },
	} {
		t.Run(name, func(t *testing.T) { refused(t, call(), problem.Forbidden, "") })
	}
	for name, c := range map[string]*client.Client{"none": s.client(""), "wrong": s.client("hubn_wrong")} {
		t.Run("token "+name, func(t *testing.T) {
			if f := c.Fetch(ctx, client.Resource{Kind: client.KindPrefix, Key: "1"}); client.ReasonOf(f.Err()) != client.Refused {
				t.Errorf("fetch is %s: %v", f.Outcome(), f.Err())
			}
			_, err := c.Modules(ctx)
			refused(t, err, problem.Unauthenticated, "")
		})
	}
}

func TestAnOlderReportNeverOverwritesANewerOne(t *testing.T) {
	s := serve(t, nil)
	s.register(client.KindPrefix)
	held := func(when time.Duration, version int64, state client.ReportState) client.ReportItem {
		i := item("prefix:1", version, state)
		i.FetchedAt = started.Add(when)
		return i
	}
	foreign := "11111111-1111-1111-1111-111111111111"
	for n, step := range []struct {
		lineage string
		items   []client.ReportItem
		stored  int
		version int64
		state   client.ReportState
	}{
		{s.lineage(), []client.ReportItem{held(0, 5, client.ReportHeld)}, 1, 5, client.ReportHeld},
		{s.lineage(), []client.ReportItem{held(time.Hour, 4, client.ReportApplied)}, 0, 5, client.ReportHeld},
		{s.lineage(), []client.ReportItem{held(-1, 5, client.ReportFailed)}, 0, 5, client.ReportHeld},
		{s.lineage(), []client.ReportItem{held(0, 5, client.ReportApplied)}, 1, 5, client.ReportApplied},
		{foreign, []client.ReportItem{held(time.Hour, 9, client.ReportFailed)}, 0, 5, client.ReportApplied},
		// Of several about one resource the newest version counts, not the last.
		{s.lineage(), []client.ReportItem{held(0, 6, client.ReportApplied), held(0, 8, client.ReportFailed), held(0, 7, client.ReportApplied)}, 1, 8, client.ReportFailed},
		{s.lineage(), []client.ReportItem{held(0, 9, client.ReportWithdrawn)}, 1, 9, client.ReportWithdrawn},
	} {
		got := must[client.ReportResult](t)(s.module.Report(t.Context(), client.Report{Module: "mirror", Instance: "one", Lineage: step.lineage, Items: step.items}))
		if want := (client.ReportResult{Stored: step.stored, Ignored: len(step.items) - step.stored}); got != want {
			t.Errorf("step %d answers %+v, want %+v", n, got, want)
		}
		page := must[client.ReportedPage](t)(s.module.Reports(t.Context(), "mirror", client.KindPrefix, "", 0))
		if len(page.Items) != 1 || page.Items[0].Version != step.version || page.Items[0].State != step.state || page.Items[0].Lineage != s.lineage() {
			t.Errorf("after step %d the report is %+v, want version %d %s", n, page.Items, step.version, step.state)
		}
	}
}

func TestAReportOfAnEarlierLineageGivesWay(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.register(client.KindPrefix)
	old := s.lineage()
	s.report(item("prefix:1", 9, client.ReportApplied))
	s.exec(`SELECT registry.lineage_begin(registry.lineage_current(), 'test')`)
	late := must[client.ReportResult](t)(s.module.Report(t.Context(), client.Report{Module: "mirror", Lineage: old, Items: []client.ReportItem{item("prefix:1", 10, client.ReportFailed)}}))
	if late.Stored != 0 {
		t.Errorf("a report in the old lineage is stored: %+v", late)
	}
	state := must[client.State](t)(s.viewer.State(t.Context(), client.Resource{Kind: client.KindPrefix, Key: "1"}))
	if state.Consumers[0].OfLineage != old || state.Overall != client.OverallPending {
		t.Errorf("with a report of the old lineage the state is %s, of lineage %q", state.Overall, state.Consumers[0].OfLineage)
	}
	if got := s.report(item("prefix:1", 1, client.ReportApplied)); got.Stored != 1 {
		t.Errorf("a lower version in the new lineage is ignored: %+v", got)
	}
}

func TestReportsAreNoEventsAndNoChanges(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.register(client.KindPrefix)
	head, before := idsOf(s, client.KindPrefix, "")
	events := one[int](s, `SELECT count(*) FROM registry.outbox_event`)
	changes := one[int](s, `SELECT count(*) FROM registry.change_log`)
	s.report(item("prefix:1", 1, client.ReportApplied))
	must[client.ReportResult](t)(s.module.Observe(t.Context(), client.ObservationReport{Module: "mirror", Items: []client.ObservationItem{
		{Resource: client.Resource{Kind: client.KindPrefix, Key: "1"}, Subject: "x", State: client.ObservationMatches, ObservedAt: started}}}))
	must[client.Lease](t)(s.module.AcquireLease(t.Context(), "mirror:x", "me", time.Minute))
	answer, after := idsOf(s, client.KindPrefix, head.Token)
	if len(answer.Changed) != 0 || !cmp.Equal(before, after) {
		t.Errorf("changed are %v, versions %v instead of %v", answer.Changed, after, before)
	}
	if n := one[int](s, `SELECT count(*) FROM registry.outbox_event`); n != events {
		t.Errorf("%d events became %d", events, n)
	}
	if n := one[int](s, `SELECT count(*) FROM registry.change_log`); n != changes {
		t.Errorf("%d change-log rows became %d", changes, n)
	}
}

func TestAReportSaysEverythingThatIsWrongWithIt(t *testing.T) {
	s := serve(t, nil)
	report := func(items ...client.ReportItem) error {
		_, err := s.module.Report(t.Context(), client.Report{Module: "mirror", Lineage: s.lineage(), Items: items})
		return err
	}
	refused(t, report(item("prefix:1", 1, client.ReportApplied)), problem.NotFound, "registered")
	s.register(client.KindPrefix)
	refused(t, report(item("asn:64496", 1, client.ReportApplied)), problem.Invalid, "asn")
	for resource, says := range map[string]string{"prefix:x": "items[0].resource", "nothing:1": "items[0].resource", "barrier:8": "stream", "command:x": "number"} {
		refused(t, report(item(resource, 1, client.ReportApplied)), problem.Invalid, says)
	}
	bad := item("prefix:1", 0, "gone")
	bad.FetchedAt = time.Time{}
	bad.Detail = json.RawMessage(`"` + fmt.Sprintf("%020000d", 1) + `"`)
	err := report(bad)
	for _, says := range []string{"version", "state", "fetched_at", "detail"} {
		refused(t, err, problem.Invalid, "items[0]."+says)
	}
	_, err = s.module.Report(t.Context(), client.Report{Module: "mirror", Lineage: "x", Items: []client.ReportItem{item("prefix:1", 1, client.ReportApplied)}})
	refused(t, err, problem.Invalid, "lineage")
	if n := one[int](s, `SELECT count(*) FROM registry.applied_state`); n != 0 {
		t.Errorf("%d reports were stored", n)
	}
}

func TestReportsOfManyReplicasDoNotDeadlock(t *testing.T) {
	s := serve(t, nil)
	s.register(client.KindPrefix)
	items := []client.ReportItem{}
	for i := range 200 {
		items = append(items, item("prefix:"+strconv.Itoa(i+1), 1, client.ReportApplied))
	}
	var group sync.WaitGroup
	lineage := s.lineage()
	for i := range 8 {
		group.Go(func() {
			for round := range 5 {
				mine := slices.Clone(items)
				if i%2 == 1 {
					slices.Reverse(mine)
				}
				for j := range mine {
					mine[j].Version = int64(round + 1)
				}
				if _, err := s.module.Report(t.Context(), client.Report{Module: "mirror", Lineage: lineage, Items: mine}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := one[int](s, `SELECT count(*) FROM registry.applied_state WHERE version = 5`); n != 200 {
		t.Errorf("%d of 200 reports are at version 5", n)
	}
}

func TestAModuleReadsItsReportsBackPageByPage(t *testing.T) {
	s := serve(t, nil)
	s.register(client.KindPrefix, client.KindASN)
	reports := []client.ReportItem{}
	for i := range 7 {
		reports = append(reports, item("prefix:"+strconv.Itoa(i+8), int64(i+1), client.ReportApplied))
	}
	last := item("asn:64496", 3, client.ReportFailed)
	last.Reason, last.RetryAt, last.Detail = "no CA covers it", started.Add(time.Hour), json.RawMessage(`{"a": 1}`)
	s.report(append(reports, last)...)
	var got []string
	for after := ""; ; {
		page := must[client.ReportedPage](t)(s.module.Reports(t.Context(), "mirror", "", after, 3))
		for _, r := range page.Items {
			got = append(got, fmt.Sprintf("%s@%d", r.Resource, r.Version))
		}
		if after = page.Next; after == "" {
			break
		}
	}
	want := []string{"asn:64496@3", "prefix:10@3", "prefix:11@4", "prefix:12@5", "prefix:13@6", "prefix:14@7", "prefix:8@1", "prefix:9@2"}
	if !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	r := must[client.ReportedPage](t)(s.module.Reports(t.Context(), "mirror", client.KindASN, "", 0)).Items[0]
	if r.Reason != last.Reason || !r.RetryAt.Equal(last.RetryAt) || string(r.Detail) != `{"a":1}` || !r.FetchedAt.Equal(started) || r.Instance != "one" || r.ReportedAt.IsZero() {
		t.Errorf("read back %+v", r)
	}
}

func TestObservationsKeepTheNewestOfEachSubject(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.register(client.KindPrefix)
	see := func(subject string, minutes int, state client.ObservationState, gone bool) client.ReportResult {
		t.Helper()
		return must[client.ReportResult](t)(s.module.Observe(t.Context(), client.ObservationReport{Module: "mirror", Items: []client.ObservationItem{
			{Resource: client.Resource{Kind: client.KindPrefix, Key: "1"}, Subject: subject, State: state, Gone: gone,
				ObservedAt: started.Add(time.Duration(minutes) * time.Minute)}}}))
	}
	words := func() (out []string) {
		for _, o := range must[client.State](t)(s.viewer.State(t.Context(), client.Resource{Kind: client.KindPrefix, Key: "1"})).Observations {
			out = append(out, o.Subject+" "+o.State)
		}
		return out
	}
	see("ns1", 1, client.ObservationMatches, false)
	see("ns2", 1, client.ObservationUnknown, false)
	see("ns1", 3, client.ObservationDiverged, false)
	if r := see("ns1", 2, client.ObservationMatches, false); r.Stored != 0 || r.Ignored != 1 {
		t.Errorf("an older observation answers %+v", r)
	}
	if r := see("ns1", 2, "", true); r.Stored != 0 {
		t.Errorf("an older end answers %+v", r)
	}
	if got, want := words(), []string{"ns1 diverged", "ns2 unknown"}; !cmp.Equal(got, want) {
		t.Errorf("observed is %v, want %v", got, want)
	}
	see("ns1", 4, "", true)
	if got, want := words(), []string{"ns2 unknown"}; !cmp.Equal(got, want) {
		t.Errorf("observed is %v, want %v", got, want)
	}
}

func TestACommandTravelsAsAnEventAndIsAnsweredByAReport(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	_, err := s.operator.Order(ctx, "mirror", client.CommandOrder{Name: "publish-now"})
	refused(t, err, problem.NotFound, "mirror")
	s.register(client.KindPrefix)
	_, err = s.operator.Order(ctx, "mirror", client.CommandOrder{Name: "Publish Now"})
	refused(t, err, problem.Invalid, "name")
	c := must[client.Command](t)(s.operator.Order(ctx, "mirror", client.CommandOrder{Name: "publish-now", Arguments: json.RawMessage(`{"all":true}`), Reason: "test"}))
	if c.Version != 1 || c.Actor != "operator" || c.Module != "mirror" || string(c.Arguments) != `{"all":true}` || c.Reason != "test" || c.Answer != nil {
		t.Errorf("the command is %+v", c)
	}
	payload := one[string](s, `SELECT e.payload::text FROM registry.outbox_event e JOIN registry.outbox_lane l USING (lane_id)
		WHERE l.agg_type = 'command' AND l.agg_key = $1`, strconv.FormatInt(c.ID, 10))
	if payload != `{"changed": ["mirror", "publish-now"]}` {
		t.Errorf("its event says %s", payload)
	}
	second := must[client.Command](t)(s.operator.Order(ctx, "mirror", client.CommandOrder{Name: "roll-key"}))
	s.report(item("command:"+strconv.FormatInt(c.ID, 10), 1, client.ReportApplied))
	answered := must[client.Command](t)(s.module.Command(ctx, c.ID))
	if answered.Answer == nil || answered.Answer.State != client.ReportApplied || answered.Answer.Module != "mirror" {
		t.Errorf("the answer is %+v", answered.Answer)
	}
	numbers := func(open bool, limit int) (out []int64) {
		for after := ""; ; {
			page := must[client.CommandPage](t)(s.module.Commands(ctx, "mirror", open, after, limit))
			for _, c := range page.Items {
				out = append(out, c.ID)
			}
			if after = page.Next; after == "" {
				return out
			}
		}
	}
	if got, want := numbers(false, 1), []int64{second.ID, c.ID}; !cmp.Equal(got, want) {
		t.Errorf("all commands are %v, want %v", got, want)
	}
	if got, want := numbers(true, 0), []int64{second.ID}; !cmp.Equal(got, want) {
		t.Errorf("open commands are %v, want %v", got, want)
	}
	_, err = s.viewer.Command(ctx, 999)
	refused(t, err, problem.NotFound, "999")
}

func TestForgettingAModuleForgetsWhatItReported(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.published()
	s.register(client.KindPrefix)
	s.report(item("prefix:1", 1, client.ReportFailed))
	if err := s.operator.ForgetModule(t.Context(), "mirror", "taken down"); err != nil {
		t.Fatal(err)
	}
	state := must[client.State](t)(s.viewer.State(t.Context(), client.Resource{Kind: client.KindPrefix, Key: "1"}))
	if state.Overall != client.OverallApplied || len(state.Consumers) != 0 {
		t.Errorf("the state is %s with %+v", state.Overall, state.Consumers)
	}
	if got := one[string](s, `SELECT actor || ' ' || action || ' ' || target || ' ' || reason FROM registry.outbox_audit`); got != "operator forget module mirror taken down" {
		t.Errorf("the audit says %q", got)
	}
	refused(t, s.operator.ForgetModule(t.Context(), "mirror", ""), problem.NotFound, "mirror")
}

func TestALeaseHasOneHolderAndATokenThatGrows(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	take := func(holder string) client.Lease {
		t.Helper()
		return must[client.Lease](t)(s.module.AcquireLease(ctx, "mirror:x", holder, time.Minute))
	}
	expire := func() { s.exec(`UPDATE registry.lease SET expires_at = clock_timestamp()`) }
	first := take("a")
	if !first.Held || first.Token != 1 || first.Holder != "a" || !first.ExpiresAt.After(time.Now().Add(-time.Minute)) {
		t.Errorf("the first holder gets %+v", first)
	}
	if l := take("b"); l.Held || l.Holder != "a" || l.Token != 1 {
		t.Errorf("another gets %+v while it is held", l)
	}
	if l := take("a"); !l.Held || l.Token != 1 {
		t.Errorf("a renewal answers %+v", l)
	}
	expire()
	if l := take("b"); !l.Held || l.Token != 2 {
		t.Errorf("another gets %+v after it ran out", l)
	}
	if err := s.module.ReleaseLease(ctx, "mirror:x", "a", 1); err != nil {
		t.Fatal(err)
	}
	if l := take("c"); l.Held {
		t.Errorf("the old holder's release gave it to %+v", l)
	}
	if err := s.module.ReleaseLease(ctx, "mirror:x", "b", 2); err != nil {
		t.Fatal(err)
	}
	if l := take("c"); !l.Held || l.Token != 3 {
		t.Errorf("after a release another gets %+v", l)
	}
}

func TestOneOfManyGetsALease(t *testing.T) {
	s := serve(t, nil)
	var mu sync.Mutex
	tokens := map[int64]int{}
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			l, err := s.module.AcquireLease(t.Context(), "mirror:x", "holder "+strconv.Itoa(i), time.Minute)
			if err != nil {
				t.Error(err)
			}
			if l.Held {
				mu.Lock()
				tokens[l.Token]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(tokens) != 1 || tokens[1] != 1 {
		t.Errorf("holders by token: %v, want one with token 1", tokens)
	}
}
