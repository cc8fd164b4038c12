package e2e

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/programs"
	"errand/internal/sandbox"
)

// outage is an upstream out of order, and what shows of it outside: every call that
// is made, and what the program says of its hold.
type outage struct {
	status  int    // answered to all calls but those that pass
	envelop string // answered to submissions instead, under its status
	refuses bool   // no connection is got
	reads   bool   // it hits reads only
	over    time.Time

	mu          sync.Mutex
	calls       []time.Time
	held, ended []time.Time
	why         []string
}

// on begins the outage for a bubble and a program in it.
func (o *outage) on(b *bubble, c *programs.Common, lasts time.Duration) {
	o.over = time.Now().Add(lasts)
	b.intercept = func(r *http.Request) int {
		if r.Method == http.MethodPost && o.reads || r.Method == http.MethodGet && o.envelop != "" || !o.lasts() {
			return 0
		}
		o.called()
		return o.status
	}
	if o.envelop != "" {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: o.status, Body: []byte(o.envelop)})
		o.status = 0
		b.beside.Go(func() { time.Sleep(lasts); b.box.ClearFaults() })
	}
	c.Transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if o.refuses && o.lasts() {
			o.called()
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return b.pipe.dial(ctx, network, addr)
	}}
	log := zerolog.New(zerolog.MultiLevelWriter(b.logs, o)).Level(zerolog.DebugLevel)
	c.Logger = &log
}

func (o *outage) lasts() bool { return time.Now().Before(o.over) }

func (o *outage) called() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, time.Now())
}

// Write reads the log of the program.
func (o *outage) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch text := string(line); {
	case strings.Contains(text, `"message":"held: no more requests`):
		o.held, o.why = append(o.held, time.Now()), append(o.why, text)
	case strings.Contains(text, `"message":"hold ended"`):
		o.ended = append(o.ended, time.Now())
	}
	return len(line), nil
}

// wantOneHold wants one hold over the whole outage, that says why, with one call an
// interval at most, and that ends within an interval after the outage.
func (o *outage) wantOneHold(t *testing.T, why string, interval time.Duration) {
	t.Helper()
	if len(o.held) != 1 || len(o.ended) != 1 || !strings.Contains(o.why[0], why) {
		t.Fatalf("held at %v, ended at %v, want once; said %q, want %q", o.held, o.ended, o.why, why)
	}
	if late := o.ended[0].Sub(o.over); late < 0 || late > interval+time.Second {
		t.Errorf("the hold ended %v after the outage", late)
	}
	last, probes := o.held[0], 0
	for _, at := range o.calls {
		if !at.After(o.held[0]) {
			continue // in flight when it began
		}
		if at.Sub(last) < interval {
			t.Errorf("calls at %v and %v, want one every %v", last, at, interval)
		}
		last = at
		probes++
	}
	if least := int(o.over.Sub(o.held[0])/interval) / 2; probes < least {
		t.Errorf("%d probes, want at least %d", probes, least)
	}
	t.Logf("%d calls before the hold, %d probes", len(o.calls)-probes, probes)
}

// wantEventsBy wants one event under a filter, published by then.
func (b *bubble) wantEventsBy(filter string, then time.Time) {
	b.t.Helper()
	e := b.wantOne(filter)
	if at, err := time.Parse(time.RFC3339, e.Body["at"].(string)); err != nil || at.After(then) {
		b.t.Errorf("%s came at %v, want it by %v", filter, e.Body["at"], then)
	}
}
