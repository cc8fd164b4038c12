package e2e

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy is the network between a program and its nats-server.
type proxy struct {
	url  string
	dead chan struct{} // closed at the end

	mu     sync.Mutex
	still  chan struct{} // not nil while nothing passes; closed when it passes again
	conns  []net.Conn
	cuts   atomic.Int64
	cutsAt func(sent []byte) bool // whether to cut once the server had this, before it answers
}

// newProxy makes a proxy in front of the server at url.
func newProxy(t *testing.T, url string, cutsAt func([]byte) bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &proxy{url: "nats://" + l.Addr().String(), dead: make(chan struct{}), cutsAt: cutsAt}
	var passers sync.WaitGroup
	passers.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, client, server)
			w.mu.Unlock()
			passers.Go(func() { w.pass(client, server, w.cutsAt) })
			passers.Go(func() { w.pass(server, client, nil) })
		}
	})
	t.Cleanup(func() {
		close(w.dead)
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		passers.Wait()
	})
	return w
}

// pass passes what comes from one end on to the other.
func (w *proxy) pass(from, to net.Conn, cutsAt func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if !w.passes() {
			return
		}
		if cutsAt != nil && cutsAt(b[:n]) {
			// The server has it, and its answer goes nowhere.
			_ = from.Close()
			_, _ = to.Write(b[:n])
			w.cuts.Add(1)
			_, _ = io.Copy(io.Discard, to)
			return
		}
		if _, e := to.Write(b[:n]); e != nil || err != nil {
			return
		}
	}
}

// passes waits while nothing passes; false at the end.
func (w *proxy) passes() bool {
	w.mu.Lock()
	still := w.still
	w.mu.Unlock()
	if still == nil {
		return true
	}
	select {
	case <-still:
		return true
	case <-w.dead:
		return false
	}
}

// partition lets nothing pass any more, and no end of the connections notices; heal ends it.
func (w *proxy) partition() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still = make(chan struct{})
}

// tries is how many connections were made.
func (w *proxy) tries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns) / 2
}

func (w *proxy) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.still)
	w.still = nil
}
