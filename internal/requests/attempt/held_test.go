package attempt

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/messages"
)

func TestOwnCredentialsThatAreRefusedAreTheRequestsFault(t *testing.T) {
	for _, c := range []struct {
		result string
		own    bool
		want   Verdict
	}{
		{"held", true, Refused},
		{"held 2m", true, Refused},
		{"not found", true, RetryLater}, // that is the address
		{"held", false, RetryLater},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(c.result, "")
			h.call.OwnKey = c.own
			if got := h.deliver(t.Context()); got.Verdict != c.want || got.calls != 1 {
				t.Errorf("%s, own key %t: got %s, want %s", c.result, c.own, summary(got), c.want)
			}
			if h.hold.Active() {
				t.Errorf("%s, own key %t: it began a hold", c.result, c.own)
			}
		})
	}
}

func TestARequestThatMeetsHeldFiveTimesWhileOthersSucceedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("held", "")
		for delivery := 1; ; delivery++ {
			got := h.deliver(t.Context())
			if got.Verdict == Refused {
				if delivery != heldTries || got.Reason != messages.ReasonRefused || got.Status != 403 {
					t.Errorf("refused at delivery %d, want %d: %s, status %d", delivery, heldTries, summary(got), got.Status)
				}
				return
			}
			if delivery == heldTries || got.Verdict != RetryLater || got.HeldCount != delivery {
				t.Fatalf("delivery %d: got %s", delivery, summary(got))
			}
			time.Sleep(got.wait / 2)
			h.other(t, "another", nil)
			time.Sleep(got.wait / 2)
		}
	})
}

func TestARequestThatMeetsHeldWhileNobodySucceedsIsNeverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("held", "")
		for range 2 * heldTries {
			got := h.deliver(t.Context())
			if got.Verdict != RetryLater || got.HeldCount != 1 {
				t.Fatalf("got %s", summary(got))
			}
			time.Sleep(got.wait)
		}
	})
}

func TestAHoldThatBeginsWhileItWaitsStopsACall(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("busy, ok", "again")
			if unknown {
				h.results[0] = "unknown"
			}
			time.AfterFunc(time.Millisecond, func() {
				h.other(t, "one", resultOf("held"))
				h.other(t, "two", resultOf("held"))
			})
			got := h.deliver(t.Context())
			if got.Verdict != RetryLater || got.Reason != messages.ReasonHeld || got.Status != 403 || got.calls != 1 ||
				got.wait != policy.Max || got.AfterUnknown != unknown || got.events != "started/1 deferred/1" {
				t.Errorf("got %s, status %d", summary(got), got.Status)
			}
			if said := got.Cause.Error(); strings.Count(said, "held") != 1 {
				t.Errorf("logged as %q, which says more than once that it is held", said)
			}
		})
	}
}

func TestCallsOfUnknownFateOfOneRequestBeginNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("unknown", "again")
		for range 3 {
			if got := h.deliver(t.Context()); got.calls != policy.Tries || h.hold.Active() {
				t.Fatalf("got %s, held: %q", summary(got), h.hold.Why())
			}
			time.Sleep(time.Hour)
		}
		h.other(t, "another", resultOf("unknown"))
		if h.other(t, "a third", resultOf("unknown")); !h.hold.Active() {
			t.Error("three requests begin no hold")
		}
	})
}

// What this program's own end cuts off says nothing of the upstream.
func TestACallThatTheProgramsEndCutsOffCountsForNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("unknown", "again")
		h.other(t, "another", resultOf("unknown"))
		h.other(t, "a third", resultOf("unknown"))
		ctx, end := context.WithCancel(t.Context())
		h.call.Make = func(context.Context) (string, error) {
			end()
			return "", resultOf("unknown")
		}
		if got := h.deliver(ctx); got.err == nil || h.hold.Active() {
			t.Errorf("got %s, held: %q", summary(got), h.hold.Why())
		}
	})
}

// One that meets held again while others succeed says nothing of the account.
func TestARequestThatIsHeldAloneCountsForNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("held", "")
		for range 2 {
			got := h.deliver(t.Context())
			time.Sleep(got.wait / 2)
			if h.other(t, "another", resultOf("held")); h.hold.Active() != (got.HeldCount == 1) {
				t.Fatalf("held %d times alone, and then another: a hold lasts %t", got.HeldCount, h.hold.Active())
			}
			if h.hold.Active() {
				time.Sleep(h.hold.Interval)
			}
			h.other(t, "another", nil)
			time.Sleep(got.wait)
		}
	})
}

func TestACallThatIsAnsweredWellEndsAHold(t *testing.T) {
	for _, result := range []string{"ok", "refused"} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(result, "")
			h.other(t, "one", resultOf("held"))
			h.other(t, "two", resultOf("held"))
			if !h.hold.Active() {
				t.Fatal("nothing is held")
			}
			if h.deliver(t.Context()); h.hold.Active() {
				t.Errorf("%s: it is still held", result)
			}
		})
	}
}
