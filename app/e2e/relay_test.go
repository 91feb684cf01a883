package e2e

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// relay is a TCP address before a server. A test moves it to another server, as
// a failover behind one name does, cuts what runs through it, and loses the
// answers to statements of its choice.
type relay struct {
	t        testing.TB
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target [2]string // network and address
	links  map[*link]struct{}
	// lose tells whether the answer to a statement is lost, and the connection
	// with it; it is called before the server is sent the statement.
	lose func(sql string) bool
}

// link is one connection through a relay.
type link struct {
	down, up net.Conn
	mu       sync.Mutex
	// doomed: what the server answers is swallowed until it is ready for the next
	// query, which it is after the commit; then the connection breaks.
	doomed bool
}

func (l *link) close() {
	_ = l.down.Close()
	_ = l.up.Close()
}

func (l *link) doom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doomed = true
}

func (l *link) isDoomed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doomed
}

// newRelay starts a relay that leads nowhere yet.
func newRelay(t testing.TB) *relay {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, listener: listener, links: map[*link]struct{}{}}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

// to leads new connections to the PostgreSQL server of a URL, and breaks those
// that there are.
func (r *relay) to(databaseURL string) {
	r.t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		r.t.Fatal(err)
	}
	port := strconv.Itoa(int(config.Port))
	target := [2]string{"tcp", net.JoinHostPort(config.Host, port)}
	if filepath.IsAbs(config.Host) {
		target = [2]string{"unix", filepath.Join(config.Host, ".s.PGSQL."+port)}
	}
	r.mu.Lock()
	r.target = target
	r.mu.Unlock()
	r.cut()
}

// url is the URL of a database for a role with a password, through the relay.
func (r *relay) url(database, role, password string) string {
	u := url.URL{Scheme: "postgresql", User: url.UserPassword(role, password), Host: r.listener.Addr().String(), Path: "/" + database}
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// losing sets which answers are lost; nil loses none.
func (r *relay) losing(lose func(sql string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = lose
}

func (r *relay) loses(sql string) bool {
	r.mu.Lock()
	lose := r.lose
	r.mu.Unlock()
	return lose != nil && lose(sql)
}

// cut breaks every connection.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.close()
	}
}

func (r *relay) accept() {
	for {
		down, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		target := r.target
		r.mu.Unlock()
		up, err := net.Dial(target[0], target[1])
		if err != nil {
			_ = down.Close()
			continue
		}
		l := &link{down: down, up: up}
		r.mu.Lock()
		r.links[l] = struct{}{}
		r.mu.Unlock()
		r.wg.Go(func() {
			defer r.drop(l)
			r.ask(l)
		})
		r.wg.Go(func() {
			defer r.drop(l)
			r.answer(l)
		})
	}
}

func (r *relay) drop(l *link) {
	l.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// ask passes on what the client says, message by message (PostgreSQL: Frontend/
// Backend Protocol, Message Formats), and sees each statement before it is executed.
func (r *relay) ask(l *link) {
	if err := passStart(l.up, l.down); err != nil { // the start-up message has no type
		return
	}
	var parsed string
	for {
		kind, body, err := message(l.down)
		if err != nil {
			return
		}
		switch kind {
		case 'Q':
			parsed = text(body)
		case 'P': // statement name, text
			_, rest, _ := bytes.Cut(body, []byte{0})
			parsed = text(rest)
		}
		if (kind == 'Q' || kind == 'E') && r.loses(parsed) {
			l.doom()
		}
		if err := write(l.up, kind, body); err != nil {
			return
		}
	}
}

// answer passes on what the server says, unless it is to be lost.
func (r *relay) answer(l *link) {
	for {
		kind, body, err := message(l.up)
		if err != nil {
			return
		}
		if l.isDoomed() {
			if kind == 'Z' { // ready for query
				return
			}
			continue
		}
		if err := write(l.down, kind, body); err != nil {
			return
		}
	}
}

// text is a string of the protocol.
func text(body []byte) string {
	s, _, _ := bytes.Cut(body, []byte{0})
	return string(s)
}

// message reads one message.
func message(from io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err = io.ReadFull(from, body)
	return head[0], body, err
}

func write(to io.Writer, kind byte, body []byte) error {
	m := make([]byte, 0, 5+len(body))
	m = append(m, kind)
	m = binary.BigEndian.AppendUint32(m, uint32(len(body)+4))
	_, err := to.Write(append(m, body...))
	return err
}

// passStart copies the first message of a client, which has no type.
func passStart(to io.Writer, from io.Reader) error {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:])-4)
	if _, err := io.ReadFull(from, body); err != nil {
		return err
	}
	_, err := to.Write(append(length[:], body...))
	return err
}
