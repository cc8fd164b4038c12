package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
)

const suspended = `{"error":true,"status_code":403,"message":"Your account was suspended.","data":{}}`

// Whatever is wrong with the upstream and not with a request: no request fails for it,
// the program says so, asks once an interval, and goes on by itself.
func TestOutageHoldsTheProgramUntilItIsOver(t *testing.T) {
	full(t)
	const wait, late = 25, 5
	for _, c := range []struct {
		name    string
		outage  *outage
		lasts   time.Duration
		mail    bool
		workers int
		says    string
	}{
		{"mandates, 401", &outage{status: 401}, time.Hour, false, 8, "mandate service (enroll) answers 401: credentials, account or quota"},
		{"mandates, 402", &outage{status: 402}, time.Hour, false, 8, "mandate service (enroll) answers 402"},
		{"mandates, 403", &outage{status: 403}, time.Hour, false, 8, "mandate service (enroll) answers 403"},
		{"mandates, 404", &outage{status: 404}, time.Hour, false, 8, "mandate service (enroll) answers 404"},
		{"mandates, 503", &outage{status: 503}, 6 * time.Hour, false, 8, "mandate service (enroll) answers 503: overloaded or out of order"},
		{"mandates, connection refused", &outage{refuses: true}, time.Hour, false, 8, "mandate service (enroll) cannot be reached"},
		{"mail, 401, two workers", &outage{status: 401}, time.Hour, true, 2, "email service (send) answers 401"},
		{"mail, 503, two workers", &outage{status: 503}, time.Hour, true, 2, "email service (send) answers 503"},
		{"mail, 401", &outage{status: 401}, time.Hour, true, 8, "email service (send) answers 401: credentials, account or quota"},
		{"mail, 402", &outage{status: 402}, time.Hour, true, 8, "email service (send) answers 402"},
		{"mail, 403", &outage{status: 403}, time.Hour, true, 8, "email service (send) answers 403"},
		{"mail, 405", &outage{status: 405}, time.Hour, true, 8, "email service (send) answers 405"},
		{"mail, suspended", &outage{status: 403, envelope: suspended}, time.Hour, true, 8, "email service (send) answers 403"},
		{"mail, 503", &outage{status: 503}, 6 * time.Hour, true, 8, "email service (send) answers 503: overloaded or out of order"},
		{"mail, connection refused", &outage{refuses: true}, time.Hour, true, 8, "email service (send) cannot be reached"},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			var p programs.Program
			requested, well := "mandate.enroll.requested", "mandate.enroll.succeeded."
			request := func(id string) map[string]any { return enrollment(id) }
			if c.mail {
				requested, well = "mail.send.requested", "mail.send.accepted."
				request = func(id string) map[string]any { return message(id, 2) }
				mails := b.mails()
				p, mails.Concurrency = mails, c.workers
				c.outage.on(b, &mails.Common, c.lasts)
			} else {
				mandates := b.mandates()
				p, mandates.Concurrency = mandates, c.workers
				c.outage.on(b, &mandates.Common, c.lasts)
			}
			for i := range wait {
				b.publish(requested, request(fmt.Sprint("r", i)))
			}
			b.beside.Go(func() { // and some that come in when it is nearly over
				time.Sleep(time.Until(c.outage.over) - time.Second)
				for i := range late {
					b.publish(requested, request(fmt.Sprint("late", i)))
				}
			})
			b.run(p, c.lasts+time.Hour, b.published(well+"*", wait+late))

			c.outage.wantOneHold(b, c.says, 10*time.Second)
			if n, most := int(b.queue(queueOf(requested)).Delivered.Consumer), wait+late+4*len(c.outage.calls(b))+2*c.workers; n > most {
				t.Errorf("%d deliveries, want at most %d: one each, and a probe and those that it passes over", n, most)
			}
			if n := b.count(well + "*"); n != wait+late {
				t.Fatalf("%d ended well, want %d\n%s", n, wait+late, b.logs)
			}
			if o := b.oracle(); o.Enroll.TwiceCount+o.Mail.TwiceCount+b.count("dead.>") > 0 {
				t.Errorf("%d enrolled and %d served twice, %d dead letters", o.Enroll.TwiceCount, o.Mail.TwiceCount, b.count("dead.>"))
			}
			within := 12 * time.Second
			for i := range late {
				b.wantEventsBy(well+fmt.Sprint("late", i), c.outage.over.Add(within))
			}
			if c.outage.status == 503 || c.outage.refuses {
				within = 15 * time.Minute // each has its own time to come back, by then as far apart
			}
			for i := range wait {
				b.wantEventsBy(well+fmt.Sprint("r", i), c.outage.over.Add(within+5*time.Second))
			}
		})
	}
}

// queueOf is the queue of a subject's requests.
func queueOf(requested string) bus.Queue {
	return bus.Queues()[slices.IndexFunc(bus.Queues(), func(q bus.Queue) bool { return q.Filter == requested })]
}
