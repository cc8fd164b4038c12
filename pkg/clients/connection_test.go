package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"errand/pkg/messages"
)

// dialling is our transport with another way to connect.
func dialling(dial func(context.Context, string, string) (net.Conn, error)) Option {
	transport := NewTransport(4, authority())
	transport.DialContext = dial
	return Transport(transport)
}

func TestWithoutAConnectionNothingHappened(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	server.Config.ErrorLog = quiet(t)
	server.StartTLS()
	defer server.Close()
	plain := listenOver(t, false, says("gibberish", false))
	mute := listenOver(t, false, says("", false))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects by the backlog, never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	short := Timeout(50 * time.Millisecond)

	for name, c := range map[string]struct {
		url     string
		options []Option
	}{
		"host name not found": {"https://upstream.example.test", []Option{dialling(func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "upstream.example.test", IsNotFound: true}}
		})}},
		"dial never ends": {"https://upstream.example.test", []Option{short, dialling(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})}},
		"dial times out": {"https://upstream.example.test", []Option{dialling(func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: timeout{}}
		})}},
		"certificate not trusted":   {server.URL, []Option{Transport(NewTransport(4, nil))}},
		"not TLS":                   {"https" + plain.url[4:], nil},
		"handshake cut":             {"https" + mute.url[4:], nil},
		"handshake never ends":      {"https://" + silent.Addr().String(), []Option{short}},
		"no connection of the pool": {"https://upstream.example.test", []Option{short, Transport(full())}},
		"connection fails by our side": {"https://upstream.example.test",
			[]Option{dialling(func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("payer") })}},
	} {
		t.Run(name, func(t *testing.T) {
			is(t, post(t.Context(), upstream(t, c.url, c.options...)), Busy, messages.ReasonBusy)
		})
	}

	transport := NewTransport(4, server.Client().Transport.(*http.Transport).TLSClientConfig)
	u := upstream(t, server.URL, Transport(transport))
	if err := post(t.Context(), u); err != nil {
		t.Errorf("with the server's authority: %v", err)
	}
}

type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// full is a transport whose only connection is never got.
func full() *http.Transport {
	transport := NewTransport(1, &tls.Config{})
	transport.MaxConnsPerHost = 1
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return transport
}

func TestATransportThatTellsNothingLeavesTheFateUnknown(t *testing.T) {
	is(t, post(t.Context(), upstream(t, "https://upstream.example.test", Transport(broken{}))), Unknown, messages.ReasonNoAnswer)
}

type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("gibberish") }

func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.RedirectHandler(other.URL, status))
		is(t, post(t.Context(), upstream(t, server.URL)), Unknown, messages.ReasonNoAnswer)
		server.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d calls were redirected", n)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	for name, answer := range map[string]string{
		"success":       fine,
		"refusal":       "HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}",
		"chunked":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"without body":  "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
		"bad encoding":  "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
		"not a success": "HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops",
	} {
		w := listen(t, says(answer, true))
		u := upstream(t, w.url)
		for range 5 {
			_ = post(t.Context(), u)
		}
		if n := w.connections.Load(); n != 1 || w.requests.Load() != 5 {
			t.Errorf("%s: %d calls by %d connections, want 5 by 1", name, w.requests.Load(), n)
		}
	}
}

func TestACallIsNotSentAgainWhenTheServerClosesAfterReadingIt(t *testing.T) {
	for name, c := range map[string]struct {
		first int // calls that are answered before
		reset bool
	}{"new connection": {0, false}, "reused connection": {1, false}, "reused connection, reset": {3, true}} {
		t.Run(name, func(t *testing.T) {
			w := listen(t, func(conn net.Conn, n int) bool {
				if n <= c.first {
					return says(fine, true)(conn, n)
				}
				if c.reset {
					if secured, ok := conn.(*tls.Conn); ok {
						conn = secured.NetConn()
					}
					_ = conn.(*net.TCPConn).SetLinger(0)
					_ = conn.Close()
				}
				return false
			})
			u := upstream(t, w.url)
			for range c.first {
				if err := post(t.Context(), u); err != nil {
					t.Fatal(err)
				}
			}
			is(t, post(t.Context(), u), Unknown, messages.ReasonNoAnswer)
			if n, want := w.requests.Load(), int32(c.first+1); n != want || w.connections.Load() != 1 {
				t.Errorf("%d calls by %d connections arrived, want %d by 1", n, w.connections.Load(), want)
			}
			w.headers.Range(func(_, header any) bool {
				for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
					if _, there := header.(http.Header)[name]; there {
						t.Errorf("the call carries %s", name)
					}
				}
				return true
			})
		})
	}
}

// stale is a connection that takes only so many bytes of a write once it is made stale.
type stale struct {
	net.Conn
	broken *atomic.Bool
	takes  int
}

func (s stale) Write(b []byte) (int, error) {
	if !s.broken.Load() {
		return s.Conn.Write(b)
	}
	if s.takes > 0 {
		_, _ = s.Conn.Write(b[:min(s.takes, len(b))])
	}
	return s.takes, errors.New("stale")
}

func TestOnAStaleConnectionOnlyWhatWasNotWrittenIsSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		takes   int
		refused bool
		fate    Fate
		calls   int32
	}{
		"nothing written":                     {0, false, Success, 2},
		"nothing written, no new connection":  {0, true, Busy, 1},
		"something written":                   {10, false, Unknown, 1},
		"something written, none to be had":   {10, true, Unknown, 1},
		"half of the call written, then gone": {100, false, Unknown, 1},
	} {
		if mode.secure { // a part of a record cannot be read
			c.fate, c.calls = Success, 2
			if c.refused {
				c.fate, c.calls = Busy, 1
			}
		}
		t.Run(name, func(t *testing.T) {
			w := listen(t, says(fine, true))
			var broken atomic.Bool
			var dials atomic.Int32
			u := upstream(t, w.url, dialling(func(ctx context.Context, network, address string) (net.Conn, error) {
				n := dials.Add(1)
				if n > 1 && c.refused {
					return nil, errors.New("refused")
				}
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil || n > 1 {
					return conn, err
				}
				return stale{conn, &broken, c.takes}, nil
			}))
			if err := post(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			err := post(t.Context(), u)
			if got := FateOf(err); got != c.fate {
				t.Errorf("got %s (%v), want %s", got, err, c.fate)
			}
			if n := w.requests.Load(); n != c.calls {
				t.Errorf("%d whole calls arrived, want %d", n, c.calls)
			}
		})
	}
}

// A service to which nobody connects is not overloaded: a person looks elsewhere.
func TestAnErrorSaysWhetherTheServiceWasReached(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	_ = listener.Close()
	busy := listen(t, says("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", true))
	for url, want := range map[string]string{nobody: ": unreachable: ", busy.url: ": busy: status 503"} {
		if err := post(t.Context(), upstream(t, url)); FateOf(err) != Busy || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a busy one that says %q", url, err, want)
		}
	}
}
