package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"hubn/outbox/event"
	"hubn/registry/client"
)

const (
	// eventsBatch is how many entries of a stream one question reads.
	eventsBatch = 500
	// eventsBlock is how long Redis holds a question for new entries: short, so
	// that an interrupt is noticed.
	eventsBlock = 2 * time.Second
)

func (s *shell) eventsCommand() *cobra.Command {
	return s.group("events", "Watch the events in Redis", "", s.eventsTailCommand())
}

// tail is one `hubn events tail`.
type tail struct {
	names  event.Names
	redis  redis.UniversalClient
	last   [event.Streams]string // the id of the last entry that was read
	kinds  []string
	follow bool
	most   int // 0 for no bound
	shown  int
	show   func(id string, e event.Event) error
}

func (s *shell) eventsTailCommand() *cobra.Command {
	var redisURL, prefix, from string
	t := &tail{}
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show events as they are published",
		Long: `Show the events of all streams as they are published. An event says which resource
has which version now, never the data.

--from begins earlier: beginning, a time such as 2026-01-31T12:00:00Z, or 30m for
the last half hour. Redis is the one of the hubn on the data folder, else --redis-url.`,
		Args: s.arguments(0, 0, ""),
	}
	c := s.connect(cmd)
	out := OutputFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&redisURL, "redis-url", "", "Redis of the event path (HUBN_REDIS_URL)")
	flags.StringVar(&prefix, "redis-prefix", "", "what all its keys begin with (HUBN_REDIS_PREFIX; else hubn)")
	flags.StringVar(&from, "from", "now", "where to begin: now, beginning, a time, or 30m ago")
	flags.StringSliceVar(&t.kinds, "kind", nil, "only these kinds of resources (prefix, anycast, …) or of events (created, changed, deleted, replay, …)")
	flags.BoolVar(&t.follow, "follow", true, "go on with new events; --follow=false ends with the last one that is there")
	flags.IntVarP(&t.most, "lines", "n", 0, "end after so many events")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.checkKinds(t.kinds); err != nil {
			return err
		}
		start, err := s.streamID(from, time.Now())
		if err != nil {
			return err
		}
		rdb, address, err := c.redis(redisURL)
		if err != nil {
			return err
		}
		defer rdb.Close()
		t.redis, t.names = rdb, event.Names{Prefix: cmp.Or(prefix, os.Getenv("HUBN_REDIS_PREFIX"), "hubn")}
		t.show = showEvent(out)
		if err := t.run(cmd.Context(), start); err != nil {
			if cmd.Context().Err() != nil {
				return nil // interrupted, as a tail is ended
			}
			return redisProblem(address, err)
		}
		return nil
	}
	return cmd
}

// checkKinds refuses a kind that no event can have.
func (s *shell) checkKinds(kinds []string) error {
	var known []string
	for _, k := range append(slices.Clone(client.SourceKinds), client.KindCommand, client.KindBarrier) {
		known = append(known, string(k))
	}
	for _, k := range []event.Kind{event.Created, event.Changed, event.Deleted, event.Replay, event.Gap, event.Resync} {
		known = append(known, string(k))
	}
	for _, k := range kinds {
		if !slices.Contains(known, k) {
			return s.usage("--kind %q is not known: write one of %s", k, strings.Join(known, ", "))
		}
	}
	return nil
}

// streamID is where in the streams a tail begins: after the answered id. Empty
// is the present end.
func (s *shell) streamID(from string, now time.Time) (string, error) {
	switch from {
	case "now", "$":
		return "", nil
	case "beginning", "0":
		return "0-0", nil
	}
	at, err := s.past(from, now)
	if err != nil {
		return "", s.usage("--from %q is not known: write now, beginning, a time such as 2026-01-31T12:00:00Z, or 30m for the last half hour", from)
	}
	return strconv.FormatInt(max(at.UnixMilli()-1, 0), 10) + "-18446744073709551615", nil
}

// redis is a client of the Redis that carries the events.
func (c *Connection) redis(url string) (redis.UniversalClient, string, error) {
	url = cmp.Or(url, os.Getenv("HUBN_REDIS_URL"))
	if url == "" {
		e, err := c.endpoints()
		if err != nil {
			return nil, "", fmt.Errorf("%w; or name the Redis of the event path with --redis-url", err)
		}
		if url = e.RedisURL; url == "" {
			return nil, "", fmt.Errorf("the hubn on %s names no Redis: give --redis-url", c.folder())
		}
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		// The text of the URL is not repeated: it may hold a password.
		return nil, "", c.shell.usage("--redis-url is not the URL of a Redis: write redis://HOST:PORT")
	}
	return redis.NewClient(options), options.Addr, nil
}

func redisProblem(address string, err error) error {
	var refused *net.OpError
	if errors.As(err, &refused) {
		return fmt.Errorf("no Redis answers at %s: %w; is the hubn that runs it still there?", address, refused.Err)
	}
	return fmt.Errorf("read the events from Redis at %s: %w", address, err)
}

func (t *tail) run(ctx context.Context, start string) error {
	for no := range t.last {
		t.last[no] = start
		if start != "" {
			continue
		}
		newest, err := t.redis.XRevRangeN(ctx, t.names.Stream(no), "+", "-", 1).Result()
		if err != nil {
			return err
		}
		t.last[no] = "0-0"
		if len(newest) > 0 {
			t.last[no] = newest[0].ID
		}
	}
	for {
		more, err := t.there(ctx)
		if err != nil || t.enough() {
			return err
		}
		if more {
			continue
		}
		if !t.follow {
			return nil
		}
		if err := t.next(ctx); err != nil || t.enough() {
			return err
		}
	}
}

func (t *tail) enough() bool { return t.most > 0 && t.shown >= t.most }

// there shows what is in the streams by now, in the order of time, and tells
// whether there may be more.
func (t *tail) there(ctx context.Context) (bool, error) {
	var entries []entry
	full := false
	for no := range t.last {
		messages, err := t.redis.XRangeN(ctx, t.names.Stream(no), "("+t.last[no], "+", eventsBatch).Result()
		if err != nil {
			return false, err
		}
		full = full || len(messages) == eventsBatch
		for _, m := range messages {
			entries = append(entries, entry{no, m})
		}
	}
	slices.SortStableFunc(entries, entry.compare)
	return full, t.take(entries)
}

// next waits for new entries of any stream, for some time.
func (t *tail) next(ctx context.Context) error {
	args := &redis.XReadArgs{Count: eventsBatch, Block: eventsBlock}
	numbers := map[string]int{}
	for no := range t.last {
		args.Streams = append(args.Streams, t.names.Stream(no))
		numbers[t.names.Stream(no)] = no
	}
	args.Streams = append(args.Streams, t.last[:]...)
	streams, err := t.redis.XRead(ctx, args).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	var entries []entry
	for _, stream := range streams {
		for _, m := range stream.Messages {
			entries = append(entries, entry{numbers[stream.Stream], m})
		}
	}
	slices.SortStableFunc(entries, entry.compare)
	return t.take(entries)
}

// entry is one entry of a stream.
type entry struct {
	stream  int
	message redis.XMessage
}

// compare orders entries by their ids, which begin with the time.
func (e entry) compare(o entry) int {
	a, b := idParts(e.message.ID), idParts(o.message.ID)
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(e.stream, o.stream), cmp.Compare(a[1], b[1]))
}

func idParts(id string) [2]uint64 {
	left, right, _ := strings.Cut(id, "-")
	a, _ := strconv.ParseUint(left, 10, 64)
	b, _ := strconv.ParseUint(right, 10, 64)
	return [2]uint64{a, b}
}

// take shows entries and remembers how far it is.
func (t *tail) take(entries []entry) error {
	for _, e := range entries {
		if t.enough() {
			return nil
		}
		t.last[e.stream] = e.message.ID
		parsed, err := event.Parse(e.stream, e.message.Values)
		if err != nil {
			return fmt.Errorf("entry %s of stream %d: %w", e.message.ID, e.stream, err)
		}
		if len(t.kinds) > 0 && !slices.Contains(t.kinds, string(parsed.Kind)) && !slices.Contains(t.kinds, string(parsed.Resource.Kind)) {
			continue
		}
		t.shown++
		if err := t.show(e.message.ID, parsed); err != nil {
			return err
		}
	}
	return nil
}

// tailed is one event as JSON: a line each.
type tailed struct {
	ID        string          `json:"id"` // of the stream's entry
	Stream    int             `json:"stream"`
	Resource  string          `json:"resource,omitempty"`
	Version   int64           `json:"version,omitempty"`
	Kind      event.Kind      `json:"kind"`
	EventID   string          `json:"event_id,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	Lineage   string          `json:"lineage"`
	Epoch     string          `json:"epoch"`
	Payload   json.RawMessage `json:"payload,omitempty"`
}

// showEvent prints an event as a line, of text or of JSON.
func showEvent(out *Output) func(string, event.Event) error {
	w := out.cmd.OutOrStdout()
	if out.json() {
		encoder := json.NewEncoder(w)
		return func(id string, e event.Event) error {
			line := tailed{id, e.Stream, "", e.Version, e.Kind, e.EventID, e.CreatedAt, e.Lineage, e.Epoch, e.Payload}
			if e.Resource != (client.Resource{}) {
				line.Resource = e.Resource.String()
			}
			if !json.Valid(line.Payload) {
				line.Payload = nil
			}
			return encoder.Encode(line)
		}
	}
	return func(_ string, e event.Event) error {
		name := "all of stream " + strconv.Itoa(e.Stream)
		if e.Resource != (client.Resource{}) {
			name = fmt.Sprintf("%s version %d", e.Resource, e.Version)
		}
		_, err := fmt.Fprintf(w, "%s  %-8s %s%s\n", e.CreatedAt.Local().Format("2006-01-02 15:04:05.000"), e.Kind, name, changedText(e.Payload))
		return err
	}
}

// changedText is what an event says of what changed.
func changedText(payload json.RawMessage) string {
	var p struct {
		Changed []string `json:"changed"`
		Barrier int64    `json:"barrier"`
	}
	if json.Unmarshal(payload, &p) != nil {
		return ""
	}
	switch {
	case len(p.Changed) > 0:
		return "  " + strings.Join(p.Changed, ", ")
	case p.Barrier != 0:
		return fmt.Sprintf("  barrier %d", p.Barrier)
	}
	return ""
}
