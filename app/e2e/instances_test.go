package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hubn/app/e2e/mirror"
	"hubn/outbox/event"
	"hubn/outbox/event/eventtest"
	"hubn/registry/client"
)

// memory is a module that keeps its sources in memory, in every instance.
type memory struct {
	*process
	consumer *event.Consumer
	mu       sync.Mutex
	prefixes map[client.Resource]netip.Prefix
}

func (m *memory) write(_ context.Context, c event.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Gone() {
		delete(m.prefixes, c.Resource)
		return nil
	}
	var source client.PrefixSource
	if err := c.Decode(&source); err != nil {
		return err
	}
	m.prefixes[c.Resource] = source.Prefix
	return nil
}

func (m *memory) has() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for p := range maps.Values(m.prefixes) {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}

func (s *stack) memory(instance string) *memory {
	s.t.Helper()
	m := &memory{prefixes: map[client.Resource]netip.Prefix{}}
	var err error
	m.consumer, err = event.New(event.Options{
		Module: "watcher", Instance: instance, EveryInstance: true, Kinds: []client.Kind{client.KindPrefix},
		Redis: s.redis, Names: s.names, Registry: s.client("admin"), Settings: settings(), Log: s.log.With("part", instance),
		Store: event.NewMemoryStore(event.MemoryOptions{Write: m.write}),
		Commands: map[string]event.CommandHandler{
			"who": func(context.Context, client.Command) (any, error) {
				if instance != "b" {
					return nil, event.ErrNotMine
				}
				return map[string]string{"instance": instance}, nil
			},
			"break": func(context.Context, client.Command) (any, error) { panic("a fault of the module") },
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	m.process = s.start(instance, m.consumer.Run)
	return m
}

func TestEveryInstanceHasAllSources(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	s.announced("192.0.2.0/24", 64496)
	a, b := s.memory("a"), s.memory("b")
	s.announced("198.51.100.0/24", 64496)
	s.exec(`DELETE FROM registry.prefix WHERE prefix = '192.0.2.0/24'`)
	want := []string{"198.51.100.0/24"}
	for _, m := range []*memory{a, b} {
		eventtest.Eventually(t, "every instance has the prefix", func() bool { return slices.Equal(m.has(), want) })
	}
	s.waited()

	ask := func(name string) client.AppliedState {
		t.Helper()
		command, err := s.admin.Order(t.Context(), "watcher", client.CommandOrder{Name: name, Arguments: json.RawMessage(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		eventtest.Eventually(t, "the command "+name+" is answered", func() bool {
			if command, err = s.admin.Command(t.Context(), command.ID); err != nil {
				t.Fatal(err)
			}
			return command.Answer != nil
		})
		return *command.Answer
	}
	if answer := ask("who"); answer.Instance != "b" || !strings.Contains(string(answer.Detail), `"b"`) {
		t.Errorf("the answer is %+v, want that of the instance which the command is for", answer)
	}
	if answer := ask("break"); answer.State != client.ReportFailed || !strings.Contains(answer.Reason, "a fault of the module") {
		t.Errorf("the answer of a handler that panics is %+v, want its failure", answer)
	}

	a.end()
	groups, err := s.redis.XInfoGroups(t.Context(), s.names.Stream(0)).Result()
	if err != nil || len(groups) != 1 || groups[0].Name != "watcher/b" {
		t.Errorf("after a clean end the groups are %+v (%v), want that of the other instance alone", groups, err)
	}
	s.announced("203.0.113.0/24", 64496)
	want = append(want, "203.0.113.0/24")
	again := s.memory("a")
	if got := again.has(); !slices.Equal(got, want) {
		t.Errorf("when it is ready again the instance has %v, want %v", got, want)
	}
}

func TestShutdownKeepsItsDeadline(t *testing.T) {
	s := newStack(t, eventtest.Server(t).Client())
	s.worker()
	stuck := make(chan struct{})
	var once sync.Once
	m := s.mirror("one", func(o *mirror.Options) {
		o.Settings.Drain = 300 * time.Millisecond
		o.Hooks.Fetched = func(ctx context.Context, _ []client.Fetched) {
			once.Do(func() {
				close(stuck)
				<-ctx.Done()
			})
		}
	})
	s.quiet()
	s.announced("192.0.2.0/24", 64496)
	<-stuck
	begun := time.Now()
	m.end()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the shutdown took %s with a deadline of 300 ms", took)
	}
	// What was in hand comes again.
	s.mirror("one")
	s.converges()
	s.waited()
}

func TestMirrorLeavesNothingBehind(t *testing.T) {
	server := eventtest.Server(t)
	s := newStack(t, server.Client())
	s.worker()
	s.announced("192.0.2.0/24", 64496)
	before := goleak.IgnoreCurrent()
	rdb := server.Client()
	registry := s.client(mirror.Name)
	m := s.mirror("one", func(o *mirror.Options) { o.Redis, o.Registry = rdb, registry })
	s.waited()
	m.end()
	_ = rdb.Close()
	registry.Close()
	s.admin.Close()
	s.pool.Reset()
	goleak.VerifyNone(t, before)
}
