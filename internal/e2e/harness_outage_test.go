package e2e

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/programs"
	"errand/internal/sandbox"
)

// outage is an upstream out of order, and what the program logs of its hold.
type outage struct {
	status   int    // answered to all calls but those that pass
	envelope string // answered to submissions instead, under the status
	refuses  bool   // there is no connection
	reads    bool   // it hits reads only
	over     time.Time

	mu          sync.Mutex
	dials       []time.Time // that were refused
	held, ended []time.Time
	why         []string
}

// on begins the outage for a bubble and a program in it.
func (o *outage) on(b *bubble, c *programs.Common, lasts time.Duration) {
	o.over = time.Now().Add(lasts)
	switch {
	case o.envelope != "":
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: o.status, Body: []byte(o.envelope)})
		b.beside.Go(func() { time.Sleep(lasts); b.box.ClearFaults() })
	case o.refuses:
		c.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !o.lasts() {
				return b.pipe.dial(ctx, network, addr)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.dials = append(o.dials, time.Now())
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}}
	case o.status != 0:
		b.script = func(x exchange) reply {
			if !o.lasts() || o.reads && x.write() {
				return reply{}
			}
			return reply{status: o.status}
		}
	}
	log := zerolog.New(zerolog.MultiLevelWriter(b.logs, o)).Level(zerolog.DebugLevel)
	c.Logger = &log
}

func (o *outage) lasts() bool { return time.Now().Before(o.over) }

// calls are those that the outage hit.
func (o *outage) calls(b *bubble) []time.Time {
	hit := slices.Clone(o.dials)
	for _, x := range b.exchanges(func(x exchange) bool { return x.status == o.status && x.at.Before(o.over) }) {
		hit = append(hit, x.at)
	}
	return hit
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
func (o *outage) wantOneHold(b *bubble, why string, interval time.Duration) {
	t := b.t
	t.Helper()
	calls := o.calls(b)
	fatalIf(t, len(o.held) != 1 || len(o.ended) != 1 || !strings.Contains(o.why[0], why),
		"held at %v, ended at %v, want once; said %q, want %q", o.held, o.ended, o.why, why)
	late := o.ended[0].Sub(o.over)
	errorIf(t, late < 0 || late > interval+time.Second, "the hold ended %v after the outage", late)
	last, probes := o.held[0], 0
	for _, at := range calls {
		if !at.After(o.held[0]) {
			continue // in flight when it began
		}
		errorIf(t, at.Sub(last) < interval, "calls at %v and %v, want one every %v", last, at, interval)
		last = at
		probes++
	}
	least := int(o.over.Sub(o.held[0])/interval) / 2
	errorIf(t, probes < least, "%d probes, want at least %d", probes, least)
	t.Logf("%d calls before the hold, %d probes", len(calls)-probes, probes)
}

// wantEventsBy wants one event under a filter, published by then.
func (b *bubble) wantEventsBy(filter string, then time.Time) {
	b.t.Helper()
	e := b.wantOne(filter)
	errorIf(b.t, e.at(b.t).After(then), "%s came at %v, want it by %v", filter, e.at(b.t), then)
}
