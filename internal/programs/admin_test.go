package programs

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oneConnListener is a listener with one connection.
type oneConnListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (o *oneConnListener) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

func (o *oneConnListener) Close() error {
	close(o.done)
	return nil
}

func (*oneConnListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// A client that does not finish its request, does not read the answer, or does not ask
// again is disconnected in the end.
func TestASlowClientOfTheAdminServerIsCutOff(t *testing.T) {
	const ask = "GET /metrics HTTP/1.1\r\nHost: errand\r\n"
	for name, c := range map[string]struct {
		send string
		read bool // reads the answer before it becomes idle
	}{
		"half a request": {send: ask},
		"does not read":  {send: ask + "\r\n"},
		"stays":          {send: ask + "\r\n", read: true},
		"says nothing":   {},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := adminServer(&readiness{}, newMetrics().registry)
			l := &oneConnListener{make(chan net.Conn, 1), make(chan struct{})}
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(l) }()
			defer func() {
				_ = server.Close()
				<-ended
			}()
			client, served := net.Pipe()
			l.conns <- served
			if err := client.SetDeadline(time.Now().Add(4 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			if c.send != "" { // even an empty write to a pipe waits for a reader
				if _, err := io.WriteString(client, c.send); err != nil {
					t.Fatal(err)
				}
			}
			from := bufio.NewReader(client)
			if c.read {
				r, err := http.ReadResponse(from, nil)
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
					_ = r.Body.Close() // it was read to its end
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Minute)
			if _, err := io.Copy(io.Discard, from); err != nil {
				t.Errorf("%s: it is still connected after 3 minutes: %v", name, err)
			}
		})
	}
}

func TestTheAdminServerIsOnlyReadAndServesNothingElse(t *testing.T) {
	server := adminServer(&readiness{}, newMetrics().registry)
	for request, want := range map[string]int{
		"GET /healthz": 200, "HEAD /healthz": 200, "GET /readyz": 200, "GET /metrics": 200,
		"POST /healthz": 405, "PUT /readyz": 405, "DELETE /metrics": 405,
		"GET /": 404, "POST /": 404, "GET /index.html": 404, "GET /debug/pprof/": 404, "GET /debug/vars": 404, "POST /quit": 404,
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want {
			t.Errorf("%s: %s, want %d", request, fmt.Sprint(w.Code, " ", w.Body), want)
		}
	}
}

func TestANoteShowsThoughTheProgramIsReady(t *testing.T) {
	ready, says := readiness{}, ""
	ready.notes.add(func() string { return says })
	server := adminServer(&ready, newMetrics().registry)
	for _, says = range []string{"", "the list is in UTC"} {
		answer := httptest.NewRecorder()
		server.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if got, want := answer.Body.String(), strings.TrimSpace("ready\n"+says)+"\n"; answer.Code != http.StatusOK || got != want {
			t.Errorf("got %d %q, want 200 %q", answer.Code, got, want)
		}
	}
}

// Programs are asked how they are from the moment that they are connected.
func TestAPollerMayBeAskedHowItIsWhileItStarts(t *testing.T) {
	r := &runtime{metrics: newMetrics(), natsCheck: natsCheck{onDemand: true}} // it has stored nothing
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for r.status().Upstream == "" { // ends: see below
		}
	}()
	r.ready.upstream.add(func() string { return "the list is refused" })
	<-asked
}
