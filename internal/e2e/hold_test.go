package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/app"
	"errand/internal/bus"
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
func (o *outage) on(b *bubble, c *app.Common, lasts time.Duration) {
	o.over = time.Now().Add(lasts)
	b.down = func(r *http.Request) int {
		if r.Method == http.MethodPost && o.reads || !o.lasts() {
			return 0
		}
		o.called()
		return o.status
	}
	if o.envelop != "" {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: o.status, Body: []byte(o.envelop)})
		o.status = 0
		go func() { time.Sleep(lasts); b.box.ClearFaults() }()
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

// Write hears the log.
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
			continue // in hand when it began
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

const suspended = `{"error":true,"status_code":422,"message":"Your account was suspended.","data":{}}`

// Whatever is wrong with the upstream and not with a request: no request fails for it,
// the program says so, asks once an interval, and goes on by itself.
func TestOutageHoldsTheProgramUntilItIsOver(t *testing.T) {
	const wait, late = 25, 5
	for _, c := range []struct {
		name   string
		outage *outage
		lasts  time.Duration
		mail   bool
		hands  int
		says   string
	}{
		{"mandates, 401", &outage{status: 401}, time.Hour, false, 8, "mandate service (enroll) answers 401: credentials, account or quota"},
		{"mandates, 402", &outage{status: 402}, time.Hour, false, 8, "mandate service (enroll) answers 402"},
		{"mandates, 403", &outage{status: 403}, time.Hour, false, 8, "mandate service (enroll) answers 403"},
		{"mandates, 503", &outage{status: 503}, 6 * time.Hour, false, 8, "mandate service (enroll) answers 503: overloaded or out of order"},
		{"mandates, connection refused", &outage{refuses: true}, time.Hour, false, 8, "mandate service (enroll) cannot be reached"},
		{"mandates, 401, one hand", &outage{status: 401}, time.Hour, false, 1, "mandate service (enroll) answers 401"},
		{"mandates, 503, one hand", &outage{status: 503}, time.Hour, false, 1, "mandate service (enroll) answers 503"},
		{"mail, 401, two hands", &outage{status: 401}, time.Hour, true, 2, "email service (send) answers 401"},
		{"mail, 503, two hands", &outage{status: 503}, time.Hour, true, 2, "email service (send) answers 503"},
		{"mail, 401", &outage{status: 401}, time.Hour, true, 8, "email service (send) answers 401: credentials, account or quota"},
		{"mail, 402", &outage{status: 402}, time.Hour, true, 8, "email service (send) answers 402"},
		{"mail, 403", &outage{status: 403}, time.Hour, true, 8, "email service (send) answers 403"},
		{"mail, suspended in words", &outage{status: 422, envelop: suspended}, time.Hour, true, 8, "email service (send) answers 422"},
		{"mail, 503", &outage{status: 503}, 6 * time.Hour, true, 8, "email service (send) answers 503: overloaded or out of order"},
		{"mail, connection refused", &outage{refuses: true}, time.Hour, true, 8, "email service (send) cannot be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				var p app.Program
				requested, well, read, answered := "mandate.enroll.requested", "mandate.enroll.succeeded.", "mandate.transactions.requested", "mandate.transactions.listed.*"
				request := func(id string) map[string]any { return enrollment(id) }
				if c.mail {
					requested, well, read, answered = "mail.send.requested", "mail.send.accepted.", "mail.account.requested", "mail.account.reported.*"
					request = func(id string) map[string]any { return message(id, 2) }
					mails := b.mails()
					p, mails.Concurrency = mails, c.hands
					c.outage.on(b, &mails.Common, c.lasts)
				} else {
					mandates := b.mandates()
					p, mandates.Concurrency = mandates, c.hands
					c.outage.on(b, &mandates.Common, c.lasts)
				}
				for i := range wait {
					b.publish(requested, request(fmt.Sprint("r", i)))
				}
				go func() { // and reads, and some that come in when it is nearly over
					time.Sleep(time.Minute)
					b.publish(read, map[string]any{"request_id": "q"})
					time.Sleep(time.Until(c.outage.over) - time.Second)
					for i := range late {
						b.publish(requested, request(fmt.Sprint("late", i)))
					}
				}()
				b.run(p, c.lasts+time.Hour, func() bool { return b.all(well+"*", wait+late)() && b.all(answered, 1)() })

				c.outage.wantOneHold(t, c.says, 10*time.Second)
				if n, most := b.deliveries(requested), wait+late+len(c.outage.calls)+2*c.hands; n > most {
					t.Errorf("%d deliveries, want at most %d: one each, and one a probe", n, most)
				}
				if n := len(b.told(well + "*")); n != wait+late {
					t.Fatalf("%d ended well, want %d\n%s", n, wait+late, b.logs)
				}
				within := 12 * time.Second
				for i := range late {
					b.wantToldBy(well+fmt.Sprint("late", i), c.outage.over.Add(within))
				}
				if c.outage.status == 503 || c.outage.refuses {
					within = 15 * time.Minute // each has its own time to come back, by then as far apart
				}
				for i := range wait {
					b.wantToldBy(well+fmt.Sprint("r", i), c.outage.over.Add(within+5*time.Second))
				}
			})
		})
	}
}

// deliveries is how often requests on a subject were delivered.
func (b *bubble) deliveries(requested string) int {
	b.t.Helper()
	for _, q := range bus.Queues() {
		if q.Filter == requested {
			c, err := b.js.Consumer(b.t.Context(), q.Stream, q.Name)
			if err != nil {
				b.t.Fatal(err)
			}
			return int(c.CachedInfo().Delivered.Consumer)
		}
	}
	b.t.Fatalf("no queue of %s", requested)
	return 0
}

// wantToldBy wants one event under a filter, told by then.
func (b *bubble) wantToldBy(filter string, then time.Time) {
	b.t.Helper()
	e := b.wantOne(filter)
	if at, err := time.Parse(time.RFC3339, e.Body["at"].(string)); err != nil || at.After(then) {
		b.t.Errorf("%s came at %v, want it by %v", filter, e.Body["at"], then)
	}
}
