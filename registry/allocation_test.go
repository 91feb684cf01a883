package registry

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hubn/app/problem"
	"hubn/registry/client"
)

// pool creates a container.
func (h *harness) pool(prefix string) client.Prefix {
	h.t.Helper()
	return h.prefix(prefix, map[string]any{"kind": "container"})
}

func (h *harness) nextFree(pool int64, body map[string]any, headers ...header) *response {
	h.t.Helper()
	return h.post(prefixPath(pool)+"/next-free", body, headers...)
}

// took is the prefixes that an answer made.
func took(r *response) string {
	r.t.Helper()
	var out []string
	for _, p := range as[client.Prefixes](r.want(http.StatusCreated)).Items {
		out = append(out, p.Prefix.String())
	}
	return strings.Join(out, " ")
}

// operate posts an operation with the ETag that the prefix has now.
func (h *harness) operate(id int64, operation string, body map[string]any) *response {
	h.t.Helper()
	return h.post(prefixPath(id)+"/"+operation, body, ifMatch(h.etag(prefixPath(id))))
}

// tree is every prefix with its parent, in tree order.
func (h *harness) tree() []string {
	h.t.Helper()
	names := map[int64]string{}
	var out []string
	for _, p := range as[client.Page[client.Prefix]](h.get("/v1/prefixes?limit=1000").want(200)).Items {
		names[p.ID] = p.Prefix.String()
		text := p.Prefix.String()
		if p.ParentID != 0 {
			text += " in " + names[p.ParentID]
		}
		out = append(out, text)
	}
	return out
}

func TestNextFreeTakesTheFirstThatFits(t *testing.T) {
	h := newHarness(t)
	h.organisation("EXAMPLE")
	pool := h.pool("10.0.0.0/24")
	h.prefix("10.0.0.0/26")
	h.prefix("10.0.0.128/27")
	first := h.nextFree(pool.ID, map[string]any{"length": 26, "organisation": "EXAMPLE", "name": "x", "kind": "allocation",
		"routing": map[string]any{"announced": true, "origin": 64496, "max_length": 28}})
	check(t, "first", took(first), "10.0.0.64/26")
	p := as[client.Prefixes](first).Items[0]
	check(t, "Location", first.header.Get("Location"), prefixPath(p.ID))
	check(t, "produced", first.header.Get(client.ProducedHeader), fmt.Sprintf("prefix:%d@1", p.ID))
	check(t, "parent", p.ParentID, pool.ID)
	check(t, "settings", []any{p.Organisation, p.Name, p.Kind, p.Routing}, []any{"EXAMPLE", "x", "allocation",
		client.Routing{Announced: true, Origin: new(client.ASN(64496)), MaxLength: new(28)}})
	check(t, "several", took(h.nextFree(pool.ID, map[string]any{"length": 28, "count": 3})), "10.0.0.160/28 10.0.0.176/28 10.0.0.192/28")

	full := h.nextFree(pool.ID, map[string]any{"length": 26}).wantProblem(problem.Conflict)
	if !strings.Contains(full.Detail, "the largest free block is a /27") {
		t.Errorf("the refusal does not say what is free: %s", full.Detail)
	}
	few := h.nextFree(pool.ID, map[string]any{"length": 28, "count": 9}).wantProblem(problem.Conflict)
	if !strings.Contains(few.Detail, "has 3 free /28, not 9") {
		t.Errorf("the refusal does not count: %s", few.Detail)
	}
	check(t, "prefixes after refusals", len(h.tree()), 7)
	dry := h.post(prefixPath(pool.ID)+"/next-free?dry_run=true", map[string]any{"length": 28})
	check(t, "dry run", took(dry), "10.0.0.208/28")
	check(t, "prefixes after a dry run", len(h.tree()), 7)

	h.nextFree(pool.ID, map[string]any{"length": 24}).wantProblem(problem.Invalid).says(t, "body.length", "/25 to a /32")
	h.nextFree(pool.ID, map[string]any{"length": 33}).wantProblem(problem.Invalid)
	h.nextFree(pool.ID, map[string]any{"length": 28, "routing": map[string]any{"origin": 1, "max_length": 27}}).
		wantProblem(problem.Invalid).says(t, "body.routing.max_length", "28 to 32")
	h.nextFree(pool.ID, map[string]any{"length": 28, "organisation": "NOBODY"}).wantProblem(problem.Invalid)
	check(t, "by the pool's prefix", took(h.post("/v1/prefixes/10.0.0.0%2F24/next-free", map[string]any{"length": 28})), "10.0.0.208/28")

	leaf := h.prefix("10.0.1.0/24")
	h.nextFree(leaf.ID, map[string]any{"length": 26}).wantProblem(problem.Conflict)
	h.change(prefixPath(leaf.ID), map[string]any{"kind": "container", "status": "retired"}).want(200)
	h.nextFree(leaf.ID, map[string]any{"length": 26}).wantProblem(problem.Conflict)
	h.nextFree(999999, map[string]any{"length": 26}).wantProblem(problem.NotFound)
}

func TestNextFreeOfSingleAddresses(t *testing.T) {
	h := newHarness(t)
	for pool, c := range map[string]struct {
		length int
		want   string
	}{
		"192.0.2.0/31":       {32, "192.0.2.0/32 192.0.2.1/32"},
		"192.0.2.4/30":       {31, "192.0.2.4/31 192.0.2.6/31"},
		"2001:db8::/127":     {128, "2001:db8::/128 2001:db8::1/128"},
		"2001:db8::4/126":    {127, "2001:db8::4/127 2001:db8::6/127"},
		"255.255.255.254/31": {32, "255.255.255.254/32 255.255.255.255/32"},
	} {
		id := h.pool(pool).ID
		check(t, pool, took(h.nextFree(id, map[string]any{"length": c.length, "count": 2})), c.want)
		h.nextFree(id, map[string]any{"length": c.length}).wantProblem(problem.Conflict)
	}
	single := h.pool("198.51.100.1/32")
	h.nextFree(single.ID, map[string]any{"length": 32}).wantProblem(problem.Invalid)
}

func TestNextFreeLeavesAnycastAloneAndAdoptsPTRRecords(t *testing.T) {
	h := newHarness(t)
	pool := h.pool("192.0.2.0/24")
	h.post("/v1/anycast", map[string]any{"prefix": "192.0.2.0/26", "service": "dns"}).want(http.StatusCreated)
	h.post("/v1/ptr-records", map[string]any{"address": "192.0.2.65", "target": "a.example"}).want(http.StatusCreated)
	r := h.nextFree(pool.ID, map[string]any{"length": 26})
	check(t, "prefix", took(r), "192.0.2.64/26")
	refused := h.remove(prefixPath(as[client.Prefixes](r).Items[0].ID)).wantProblem(problem.Conflict)
	check(t, "PTR records in it", refused.Count, int64(1))
}

func TestNextFreeAnswersARepeatedRequestOnce(t *testing.T) {
	h := newHarness(t)
	pool, other := h.pool("10.0.0.0/24"), h.pool("10.1.0.0/24")
	body := map[string]any{"length": 26}
	first := took(h.nextFree(pool.ID, body, idempotent("k1")))
	check(t, "again", took(h.nextFree(pool.ID, body, idempotent("k1"))), first)
	check(t, "another key", took(h.nextFree(pool.ID, body, idempotent("k2"))), "10.0.0.64/26")
	h.nextFree(other.ID, body, idempotent("k1")).wantProblem(problem.Invalid)
}

func TestSixteenClientsGetEachAddressOnceByEveryPath(t *testing.T) {
	h := newHarness(t)
	pool := h.pool("10.0.0.0/20")
	h.pool("10.9.0.0/24")
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
	)
	got := map[string]int{}
	give := func(r *response, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			t.Errorf("no answer: %v", err)
		case r.status == http.StatusCreated && strings.HasSuffix(r.what, "/next-free"):
			for _, p := range as[client.Prefixes](r.want(r.status)).Items {
				got[p.Prefix.String()]++
			}
		case r.status == http.StatusCreated:
			got[as[client.Prefix](r.want(r.status)).Prefix.String()]++
		case r.status == http.StatusOK:
			got[as[client.Prefix](r.want(r.status)).Prefix.String()]++
		default:
			if strings.HasSuffix(r.what, "/next-free") {
				t.Errorf("%s: %d %s", r.what, r.status, r.body)
				return
			}
			r.wantProblem(problem.Conflict)
		}
	}
	movers := make([]client.Prefix, 4)
	for i := range movers {
		movers[i] = h.prefix(fmt.Sprintf("10.9.0.%d/28", 16*i))
	}
	for n := range 16 {
		wait.Go(func() {
			for i := range 6 {
				switch n % 4 {
				case 0, 1:
					give(h.try(http.MethodPost, prefixPath(pool.ID)+"/next-free", map[string]any{"length": 28, "count": 1 + n%2}))
				case 2: // by name, near where the others look
					give(h.try(http.MethodPost, "/v1/prefixes", map[string]any{"prefix": fmt.Sprintf("10.0.0.%d/28", 16*(2*i+n/4%2))}))
				case 3:
					if i == 0 {
						give(h.try(http.MethodPost, prefixPath(movers[n/4].ID)+"/move", map[string]any{"parent": fmt.Sprint(pool.ID)}, ifMatch("*")))
					}
				}
			}
		})
	}
	wait.Wait()
	if len(got) < 64 {
		t.Errorf("only %d prefixes were given", len(got))
	}
	for prefix, times := range got {
		check(t, "times that "+prefix+" was given", times, 1)
	}
	var all []netip.Prefix
	for _, p := range as[client.Page[client.Prefix]](h.get(fmt.Sprintf("/v1/prefixes?limit=1000&parent=%d", pool.ID)).want(200)).Items {
		all = append(all, p.Prefix)
		check(t, "times that "+p.Prefix.String()+" was given", got[p.Prefix.String()], 1)
	}
	for i := 1; i < len(all); i++ {
		if all[i-1].Overlaps(all[i]) {
			t.Errorf("%s and %s overlap", all[i-1], all[i])
		}
	}
}

func TestFreeSpaceAndUtilisation(t *testing.T) {
	h := newHarness(t)
	pool := h.pool("10.0.0.0/24")
	h.prefix("10.0.0.0/26")
	h.prefix("10.0.0.96/27", map[string]any{"kind": "allocation"})
	h.post("/v1/anycast", map[string]any{"prefix": "10.0.0.128/32", "service": "dns"}).want(http.StatusCreated)
	blocks := func(query string) (out []string, next string) {
		page := as[client.Page[client.FreeBlock]](h.get(prefixPath(pool.ID) + "/free" + query).want(200))
		for _, b := range page.Items {
			out = append(out, b.Prefix.String()+" "+b.Addresses)
		}
		return out, page.Next
	}
	all, _ := blocks("")
	check(t, "free", all, []string{"10.0.0.64/27 32", "10.0.0.129/32 1", "10.0.0.130/31 2", "10.0.0.132/30 4", "10.0.0.136/29 8",
		"10.0.0.144/28 16", "10.0.0.160/27 32", "10.0.0.192/26 64"})
	roomy, _ := blocks("?length=27")
	check(t, "with room for a /27", roomy, []string{"10.0.0.64/27 32", "10.0.0.160/27 32", "10.0.0.192/26 64"})
	var paged []string
	for next := ""; ; {
		var page []string
		page, next = blocks("?limit=3&after=" + next)
		if paged = append(paged, page...); next == "" {
			break
		}
	}
	check(t, "page by page", paged, all)

	u := as[client.Utilisation](h.get(prefixPath(pool.ID) + "/utilisation").want(200))
	check(t, "utilisation", []any{u.ID, u.Prefix.String(), u.Children, u.Addresses, u.Used, u.Free, u.Quarantined, *u.LargestFree},
		[]any{pool.ID, "10.0.0.0/24", 2, "256", "97", "159", "0", 26})
	check(t, "percent", fmt.Sprintf("%.2f", u.UsedPercent), "37.89")
	h.pool("2001:db8::/32")
	h.prefix("2001:db8::/33")
	pools := as[client.Page[client.Utilisation]](h.get("/v1/utilisation?limit=2").want(200))
	check(t, "pools", []string{pools.Items[0].Prefix.String(), pools.Items[1].Prefix.String()}, []string{"10.0.0.0/24", "10.0.0.96/27"})
	rest := as[client.Page[client.Utilisation]](h.get("/v1/utilisation?after=" + pools.Next).want(200))
	check(t, "the rest", []string{rest.Items[0].Prefix.String(), rest.Items[0].Addresses, rest.Next},
		[]string{"2001:db8::/32", "79228162514264337593543950336", ""})
	check(t, "within", len(as[client.Page[client.Utilisation]](h.get("/v1/utilisation?within="+url.QueryEscape("10.0.0.0/8")).want(200)).Items), 2)
}

// consumer registers a module that derives something from prefixes.
func (h *harness) consumer() {
	h.t.Helper()
	h.do(http.MethodPut, "/v1/modules/mirror/instances/one", client.Heartbeat{Kinds: []client.Kind{client.KindPrefix}, IntervalSeconds: 60, StartedAt: time.Now()},
		token(h.module)).want(200)
}

// reports says what the module has done with a version.
func (h *harness) reports(resource string, version int64, state client.ReportState) {
	h.t.Helper()
	r, err := client.ParseResource(resource)
	if err != nil {
		h.t.Fatal(err)
	}
	lineage := h.get("/v1/lineage").want(200).header.Get(client.LineageHeader)
	h.post("/v1/reports", client.Report{Module: "mirror", Instance: "one", Lineage: lineage,
		Items: []client.ReportItem{{Resource: r, Version: version, State: state, FetchedAt: time.Now()}}}, token(h.module)).want(200)
}

func TestDeletedSpaceIsNotOfferedUntilItIsReportedWithdrawn(t *testing.T) {
	h := newHarness(t)
	pool := h.pool("10.0.0.0/24")
	unseen := h.prefix("10.0.0.0/26")
	h.remove(prefixPath(unseen.ID)).want(http.StatusNoContent)
	check(t, "without consumers", took(h.nextFree(pool.ID, map[string]any{"length": 26})), "10.0.0.0/26")

	h.consumer()
	p := h.prefix("10.0.0.64/26")
	h.prefix("10.0.0.128/25")
	h.reports(fmt.Sprintf("prefix:%d", p.ID), 1, client.ReportApplied)
	h.remove(prefixPath(p.ID)).want(http.StatusNoContent)
	refused := h.nextFree(pool.ID, map[string]any{"length": 26}).wantProblem(problem.Conflict)
	if !strings.Contains(refused.Detail, "10.0.0.64/26") || !strings.Contains(refused.Detail, "mirror") {
		t.Errorf("the refusal does not say who is missing: %s", refused.Detail)
	}
	u := as[client.Utilisation](h.get(prefixPath(pool.ID) + "/utilisation").want(200))
	check(t, "utilisation", []string{u.Used, u.Quarantined, u.Free}, []string{"192", "64", "0"})
	list := as[client.Page[client.Quarantine]](h.get("/v1/quarantine?within=10.0.0.0%2F24").want(200)).Items
	if len(list) != 1 || list[0].Prefix.String() != "10.0.0.64/26" || list[0].Resource.String() != fmt.Sprintf("prefix:%d", p.ID) ||
		list[0].Version != 2 || !slices.Equal(list[0].Waiting, []string{"mirror"}) {
		t.Errorf("quarantine: %+v", list)
	}
	h.reports(fmt.Sprintf("prefix:%d", p.ID), 2, client.ReportWithdrawn)
	check(t, "after the report", took(h.nextFree(pool.ID, map[string]any{"length": 26})), "10.0.0.64/26")
	if err := h.registry.service.sweepQuarantine(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, "quarantine after the sweep", len(as[client.Page[client.Quarantine]](h.get("/v1/quarantine").want(200)).Items), 0)
}

func TestOperatorReleasesQuarantine(t *testing.T) {
	h := newHarness(t)
	h.consumer()
	pool := h.pool("10.0.0.0/25")
	p := h.prefix("10.0.0.0/26")
	h.remove(prefixPath(p.ID)).want(http.StatusNoContent)
	check(t, "beside it", took(h.nextFree(pool.ID, map[string]any{"length": 26})), "10.0.0.64/26")
	list := as[client.Page[client.Quarantine]](h.get("/v1/quarantine").want(200)).Items
	path := fmt.Sprintf("/v1/quarantine/%d?reason=the+module+is+gone", list[0].ID)
	h.do(http.MethodDelete, path, nil, token(h.viewer)).wantProblem(problem.Forbidden)
	h.do(http.MethodDelete, path, nil, token(h.operator)).want(http.StatusNoContent)
	h.do(http.MethodDelete, path, nil).wantProblem(problem.NotFound)
	var actor, reason string
	const logged = `SELECT actor, reason FROM registry.change_log WHERE kind = 'quarantine' AND before->>'agg_key' = $1`
	if err := h.db.Conn(t, "").QueryRow(t.Context(), logged, fmt.Sprint(p.ID)).Scan(&actor, &reason); err != nil {
		t.Fatal(err)
	}
	check(t, "change log", []string{actor, reason}, []string{"the-operator", "the module is gone"})
	check(t, "after the release", took(h.nextFree(pool.ID, map[string]any{"length": 26})), "10.0.0.0/26")
}

func TestRetiredPrefixGivesWayOnceItIsReportedWithdrawn(t *testing.T) {
	h := newHarness(t)
	h.consumer()
	pool := h.pool("10.0.0.0/25")
	p := h.prefix("10.0.0.0/25", map[string]any{"prefix": "10.0.0.0/26"})
	h.prefix("10.0.0.64/26")
	h.reports(fmt.Sprintf("prefix:%d", p.ID), 1, client.ReportWithdrawn)
	h.nextFree(pool.ID, map[string]any{"length": 27}).wantProblem(problem.Conflict)
	h.change(prefixPath(p.ID), map[string]any{"status": "retired"}).want(200)
	refused := h.nextFree(pool.ID, map[string]any{"length": 27}).wantProblem(problem.Conflict)
	if !strings.Contains(refused.Detail, "mirror") {
		t.Errorf("the refusal does not say who is missing: %s", refused.Detail)
	}
	h.reports(fmt.Sprintf("prefix:%d", p.ID), 2, client.ReportWithdrawn)
	check(t, "after the report", took(h.nextFree(pool.ID, map[string]any{"length": 27})), "10.0.0.0/27")
	h.get(prefixPath(p.ID)).wantProblem(problem.Deleted)
	check(t, "the rest of it", took(h.nextFree(pool.ID, map[string]any{"length": 27})), "10.0.0.32/27")
}

func TestWhatAPrefixShedsIsQuarantined(t *testing.T) {
	h := newHarness(t)
	h.consumer()
	pool := h.pool("10.0.0.0/24")
	p := h.prefix("10.0.0.0/25")
	h.operate(p.ID, "resize", map[string]any{"length": 26}).want(200)
	check(t, "beside it", took(h.nextFree(pool.ID, map[string]any{"length": 26})), "10.0.0.128/26")
	h.reports(fmt.Sprintf("prefix:%d", p.ID), 2, client.ReportApplied)
	check(t, "after the report", took(h.nextFree(pool.ID, map[string]any{"length": 26})), "10.0.0.64/26")
}

func TestSpaceIsTakenWhereAGrantReaches(t *testing.T) {
	h := newHarness(t)
	own, other := h.organisation("OWN"), h.organisation("OTHER")
	pool := func(prefix string, holder int64) client.Prefix {
		return h.prefix(prefix, map[string]any{"kind": "allocation", "organisation_id": holder})
	}
	mine, foreign := pool("10.0.0.0/24", own), pool("10.1.0.0/24", other)
	p := h.prefix("10.0.0.0/26", map[string]any{"organisation_id": own})
	mark := h.prefix("10.1.0.0/26", map[string]any{"organisation_id": own})
	member := token(h.newToken(map[string]any{"name": "member", "grants": []any{map[string]any{"role": "member", "organisation": "OWN"}}}).Secret)
	allocator := token(h.newToken(map[string]any{"name": "allocator", "grants": []any{map[string]any{"role": "allocator", "prefix": "10.0.0.0/16"}}}).Secret)
	for name, c := range map[string]struct {
		who       header
		of        int64
		operation string
		body      map[string]any
		allowed   bool
	}{
		"a member in its own pool":              {member, mine.ID, "next-free", map[string]any{"length": 26, "organisation": "OWN"}, true},
		"a member for somebody else":            {member, mine.ID, "next-free", map[string]any{"length": 26, "organisation": "OTHER"}, false},
		"a member in a foreign pool":            {member, foreign.ID, "next-free", map[string]any{"length": 26, "organisation": "OWN"}, false},
		"a member splits its own":               {member, p.ID, "split", map[string]any{"length": 27}, true},
		"a member splits what is foreign":       {member, foreign.ID, "split", map[string]any{"length": 25}, false},
		"a member grows in its own":             {member, p.ID, "resize", map[string]any{"length": 25}, true},
		"a member grows in what is foreign":     {member, mark.ID, "resize", map[string]any{"length": 25}, false},
		"a member moves into its own":           {member, mark.ID, "move", map[string]any{"parent": "10.0.0.0/24"}, true},
		"a member moves into what is foreign":   {member, p.ID, "move", map[string]any{"parent": "10.1.0.0/24"}, false},
		"a member moves to a foreign place":     {member, p.ID, "move", map[string]any{"prefix": "10.1.0.64/26"}, false},
		"an allocator in its subtree":           {allocator, mine.ID, "next-free", map[string]any{"length": 26, "organisation": "OTHER"}, true},
		"an allocator outside of it":            {allocator, foreign.ID, "next-free", map[string]any{"length": 26}, false},
		"an allocator changes what is there":    {allocator, p.ID, "split", map[string]any{"length": 27}, false},
		"an allocator resizes what is there":    {allocator, p.ID, "resize", map[string]any{"length": 27}, false},
		"a viewer of the process takes nothing": {token(h.viewer), mine.ID, "next-free", map[string]any{"length": 26}, false},
	} {
		r := h.post(prefixPath(c.of)+"/"+c.operation+"?dry_run=true", c.body, c.who, ifMatch("*"))
		if (r.status < 300) != c.allowed || !c.allowed && r.status != http.StatusForbidden {
			t.Errorf("%s: got %d, want it allowed: %t: %s", name, r.status, c.allowed, r.body)
		}
	}
}
