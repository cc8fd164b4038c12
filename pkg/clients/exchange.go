package clients

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"errand/pkg/messages"
)

// Request is one call. A POST is sent at most once; the transport may send a GET again when its connection turns out stale.
type Request struct {
	Operation string
	Method    string // GET or POST
	Path      string // below the origin, begins with a slash
	Query     string // encoded
	Body      []byte // JSON; must not change until long after the call, the transport may still read it
	Redact    string // a secret of this request alone, removed from what the upstream says
	Link      Link   // a member of the answer that may show secrets
	Limit     int64  // bytes of the answer; more is a bad answer. 0 is 512 KiB: what goes into an event must fit a message
	Expect    int64  // bytes to make room for if the answer does not say its length; 0 means few
	// Date, if set, receives the answer's Date header before the body is read, in whole seconds; zero if it has none that can be read.
	Date *time.Time
}

// Exchange makes the call and has the answer's status and body read, whatever the status. The body is nil if it could not be
// read. It returns nil if the call succeeded and was read completely, else an *Error. A call whose context is over, by the
// monotonic or by the wall clock, is not made: its fate is Busy. That is checked before it begins and, over connections of
// NewTransport, again before its first byte is written.
func (u *Upstream) Exchange(ctx context.Context, call Request, read func(status int, body []byte) Reading) error {
	if u.wait != nil && call.Method == http.MethodGet {
		if err := u.wait(ctx); err != nil {
			return &Error{Operation: call.Operation, Fate: Busy, Reason: messages.ReasonBusy, Message: err.Error(), Err: err}
		}
	}
	began := time.Now()
	u.underWay.Add(1)
	hangs := time.AfterFunc(u.timeout/3, func() { u.underWay.Add(-1) })
	status, failure := u.exchange(ctx, call, read)
	if hangs.Stop() {
		u.underWay.Add(-1)
	}
	if u.observe != nil {
		made := Call{Operation: call.Operation, Fate: Success, Status: status, Duration: time.Since(began)}
		if failure != nil {
			made.Fate, made.Status, made.RetryAfter = failure.Fate, failure.Status, failure.RetryAfter
		}
		u.observe(made)
	}
	if failure != nil {
		return failure
	}
	return nil
}

func (u *Upstream) exchange(ctx context.Context, call Request, read func(int, []byte) Reading) (int, *Error) {
	if err := over(ctx); err != nil {
		return 0, unanswered(call.Operation, false, 0, err)
	}
	limited, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	// The caller's deadline is asked for apart: by the monotonic clock limited's may come before it, and hide it.
	seen := connection{late: func() bool { return over(ctx) != nil || over(limited) != nil }}
	if u.reports {
		seen.state.Store(wanted)
	}
	response, err := u.transport.RoundTrip(u.request(seen.watch(limited), call))
	if err != nil {
		return 0, unanswered(call.Operation, seen.used(), 0, err)
	}
	defer response.Body.Close()
	if seen.state.Load() == early {
		return 0, unanswered(call.Operation, true, 0, errEarly)
	}
	if call.Date != nil {
		*call.Date, _ = http.ParseTime(response.Header.Get("Date")) // the zero time with an error
	}
	status := response.StatusCode
	body, unreadable, err := u.body(response, call)
	if err != nil {
		return status, unanswered(call.Operation, true, status, err)
	}
	reading := read(status, body)
	v := judge(status, reading)
	if v.fate == Success {
		return status, nil
	}
	return status, u.answered(call, v, reading, response.Header, unreadable)
}

// over returns why no call may begin. It asks the clocks too: when the process goes on after it stood still, the timer that
// ends the context may not have run yet, and that timer does not count the time for which the machine was suspended.
func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok && passed(deadline, now, now.Round(0)) {
		return context.DeadlineExceeded
	}
	return nil
}

// passed reports whether a deadline is over by the monotonic clock, which now reads, or by the wall clock alone. They differ after
// the machine was suspended, and when its clock was set.
func passed(deadline, now, wall time.Time) bool {
	return !now.Before(deadline) || !wall.Before(deadline)
}

func (u *Upstream) request(ctx context.Context, call Request) *http.Request {
	r := http.Request{
		Method: call.Method,
		URL:    &url.URL{Scheme: u.base.Scheme, Host: u.base.Host, Path: u.base.Path + call.Path, RawQuery: call.Query},
		Host:   u.base.Host,
		Header: *u.header.Load(),
	}
	if call.Body != nil {
		// A bytes.Reader in a NopCloser is known to the transport: header and body leave in one packet. GetBody lets it take a new connection
		// when nothing was written to a stale one; it resends in no other case, as there is no Idempotency-Key.
		r.ContentLength = int64(len(call.Body))
		r.Body = io.NopCloser(bytes.NewReader(call.Body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(call.Body)), nil }
	}
	return r.WithContext(ctx)
}

// body reads the answer to its end, so that the connection can be used again. unreadable: it came, and is of no use; err: it did not come.
func (u *Upstream) body(response *http.Response, call Request) (body []byte, unreadable, err error) {
	if response.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil, nil // what follows is not an answer and has no end
	}
	limit := call.Limit
	if limit == 0 {
		limit = usualLimit
	}
	length := response.ContentLength
	if length < 0 && call.Expect > 0 {
		length = min(call.Expect, limit)
	}
	body, err = readUpTo(limit, response.Body, length)
	if errors.Is(err, errTooLong) {
		return nil, err, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if e := response.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, errEncoding, nil
	}
	if !utf8.Valid(body) {
		if call.Method != http.MethodGet {
			return nil, errEncoding, nil
		}
		// One stray byte, say in a quoted SMTP reply, must not lose a page for good: reading it changes nothing upstream.
		body = bytes.ToValidUTF8(body, []byte("\uFFFD"))
	}
	return u.secrets.Load().with(call.Redact).cleanBut(call.Link, body), nil, nil
}

// usualLimit is the longest answer that is read where a call names no other.
const usualLimit = 512 << 10

// readUpTo reads to the end in one buffer of the announced or expected length (-1 if unknown) and returns errTooLong beyond limit bytes.
func readUpTo(limit int64, from io.Reader, length int64) ([]byte, error) {
	if length > limit {
		return nil, errTooLong
	}
	size := length + 1 // room to see the end
	if length < 0 {
		size = 1024
	}
	buffer := make([]byte, 0, size)
	for {
		n, err := from.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		switch {
		case int64(len(buffer)) > limit:
			return nil, errTooLong
		case err == io.EOF:
			return buffer, nil
		case err != nil:
			return nil, err
		case len(buffer) == cap(buffer):
			buffer = append(buffer, 0)[:len(buffer)]
		}
	}
}

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

// NetConn is the connection below.
func (w *wireConn) NetConn() net.Conn { return w.Conn }

// watched is a connection that knows what came when.
func watched(conn net.Conn) net.Conn { return &wireConn{Conn: conn} }

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
