package clients

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/clients/internal/direct"
	"errand/pkg/messages"
)

// mode is how the wire tests are run: all of them in each.
var mode struct {
	indirect bool // by net/http alone, which long bodies and proxies go by
	secure   bool // over TLS
}

func TestMain(m *testing.M) {
	for _, mode.indirect = range []bool{false, true} {
		for _, mode.secure = range []bool{false, true} {
			if code := m.Run(); code != 0 {
				fmt.Printf("with %+v\n", mode)
				os.Exit(code)
			}
		}
	}
}

// certified has a certificate, and its clients know the authority.
var certified = sync.OnceValue(func() *httptest.Server { return httptest.NewTLSServer(http.NotFoundHandler()) })

// authority is what a client over TLS is configured with; nil is the system's.
func authority() *tls.Config {
	if !mode.secure {
		return nil
	}
	return certified().Client().Transport.(*http.Transport).TLSClientConfig
}

// origin is a server that sees what really arrives: the whole of every request, and the connections they came by.
type origin struct {
	url                   string
	requests, connections atomic.Int32
	headers               sync.Map // number of the request from 1 -> http.Header
}

// listen answers each request, counted from 1 on its connection, with answer, and closes the connection after an answer of false.
func listen(t *testing.T, answer func(conn net.Conn, n int) bool) *origin {
	t.Helper()
	return listenOver(t, mode.secure, answer)
}

func listenOver(t *testing.T, secure bool, answer func(conn net.Conn, n int) bool) *origin {
	t.Helper()
	w := new(origin)
	w.url = listenRaw(t, secure, func(conn net.Conn) {
		w.connections.Add(1)
		reader := bufio.NewReader(conn)
		for n := 1; ; n++ {
			request, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, request.Body)
			w.headers.Store(int(w.requests.Add(1)), request.Header)
			if !answer(conn, n) {
				return
			}
		}
	})
	return w
}

// listenRaw has talk have every connection until the test ends, and returns the address.
func listenRaw(t *testing.T, secure bool, talk func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scheme := "http://"
	if secure {
		scheme, listener = "https://", tls.NewListener(listener, certified().TLS)
	}
	var running sync.WaitGroup
	var open sync.Map
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			running.Go(func() {
				defer conn.Close()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		running.Wait()
	})
	return scheme + listener.Addr().String()
}

// says answers every request with these bytes and then closes, or keeps the connection open.
func says(text string, keep bool) func(net.Conn, int) bool {
	return func(conn net.Conn, _ int) bool {
		_, _ = io.WriteString(conn, text)
		return keep
	}
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

func upstream(t *testing.T, url string, options ...Option) *Upstream {
	t.Helper()
	u, err := NewUpstream(Origin{Field: "test: URL", URL: url, Header: map[string]Secret{"X-Key": NewSecret("secret-of-the-test")}},
		append([]Option{Timeout(5 * time.Second), Transport(NewTransport(64, authority()))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	if own, ok := u.transport.(*direct.Transport); ok {
		t.Cleanup(own.CloseIdleConnections)
		if mode.indirect {
			u.transport = own.Transport
		}
	}
	return u
}

// post makes a call that holds a payer's data; every JSON object is a whole answer.
func post(ctx context.Context, u *Upstream) error {
	call := Request{Operation: "enroll", Method: http.MethodPost, Path: "/path", Body: []byte(`{"payer":"payer@example.test"}`)}
	return u.Exchange(ctx, call, anyObject)
}

func anyObject(_ int, body []byte) Reading {
	message, fields := ParseError(body)
	return Reading{Complete: strings.HasPrefix(string(body), "{") && strings.HasSuffix(string(body), "}"), Message: message, Fields: fields}
}

// is fails unless err has this fate and reason and shows nothing it must not.
func is(t *testing.T, err error, fate Fate, reason messages.Reason) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error of fate %s", err, fate)
	}
	if e.Fate != fate || e.Reason != reason {
		t.Fatalf("got %s, %s (%v), want %s, %s", e.Fate, e.Reason, err, fate, reason)
	}
	for form, text := range printed(t, err) {
		for _, word := range []string{"payer", "secret", "127.0.0.1", "gibberish", "/path"} {
			if strings.Contains(text, word) {
				t.Errorf("by %s the error shows %q: %s", form, word, text)
			}
		}
	}
	if e.Message == "" {
		t.Error("the error has no message for an event")
	}
	return e
}

func TestAnAnswerThatDoesNotComeWholeLeavesTheFateUnknown(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		reason       messages.Reason
		status       int
	}{
		{"cut before the headers", "", messages.ReasonNoAnswer, 0},
		{"cut in the headers", "HTTP/1.1 200 OK\r\nContent-Le", messages.ReasonNoAnswer, 0},
		{"cut in the body", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"url\":", messages.ReasonNoAnswer, 200},
		{"cut in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"url", messages.ReasonNoAnswer, 200},
		{"cut in the body of a refusal", "HTTP/1.1 422 No\r\nContent-Length: 20\r\n\r\n{\"error\":", messages.ReasonNoAnswer, 422},
		{"not HTTP", "gibberish\r\n\r\n", messages.ReasonNoAnswer, 0},
		{"endless headers", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10), messages.ReasonNoAnswer, 0},
		{"switched protocols", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", messages.ReasonNoAnswer, 101},
		{"redirect", "HTTP/1.1 307 No\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", messages.ReasonNoAnswer, 307},
		{"server error", "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\ngibberish", messages.ReasonNoAnswer, 500},
		{"truncated", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"url\":", messages.ReasonBadAnswer, 200},
		{"empty", "HTTP/1.1 204 No\r\n\r\n", messages.ReasonBadAnswer, 204},
		{"not JSON", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ngibberish", messages.ReasonBadAnswer, 200},
		{"unknown encoding", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", messages.ReasonBadAnswer, 200},
		{"not UTF-8", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{\"\xff\"}", messages.ReasonBadAnswer, 200},
		{"announced too long", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", messages.ReasonBadAnswer, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := listen(t, says(c.answer, false))
			e := is(t, post(t.Context(), upstream(t, w.url)), Unknown, c.reason)
			if e.Status != c.status {
				t.Errorf("status %d, want %d", e.Status, c.status)
			}
			if n := w.requests.Load(); n != 1 {
				t.Errorf("the call arrived %d times, want once", n)
			}
		})
	}
}

func TestAnAnswerWithoutEndIsNotReadWithoutEnd(t *testing.T) {
	w := listen(t, func(conn net.Conn, _ int) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n{")
		for {
			if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
				return false
			}
		}
	})
	is(t, post(t.Context(), upstream(t, w.url)), Unknown, messages.ReasonBadAnswer)
}

func TestTheLimitOfAnAnswerIsExact(t *testing.T) {
	for _, length := range []int64{-1, 10} {
		if got, err := readUpTo(10, strings.NewReader("0123456789"), length); err != nil || string(got) != "0123456789" {
			t.Errorf("10 bytes announced as %d: got %q, %v", length, got, err)
		}
	}
	if _, err := readUpTo(10, strings.NewReader("0123456789a"), -1); !errors.Is(err, errTooLong) {
		t.Errorf("11 bytes: got %v, want %v", err, errTooLong)
	}
	long := strings.Repeat("x", 100_000)
	if got, err := readUpTo(1<<20, strings.NewReader(long), -1); err != nil || string(got) != long {
		t.Errorf("%d bytes of unknown length: got %d, %v", len(long), len(got), err)
	}
}

func TestATimeoutAfterAConnectionLeavesTheFateUnknown(t *testing.T) {
	for name, begin := range map[string]string{"silent": "", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"} {
		release := make(chan struct{})
		w := listen(t, func(conn net.Conn, _ int) bool {
			_, _ = io.WriteString(conn, begin)
			<-release
			return false
		})
		err := post(t.Context(), upstream(t, w.url, Timeout(time.Second)))
		if is(t, err, Unknown, messages.ReasonNoAnswer); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v is not a context.DeadlineExceeded", name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		is(t, post(ctx, upstream(t, w.url)), Unknown, messages.ReasonNoAnswer)
		cancel()
		close(release)
	}
}

func TestACallCancelledOnItsWayHasAnUnknownFate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := listen(t, func(conn net.Conn, _ int) bool {
		cancel()
		_, _ = conn.Read(make([]byte, 1)) // until the client goes
		return false
	})
	is(t, post(ctx, upstream(t, w.url)), Unknown, messages.ReasonNoAnswer)
	w.requests.Store(0)
	is(t, post(ctx, upstream(t, w.url)), Busy, messages.ReasonBusy)
	if n := w.requests.Load(); n != 0 {
		t.Errorf("a call cancelled before it began arrived %d times", n)
	}
}

func TestARefusalIsReadWithoutItsSecrets(t *testing.T) {
	body := `{"message":"key secret-of-the-test is bad\n","errors":{"secret-of-the-test":["of this call"]}}`
	w := listen(t, says("HTTP/1.1 429 No\r\nRetry-After: 7\r\n\r\n"+body, false))
	u := upstream(t, w.url)
	call := Request{Operation: "enroll", Method: http.MethodPost, Path: "/path", Body: []byte("{}"), Redact: "of this call"}
	e := is(t, u.Exchange(t.Context(), call, anyObject), Busy, messages.ReasonBusy)
	if e.Message != "key [redacted] is bad " || e.Fields["[redacted]"][0] != "[redacted]" || e.RetryAfter != 7*time.Second {
		t.Errorf("got %q, %v, %v", e.Message, e.Fields, e.RetryAfter)
	}
}

func TestASecretIsHiddenBeforeTheTextIsCut(t *testing.T) {
	w := listen(t, says("HTTP/1.1 400 No\r\n\r\n"+strings.Repeat("x", 490)+"only-in-this-call", false))
	call := Request{Operation: "enroll", Method: http.MethodPost, Path: "/path", Body: []byte("{}"), Redact: "only-in-this-call"}
	e := is(t, upstream(t, w.url).Exchange(t.Context(), call, anyObject), Refused, messages.ReasonRefused)
	if want := strings.Repeat("x", 490) + redacted[:10]; e.Message != want {
		t.Errorf("got %q, want %q", e.Message, want)
	}
}

func TestSwitchedProtocolsAreNotReadUntilTheTimeout(t *testing.T) {
	w := listen(t, says("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", true))
	err := post(t.Context(), upstream(t, w.url, Timeout(500*time.Millisecond)))
	if is(t, err, Unknown, messages.ReasonNoAnswer); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: read until the timeout", err)
	}
}

func TestACallThatTheTransportRefusesIsNotSent(t *testing.T) {
	w := listen(t, says(fine, false))
	err := upstream(t, w.url).Exchange(t.Context(), Request{Operation: "enroll", Method: "NOT A METHOD", Path: "/path"}, anyObject)
	is(t, err, Busy, messages.ReasonBusy)
}

// Watching the transport changes nothing of what is known about calls.
func TestACallThatAWatchedTransportRefusesIsNotSent(t *testing.T) {
	calls := 0
	u := upstream(t, "http://127.0.0.1:1", Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { calls++; return next.RoundTrip(r) })
	}))
	err := u.Exchange(t.Context(), Request{Operation: "test", Method: "no method", Path: "/"}, anyObject) // before any connection is asked for
	if is(t, err, Busy, messages.ReasonBusy); calls != 1 {
		t.Errorf("%d calls were watched", calls)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAPageWithAStrayByteIsStillRead(t *testing.T) {
	w := listen(t, says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\":\"\xff\"}", false))
	var got string
	err := upstream(t, w.url).Exchange(t.Context(), Request{Operation: "logs", Method: http.MethodGet, Path: "/"},
		func(s int, body []byte) Reading {
			got = string(body)
			return anyObject(s, body)
		})
	if want := "{\"a\":\"\uFFFD\"}"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestTheObserverHearsOfEveryCall(t *testing.T) {
	var seen []Call
	w := listen(t, says(fine, false))
	u := upstream(t, w.url, Observe(func(c Call) { seen = append(seen, c) }))
	if err := post(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	w2 := listen(t, says("HTTP/1.1 503 No\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n", false))
	u = upstream(t, w2.url, Observe(u.observe))
	is(t, post(t.Context(), u), Busy, messages.ReasonBusy)
	if len(seen) != 2 || seen[0].Fate != Success || seen[0].Status != 200 || seen[0].Duration <= 0 || seen[0].Operation != "enroll" ||
		seen[1].Fate != Busy || seen[1].Status != 503 || seen[1].RetryAfter != 9*time.Second {
		t.Errorf("seen %+v", seen)
	}
}

func TestACallUnderWayIsCountedUntilItsEnd(t *testing.T) {
	var n atomic.Int64
	w := listen(t, says(fine, false))
	u := upstream(t, w.url, UnderWay(&n))
	during := int64(0)
	call := Request{Operation: "enroll", Method: http.MethodPost, Path: "/path"}
	if err := u.Exchange(t.Context(), call, func(status int, body []byte) Reading {
		during = n.Load()
		return anyObject(status, body)
	}); err != nil {
		t.Fatal(err)
	}
	if during != 1 || n.Load() != 0 {
		t.Errorf("%d calls are under way during the only one and %d after it", during, n.Load())
	}
}

func TestACallThatHangsIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		var n atomic.Int64
		u := upstream(t, "http://127.0.0.1:1", UnderWay(&n), Timeout(timeout), Transport(hanging{}))
		done := make(chan error)
		go func() { done <- post(t.Context(), u) }()
		time.Sleep(timeout/3 - time.Second)
		early := n.Load()
		time.Sleep(2 * time.Second)
		late := n.Load()
		if err := <-done; err == nil || early != 1 || late != 0 || n.Load() != 0 {
			t.Errorf("%d calls are counted before a third of the timeout, %d after it and %d at the end (%v), want 1, 0 and 0", early, late,
				n.Load(), err)
		}
	})
}

// hanging takes every call and never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestSystemErrorsCanBeFoundInTheError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	err = post(t.Context(), upstream(t, "http://"+listener.Addr().String()))
	if is(t, err, Busy, messages.ReasonBusy); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v is not ECONNREFUSED", err)
	}
}

func quiet(t *testing.T) *log.Logger { return log.New(t.Output(), "", 0) }
