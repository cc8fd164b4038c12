package attempt

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

func TestTheListIsAskedRightBeforeEachCallAfterOneOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("unknown, busy, ok", "again")
		h.deliver(t.Context())
		h.journalIs(t, "store started", "call unknown", "fresh look", "look", "call busy", "look", "call ok", "store succeeded")
	})
}

func TestTheListIsAskedAgainIfTheWaitForASlotWasLong(t *testing.T) {
	for wait, want := range map[time.Duration][]string{
		retry.LookIsGood:     {"look", "store started", "call ok", "store succeeded"},
		retry.LookIsGood + 1: {"look", "store started", "look", "call ok", "store succeeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("ok", "again")
			h.before(t, "unknown")
			h.occupy(t, wait)
			h.deliver(t.Context())
			h.journalIs(t, want...)
		})
	}
}

func TestALookThatCallsTheUpstreamTakesASlot(t *testing.T) {
	for _, looksUp := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("ok", "again")
			h.before(t, "unknown")
			h.call.LooksUp = looksUp
			h.call.OnUnknown = func(ctx context.Context, fresh bool) (Verdict, error) {
				if got := h.caller.Slots.Taken() == 1; got != looksUp {
					t.Errorf("looks up %t: a slot is taken %t", looksUp, got)
				}
				return h.onUnknown(ctx, fresh)
			}
			if got := h.deliver(t.Context()); got.Verdict != Done || h.caller.Slots.Taken() != 0 {
				t.Errorf("got %s, %d slots taken", summary(got), h.caller.Slots.Taken())
			}
		})
	}
}

// Who looks an interrupted call up stores nothing before, however long that takes: where several look at once, each longer than
// a lease, the first that has found it out ends it. If each took it over first, they would fence each other for ever.
func TestAnInterruptedCallIsLookedUpBeforeAnythingIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.before(t, "interrupted")
		h.call.LooksUp = true
		h.deliver(t.Context())
		h.journalIs(t, "look", "store started", "call ok", "store succeeded")
	})
}

func TestARefusalBehindACallOfUnknownFateIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("unknown, refused", "again")
		got := h.deliver(t.Context())
		if got.Verdict != Uncertain || got.Status != 422 || got.Message != "refused after a call of unknown fate: refused" || !got.AfterUnknown {
			t.Errorf("got %s, status %d, %q", summary(got), got.Status, got.Message)
		}
		h.journalIs(t, "store started", "call unknown", "fresh look", "look", "call refused", "look", "store uncertain")
	})
}

func TestALookInASlotTakesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.before(t, "unknown")
		h.call.LooksUp = true
		h.call.OnUnknown = func(ctx context.Context, fresh bool) (Verdict, error) {
			if h.count("look") == 0 {
				go h.occupy(t, 20*time.Second) // the next one in line
				synctest.Wait()
			}
			return h.onUnknown(ctx, fresh)
		}
		h.deliver(t.Context())
		h.journalIs(t, "look", "store started", "look", "store started", "call ok", "store succeeded")
	})
}

func TestAnInterruptedCallSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "uncertain")
		h.before(t, "interrupted")
		if got := h.deliver(t.Context()); !strings.HasPrefix(got.Message, "a worker died") {
			t.Errorf("got %q", got.Message)
		}
	})
}

func TestUnknownOfNamesWhyAFateIsUnknown(t *testing.T) {
	prior := func(s messages.State, f history.Facts) history.Prior { return history.Prior{State: s, Facts: f} }
	for _, c := range []struct {
		prior history.Prior
		want  messages.Reason
	}{
		{prior("", history.Facts{}), ""},
		{prior(messages.Started, history.Facts{}), "interrupted"},
		{prior(messages.Started, history.Facts{AfterUnknown: true}), "interrupted"},
		{prior(messages.Deferred, history.Facts{Reason: "busy"}), ""},
		{prior(messages.Deferred, history.Facts{Reason: "busy", AfterUnknown: true}), "no_answer"},
		{prior(messages.Deferred, history.Facts{Reason: "bad_answer", AfterUnknown: true}), "bad_answer"},
		{prior(messages.Deferred, history.Facts{Reason: "interrupted", AfterUnknown: true}), "interrupted"},
		{prior(messages.Reopened, history.Facts{}), ""},
		{prior(messages.Reopened, history.Facts{AfterUnknown: true}), "no_answer"},
	} {
		if got := unknownOf(c.prior); got != c.want {
			t.Errorf("%s %+v: got %q, want %q", c.prior.State, c.prior.Facts, got, c.want)
		}
	}
}
