package registry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"hubn/app/problem"
	"hubn/registry/rdap"
)

const (
	// whoisConnections is how many clients are served at a time: each needs one
	// database connection for some milliseconds.
	whoisConnections = 64
	// whoisTimeout bounds one client: to type a question, and to take the answer.
	whoisTimeout = 10 * time.Second
	// whoisLine bounds a question: a reverse name of nibbles has 73 characters.
	whoisLine = 300
	// whoisRest is how much of what a client says beyond its question is read.
	whoisRest = 64 << 10
	// whoisPause is how long the listener rests where a connection cannot be taken,
	// such as for want of file descriptors.
	whoisPause = 100 * time.Millisecond
)

// listenWhois takes the address of the whois server (RFC 3912); there is none
// where none is set.
func (s *service) listenWhois(ctx context.Context) (net.Listener, error) {
	if s.settings.WhoisListen == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.settings.WhoisListen)
	if err != nil {
		return nil, fmt.Errorf("registry.whois_listen: %w: stop what has this address, choose another, or leave it empty", err)
	}
	s.whoisAddress.set(listener.Addr().String())
	return listener, nil
}

// serveWhois answers clients until ctx is done.
func (s *service) serveWhois(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var (
		clients sync.WaitGroup
		places  = make(chan struct{}, whoisConnections)
	)
	defer clients.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.log.Warn("whois cannot take a connection", "error", err)
			pause(ctx, whoisPause)
			continue
		}
		select {
		case places <- struct{}{}:
			clients.Go(func() {
				defer func() { <-places }()
				s.serveWhoisClient(ctx, conn)
			})
		case <-ctx.Done():
			_ = conn.Close()
			return ctx.Err()
		}
	}
}

// serveWhoisClient reads the one question of a connection and answers it.
func (s *service) serveWhoisClient(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, whoisTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	begun := s.clock()
	line, err := bufio.NewReader(io.LimitReader(conn, whoisLine)).ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "" || len(line) == whoisLine) {
		if len(line) == whoisLine {
			reply(conn, whoisError("the question has more than "+fmt.Sprint(whoisLine)+" characters"))
		}
		return
	}
	c := &call{service: s, requestID: newRequestID(), operation: "whois"}
	answer, err := s.whois(context.WithValue(ctx, callKey{}, c), addressOf(conn.RemoteAddr()), strings.TrimSpace(line))
	status := 200
	if err != nil {
		e := problem.Of(databaseProblem(err))
		if status = e.Kind.Status(); status >= 500 {
			s.log.Error("whois", "remote", conn.RemoteAddr().String(), "error", e.Unwrap(), "request_id", c.requestID)
		}
		answer = whoisError(e.Detail)
	}
	s.metrics.request(c.operation, status, s.clock().Sub(begun))
	reply(conn, answer)
}

// reply sends the answer and waits until the client has closed: what it sent and
// nobody read would make the system cut the answer off.
func reply(conn net.Conn, answer string) {
	_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "\n", "\r\n"))
	if tcp, ok := conn.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, whoisRest)
	}
}

// addressOf is the peer of a connection.
func addressOf(peer net.Addr) netip.Addr {
	a, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap().WithZone("")
}

const whoisHead = "% This is a registry run with HubN. The same data is answered as JSON by RDAP.\n\n"

func whoisError(detail string) string { return whoisHead + "% Error: " + detail + "\n\n" }

// whois answers a question as text: the most specific network first, then those
// that it lies in.
func (s *service) whois(ctx context.Context, from netip.Addr, question string) (string, error) {
	if err := s.publicQueries.admit(from); err != nil {
		return "", err
	}
	queries := rdap.Queries(question)
	if len(queries) == 0 {
		return "", problem.New(problem.Invalid, "the question is empty: write an address, a prefix, an AS number, the handle of an organisation or the name of a reverse zone")
	}
	var (
		found any
		err   error
	)
	for _, query := range queries {
		q := &asking{service: s, writer: &rdap.Writer{}}
		if found, err = q.lookup(ctx, query); !problem.Is(err, problem.NotFound) {
			break
		}
	}
	switch {
	case problem.Is(err, problem.NotFound):
		return whoisHead + "% No entries found: " + err.Error() + "\n\n", nil
	case err != nil:
		return "", err
	}
	text := whoisHead + rdap.Text(found)
	if n, ok := found.(*rdap.Network); ok && n.Above().IsValid() {
		above, err := s.networksAround(ctx, n.Above())
		if err != nil {
			return "", err
		}
		text += above
	}
	return text, nil
}

// networksAround are a network and those that it lies in, the most specific first.
func (s *service) networksAround(ctx context.Context, p netip.Prefix) (string, error) {
	var found []rdap.Prefix
	err := s.read(ctx, func(ctx context.Context, tx *reading) (err error) {
		found, err = collect(ctx, tx, scanPublicPrefix, sqlPublicCovering, covering(p))
		return err
	})
	if err != nil {
		return "", err
	}
	var networks []*rdap.Network
	for _, around := range found {
		networks = append(networks, (&rdap.Writer{}).Network(around))
	}
	return rdap.TextAround(networks), nil
}
