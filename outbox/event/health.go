package event

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hubn/app/module"
)

// part is something that a consumer needs.
type part int

const (
	partRedis part = iota
	partRegistry
	partStore
	parts
)

func (p part) String() string { return [...]string{"redis", "registry", "store"}[p] }

// trouble is since when a part cannot be reached, and why.
type trouble struct {
	since time.Time
	err   string
}

// health is what Status tells. Its lock is held for the copying of a few words.
type health struct {
	mu         sync.Mutex
	troubles   [parts]trouble
	isReady    bool
	since      time.Time
	reconciled string // how the last full reconciliation ended
	retries    int    // sources on the retry list
	holds      []heldSummary
}

// heldSummary is a held withdrawal as the status shows it.
type heldSummary struct {
	ID       int64     `json:"id"`
	Sources  int       `json:"sources"`
	Reason   string    `json:"reason"`
	Decision Decision  `json:"decision"`
	HeldAt   time.Time `json:"held_at"`
}

// waitingSources is how many sources wait for an operator.
func waitingSources(holds []heldSummary) (n int) {
	for _, h := range holds {
		if h.Decision == Waiting {
			n += h.Sources
		}
	}
	return n
}

// set notes whether a part answered.
func (h *health) set(p part, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &h.troubles[p]
	switch {
	case err == nil:
		*t = trouble{}
	case t.since.IsZero():
		*t = trouble{since: time.Now(), err: err.Error()}
	default:
		t.err = err.Error()
	}
}

func (h *health) ready() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isReady, h.since = true, time.Now()
}

func (h *health) setReconciled(how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reconciled = how
}

func (h *health) setHolds(holds []heldSummary) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = holds
}

func (h *health) setRetries(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retries = n
}

// status puts everything into words, the loudest first.
func (h *health) status(c *Consumer) module.Status {
	v := c.view.Load()
	behind := c.behind.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	var words []string
	if v.foreign != "" {
		words = append(words, fmt.Sprintf(
			"the Registry serves the foreign lineage %s, which does not come from %s: nothing is applied until an operator decides (adopt-lineage %s)",
			v.foreign, v.lineage, v.foreign))
	}
	for p := range parts {
		if t := h.troubles[p]; !t.since.IsZero() {
			words = append(words, fmt.Sprintf("%s unreachable for %s: %s", p, time.Since(t.since).Round(time.Second), t.err))
		}
	}
	if !h.isReady && v.foreign == "" {
		words = append(words, "waiting for the first complete scan")
	}
	if behind > 0 {
		words = append(words, fmt.Sprintf("%d changes behind", behind))
	}
	held := waitingSources(h.holds)
	if held > 0 {
		words = append(words, fmt.Sprintf("the withdrawal of %d sources is held: approve or reject it", held))
	}
	if h.retries > 0 {
		words = append(words, fmt.Sprintf("%d sources keep failing", h.retries))
	}
	return module.Status{
		Ready:  h.isReady && v.foreign == "",
		Reason: strings.Join(words, "; "),
		Since:  h.since,
		Detail: map[string]any{
			"lineage": v.lineage, "foreign_lineage": v.foreign, "behind": behind, "streams": c.shards.Load(),
			"held": held, "held_withdrawals": slices.Clone(h.holds), "retry_list": h.retries, "reconciliation": h.reconciled, "reports_waiting": c.reports.waiting(),
			"kinds": slices.Clone(c.o.Kinds),
		},
	}
}
