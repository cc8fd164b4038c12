package clients

import (
	"io"
	"log"
	"net"
	"net/http/httptrace"
	"os"
	"testing"

	"errand/pkg/messages"
)

// A connection is handed on as soon as an answer is read. What an upstream said beyond that answer then waits there for the next
// call. Over a connection of our own it is seen before that call is written; net/http may see it too late.
func TestASecondAnswerIsNotTakenForTheNextCallsAnswer(t *testing.T) {
	log.SetOutput(io.Discard) // net/http quotes there what it finds on idle connections
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for name, second := range map[string]string{
		"another answer": fine, "an answer without body": "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "the rest of a long answer": "{}",
		"a line break": "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				if !secondCallOnTheSameLine(t, second) {
					continue
				}
				if !mode.indirect {
					t.Fatal("the second call went by a connection on which something had come")
				}
				return
			}
			if mode.indirect {
				t.Fatal("the second call never went by the first one's connection, so that nothing was tried")
			}
		})
	}
}

// secondCallOnTheSameLine is false when what follows the answer was seen before the second call was written, which then went by
// another connection.
func secondCallOnTheSameLine(t *testing.T, second string) bool {
	w := listen(t, func(conn net.Conn, n int) bool {
		if n == 1 {
			return says(fine+second, true)(conn, n)
		}
		return says("HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}", true)(conn, n)
	})
	u := upstream(t, w.url, Transport(NewTransport(4, authority())))
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
