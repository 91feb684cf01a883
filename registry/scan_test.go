package registry_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"hubn/app/problem"
	"hubn/registry/client"
)

// crowd registers n prefixes, the i-th 10.x.y.0/24.
func crowd(s *serving, n int) {
	s.t.Helper()
	s.exec(`INSERT INTO registry.prefix (prefix, announced, origin_asn)
		SELECT set_masklen('10.0.0.0'::inet + i * 256, 24)::cidr, true, 64496 FROM generate_series(0, $1::int - 1) i`, n)
}

// idsOf is one stream of ids as a map, with its head.
func idsOf(s *serving, kind client.Kind, since string) (client.SourceIDsHead, map[string]int64) {
	s.t.Helper()
	ids := map[string]int64{}
	head, _, err := s.viewer.ScanIDs(s.t.Context(), kind, since, func(id client.SourceID) error {
		if _, twice := ids[id.Key]; twice {
			s.t.Errorf("the stream names %s twice", id.Key)
		}
		ids[id.Key] = id.Version
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return head, ids
}

// writers run f in n goroutines until stop is called, which answers the number of
// rounds; each round is a transaction that f may make fail.
func writers(s *serving, n int, f func(ctx context.Context, tx pgx.Tx, random *rand.Rand) error) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	var rounds atomic.Int64
	for i := range n {
		conn := s.db.Conn(s.t, "")
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for ctx.Err() == nil {
				_ = pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error { return f(ctx, tx, random) })
				rounds.Add(1)
			}
		})
	}
	return func() int64 { cancel(); group.Wait(); return rounds.Load() }
}

var errUndo = fmt.Errorf("rolled back on purpose")

// delay makes a transaction stay open for up to most milliseconds before it
// commits: that is what "changed since" has to get right.
func delay(ctx context.Context, tx pgx.Tx, random *rand.Rand, most int) error {
	_, err := tx.Exec(context.WithoutCancel(ctx), `SELECT pg_sleep($1::float8 / 1000)`, random.IntN(most+1))
	return err
}

func TestChangedSinceIsExactUnderDelayedCommits(t *testing.T) {
	s := serve(t, nil)
	const prefixes = 200
	crowd(s, prefixes)
	stop := writers(s, 8, func(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
		ids := []int64{}
		for range 1 + random.IntN(3) {
			ids = append(ids, 1+random.Int64N(prefixes))
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			var err error
			if random.IntN(10) == 0 {
				_, err = tx.Exec(context.Background(), `DELETE FROM registry.prefix WHERE id = $1`, id)
			} else {
				_, err = tx.Exec(context.Background(), `UPDATE registry.prefix SET origin_asn = origin_asn + 1 WHERE id = $1`, id)
			}
			if err != nil {
				return err
			}
		}
		if random.IntN(4) == 0 {
			_, err := tx.Exec(context.Background(), `INSERT INTO registry.prefix (prefix) VALUES (set_masklen('172.16.0.0'::inet + $1::int * 16, 28)::cidr)
				ON CONFLICT ON CONSTRAINT prefix_key DO NOTHING`, random.IntN(60000))
			if err != nil {
				return err
			}
		}
		if err := delay(ctx, tx, random, 20); err != nil {
			return err
		}
		if random.IntN(8) == 0 {
			return errUndo
		}
		return nil
	})
	compared, changes := 0, 0
	heads := []client.SourceIDsHead{}
	states := []map[string]int64{}
	for range 40 {
		head, now := idsOf(s, client.KindPrefix, "")
		heads, states = append(heads, head), append(states, now)
		// Compare with every one of the last few snapshots, not with the newest only.
		for back := 1; back <= 4 && back < len(heads); back++ {
			at := len(heads) - 1 - back
			answer, then := idsOf(s, client.KindPrefix, heads[at].Token)
			want := difference(states[at], then)
			got := slices.DeleteFunc(slices.Clone(answer.Changed), func(key string) bool {
				// What was inserted and deleted in between is in neither.
				_, before := states[at][key]
				_, after := then[key]
				return !before && !after
			})
			if !cmp.Equal(got, want) {
				t.Errorf("comparison %d: the answer says that %v changed, it was %v", compared, got, want)
			}
			compared++
			changes += len(want)
		}
	}
	rounds := stop()
	if rounds < 100 || changes < 200 {
		t.Errorf("only %d transactions and %d changes were compared: this proves little", rounds, changes)
	}
	t.Logf("%d comparisons, %d changes, %d transactions", compared, changes, rounds)
}

// difference is the keys whose version is not the same in both, sorted.
func difference(a, b map[string]int64) []string {
	changed := map[string]bool{}
	for key, version := range a {
		if b[key] != version {
			changed[key] = true
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			changed[key] = true
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

func TestAScanUnderChurnNeitherSkipsNorRepeatsWhatStays(t *testing.T) {
	s := serve(t, nil)
	const stay = 120 // ids 1 to stay are changed, and never deleted
	crowd(s, stay)
	s.exec(`INSERT INTO registry.ptr_record (address, target) SELECT '10.0.0.0'::inet + i, 'h' || i || '.example.net' FROM generate_series(1, 100) i`)
	stop := writers(s, 4, func(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
		for _, sql := range []string{
			`UPDATE registry.prefix SET origin_asn = origin_asn + 1 WHERE id = 1 + $1 % ` + strconv.Itoa(stay),
			`INSERT INTO registry.prefix (prefix) VALUES (set_masklen('172.16.0.0'::inet + $1::int * 16, 28)::cidr) ON CONFLICT ON CONSTRAINT prefix_key DO NOTHING`,
			`DELETE FROM registry.prefix WHERE id > ` + strconv.Itoa(stay) + ` AND id % 3 = $1 % 3`,
			`INSERT INTO registry.ptr_record (address, target) VALUES ('10.0.1.0'::inet + $1::int % 250, 'x.example.net') ON CONFLICT DO NOTHING`,
			`DELETE FROM registry.ptr_record WHERE address = '10.0.1.0'::inet + ($1::int + 7) % 250`,
		} {
			if random.IntN(2) == 0 {
				if _, err := tx.Exec(context.Background(), sql, random.IntN(60000)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for range 8 {
		for kind, want := range map[client.Kind]int{client.KindPrefix: stay, client.KindPTR: 100} {
			seen := map[string]int{}
			request := client.PageRequest{Limit: 7}
			for {
				page := must[client.SourcePage](t)(s.viewer.ScanPage(t.Context(), kind, request))
				if len(page.Items) > 7 {
					t.Fatalf("a page of 7 has %d items", len(page.Items))
				}
				for _, item := range page.Items {
					seen[item.Resource.Key]++
				}
				if page.Complete {
					break
				}
				request.After = page.Next
			}
			found := 0
			for key, times := range seen {
				if times > 1 {
					t.Errorf("the scan of %s repeats %s", kind, key)
				}
				if id, err := strconv.Atoi(key); kind == client.KindPTR && key[:len("10.0.0.")] == "10.0.0." || kind == client.KindPrefix && err == nil && id <= stay {
					found++
				}
			}
			if found != want {
				t.Errorf("the scan of %s shows %d of the %d sources that were there all the time", kind, found, want)
			}
		}
	}
	if rounds := stop(); rounds < 50 {
		t.Errorf("only %d transactions churned: this proves little", rounds)
	}
}

func TestVersionOrderIsCommitOrder(t *testing.T) {
	s := serve(t, nil)
	crowd(s, 2)
	// clock orders what happens in this process: a transaction that begins after
	// another's commit was answered must have the higher version.
	var clock atomic.Int64
	type change struct{ begun, committed, version int64 }
	var mu sync.Mutex
	changes := map[int64][]change{}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for i := range 16 {
		conn := s.db.Conn(t, "")
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 12 {
				id := 1 + random.Int64N(2)
				c := change{begun: clock.Add(1)}
				err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(context.Background(), `UPDATE registry.prefix SET origin_asn = origin_asn + 1 WHERE id = $1`, id); err != nil {
						return err
					}
					if err := tx.QueryRow(context.Background(), `SELECT last_seq FROM registry.outbox_lane WHERE agg_type = 'prefix' AND agg_key = $1::text`,
						strconv.FormatInt(id, 10)).Scan(&c.version); err != nil {
						return err
					}
					if err := delay(ctx, tx, random, 8); err != nil {
						return err
					}
					if random.IntN(5) == 0 {
						return errUndo
					}
					return nil
				})
				c.committed = clock.Add(1)
				if err == nil {
					mu.Lock()
					changes[id] = append(changes[id], c)
					mu.Unlock()
				} else if err != errUndo {
					t.Errorf("writer %d: %v", i, err)
				}
			}
		})
	}
	// Whoever fetches meanwhile sees state and version that belong together: the
	// origin counts the commits, and so does the version.
	watching := make(chan int)
	go func() {
		fetched := 0
		last := map[string]int64{}
		for ctx.Err() == nil {
			for _, f := range s.viewer.FetchBatch(context.Background(), client.KindPrefix, []string{"1", "2"}) {
				var p client.PrefixSource
				if err := f.Decode(&p); err != nil {
					t.Errorf("fetch: %v", err)
				} else if commits := int64(*p.Routing.Origin) - 64496; f.Version() != commits+1 || f.Version() < last[f.Resource().Key] {
					t.Errorf("%s has version %d after %d commits; before, version %d was served", f.Resource(), f.Version(), commits, last[f.Resource().Key])
				}
				last[f.Resource().Key] = f.Version()
				fetched++
			}
		}
		watching <- fetched
	}()
	group.Wait()
	cancel()
	if fetched := <-watching; fetched < 10 {
		t.Errorf("only %d fetches were compared", fetched)
	}
	for id, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return int(a.version - b.version) })
		for i, c := range list {
			if want := int64(i + 2); c.version != want {
				t.Errorf("prefix:%d: commit %d made version %d, want %d", id, i, c.version, want)
			}
			for _, later := range list[i+1:] {
				if later.committed < c.begun {
					t.Errorf("prefix:%d: version %d was committed before version %d began", id, later.version, c.version)
				}
			}
		}
	}
}

func TestARolledBackWriteIsNoChange(t *testing.T) {
	s := serve(t, nil)
	crowd(s, 3)
	head, before := idsOf(s, client.KindPrefix, "")
	conn := s.db.Conn(t, "")
	tx := must[pgx.Tx](t)(conn.Begin(t.Context()))
	if _, err := tx.Exec(t.Context(), `UPDATE registry.prefix SET origin_asn = 1`); err != nil {
		t.Fatal(err)
	}
	open, _ := idsOf(s, client.KindPrefix, head.Token)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, since := range []string{head.Token, open.Token} {
		answer, after := idsOf(s, client.KindPrefix, since)
		if len(answer.Changed) != 0 || !cmp.Equal(before, after) {
			t.Errorf("after a rollback %v changed, and the versions are %v instead of %v", answer.Changed, after, before)
		}
	}
}

func TestAChangeThatTheSnapshotSawRunningIsListed(t *testing.T) {
	s := serve(t, nil)
	crowd(s, 3)
	conn := s.db.Conn(t, "")
	tx := must[pgx.Tx](t)(conn.Begin(t.Context()))
	if _, err := tx.Exec(t.Context(), `UPDATE registry.prefix SET origin_asn = 1 WHERE id = 2`); err != nil {
		t.Fatal(err)
	}
	s.exec(`UPDATE registry.prefix SET origin_asn = 2 WHERE id = 3`) // begun later, seen by the snapshot
	page := must[client.SourcePage](t)(s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{}))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := must[client.SourcePage](t)(s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{Since: page.Token}))
	if want := []string{"2"}; !cmp.Equal(next.Changed, want) || next.TooMany {
		t.Errorf("changed are %v (too many: %t), want %v", next.Changed, next.TooMany, want)
	}
}

func TestAMoveBetweenAggregatesChangesBoth(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	s.exec(`INSERT INTO registry.ptr_record (address, target) VALUES ('192.0.2.1', 'a.example.net')`)
	s.exec(`INSERT INTO registry.anycast_allocation (prefix, service) VALUES ('192.0.2.0/24', 'dns'), ('192.0.2.0/24', 'ntp')`)
	s.exec(`INSERT INTO registry.anycast_route_origin (allocation_id, asn) VALUES (1, 64496)`)
	heads := map[client.Kind]client.SourceIDsHead{}
	for _, kind := range []client.Kind{client.KindPTR, client.KindAnycast, client.KindPrefix} {
		heads[kind], _ = idsOf(s, kind, "")
	}
	s.exec(`UPDATE registry.ptr_record SET address = '192.0.2.2'`)
	s.exec(`UPDATE registry.anycast_route_origin SET allocation_id = 2`)
	for kind, want := range map[client.Kind][]string{
		client.KindPTR: {"192.0.2.1", "192.0.2.2"}, client.KindAnycast: {"1", "2"}, client.KindPrefix: nil,
	} {
		if answer, _ := idsOf(s, kind, heads[kind].Token); !cmp.Equal(answer.Changed, want) {
			t.Errorf("changed of kind %s are %v, want %v", kind, answer.Changed, want)
		}
	}
}

func TestTooManyChangesAreCutAndSaid(t *testing.T) {
	s := serve(t, nil)
	head, _ := idsOf(s, client.KindPrefix, "")
	crowd(s, 10001)
	answer, ids := idsOf(s, client.KindPrefix, head.Token)
	if !answer.TooMany || len(answer.Changed) > 10001 || len(ids) != 10001 {
		t.Errorf("too many: %t, %d changed, %d ids", answer.TooMany, len(answer.Changed), len(ids))
	}
}

func TestATokenOfAnotherHistoryIsRefused(t *testing.T) {
	s := serve(t, nil)
	s.prefix("192.0.2.0/24")
	page := must[client.SourcePage](t)(s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{}))
	raw := must[[]byte](t)(base64.RawURLEncoding.DecodeString(page.Token))
	var token map[string]any
	if err := json.Unmarshal(raw, &token); err != nil {
		t.Fatal(err)
	}
	with := func(member string, value any) string {
		other := maps.Clone(token)
		other[member] = value
		return base64.RawURLEncoding.EncodeToString(must[[]byte](t)(json.Marshal(other)))
	}
	for _, tt := range []struct {
		name, token string
		kind        problem.Kind
		says        string
	}{
		{"another lineage", with("l", "11111111-1111-1111-1111-111111111111"), problem.Stale, "lineage"},
		{"another timeline", with("t", 2), problem.Stale, "timeline"},
		{"a server that was ahead", with("s", "999999999999:999999999999:"), problem.Stale, "ahead"},
		{"no snapshot", with("s", ""), problem.Invalid, "token"},
		{"SQL in the snapshot", with("s", "1:2:3); DROP TABLE registry.prefix"), problem.Invalid, "token"},
		{"not base64", "§", problem.Invalid, "token"},
		{"not JSON", base64.RawURLEncoding.EncodeToString([]byte("x")), problem.Invalid, "token"},
	} {
		_, err := s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{Since: tt.token})
		refused(t, err, tt.kind, tt.says)
		_, _, err = s.viewer.ScanIDs(t.Context(), client.KindPrefix, tt.token, func(client.SourceID) error { return nil })
		refused(t, err, tt.kind, tt.says)
	}
}

func TestAPageThatIsNoneIsRefused(t *testing.T) {
	s := serve(t, nil)
	for _, after := range []string{"§", base64.RawURLEncoding.EncodeToString([]byte("192.0.2.1")), base64.RawURLEncoding.EncodeToString([]byte("1; DROP"))} {
		_, err := s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{After: after})
		refused(t, err, problem.Invalid, "page")
	}
	_, err := s.viewer.ScanPage(t.Context(), client.KindPrefix, client.PageRequest{Limit: 1001})
	refused(t, err, problem.Invalid, "")
	_, err = s.viewer.ScanPage(t.Context(), "nothing", client.PageRequest{})
	refused(t, err, problem.Invalid, "kind")
}
