package clients

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"time"
)

// A machine that was suspended has a monotonic clock that stood still; one whose clock is
// set has a wall clock that jumped. A deadline that has passed by either has passed.
func TestADeadlinePassesByEitherClock(t *testing.T) {
	now := time.Now()
	deadline := now.Add(time.Minute)
	for _, c := range []struct {
		what            string
		monotonic, wall time.Duration // since now
		want            bool
	}{
		{"neither", 59 * time.Second, 59 * time.Second, false},
		{"both", time.Minute, time.Minute, true},
		{"suspended", time.Second, time.Hour, true},
		{"the clock was set back", 2 * time.Minute, -time.Hour, true},
	} {
		if got := passed(deadline, now.Add(c.monotonic), now.Add(c.wall).Round(0)); got != c.want {
			t.Errorf("%s: got %v", c.what, got)
		}
	}
	if !passed(deadline.Round(0), now.Add(time.Minute), now.Add(time.Minute).Round(0)) || passed(deadline.Round(0), now, now.Round(0)) {
		t.Error("a deadline that came from another machine, without a monotonic clock, is misjudged")
	}
}

// overslept is a context as a process sees it that stood still past its deadline: the
// timer that ends it has not run yet.
type overslept struct {
	context.Context
	slept *atomic.Bool
}

func (c overslept) Deadline() (time.Time, bool) {
	if c.slept.Load() {
		return time.Now().Add(-time.Millisecond), true
	}
	return time.Now().Add(time.Minute), true
}

// Neither a call that has not begun nor one that has waited for its connection is made
// when its deadline has passed: nothing of it is written.
func TestNoCallBeginsAfterItsDeadlineByTheClock(t *testing.T) {
	for name, at := range map[string]func(sleep func()) Option{
		"before it began": func(sleep func()) Option { sleep(); return Timeout(time.Minute) },
		"while it got its connection": func(sleep func()) Option {
			transport := NewTransport(1, authority())
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				sleep()
				return conn, err
			}
			return Transport(transport)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := listen(t, says(fine, true))
			slept := new(atomic.Bool)
			u := upstream(t, w.url, at(func() { slept.Store(true) }))
			call := Request{Operation: "send", Method: http.MethodPost, Path: "/", Body: []byte("{}")}
			read := func(int, []byte) Reading { return Reading{} }
			if err := u.Exchange(overslept{t.Context(), slept}, call, read); FateOf(err) != Busy {
				t.Errorf("got %v, want that nothing happened", err)
			}
			if n := w.requests.Load(); n != 0 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// The same over a connection that was used before.
func TestAConnectionKeptOpenCarriesNoLateCall(t *testing.T) {
	w := listen(t, says(fine, true))
	u := upstream(t, w.url, Transport(NewTransport(1, authority())))
	slept := new(atomic.Bool)
	if err := post(overslept{t.Context(), slept}, u); err != nil {
		t.Fatal(err)
	}
	got := 0
	asleep := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got++; slept.Store(true) }})
	if err := post(overslept{asleep, slept}, u); FateOf(err) != Busy || got == 0 {
		t.Errorf("got %v and %d connections, want that nothing happened", err, got)
	}
	slept.Store(false)
	if err := post(overslept{t.Context(), slept}, u); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if n := w.requests.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}
