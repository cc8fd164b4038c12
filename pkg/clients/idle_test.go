package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/pkg/messages"
)

// A service closes what it has waited on for too long. A call that met that close on its way would be of unknown fate.
func TestAConnectionThatWasClosedMeanwhileIsNotUsed(t *testing.T) {
	if mode.indirect {
		return // net/http needs a moment to see it
	}
	closed := make(chan struct{})
	w := listen(t, func(conn net.Conn, n int) bool {
		says(fine, true)(conn, n)
		_ = conn.Close()
		closed <- struct{}{}
		return false
	})
	u := upstream(t, w.url)
	for n := range int32(3) {
		if err := post(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		<-closed
		if got := w.connections.Load(); got != n+1 || w.requests.Load() != n+1 {
			t.Fatalf("after %d calls %d have arrived, by %d connections", n+1, w.requests.Load(), got)
		}
	}
}

// What is not used is closed by us, and before the service does.
func TestAConnectionIsNotKeptForLong(t *testing.T) {
	closed := make(chan struct{})
	w := listen(t, func(conn net.Conn, n int) bool {
		says(fine, true)(conn, n)
		if n == 2 {
			_, _ = io.Copy(io.Discard, conn) // until the caller goes
			close(closed)
		}
		return n < 2
	})
	transport := NewTransport(4, authority())
	transport.IdleConnTimeout = 50 * time.Millisecond
	u := upstream(t, w.url, Transport(transport))
	for range 2 {
		if err := post(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("a connection that is not used stays open")
	}
}

// Only so many are kept as the transport is made for.
func TestOnlySoManyConnectionsAreKept(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	w := listen(t, func(conn net.Conn, n int) bool {
		arrived <- struct{}{}
		<-answer
		return says(fine, true)(conn, n)
	})
	u := upstream(t, w.url, Transport(NewTransport(1, authority())))
	done := make(chan error)
	for _, want := range []int32{2, 3} {
		for range 2 {
			go func() { done <- post(t.Context(), u) }()
			<-arrived
		}
		for range 2 {
			answer <- struct{}{}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if n := w.connections.Load(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
	}
}

// An answer may say that it is the last on its connection, which then stays open for a while.
func TestAConnectionEndsWithItsLastAnswer(t *testing.T) {
	w := listen(t, says("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", true))
	u := upstream(t, w.url)
	for want := range int32(2) {
		if err := post(t.Context(), u); err != nil || w.connections.Load() != want+1 {
			t.Fatalf("%v; %d connections, want %d", err, w.connections.Load(), want+1)
		}
	}
}

// TLS may have taken in what came together with an answer, so that neither the system nor the reader of the answer knows of it.
func TestASecondAnswerThatCameTogetherOverTLSIsSeen(t *testing.T) {
	if !mode.secure {
		return
	}
	server := listenRaw(t, false, func(conn net.Conn) {
		together := &gathering{Conn: conn}
		secured := tls.Server(together, certified().TLS)
		from := bufio.NewReader(secured)
		for {
			request, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, request.Body)
			together.held = make([]byte, 0, 1024)
			_, _ = io.WriteString(secured, fine)
			_, _ = io.WriteString(secured, "HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}")
			held := together.held
			together.held = nil
			_, _ = conn.Write(held)
		}
	})
	u := upstream(t, "https"+server[4:])
	for range 3 {
		if err := post(t.Context(), u); err != nil && !mode.indirect { // net/http sees it in time or not
			t.Error(err)
		}
	}
}

// gathering keeps what is written while held is not nil.
type gathering struct {
	net.Conn
	held []byte
}

func (g *gathering) Write(b []byte) (int, error) {
	if g.held == nil {
		return g.Conn.Write(b)
	}
	g.held = append(g.held, b...)
	return len(b), nil
}

// A service may refuse a long call before it has read it, and close. Its answer counts, not the cut.
func TestALongCallIsReadWhileItIsWritten(t *testing.T) {
	answered := make(chan struct{})
	server := listenRaw(t, mode.secure, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1000))
		_, _ = io.WriteString(conn, "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\n{}")
		<-answered // nothing more is read
	})
	call := Request{Operation: "send", Method: http.MethodPost, Path: "/", Body: bytes.Repeat([]byte("x"), 32<<20)}
	err := upstream(t, server, Timeout(10*time.Second)).Exchange(t.Context(), call, anyObject)
	close(answered)
	is(t, err, Refused, messages.ReasonRefused)
}

// A GET is repeated over a new connection when the one it was sent on gives no answer; a POST never is.
func TestOnlyAReadIsSentAgain(t *testing.T) {
	for method, want := range map[string]int32{http.MethodGet: 3, http.MethodPost: 2} {
		w := listen(t, func(conn net.Conn, n int) bool { return n == 1 && says(fine, true)(conn, n) })
		u := upstream(t, w.url)
		call := Request{Operation: "test", Method: method, Path: "/"}
		if err := u.Exchange(t.Context(), call, anyObject); err != nil {
			t.Fatal(err)
		}
		if err := u.Exchange(t.Context(), call, anyObject); (FateOf(err) == Success) != (method == http.MethodGet) {
			t.Errorf("%s: %v", method, err)
		}
		if n := w.requests.Load(); n != want {
			t.Errorf("%s: %d calls arrived, want %d", method, n, want)
		}
	}
}

// Announcements that come before an answer are none, and may not come without end.
func TestProvisionalAnswersAreSkipped(t *testing.T) {
	w := listen(t, says("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"+fine, true))
	u := upstream(t, w.url)
	for range 2 {
		if err := post(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.connections.Load(); n != 1 {
		t.Errorf("%d connections for two calls", n)
	}
	w = listen(t, func(conn net.Conn, _ int) bool {
		for {
			if _, err := io.WriteString(conn, strings.Repeat("HTTP/1.1 103 Early\r\n\r\n", 100)); err != nil {
				return false
			}
		}
	})
	if e := is(t, post(t.Context(), upstream(t, w.url)), Unknown, messages.ReasonNoAnswer); errors.Is(e, context.DeadlineExceeded) {
		t.Error("read until the timeout")
	}
}

// Whatever a service does with its connections, a call gets its own answer or none, and is made once.
func TestNoCallGetsTheAnswerOfAnother(t *testing.T) {
	var made sync.Map // by its body -> how often it arrived
	var connections atomic.Uint64
	server := listenRaw(t, mode.secure, func(conn net.Conn) {
		from, random := bufio.NewReader(conn), rand.New(rand.NewPCG(1, connections.Add(1)))
		for {
			request, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				return
			}
			n, _ := made.LoadOrStore(string(body), new(atomic.Int32))
			n.(*atomic.Int32).Add(1)
			answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			switch random.IntN(8) {
			case 0:
				return // without an answer
			case 1:
				_, _ = io.WriteString(conn, answer)
				return // without a word
			case 2:
				_, _ = io.WriteString(conn, answer+answer) // twice
			case 3:
				_, _ = io.WriteString(conn, answer[:len(answer)-1])
				return
			default:
				_, _ = io.WriteString(conn, answer)
			}
		}
	})
	u := upstream(t, server)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for n := range 100 {
				sent, got := fmt.Sprintf(`{"n":"%d-%d"}`, caller, n), ""
				call := Request{Operation: "test", Method: http.MethodPost, Path: "/", Body: []byte(sent)}
				err := u.Exchange(t.Context(), call, func(status int, body []byte) Reading {
					got = string(body)
					return anyObject(status, body)
				})
				if err == nil && got != sent {
					t.Errorf("the call %s got the answer %s", sent, got)
				}
			}
		})
	}
	callers.Wait()
	made.Range(func(call, n any) bool {
		if times := n.(*atomic.Int32).Load(); times != 1 {
			t.Errorf("the call %s was made %d times", call, times)
		}
		return true
	})
}
