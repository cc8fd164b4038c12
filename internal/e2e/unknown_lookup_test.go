package e2e

import (
	"context"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// askedToWait is an enrollment of unknown fate, and a list that asks for patience.
func (b *bubble) askedToWait(seconds string) {
	b.t.Helper()
	b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1})
	b.fault(sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: 503, Headers: map[string]string{"Retry-After": seconds}})
	b.publish("mandate.enroll.requested", enrollment("r1"))
}

// A program that is to end does not wait until a list may be asked again: the request is
// deferred, and the next program looks.
func TestAStopEndsTheWaitForALookUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.askedToWait("9")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.mandates().Run(ctx) }()
		time.Sleep(3 * time.Second)
		began := time.Now()
		stop()
		if err := <-ended; err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("ended after %v: %v\n%s", time.Since(began), err, b.logs)
		}
		if e := b.wantOne("mandate.enroll.deferred.r1"); e.Body["after_unknown"] != true {
			t.Errorf("want after_unknown: %s", e.Raw)
		}
	})
}

// A list that asks for a long wait is not asked before.
func TestALookUpWaitsAsLongAsItIsAskedTo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.askedToWait("600")
		b.run(b.mandates(), time.Hour, nil)
		lists := b.of("transactions")
		for i := 1; i < len(lists); i++ {
			if wait := lists[i].at.Sub(lists[i-1].at); wait < 10*time.Minute {
				t.Errorf("asked again after %v: %s", wait, b.timeline())
			}
		}
		if len(lists) < 3 {
			t.Errorf("%d looks in an hour: %s", len(lists), b.timeline())
		}
	})
}
