package e2e

import (
	"fmt"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// seldom is a poller that reads the list at the start, and then long after the test.
func (b *bubble) seldom() *programs.TransactionPoller {
	p := b.transactions()
	p.Interval, p.FullInterval, p.ListRate = 1000*time.Hour, 1000*time.Hour, 2
	return p
}

// callbackStore is where the receiver stores callbacks.
func (b *bubble) callbackStore() bus.EventStore {
	b.t.Helper()
	publisher, err := bus.NewPublisher(b.js.Conn())
	must(b.t, err)
	return bus.EventStore{Publisher: publisher, Source: "/errand/callback-receiver"}
}

// calledBack stores what the receiver stores of a callback.
func (b *bubble) calledBack(id, digest string) {
	b.t.Helper()
	body := &messages.CallbackBody{Method: "POST", Digest: digest, Checksum: messages.ChecksumUnknown}
	must(b.t, b.callbackStore().Callback(b.t.Context(), id, body))
}

// An enrollment that nothing was decided of is looked up at growing ages until its link has
// expired and a day more; what was decided, once more at most.
func TestAnOpenEnrollmentIsLookedUpUntilItIsDecided(t *testing.T) {
	for name, c := range map[string]struct {
		link     time.Duration // 0: none is named
		decision string
		after    time.Duration
		found    string
		within   time.Duration // of the decision, or of the link's end
		most     int           // looks
	}{
		"approved":         {0, sandbox.Approve, 20 * time.Minute, "approved", 10*time.Minute + 5*time.Second, 4},
		"not decided":      {0, "", time.Hour, "expired", 61 * time.Minute, 6},
		"a link for hours": {10 * time.Hour, sandbox.Decline, 5 * time.Hour, "failed", time.Hour + 5*time.Second, 7},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			var more []string
			if c.link > 0 {
				zone, err := time.LoadLocation("Asia/Kuala_Lumpur")
				must(t, err)
				more = []string{"link_expired_at", time.Now().Add(c.link).In(zone).Format(time.DateTime)}
			}
			b.publish("mandate.enroll.requested", enrollment("r1", more...))
			b.run(b.mandates(), time.Hour, b.ended("mandate.enroll", "r1"))
			found := b.wantOne("mandate.enroll.succeeded.r1").at(t)
			b.beside.Go(func() {
				time.Sleep(time.Until(found.Add(c.after)))
				if c.decision != "" {
					noError(t, b.box.Decide("order-r1", c.decision))
				}
			})
			b.run(b.seldom(), 8*time.Hour, func() bool { return b.count("mandate.application."+c.found+".r1") > 0 })
			b.run(b.seldom(), 100*time.Minute, nil) // it is not looked up again, though another age comes
			events := b.events("mandate.application." + c.found + ".r1")
			if len(events) != 1 {
				t.Fatalf("%d events, of %v", len(events), b.subjects("mandate.application.>"))
			}
			late := events[0].at(t).Sub(found.Add(c.after))
			errorIf(t, late > c.within || late < 0, "published %v after the decision, want %v at most", late, c.within)
			equal(t, "found by", events[0].Body["by"], "look_up")
			n := len(b.lookUps(epoch))
			errorIf(t, n > c.most, "%d looks, want %d at most", n, c.most)
		})
	}
}

// A service that calls before it lists what it calls of has the request looked up again.
func TestACallbackThatComesBeforeTheListShowsItIsNotWasted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Hour, b.ended("mandate.enroll", "r1"))
		var called time.Time
		b.beside.Go(func() {
			time.Sleep(20 * time.Minute) // the next look of its own is ten minutes later
			called = time.Now()
			b.calledBack("r1", fmt.Sprintf("%064d", 1))
			time.Sleep(30 * time.Second)
			noError(t, b.box.Decide("order-r1", sandbox.Approve))
		})
		b.run(b.seldom(), 25*time.Minute, nil)
		b.beside.Wait()
		e := b.wantOne("mandate.application.approved.r1")
		late := e.at(t).Sub(called)
		errorIf(t, late > 63*time.Second || e.Body["by"] != "callback", "published %v after the callback, by %v", late, e.Body["by"])
	})
}

// A callback has its request looked up at once, and many of them a bounded number of times.
func TestACallbackHasItsRequestLookedUpAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Hour, b.ended("mandate.enroll", "r1"))
		var decided time.Time
		b.beside.Go(func() {
			time.Sleep(time.Minute) // before the first look of its own
			decided = time.Now()
			noError(t, b.box.Decide("order-r1", sandbox.Approve))
			for i := range 64 {
				b.calledBack("r1", fmt.Sprintf("%02d%062d", i, 0))
				time.Sleep(500 * time.Millisecond)
			}
			b.calledBack("stranger", fmt.Sprintf("%064d", 0))
		})
		b.run(b.seldom(), 110*time.Second, nil)
		b.beside.Wait()
		e := b.wantOne("mandate.application.approved.r1")
		late := e.at(t).Sub(decided)
		errorIf(t, late > 3*time.Second || e.Body["by"] != "callback", "published %v after the callback, by %v", late, e.Body["by"])
		n := len(b.lookUps(epoch))
		errorIf(t, n < 3 || n > 5, "%d looks in half a minute of callbacks, want one every ten seconds", n)
	})
}
