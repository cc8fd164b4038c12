package direct

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is a connection that one call at a time has.
type conn struct {
	net.Conn // TLS, where there is any
	line     *line
	from     *bufio.Reader
	to       *bufio.Writer
	freed    time.Time

	transport *Transport
	host      string
	reused    bool
	wrote     int64 // bytes of the call
	heard     bool  // something of the answer
	left      int64 // bytes that the header of the answer may still have
}

// writers have room for the longest call: one that does not fit a connection's own writer leaves at once, too.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, longest+4<<10) }}

// past is a deadline that makes reads and writes return at once.
var past = time.Unix(1, 0)

var (
	errHeader = errors.New("direct: the header of the answer is too long")
	errOver   = errors.New("direct: the connection carries no other call")
)

// call writes the call and reads the answer up to its body, which gives the connection back.
func (c *conn) call(r *http.Request, trace *httptrace.ClientTrace) (*http.Response, error) {
	ctx := r.Context()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	response, err := c.exchange(r, trace)
	if err != nil {
		stop()
		_ = c.Close()
		return nil, because(ctx, err)
	}
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, conn: c, trace: trace, stop: stop,
		last: response.Close || response.StatusCode == http.StatusSwitchingProtocols}
	return response, nil
}

func (c *conn) exchange(r *http.Request, trace *httptrace.ClientTrace) (*http.Response, error) {
	c.wrote, c.heard, c.left = 0, false, c.transport.MaxResponseHeaderBytes
	if c.left == 0 {
		c.left = http.DefaultMaxHeaderBytes
	}
	if err := c.write(r); err != nil {
		return nil, err
	}
	if _, err := c.from.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	c.heard = true
	if trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	for {
		response, err := http.ReadResponse(c.from, r)
		if err != nil || response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			c.left = 1<<63 - 1
			return response, err
		}
	}
}

func (c *conn) write(r *http.Request) error {
	to := c.to
	if r.ContentLength > int64(to.Size()) {
		to = writers.Get().(*bufio.Writer)
		defer writers.Put(to)
		to.Reset(counted{c})
		defer to.Reset(nil)
	}
	if err := r.Write(to); err != nil {
		return err
	}
	return to.Flush()
}

// because returns the context's error in place of what follows from it.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// body is read to its end before the connection has another call.
type body struct {
	io.ReadCloser
	ctx   context.Context
	conn  *conn // nil when it was given back
	trace *httptrace.ClientTrace
	stop  func() bool
	last  bool // the answer says that none follows on this connection
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.giveBack(!b.last)
	} else if err != nil {
		err = because(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	b.giveBack(false)
	return nil
}

// giveBack ends the call; what was said beyond its answer ends the connection, too.
func (b *body) giveBack(whole bool) {
	c := b.conn
	if c == nil {
		return
	}
	b.conn = nil
	var err error
	if stopped := b.stop(); !stopped || !whole || c.from.Buffered() > 0 || !c.transport.keep(c) {
		_ = c.Close()
		err = errOver
	}
	if b.trace.PutIdleConn != nil {
		b.trace.PutIdleConn(err)
	}
}

// limited reads no more of an answer's header than it may have.
type limited struct{ *conn }

func (l limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errHeader
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.Conn.Read(p)
	l.left -= int64(n)
	return n, err
}

// counted counts what is written.
type counted struct{ *conn }

func (w counted) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.wrote += int64(n)
	return n, err
}

// quiet reports whether the connection is open and nothing came on it since its last answer.
func (c *conn) quiet() bool {
	if c.line.raw == nil {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(c.line.one[:])
		_ = c.SetReadDeadline(time.Time{})
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	if !c.line.silent() {
		return false
	}
	if c.Conn == c.line.Conn {
		return true
	}
	c.line.mute = true // TLS may hold what came together with the answer
	_, err := c.Read(c.line.one[:])
	c.line.mute = false
	return errors.Is(err, errMute)
}

// line is a connection below TLS.
type line struct {
	net.Conn
	raw  syscall.RawConn // nil if it has no descriptor that can be asked
	mute bool            // nothing is read, as if nothing had come
	one  [1]byte
}

// errMute is an error that does not end a connection over TLS.
var errMute net.Error = mute{}

type mute struct{}

func (mute) Error() string   { return "direct: nothing has come" }
func (mute) Timeout() bool   { return true }
func (mute) Temporary() bool { return true }

func (l *line) Read(p []byte) (int, error) {
	if l.mute {
		return 0, errMute
	}
	return l.Conn.Read(p)
}

// NetConn is the connection below.
func (l *line) NetConn() net.Conn { return l.Conn }

// descriptor returns what the system knows of a connection; nil if it has none or cannot be asked.
func descriptor(c net.Conn) syscall.RawConn {
	for {
		switch below := c.(type) {
		case syscall.Conn:
			if raw, err := below.SyscallConn(); err == nil && canAsk {
				return raw
			}
			return nil
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return nil
		}
	}
}
