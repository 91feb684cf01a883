package embedded

import (
	"crypto/rand"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// expiryTick is how often the server in the process looks for keys that have
// expired: its time stands still by itself. Leases last seconds at least.
const expiryTick = 250 * time.Millisecond

// inProcess is a Redis inside of hubn. It keeps nothing: each start exercises
// that the streams are gone.
type inProcess struct {
	server *miniredis.Miniredis
	once   sync.Once
	done   chan struct{}
}

func startInProcess(wanted int) (*Redis, error) {
	port, err := FreePort(wanted)
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	p := &inProcess{server: miniredis.NewMiniRedis(), done: make(chan struct{})}
	p.server.RequireAuth(password)
	if err := p.server.StartAddr(net.JoinHostPort(loopback, strconv.Itoa(port))); err != nil {
		return nil, err
	}
	go p.expireKeys()
	return &Redis{url: redisURL(port, password), port: port, process: p}, nil
}

func (p *inProcess) expireKeys() {
	ticker := time.NewTicker(expiryTick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-p.done:
			return
		case now := <-ticker.C:
			p.server.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (p *inProcess) stop() {
	p.once.Do(func() {
		close(p.done)
		p.server.Close()
	})
}
