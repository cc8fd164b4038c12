package clients

import (
	"context"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// connection follows a call: whether it got a connection, since before that nothing can have happened upstream, and whether
// what came is an answer to it.
type connection struct {
	state atomic.Int32
	wire  atomic.Pointer[wireConn] // of our own transport
	trace httptrace.ClientTrace
	late  func() bool // whether it is too late to make the call
}

const (
	unknown = iota // a foreign transport that has reported nothing
	wanted         // asked for, not got
	got
	early // got, with an answer in it that came before the call
)

func (c *connection) watch(ctx context.Context) context.Context {
	// The transport asks again only if nothing was written to the connection it had got.
	c.trace.GetConn = func(string) { c.state.Store(wanted) }
	c.trace.GotConn = func(info httptrace.GotConnInfo) {
		if w := ownConn(info.Conn); w != nil {
			w.late.Store(&c.late)
			w.stage.Store(unasked)
			c.wire.Store(w)
		}
		c.state.Store(got)
	}
	// The transport takes whatever it has read for the answer to the call under way. An upstream that answers twice, or longer than
	// it announced, would so have its words taken for those about another request: reported as done, though nobody did it.
	c.trace.GotFirstResponseByte = func() {
		if w := c.wire.Load(); w != nil && w.stage.Load() != answering {
			c.state.Store(early)
			_ = w.Close() // what is left in it belongs to no call
		}
	}
	return httptrace.WithClientTrace(ctx, &c.trace)
}

// used reports whether anything of the call can have been sent.
func (c *connection) used() bool {
	if w := c.wire.Load(); w != nil && w.stage.Load() == refused {
		return false
	}
	return c.state.Load() != wanted
}

// wireConn is a connection that knows whether anything came after the call on it was begun to be written, and that begins none
// that is late.
type wireConn struct {
	net.Conn
	stage atomic.Int32
	late  atomic.Pointer[func() bool] // of the call that has the connection; nil before the first
}

const (
	unasked   = iota // nothing of the call is written
	asked            // something is, and nothing came since
	answering        // something came since
	refused          // nothing is and nothing will be
)

func (w *wireConn) Write(b []byte) (int, error) {
	if late := w.late.Load(); late != nil && w.stage.Load() == unasked && (*late)() {
		w.stage.Store(refused)
	}
	if w.stage.Load() == refused {
		return 0, errLate
	}
	w.stage.CompareAndSwap(unasked, asked)
	return w.Conn.Write(b)
}

func (w *wireConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.stage.CompareAndSwap(asked, answering)
	}
	return n, err
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// watched dials connections that know what came when.
func watched(dial dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: conn}, nil
	}
}

// ownConn finds the connection that watched made below TLS; nil if there is none.
func ownConn(conn net.Conn) *wireConn {
	for {
		switch c := conn.(type) {
		case *wireConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}
