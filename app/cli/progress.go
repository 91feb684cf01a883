package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	// progressAfter is how long a person waits before wanting to see that
	// something happens.
	progressAfter = 2 * time.Second
	// progressEvery is the pause between two drawings: smooth enough, and cheap.
	progressEvery = 200 * time.Millisecond
	progressWidth = 30
)

// progress is a bar on a terminal for what takes more than two seconds; it draws
// nothing anywhere else. Its methods may be called from any goroutine.
type progress struct {
	out     io.Writer
	begun   time.Time
	mu      sync.Mutex
	label   string
	done    int64
	total   int64
	drawn   bool
	stop    chan struct{}
	stopped sync.WaitGroup
}

func newProgress(out io.Writer, label string) *progress {
	p := &progress{out: out, begun: time.Now(), label: label, stop: make(chan struct{})}
	if isTerminal(out) {
		p.stopped.Go(p.run)
	}
	return p
}

func (p *progress) run() {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			if time.Since(p.begun) >= progressAfter {
				p.draw()
			}
		}
	}
}

// at says how far it is; a total of 0 is not known.
func (p *progress) at(label string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.label, p.done, p.total = label, done, total
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn = true
	fmt.Fprintf(p.out, "\r\033[K%s", progressLine(p.label, p.done, p.total, time.Since(p.begun)))
}

// progressLine is the bar as text.
func progressLine(label string, done, total int64, took time.Duration) string {
	if total <= 0 {
		if done > 0 {
			label = fmt.Sprintf("%s, %d", label, done)
		}
		return fmt.Sprintf("%s … %s", label, took.Round(time.Second))
	}
	done = min(done, total)
	filled := int(done * progressWidth / total)
	return fmt.Sprintf("%s [%s%s] %d of %d, %s", label,
		strings.Repeat("#", filled), strings.Repeat(".", progressWidth-filled), done, total, took.Round(time.Second))
}

// end removes the bar.
func (p *progress) end() {
	close(p.stop)
	p.stopped.Wait()
	if p.drawn {
		fmt.Fprint(p.out, "\r\033[K")
	}
}
