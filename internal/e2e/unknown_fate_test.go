package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"errand/internal/programs"
	"errand/internal/sandbox"
)

// A call that timed out is carried out upstream later, while its request waits for
// something else. The list shows it by the time of the next call, which is not made.
func TestAnEnrollmentMadeLateIsNotMadeAgain(t *testing.T) {
	const timeout = 30 * time.Second
	for _, c := range []struct {
		name       string
		made       time.Duration // after the call began
		status     int           // of the calls after it, until it was made
		retryAfter string        // of a 503 to the second call
		stopped    time.Duration // between the first deferral and the next delivery
	}{
		{name: "busy beyond the tries of a delivery", made: 40 * time.Second, status: http.StatusServiceUnavailable},
		{name: "busy for a moment", made: 36 * time.Second, retryAfter: "8"},
		{name: "held", made: 40 * time.Second, status: http.StatusUnauthorized},
		{name: "busy, and nobody runs for an hour", made: 40 * time.Second, status: http.StatusServiceUnavailable, stopped: time.Hour},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.list()
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(c.made), Times: 1})
			if c.retryAfter != "" {
				b.fault(often(1, asking("enroll", 503, c.retryAfter)))
			}
			b.script = func(call exchange) reply {
				if first := b.of("enroll"); call.operation == "enroll" && len(first) > 0 && call.at.Sub(first[0].at) < c.made+time.Second {
					return reply{status: c.status}
				}
				return reply{}
			}
			b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "retry"))
			if c.stopped > 0 {
				b.run(b.settlingLate(), timeout+20*time.Second, b.published("mandate.enroll.deferred.r1", 1))
				time.Sleep(c.stopped)
			}
			b.run(b.settlingLate(), 30*time.Minute, b.ended("mandate.enroll", "r1"))
			n := b.box.Enrolled("order-r1")
			errorIf(t, n != 1, "enrolled %d times, want once: %s", n, b.timeline())
			e := b.wantEnd("mandate.enroll", "uncertain", "r1")
			errorIf(t, e.reason() != "link_lost" || e.evidence() != 1, "want link_lost and the record: %s", e.Raw)
		})
	}
}

// settlingLate is a program that believes a list to show what was enrolled earlier than it does.
func (b *bubble) settlingLate() *programs.MandateConsumer {
	p := b.mandates()
	p.ListSettle = time.Second
	return p
}

// What refuses a call after one of unknown fate may be that one's own success ("already
// taken"): it is not reported as failed, and the list still shows what became of it.
func TestARefusalAfterACallOfUnknownFateIsUncertain(t *testing.T) {
	for _, c := range []struct {
		name   string
		made   time.Duration // after the call began
		busy   int           // calls answered 503 in between
		listed int           // when the refusal came
	}{
		{"listed when it comes", 33 * time.Second, 0, 1},
		{"listed later", 50 * time.Second, 0, 0},
		{"after a deferral", 20 * time.Minute, 7, 0},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.list()
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(c.made), Times: 1})
			if c.busy > 0 {
				b.fault(often(c.busy, enrollBusy))
			}
			b.fault(enrollRefused)
			b.script = func(call exchange) reply {
				if call.operation == "enroll" && len(b.exchanges(nil)) > 0 {
					time.Sleep(3 * time.Second) // so that it was made before the refusal comes, or not
				}
				return reply{}
			}
			far := upstreamTime(time.Now().Add(72 * time.Hour))
			b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "retry", "link_expired_at", far))
			b.run(b.settlingLate(), 30*time.Minute, b.ended("mandate.enroll", "r1"))
			e := b.wantEnd("mandate.enroll", "uncertain", "r1")
			errorIf(t, e.evidence() != c.listed, "want %d records as evidence: %s; %s", c.listed, e.Raw, b.timeline())
			b.wantOne("dead.mandate.enroll.requested")
			if err := b.box.Decide("order-r1", sandbox.Approve); err != nil {
				time.Sleep(c.made) // it is made only now
				if err = b.box.Decide("order-r1", sandbox.Approve); err != nil {
					t.Fatal(err)
				}
			}
			b.run(b.mandates(), 2*time.Hour, b.published("mandate.enroll.resolved.r1", 1))
			r := b.wantOne("mandate.enroll.resolved.r1")
			errorIf(t, r.Body["outcome"] != "succeeded", "resolved: %s", r.Raw)
		})
	}
}

// String is an event as a failed test shows it.
func (e event) String() string { return fmt.Sprintf("%s %.300s", e.Subject, e.Raw) }

// askedToWait is an enrollment of unknown fate, and a list that asks for patience.
func (b *bubble) askedToWait(seconds string) {
	b.t.Helper()
	b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1})
	b.fault(asking("transactions", 503, seconds))
	b.publish("mandate.enroll.requested", enrollment("r1"))
}

// A program that is to end does not wait until a list may be asked again: the request is
// deferred, and the next program looks.
func TestAStopEndsTheWaitForALookUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.idle = 0
		b.askedToWait("9")
		stop := b.running(b.mandates())
		time.Sleep(3 * time.Second)
		began := time.Now()
		stop()
		errorIf(t, time.Since(began) > 5*time.Second, "ended after %v\n%s", time.Since(began), b.logs)
		e := b.wantOne("mandate.enroll.deferred.r1")
		errorIf(t, e.Body["after_unknown"] != true, "want after_unknown: %s", e.Raw)
	})
}

// A list that asks for a long wait is not asked before.
func TestALookUpWaitsAsLongAsItIsAskedTo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.askedToWait("600")
		b.run(b.mandates(), time.Hour, nil)
		lists := b.of("transactions")
		for i := 1; i < len(lists); i++ {
			wait := lists[i].at.Sub(lists[i-1].at)
			errorIf(t, wait < 10*time.Minute, "asked again after %v: %s", wait, b.timeline())
		}
		errorIf(t, len(lists) < 3, "%d looks in an hour: %s", len(lists), b.timeline())
	})
}
