package bus

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
)

// gathering is a dialer of connections that gather their writes: what goroutines that are ready to run write next goes
// out with what was written before. The library writes under a lock that all publishers need; here it only copies.
type gathering struct{ nats.CustomDialer }

// Dial implements nats.CustomDialer.
func (d gathering) Dial(network, address string) (net.Conn, error) {
	conn, err := d.CustomDialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	g := &gathered{Conn: conn, more: make(chan struct{}, 1), closed: make(chan struct{}), writing: make(chan struct{}, 1)}
	g.room.L = &g.mu
	go g.send() // ends with the connection
	return g, nil
}

// gathered is one such connection. A write that fails after it was gathered shows as a lost connection.
type gathered struct {
	net.Conn
	more   chan struct{} // there is something to send
	closed chan struct{}

	writing chan struct{} // full while one goroutine writes: a mutex would stop a test's virtual time
	sent    []byte        // the buffer to gather in next

	mu      sync.Mutex
	room    sync.Cond // awaited while too much waits
	next    []byte    // waits to be sent
	closing bool      // the last write is due
	err     error     // why nothing more is sent
}

const (
	maxGathered  = 1 << 20   // bytes that wait before a writer does
	keptGathered = 128 << 10 // the largest buffer that is used again
)

func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	for g.err == nil && len(g.next) > maxGathered {
		g.room.Wait()
	}
	if g.err != nil {
		defer g.mu.Unlock()
		return 0, g.err
	}
	first := len(g.next) == 0
	g.next = append(g.next, b...)
	g.mu.Unlock()
	if first {
		select {
		case g.more <- struct{}{}:
		default:
		}
	}
	return len(b), nil
}

func (g *gathered) send() {
	for {
		select {
		case <-g.more:
		case <-g.closed:
			return
		}
		runtime.Gosched() // after all that are ready to run now
		if g.flush() != nil {
			_ = g.Conn.Close() // the library's reader sees that
			return
		}
	}
}

// flush sends what waits.
func (g *gathered) flush() error {
	g.writing <- struct{}{}
	defer func() { <-g.writing }()
	g.mu.Lock()
	out, err := g.next, g.err
	g.next = g.sent[:0]
	g.room.Broadcast()
	g.limit()
	g.mu.Unlock()
	if err != nil || len(out) == 0 {
		return err
	}
	if _, err = g.Conn.Write(out); err != nil {
		g.fail(err)
	}
	if g.sent = out; cap(out) > keptGathered {
		g.sent = nil
	}
	return err
}

// limit bounds the write under way, or the next one; with mu.
func (g *gathered) limit() {
	patience := retry.NATSWrite
	if g.closing {
		patience = retry.LastWrite
	}
	_ = g.Conn.SetWriteDeadline(time.Now().Add(patience))
}

func (g *gathered) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.closed)
	}
	g.room.Broadcast()
}

// Close sends what waits, if the server takes it soon.
func (g *gathered) Close() error {
	g.mu.Lock()
	g.closing = true
	g.limit()
	g.mu.Unlock()
	_ = g.flush()
	g.fail(net.ErrClosed)
	return g.Conn.Close()
}

// SetDeadline is for reads alone: the library's writes never wait for the network, and flush has a deadline of its own.
func (g *gathered) SetDeadline(t time.Time) error { return g.SetReadDeadline(t) }

// SetWriteDeadline does nothing, see SetDeadline.
func (*gathered) SetWriteDeadline(time.Time) error { return nil }
