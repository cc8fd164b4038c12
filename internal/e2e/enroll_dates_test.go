package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
)

// An omitted effective_date is the day after the call, not after the request, and the
// started event that announces the call names it; a given one is sent as it is. An omitted link_expired_at is left to the service,
// whose default, an hour after it makes the link, is right whenever the call is made.
func TestTheEffectiveDateIsTheDayAfterItsCall(t *testing.T) {
	for _, c := range []struct {
		name  string
		more  []string
		fault sandbox.Fault
		begin time.Time     // of the request
		down  time.Duration // nobody runs after the first deferral
	}{
		{name: "after an outage of two days", fault: often(5, enrollBusy), begin: epoch, down: 50 * time.Hour},
		{name: "over midnight in one delivery", begin: epoch.Add(15*time.Hour + 59*time.Minute + 55*time.Second),
			fault: often(2, asking("enroll", 503, "8"))},
		{name: "over midnight after a call of unknown fate", begin: epoch.Add(15*time.Hour + 59*time.Minute + 59*time.Second),
			fault: sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 2}},
		{name: "given, after an outage of two days", more: []string{"effective_date", "2000-01-03"}, fault: often(5, enrollBusy), begin: epoch,
			down: 50 * time.Hour},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			if c.down > 0 {
				full(t)
			}
			time.Sleep(time.Until(c.begin))
			b.list()
			b.fault(c.fault)
			b.script = func(call exchange) reply {
				if call.operation != "enroll" {
					return reply{}
				}
				want := call.at.In(zone).AddDate(0, 0, 1).Format(time.DateOnly)
				if len(c.more) > 0 {
					want = c.more[1]
				}
				got := call.body["effective_date"]
				expiry, named := call.body["link_expired_at"]
				errorIf(t, named, "the call names link_expired_at %v, which is left to the service", expiry)
				errorIf(t, got != want, "a call at %s names effective_date %v, want %s", call.at.In(zone).Format(time.DateTime), got, want)
				started := b.events("mandate.enroll.started.r1")
				if last := started[len(started)-1]; len(c.more) == 0 && last.Body["effective_date"] != want {
					t.Errorf("a call at %s is announced without its date: %s", call.at.In(zone).Format(time.DateTime), last.Raw)
				}
				return reply{}
			}
			more := append([]string{"on_unknown", "retry", "give_up_at", time.Now().Add(100 * time.Hour).UTC().Format(time.RFC3339)}, c.more...)
			b.publish("mandate.enroll.requested", enrollment("r1", more...))
			if c.down > 0 {
				b.run(b.mandates(), time.Minute, b.published("mandate.enroll.deferred.r1", 1))
				time.Sleep(c.down)
			}
			b.run(b.mandates(), time.Hour, b.ended("mandate.enroll", "r1"))
			b.wantEnd("mandate.enroll", "succeeded", "r1")
		})
	}
}

// A given link_expired_at that has passed makes the enrollment useless: no call is made
// with it, and the request ends. It is not failed if an earlier call may have been made.
func TestNoCallIsMadeWithALinkThatHasExpired(t *testing.T) {
	cut := sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1}
	for _, c := range []struct {
		name    string
		expires time.Duration // from now
		faults  []sandbox.Fault
		waits   time.Duration // before the program runs
		heals   time.Duration // when the faults are over
		state   string
	}{
		{"before the first call", 30 * time.Minute, nil, time.Hour, 0, "failed"},
		{"while it is deferred", 30 * time.Minute, []sandbox.Fault{enrollBusy}, 0, time.Hour, "failed"},
		{"within a delivery", 5 * time.Second, []sandbox.Fault{asking("enroll", 503, "8")}, 0, 6 * time.Second, "failed"},
		{"after a call of unknown fate", 30 * time.Minute, []sandbox.Fault{cut, enrollBusy}, 0, time.Hour, "uncertain"},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.list()
			for _, f := range c.faults {
				b.fault(f)
			}
			began := time.Now()
			expires := began.Add(c.expires).Truncate(time.Second)
			b.script = func(call exchange) reply {
				if time.Since(began) > c.heals {
					b.box.ClearFaults("*")
				}
				late := call.at.Sub(expires)
				errorIf(t, call.operation == "enroll" && late >= 0, "a call %v after its link expired", late)
				return reply{}
			}
			b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "retry", "link_expired_at", upstreamTime(expires)))
			time.Sleep(c.waits)
			b.run(b.mandates(), 3*time.Hour, b.ended("mandate.enroll", "r1"))
			e := b.wantEnd("mandate.enroll", c.state, "r1")
			errorIf(t, c.state == "failed" && e.reason() != "unavailable", "want unavailable: %s", e.Raw)
			equal(t, "enrollments", b.box.Enrolled("order-r1"), 0)
		})
	}
}
