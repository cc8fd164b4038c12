package attempt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/retry"
	"errand/pkg/messages"
)

var errEnds = errors.New("the program ends")

// throttled lets each call wait for so long, and no longer when the program is to end.
func (h *harness) throttled(wait time.Duration) {
	h.caller.Owe = func() { h.note("owe") }
	h.caller.Throttle = func(ctx context.Context) error {
		h.note("wait")
		if !retry.PauseUntil(ctx, h.caller.Stop, wait) {
			return context.Cause(ctx)
		}
		if h.caller.Stopping() {
			return errEnds
		}
		return nil
	}
}

// A worker that dies while it waits must not leave a call of unknown fate.
func TestACallWaitsForTheRateBeforeItIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("busy, ok", "again")
		h.throttled(time.Minute)
		h.deliver(t.Context())
		h.journalIs(t, "wait", "store started", "call busy", "wait", "store started", "call ok", "store succeeded")
	})
}

// What is looked up is too old after a second, and a call that was waited for sooner. So the
// call follows the look-up, which waited, at once, and the next one waits for it.
func TestASlowRateDoesNotKeepACallBehindALookUpFromBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.before(t, "unknown")
		h.throttled(time.Minute)
		h.call.LooksUp = true
		h.call.OnUnknown = func(ctx context.Context, fresh bool) (Verdict, error) {
			if err := h.caller.Throttle(ctx); err != nil { // it reads
				return "", err
			}
			return h.onUnknown(ctx, fresh)
		}
		h.deliver(t.Context())
		h.journalIs(t, "wait", "look", "owe", "store started", "call ok", "store succeeded")
	})
}

// NATS may be slow to take the announcement, and a slot may be long in coming: calls that
// were all waited for before must not be made at once.
func TestACallThatCouldNotBeMadeSoonWaitsForTheRateAgain(t *testing.T) {
	for wait, want := range map[time.Duration][]string{
		retry.MayCall:     {"wait", "store started", "call ok", "store succeeded"},
		retry.MayCall + 1: {"wait", "store started", "wait", "call ok", "store succeeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("ok", "again")
			h.throttled(0)
			h.occupy(t, wait)
			h.deliver(t.Context())
			h.journalIs(t, want...)
		})
	}
}

func TestARequestDoesNotWaitForTheRateBeyondGiveUpAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.call.GiveUpAt = time.Now().Add(time.Minute)
		h.throttled(time.Hour)
		began := time.Now()
		if got := h.deliver(t.Context()); got.Verdict != GivenUp || time.Since(began) != time.Minute {
			t.Errorf("got %s after %v", summary(got), time.Since(began))
		}
		h.journalIs(t, "wait", "store failed")
	})
}

// What was not announced goes back as it was. What was announced and not called says so: else
// its fate would be unknown.
func TestARequestThatWaitsForTheRateGoesBackWhenTheProgramEnds(t *testing.T) {
	for script, want := range map[string][]string{
		"ok":       {"wait"},
		"busy, ok": {"wait", "store started", "call busy", "wait", "store deferred"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(script, "again")
			stop := make(chan struct{})
			h.caller.Stop = stop
			h.throttled(time.Minute)
			time.AfterFunc(30*time.Second, func() {
				if script != "ok" {
					time.Sleep(time.Minute)
				}
				close(stop)
			})
			got := h.deliver(t.Context())
			if _, later := errors.AsType[*history.RetryLaterError](got.err); !later {
				t.Errorf("%s: got %v, want that it comes back", script, got.err)
			}
			h.journalIs(t, want...)
			if h.hold.Active() {
				t.Error("that began a hold")
			}
		})
	}
}

// Where NATS is slow and the queue for the rate long, each wait outlives what was waited for
// before. The call is made nevertheless.
func TestASlowNATSAndASlowRateTogetherKeepNoCallFromBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.call.GiveUpAt = time.Now().Add(time.Hour)
		h.throttled(10 * time.Second)
		note := h.log.Before
		h.log.Before = func(e messages.Event) error { time.Sleep(retry.MayCall + 1); return note(e) }
		h.deliver(t.Context())
		h.journalIs(t, "wait", "store started", "wait", "store started", "call ok", "store succeeded")
	})
}

// It had its turn among lanes: what was announced is not made to wait for a thousand calls of a heavier one.
func TestACallThatIsAnnouncedHasOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.call.GiveUpAt = time.Now().Add(time.Hour)
		h.throttled(10 * time.Second)
		turn, note := admission.NewTurn(1), h.log.Before
		h.caller.Turn = &turn
		h.log.Before = func(e messages.Event) error {
			turn.Try() // another lane's requests have it from now on
			time.Sleep(retry.MayCall + 1)
			return note(e)
		}
		if got := h.deliver(t.Context()); got.Verdict != Done {
			t.Errorf("got %s", summary(got))
		}
	})
}

// So it is behind a call of unknown fate, and where the look takes long.
func TestASlowNATSAndASlowLookTogetherKeepNoCallFromBeingMade(t *testing.T) {
	for _, looksUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("ok", "again")
			h.before(t, "unknown")
			h.call.GiveUpAt, h.call.LooksUp = time.Now().Add(time.Hour), looksUp
			h.throttled(10 * time.Second)
			h.call.OnUnknown = func(ctx context.Context, fresh bool) (Verdict, error) {
				if looksUp { // many pages
					retry.Pause(ctx, 6*time.Second)
				}
				return h.onUnknown(ctx, fresh)
			}
			note := h.log.Before
			h.log.Before = func(e messages.Event) error { time.Sleep(retry.LookIsGood + time.Second/4); return note(e) }
			if got := h.deliver(t.Context()); got.Verdict != Done || h.count("look") > 4 {
				t.Errorf("looks up %t: got %s after %d looks and %d announcements", looksUp, summary(got), h.count("look"), h.count("store started"))
			}
		})
	}
}
