package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A request's outcome is what the sandbox knows, whatever happens to its call on the
// wire: reported as done only if it was, as not done only if it was not, else uncertain.
func TestEveryFaultOfAConnectionIsReportedAsWhatItIs(t *testing.T) {
	full(t)
	for _, f := range lineFaults() {
		for _, c := range []struct {
			operation, onUnknown string
		}{{"enroll", "report"}, {"enroll", "retry"}, {"send", "report"}} {
			t.Run(fmt.Sprintf("%s, %s, %s", f.name, c.operation, c.onUnknown), func(t *testing.T) {
				inWire(t, func(t *testing.T, w *wire, b *bubble) {
					w.pick = once(c.operation, f.fault)
					e := w.run(b, c.operation, c.onUnknown)
					state, reason, done := f.expect(c.operation, c.onUnknown)
					errorIf(t, string(e.state()) != state || e.reason() != reason,
						"published %s, %s, want %s, %s: %s", e.state(), e.reason(), state, reason, e.Raw)
					got := w.did(c.operation)
					errorIf(t, got != done, "the sandbox did it %d times, want %d: %s", got, done, e.Raw)
					errorIf(t, e.evidence() > 0 != (reason == "link_lost"), "evidence: %s", e.Raw)
					again := c.onUnknown == "retry" && !f.done && strings.HasSuffix(f.reason, "answer")
					errorIf(t, again != (e.Body["after_unknown"] == true), "after_unknown: %s", e.Raw)
				})
			})
		}
	}
}

// The look-up that shows what became of an enrollment meets the same faults, and the evidence is right all the same.
func TestEveryFaultOfTheLookUpIsOvercome(t *testing.T) {
	full(t)
	for _, f := range lineFaults() {
		for done, onUnknown := range map[bool]string{true: "report", false: "retry"} {
			t.Run(fmt.Sprintf("%s, enrolled: %t", f.name, done), func(t *testing.T) {
				inWire(t, func(t *testing.T, w *wire, b *bubble) {
					calls, lists := once("enroll", func(c *call) bool {
						if done {
							c.work()
						}
						return c.reset()
					}), times(6, "transactions", f.fault) // all the tries of a read, and one more
					w.pick = func(operation string) fault {
						if f := calls(operation); f != nil {
							return f
						}
						return lists(operation)
					}
					e := w.run(b, "enroll", onUnknown)
					state, reason, enrolled := lineFault{done: done, reason: "no_answer"}.expect("enroll", onUnknown)
					errorIf(t, string(e.state()) != state || e.reason() != reason,
						"published %s, %s, want %s, %s: %s", e.state(), e.reason(), state, reason, e.Raw)
					equal(t, "enrollments", w.did("enroll"), enrolled)
				})
			})
		}
	}
}

// secureHost is the upstream's name where it is reached by TLS.
const secureHost = "upstream.example.test"

// connectFault keeps a call from getting a connection: dial is instead of the
// network, or server is what the other side does with the connection.
type connectFault struct {
	name   string
	dial   func(context.Context) (net.Conn, error)
	server func(net.Conn)
}

// connectFaults need the authority that the programs trust, to sign what is wrong in another way.
func connectFaults(a *signer) []connectFault {
	fails := func(err error) func(context.Context) (net.Conn, error) {
		return func(context.Context) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	}
	shows := func(c tls.Certificate) func(net.Conn) {
		return func(conn net.Conn) {
			secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{c}})
			io.Copy(conn, secure) // nothing must come
		}
	}
	now := time.Now()
	return []connectFault{
		{name: "nothing listens", dial: fails(syscall.ECONNREFUSED)},
		{name: "no way there", dial: fails(syscall.ENETUNREACH)},
		{name: "the name is unknown", dial: fails(&net.DNSError{Err: "no such host", Name: secureHost, IsNotFound: true})},
		{name: "the name server is silent", dial: fails(&net.DNSError{Err: "i/o timeout", Name: secureHost, IsTimeout: true})},
		{name: "a black hole", dial: func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }},
		{name: "closed at once", server: func(net.Conn) {}},
		{name: "plain HTTP", server: func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") }},
		{name: "a silent handshake", server: func(c net.Conn) { io.Copy(io.Discard, c) }},
		{name: "a handshake of garbage", server: func(c net.Conn) { c.Write(bytes.Repeat([]byte{0x16, 3, 3, 0, 9}, 9)) }},
		{name: "a handshake cut", server: func(c net.Conn) { c.Read(make([]byte, 100)) }},
		{name: "an alert", server: func(c net.Conn) { c.Read(make([]byte, 2000)); c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }},
		{name: "an unknown authority", server: shows(newSigner().sign(secureHost, now.Add(time.Hour)))},
		{name: "another host's certificate", server: shows(a.sign(secureHost+".stranger.test", now.Add(time.Hour)))},
		{name: "an expired certificate", server: shows(a.sign(secureHost, now.Add(-time.Minute)))},
	}
}

// Without a connection nothing happened: the request waits, and is done when the
// fault is over. Nothing of it was sent before, above all no secret.
func TestWithoutAConnectionARequestWaits(t *testing.T) {
	full(t)
	names := connectFaults(newSigner())
	for i := range names {
		for _, operation := range []string{"enroll", "send"} {
			runInBubble(t, names[i].name+", "+operation, func(t *testing.T, b *bubble) {
				a := newSigner() // in the bubble's time
				l := &recorder{pipe: &pipe{make(chan net.Conn), make(chan struct{})}, fault: connectFaults(a)[i],
					until: time.Now().Add(5 * time.Minute)}
				w := newWire(t, b.box, l)
				w.address, w.config = "https://"+secureHost, &tls.Config{RootCAs: a.pool()}
				w.secure = func(c net.Conn) net.Conn {
					return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{a.sign(secureHost, time.Now().Add(24*time.Hour))}})
				}
				w.dial = l.dial
				began := time.Now()
				e := w.run(b, operation, "report")
				if state, _, _ := (lineFault{}).expect(operation, "report"); string(e.state()) != state || time.Since(began) < 5*time.Minute {
					t.Errorf("published %s, %s after %v: %s", e.state(), e.reason(), time.Since(began), e.Raw)
				}
				errorIf(t, w.did(operation) != 1 || w.calls[operation] != 1, "done %d times by %d calls", w.did(operation), w.calls[operation])
				o := b.oracle()
				errorIf(t, o.Calls["transactions"] != 0, "a call that was never made was looked up")
				deferred := b.events(map[string]string{"enroll": "mandate.enroll.deferred.r1", "send": "mail.send.deferred.r1"}[operation])
				for _, d := range deferred {
					errorIf(t, d.reason() != "busy" || number(d.Body["http_status"]) != 0, "deferred: %s", d.Raw)
				}
				errorIf(t, len(deferred) < 2, "deferred %d times in five minutes", len(deferred))
				w.wantOnly(t, secureHost+":443")
				b.wantNoLeaks()
				wantNoneOf(t, "the line", l.text(), append(wirePayers, wireSecrets...)...)
			})
		}
	}
}

// recorder is a listener that only comes to be what it should after a while, and
// that keeps what is said on its connections until then.
type recorder struct {
	*pipe
	fault connectFault
	until time.Time

	mu   sync.Mutex
	said strings.Builder
}

func (o *recorder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case time.Now().After(o.until):
		return o.pipe.dial(ctx, network, address)
	case o.fault.dial != nil:
		return o.fault.dial(ctx)
	}
	client, server := net.Pipe()
	go func() { // ends with the client's end
		defer server.Close()
		o.fault.server(server)
	}()
	return recordingConn{client, o}, nil
}

func (o *recorder) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}

type recordingConn struct {
	net.Conn
	o *recorder
}

func (m recordingConn) Write(b []byte) (int, error) {
	m.o.mu.Lock()
	m.o.said.Write(b)
	m.o.mu.Unlock()
	return m.Conn.Write(b)
}
