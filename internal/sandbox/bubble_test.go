package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network: tests in virtual time need connections that
// belong to their bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

func TestEveryFaultWorksInABubbleOverAPipe(t *testing.T) {
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s, line := New(strictOptions()), make(pipes)
			server := &http.Server{Handler: s}
			go func() { _ = server.Serve(line) }()
			f := Fault{Operation: "*", Kind: kind, Times: 1}
			switch kind {
			case Delay, DelayAnswer:
				f.Delay = Duration(time.Hour)
			case Short:
				f.Operation = "send"
			}
			addFault(t, s, f)

			transport := &http.Transport{DialContext: line.dial}
			client := &http.Client{Transport: transport}
			begin := time.Now()
			status, body, err := post(client, message1().with("to", many(2)).String())
			want := map[string][]any{ // status, error, recipients accepted
				Delay: {200, nil, 2}, DelayAnswer: {200, nil, 2}, Status: {500, nil, 0}, Cut: {0, io.EOF, 0}, AcceptCut: {0, io.EOF, 2},
				AcceptStatus: {500, nil, 2}, Truncate: {200, io.ErrUnexpectedEOF, 2}, Garbage: {200, nil, 2}, AcceptEmpty: {200, nil, 2}, Short: {200,
					nil, 1},
			}[kind]
			if wantErr, _ := want[1].(error); status != want[0] || !errors.Is(err, wantErr) {
				t.Errorf("%s: got %d %q %v, want %v", kind, status, body, err, want)
			}
			equal(t, kind+" recipients", s.Oracle(Query{}).Mail.Recipients, want[2])
			equal(t, kind+" took", time.Since(begin) >= time.Hour, f.Delay > 0)
			if status, body, err = post(client, message1().String()); status != 200 {
				t.Errorf("the call after %s: got %d %q %v", kind, status, body, err)
			}
			transport.CloseIdleConnections()
			_ = server.Close()
			s.Close()
		})
	}
}

func post(client *http.Client, body string) (int, string, error) {
	r, err := http.NewRequest("POST", "http://mail.test/api/v0/messages", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header = request("POST", "/", "").Header
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, string(got), err
}
