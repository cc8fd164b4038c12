package callback

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/messages"
)

// pipes is a listener without a network.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// served is an inbox that is reached over connections.
type served struct {
	t *testing.T
	*inbox
	listener pipes
	stop     context.CancelFunc // as SIGTERM does
	ended    chan error
}

// serving runs test in a bubble.
func serving(t *testing.T, test func(s *served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &served{t, newInbox(), pipes{make(chan net.Conn), make(chan struct{})}, stop, make(chan error, 1)}
		server, limited := Server(&s.Handler, s.listener)
		go func() { _ = server.Serve(limited) }() // ends with its Shutdown
		go func() {
			<-ctx.Done()
			s.ended <- server.Shutdown(context.Background())
		}()
		test(s)
		stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
}

// client is a sender's end of a connection; what it sends waits for nobody.
type client struct {
	net.Conn
	from *bufio.Reader
	send chan string
}

func (s *served) dial() *client {
	here, there := net.Pipe()
	over, end := context.WithCancel(context.Background())
	c := &client{here, bufio.NewReader(here), make(chan string, 100)}
	go func() { // ends with the bubble
		select {
		case s.listener.conns <- there:
		case <-s.listener.done:
			_ = there.Close()
		}
		for {
			select {
			case text := <-c.send:
				if _, err := io.WriteString(here, text); err != nil {
					return
				}
			case <-over.Done():
				return
			}
		}
	}()
	s.t.Cleanup(func() { end(); _ = here.Close() })
	return c
}

// status is the status of the next answer; 0 if the connection is closed without one.
func (c *client) status(method string) int {
	r, err := http.ReadResponse(c.from, &http.Request{Method: method})
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body) // only the status counts
	_ = r.Body.Close()
	return r.StatusCode
}

// path is the path of a request's return_url.
func path(t *testing.T, id string) string {
	t.Helper()
	return strings.TrimPrefix(addressOf(t, secretText, id), "https://callbacks.example.com")
}

func post(t *testing.T, id string, length int) string {
	t.Helper()
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", path(t, id), length)
}

func TestSlowSendersKeepNobodyOut(t *testing.T) {
	serving(t, func(s *served) {
		s.Store = func(context.Context, string, *messages.CallbackBody) error { return nil }
		slow := make(chan int, 2*maxPlaces)
		for i := range cap(slow) {
			c := s.dial()
			c.send <- post(t, fmt.Sprint("slow-", i), 60)
			go func() {
				for range 60 { // a byte a second
					select {
					case c.send <- "b":
					default:
					}
					time.Sleep(time.Second)
				}
			}()
			go func() { slow <- c.status("POST") }()
		}
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		for i := range 5 { // a sender that gets a 503 tries again
			c := s.dial()
			c.send <- post(t, fmt.Sprint("quick-", i), 1) + "b"
			if status := c.status("POST"); status != http.StatusOK {
				t.Errorf("a quick sender, after %v: %d, want 200", time.Since(began), status)
			}
		}
		answered := map[int]int{}
		for range cap(slow) {
			answered[<-slow]++
		}
		if answered[http.StatusRequestTimeout] < maxPlaces || answered[http.StatusOK] > 0 || time.Since(began) > 20*time.Second {
			t.Errorf("slow senders were answered %v, until %v", answered, time.Since(began))
		}
		time.Sleep(time.Minute)
	})
}

func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	const foreign = "GET /a/b HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, said := range map[string][2]string{"nothing, or half a request": {"", "GET / HTTP/1.1\r\nHost:"},
		"foreign callbacks": {foreign, foreign}} {
		t.Run(name, func(t *testing.T) {
			serving(t, func(s *served) {
				for i := range maxConnections + 100 {
					c := s.dial()
					c.send <- said[i%2]
					go func() { _, _ = io.Copy(io.Discard, c.from) }() // stays as long as it may
				}
				synctest.Wait()
				began := time.Now()
				c := s.dial()
				c.send <- post(t, "order-1", 0)
				if status := c.status("POST"); status != http.StatusOK || time.Since(began) > 15*time.Second {
					t.Errorf("%d after %v, want 200 in 15s", status, time.Since(began))
				}
			})
		})
	}
}

// Each header that is read takes far more memory than it had bytes, and anybody who reaches the port can send some.
func TestHeadersWithoutEndTakeLittleMemory(t *testing.T) {
	serving(t, func(s *served) {
		flood := strings.Builder{}
		flood.WriteString("GET / HTTP/1.1\r\nHost: h\r\n")
		for i := 0; flood.Len() < maxHeader+3<<10; i++ {
			fmt.Fprintf(&flood, "%x:\n", 0x100+i)
		}
		for range maxConnections {
			c := s.dial()
			c.send <- flood.String()
		}
		synctest.Wait()
		runtime.GC()
		var memory runtime.MemStats
		if runtime.ReadMemStats(&memory); memory.HeapAlloc > 192<<20 {
			t.Errorf("%d MiB for %d connections", memory.HeapAlloc>>20, maxConnections)
		}
	})
}
