package clients

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"testing"

	"errand/pkg/messages"
)

// The transport hands a connection on as soon as an answer is read. What an upstream
// said beyond that answer then waits there for the next call.
func TestASecondAnswerIsNotTakenForTheNextCallsAnswer(t *testing.T) {
	log.SetOutput(io.Discard) // the transport quotes there what it finds on idle connections
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	config := certified.Client().Transport.(*http.Transport).TLSClientConfig
	for scheme, secure := range map[string]func(net.Conn) net.Conn{
		"http":  func(conn net.Conn) net.Conn { return conn },
		"https": func(conn net.Conn) net.Conn { return tls.Server(conn, certified.TLS) },
	} {
		for name, second := range map[string]string{
			"another answer": fine, "an answer without body": "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "the rest of a long answer": "{}",
			"a line break": "\r\n",
		} {
			t.Run(scheme+", "+name, func(t *testing.T) {
				for range 20 {
					if secondCallOnTheSameLine(t, scheme, second, secure, config) {
						return
					}
				}
				t.Fatal("the second call never went by the first one's connection, so that nothing was tried")
			})
		}
	}
}

// secondCallOnTheSameLine is false when the transport saw what follows the answer before
// the second call was written, which then went by another connection.
func secondCallOnTheSameLine(t *testing.T, scheme, second string, secure func(net.Conn) net.Conn, config *tls.Config) bool {
	w := listenOn(t, secure, func(conn net.Conn, n int) bool {
		if n == 1 {
			return says(fine+second, true)(conn, n)
		}
		return says("HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}", true)(conn, n)
	})
	u := upstream(t, scheme+w.url[4:], Transport(NewTransport(4, config)))
	later := make(chan error, 1)
	err := post(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(error) {
		// The next call is written while the transport has not yet looked at what follows the answer.
		wrote := make(chan struct{}, 8) // a call of which no byte could be written is written again
		ctx := httptrace.WithClientTrace(t.Context(),
			&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { wrote <- struct{}{} }})
		go func() { later <- post(ctx, u) }()
		<-wrote
	}}), u)
	if err != nil {
		t.Fatal(err)
	}
	answer := <-later
	if w.connections.Load() != 1 {
		return false
	}
	is(t, answer, Unknown, messages.ReasonNoAnswer)
	if err := post(t.Context(), u); err != nil {
		t.Errorf("the call after them: %v", err)
	}
	if n := w.connections.Load(); n != 2 {
		t.Errorf("%d connections, want the first one closed and a second one", n)
	}
	return true
}
