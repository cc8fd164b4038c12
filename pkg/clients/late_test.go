package clients

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// overslept is a context as a process sees it that stood still past its deadline: the
// timer that ends it has not run yet.
type overslept struct{ context.Context }

func (overslept) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestNoCallBeginsAfterItsDeadlineByTheClock(t *testing.T) {
	w := listen(t, func(conn net.Conn, _ int) bool {
		_, err := conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
		return err == nil
	})
	u, err := Open(Origin{URL: w.url})
	if err != nil {
		t.Fatal(err)
	}
	call := Request{Operation: "send", Method: http.MethodPost, Path: "/", Body: []byte("{}")}
	read := func(int, []byte) Reading { return Reading{} }
	if err := u.Exchange(overslept{t.Context()}, call, read); FateOf(err) != Busy {
		t.Errorf("got %v, want that nothing happened", err)
	}
	if n := w.requests.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
}
