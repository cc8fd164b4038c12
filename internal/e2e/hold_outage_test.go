package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
)

const suspended = `{"error":true,"status_code":403,"message":"Your account was suspended.","data":{}}`

// Whatever is wrong with the upstream and not with a request: no request fails for it,
// the program says so, asks once an interval, and goes on by itself.
func TestOutageHoldsTheProgramUntilItIsOver(t *testing.T) {
	full(t)
	const wait, late = 25, 5
	for _, c := range []struct {
		name   string
		outage *outage
		lasts  time.Duration
		*operation
		workers int
		says    string
	}{
		{"mandates, 401", &outage{status: 401}, time.Hour, enrollOp, 8, "mandate service (enroll) answers 401: credentials, account or quota"},
		{"mandates, 404", &outage{status: 404}, time.Hour, enrollOp, 8, "mandate service (enroll) answers 404"},
		{"mandates, 503", &outage{status: 503}, 6 * time.Hour, enrollOp, 8, "mandate service (enroll) answers 503: overloaded or out of order"},
		{"mandates, connection refused", &outage{refuses: true}, time.Hour, enrollOp, 8, "mandate service (enroll) cannot be reached"},
		{"mail, 401, two workers", &outage{status: 401}, time.Hour, sendOp, 2, "email service (send) answers 401"},
		{"mail, 503, two workers", &outage{status: 503}, time.Hour, sendOp, 2, "email service (send) answers 503"},
		{"mail, 401", &outage{status: 401}, time.Hour, sendOp, 8, "email service (send) answers 401: credentials, account or quota"},
		{"mail, 405", &outage{status: 405}, time.Hour, sendOp, 8, "email service (send) answers 405"},
		{"mail, suspended", &outage{status: 403, envelope: suspended}, time.Hour, sendOp, 8, "email service (send) answers 403"},
		{"mail, 503", &outage{status: 503}, 6 * time.Hour, sendOp, 8, "email service (send) answers 503: overloaded or out of order"},
		{"mail, connection refused", &outage{refuses: true}, time.Hour, sendOp, 8, "email service (send) cannot be reached"},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			requested, good := c.Requested(), c.Subject(c.succeeded, "")+"."
			p := b.program(c.operation, c.workers)
			switch p := p.(type) {
			case *programs.MandateConsumer:
				c.outage.on(b, &p.Common, c.lasts)
			case *programs.MailConsumer:
				c.outage.on(b, &p.Common, c.lasts)
			}
			b.request(c.operation, "r", wait)
			b.beside.Go(func() { // and some that come in when it is nearly over
				time.Sleep(time.Until(c.outage.over) - time.Second)
				b.request(c.operation, "late", late)
			})
			b.run(p, c.lasts+time.Hour, b.published(good+"*", wait+late))

			c.outage.wantOneHold(b, c.says, 10*time.Second)
			n, most := int(b.queue(queueOf(requested)).Delivered.Consumer), wait+late+4*len(c.outage.calls(b))+2*c.workers
			errorIf(t, n > most, "%d deliveries, want at most %d: one each, and a probe and those that it passes over", n, most)
			n = b.count(good + "*")
			fatalIf(t, n != wait+late, "%d ended well, want %d\n%s", n, wait+late, b.logs)
			if o := b.oracle(); o.Enroll.TwiceCount+o.Mail.TwiceCount+b.count("dead.>") > 0 {
				t.Errorf("%d enrolled and %d served twice, %d dead letters", o.Enroll.TwiceCount, o.Mail.TwiceCount, b.count("dead.>"))
			}
			within := 12 * time.Second
			for i := range late {
				b.wantEventsBy(good+fmt.Sprint("late", i), c.outage.over.Add(within))
			}
			if c.outage.status == 503 || c.outage.refuses {
				within = 15 * time.Minute // each has its own time to come back, by then as far apart
			}
			for i := range wait {
				b.wantEventsBy(good+fmt.Sprint("r", i), c.outage.over.Add(within+5*time.Second))
			}
		})
	}
}

// queueOf is the queue of a subject's requests.
func queueOf(requested string) bus.Queue {
	return bus.Queues()[slices.IndexFunc(bus.Queues(), func(q bus.Queue) bool { return q.Filter == requested })]
}

// outage is an upstream out of order, and what the program logs of its hold.
type outage struct {
	status   int    // answered to all calls but those that pass
	envelope string // answered to submissions instead, under the status
	refuses  bool   // there is no connection
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
		b.beside.Go(func() { time.Sleep(lasts); b.box.ClearFaults("*") })
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
		b.script = failing(reply{status: o.status}, o.over, nil)
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
