package attempt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

func TestNothingIsCalledUnlessStartedIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "")
		broken := errors.New("nobody knows whether it was stored")
		h.log.Before = func(messages.Event) error { return broken }
		if got := h.deliver(t.Context()); !errors.Is(got.err, broken) || got.calls != 0 || got.events != "" {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAFencedWorkerDoesNotCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "again")
		h.before(t, "interrupted")
		h.log.Before = func(messages.Event) error { // another worker is faster
			h.log.Put("mandate.enroll.started.r1", []byte(`{}`))
			return nil
		}
		if got := h.deliver(t.Context()); !errors.Is(got.err, history.ErrFenced) || got.calls != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAWorkerThatIsFencedBetweenTwoCallsDoesNotRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("busy 8s, ok", "")
		h.call.Make = func(ctx context.Context) (string, error) {
			h.log.Put("mandate.enroll.started.r1", []byte(`{}`))
			return h.makeCall(ctx)
		}
		if got := h.deliver(t.Context()); !errors.Is(got.err, history.ErrFenced) || got.calls != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNothingIsCalledAfterGiveUpAtHoweverManyTriesAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("busy 8s", "")
		h.caller.Policy.Tries = 1000
		h.call.GiveUpAt = time.Now().Add(time.Minute)
		got := h.deliver(t.Context())
		if got.Verdict != GivenUp || got.Reason != messages.ReasonUnavailable || !time.Now().Equal(h.call.GiveUpAt) {
			t.Errorf("got %s, %v after give_up_at", summary(got), time.Since(h.call.GiveUpAt))
		}
		if got.calls < 4 || got.calls > 8 {
			t.Errorf("%d calls in a minute, want one about every eight seconds", got.calls)
		}
	})
}

func TestNothingIsCalledIfTheWaitForASlotPassesGiveUpAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "")
		h.call.GiveUpAt = time.Now().Add(time.Minute)
		h.occupy(t, time.Hour)
		got := h.deliver(t.Context())
		if got.Verdict != GivenUp || got.calls != 0 || got.events != "started/1 started/1 failed/0" || time.Since(h.call.GiveUpAt) > 0 {
			t.Errorf("got %s, %v late", summary(got), time.Since(h.call.GiveUpAt))
		}
	})
}

func TestAGivenUpRequestOfUnknownFateIsLookedAtOnceMore(t *testing.T) {
	for _, c := range []struct {
		look    string
		message string
	}{
		{"again", ""},
		{"error", "; what became of its call could not be found out: enroll: busy: status 503"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("ok", c.look)
			h.before(t, "unknown")
			h.call.GiveUpAt = time.Now()
			got := h.deliver(t.Context())
			want := fmt.Sprintf("given up after %s%s", messages.Time{Time: h.call.GiveUpAt}, c.message)
			if got.Verdict != Uncertain || got.Reason != messages.ReasonNoAnswer || got.calls != 0 || got.looks != 1 || got.Message != want ||
				!got.AfterUnknown {
				t.Errorf("look %s: got %s, %q", c.look, summary(got), got.Message)
			}
		})
	}
}

// Given up while it waits for the next call of the same delivery.
func TestAGivenUpRequestSaysThatACallOfUnknownFateIsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("unknown", "again")
		h.call.GiveUpAt = time.Now().Add(time.Millisecond)
		if got := h.deliver(t.Context()); got.Verdict != Uncertain || got.calls != 1 || !got.AfterUnknown {
			t.Errorf("got %s", summary(got))
		}
	})
}

// The last deferral but one leaves time for a call, the last one ends at give_up_at.
func TestADeferralLeavesTimeForOneMoreCallBeforeGiveUpAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("busy 2m", "")
		h.call.GiveUpAt = time.Now().Add(time.Minute)
		for _, want := range []time.Duration{time.Minute - timeout - retry.Margin, timeout + retry.Margin} {
			got := h.deliver(t.Context())
			if got.Verdict != RetryLater || got.calls != 1 || got.wait != want {
				t.Errorf("got %s, want a call and a wait of %v", summary(got), want)
			}
			time.Sleep(got.wait)
		}
		if got := h.deliver(t.Context()); got.Verdict != GivenUp || got.calls != 0 {
			t.Errorf("at give_up_at: got %s", summary(got))
		}
	})
}

func TestAnUpstreamThatAsksForADayIsAskedAfterAQuarterOfAnHour(t *testing.T) {
	for _, asks := range []string{"busy 24h", "held 24h"} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(asks+", ok", "")
			if got := h.deliver(t.Context()); got.Verdict != RetryLater || got.wait != 15*time.Minute {
				t.Fatalf("got %s", summary(got))
			}
			time.Sleep(15 * time.Minute)
			if got := h.deliver(t.Context()); got.Verdict != Done {
				t.Errorf("got %s", summary(got))
			}
		})
	}
}

func TestNoCallIsRepeatedAfterStop(t *testing.T) {
	for _, c := range []struct {
		during, results, looks string
		reason                 messages.Reason
	}{
		{"call", "busy", "", "busy"},
		{"pause", "busy", "", "busy"},
		{"call", "unknown", "again", "no_answer"},
		{"pause", "unknown", "again", "no_answer"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(c.results, c.looks)
			stop := make(chan struct{})
			h.caller.Stop = stop
			h.call.Make = func(ctx context.Context) (string, error) {
				if c.during == "call" {
					close(stop)
				} else {
					time.AfterFunc(time.Millisecond, func() { close(stop) })
				}
				return h.makeCall(ctx)
			}
			began := time.Now()
			got := h.deliver(t.Context())
			if got.Verdict != RetryLater || got.Reason != c.reason || got.calls != 1 || time.Since(began) > time.Millisecond {
				t.Errorf("stopped during the %s: got %s after %v", c.during, summary(got), time.Since(began))
			}
		})
	}
}

func TestACallThatOurOwnEndCutOffIsLeftToWhoeverTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("other", "again")
		ctx, end := context.WithCancelCause(t.Context())
		cause := errors.New("the grace is over")
		h.call.Make = func(ctx context.Context) (string, error) { end(cause); return h.makeCall(ctx) }
		if got := h.deliver(ctx); !errors.Is(got.err, cause) || got.looks != 0 || got.events != "started/1" {
			t.Errorf("got %+v", got)
		}
	})
}

// The wall clock can be set, and the monotonic one stands still while a machine is suspended.
func TestADeadlineThatHasPassedByOneClockHasPassed(t *testing.T) {
	made := newDeadline(time.Minute)
	if strings.Contains(made.wall.String(), "m=") || !strings.Contains(made.monotonic.String(), "m=") {
		t.Fatalf("made of %s and %s, want a wall clock's time and a monotonic one's", made.wall, made.monotonic)
	}
	if said := made.wall.Truncate(time.Millisecond); !said.Equal(made.wall) || !said.Equal(made.monotonic) {
		t.Errorf("made of %s and %s, which an event would say is %s", made.wall, made.monotonic, said)
	}
	now := time.Now()
	in := func(wall, monotonic time.Duration) Deadline {
		return Deadline{wall: now.Add(wall).Round(0), monotonic: now.Add(monotonic)}
	}
	for _, c := range []struct {
		what     string
		deadline Deadline
		outlasts bool // ten seconds from now
		passed   bool
	}{
		{"ahead by both", in(time.Minute, time.Minute), true, false},
		{"just long enough", in(10*time.Second, 10*time.Second), true, false},
		{"too short by the wall clock", in(10*time.Second-1, time.Minute), false, false},
		{"too short by the monotonic clock", in(time.Minute, 10*time.Second-1), false, false},
		{"passed by the wall clock only", in(-1, time.Minute), false, true},
		{"passed by the monotonic clock only", in(time.Minute, -1), false, true},
		{"passed by both", in(-1, -1), false, true},
		{"never made", Deadline{}, false, true},
	} {
		if got := c.deadline.outlasts(now, 10*time.Second); got != c.outlasts {
			t.Errorf("%s: outlasts a call %t, want %t", c.what, got, c.outlasts)
		}
		if got := c.deadline.passed(now); got != c.passed {
			t.Errorf("%s: passed %t, want %t", c.what, got, c.passed)
		}
	}
}

func TestACallIsAnnouncedAgainIfTheWaitForASlotWasLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "")
		h.occupy(t, 50*time.Second)
		h.deliver(t.Context())
		h.journalIs(t, "store started", "store started", "store started", "call ok", "store succeeded")
		if got := h.events(); got != "started/1 started/1 started/1 succeeded/1" {
			t.Errorf("got %s", got)
		}
	})
}

func TestACallHasItsWholeTimeBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("busy", "")
		h.caller.Policy = retry.Policy{First: time.Second, Max: 10 * time.Second, Tries: 20}
		h.call.Make = func(ctx context.Context) (string, error) {
			events := h.log.Events()
			stored := historytest.Decode[messages.EnrollStarted](t, events[len(events)-1])
			if left := time.Until(stored.Deadline.Time); left < timeout {
				t.Errorf("a call begins %v before the deadline, want at least %v", left, timeout)
			}
			if until, ok := ctx.Deadline(); !ok || until.Sub(stored.Deadline.Time).Abs() > time.Millisecond {
				t.Errorf("the context ends at %v, want the deadline %v", until, stored.Deadline)
			}
			return h.makeCall(ctx)
		}
		if got := h.deliver(t.Context()); got.calls != 20 {
			t.Errorf("%d calls, want 20", got.calls)
		}
	})
}

func TestACallIsAnnouncedAgainWhenItsAnnouncementIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("busy, ok", "")
		midnight := time.Now().Add(time.Millisecond)
		h.call.Stale = func(now time.Time) bool { return h.count("store started") == 1 && !now.Before(midnight) }
		h.deliver(t.Context())
		h.journalIs(t, "store started", "call busy", "store started", "call ok", "store succeeded")
	})
}

// Nothing but the clocks shows that a worker stood still.
func TestAWorkerThatStandsStillBetweenAnnouncementAndCallDoesNotCallLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "")
		looks := 0
		h.call.Stale = func(time.Time) bool { // the last thing that is asked before a call
			if looks++; looks == 2 {
				time.Sleep(time.Hour)
			}
			return false
		}
		h.call.Make = func(ctx context.Context) (string, error) {
			if ctx.Err() != nil {
				t.Error("called late")
			}
			return h.makeCall(ctx)
		}
		h.deliver(t.Context())
		h.journalIs(t, "store started", "store started", "call ok", "store succeeded")
		if got := h.events(); got != "started/1 started/1 succeeded/1" {
			t.Errorf("got %s", got)
		}
	})
}

func TestWhatCanNeverBeDoneIsRefusedWithoutACall(t *testing.T) {
	for before, want := range map[string]Verdict{"nothing": Refused, "unknown": Uncertain} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness("ok", "again")
			h.before(t, before)
			h.call.Before = func(time.Time) *clients.Error {
				var refused *clients.Error
				errors.As(resultOf("refused"), &refused)
				return refused
			}
			if got := h.deliver(t.Context()); got.Verdict != want || got.calls != 0 {
				t.Errorf("after %s: got %s, want %s without a call", before, summary(got), want)
			}
		})
	}
}

// A slot is waited for. What was announced and not called when the program ends says so: else its fate would be unknown.
func TestAnAnnouncedCallThatWaitsIsPutOffWhenTheProgramEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "uncertain")
		stop := make(chan struct{})
		h.caller.Stop = stop
		h.occupy(t, 10*time.Minute)
		hard, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, func() { close(stop); time.AfterFunc(25*time.Second, end) })
		got := h.deliver(hard)
		if got.Verdict != RetryLater || got.calls != 0 || !strings.HasSuffix(got.events, "started/1 deferred/0") {
			t.Errorf("got %s", summary(got))
		}
		time.Sleep(time.Hour)
		if got = h.deliver(t.Context()); got.Verdict != Done || got.calls != 1 || got.AfterUnknown {
			t.Errorf("later: got %s", summary(got))
		}
	})
}

func TestNoMoreCallsAreUnderWayThanThereAreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, requests = 3, 20
		shared := newHarness("ok", "")
		shared.caller.Slots = admission.NewSlots(slots)
		var mu sync.Mutex
		underWay, peak := 0, 0
		var workers sync.WaitGroup
		for range requests {
			h := newHarness("busy, ok", "")
			h.caller = shared.caller
			h.call.Make = func(ctx context.Context) (string, error) {
				mu.Lock()
				underWay++
				peak = max(peak, underWay)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				underWay--
				mu.Unlock()
				return h.makeCall(ctx)
			}
			workers.Go(func() {
				if got := h.deliver(t.Context()); got.Verdict != Done {
					t.Errorf("got %s", summary(got))
				}
			})
		}
		workers.Wait()
		if peak != slots || shared.caller.Slots.Taken() != 0 {
			t.Errorf("%d calls at once, want %d; %d slots are still taken", peak, slots, shared.caller.Slots.Taken())
		}
	})
}

func TestAPanicFreesItsSlot(t *testing.T) {
	h := newHarness("ok", "")
	h.call.Make = func(context.Context) (string, error) { panic("boom") }
	func() {
		defer func() { _ = recover() }()
		h.deliver(t.Context())
	}()
	if h.caller.Slots.Taken() != 0 {
		t.Error("a slot is still taken")
	}
}

// While a call waits for a slot it stays announced: a repeat of the request leaves it alone, and does not take it for one of
// unknown fate.
func TestACallThatWaitsForASlotStaysAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness("ok", "uncertain")
		h.occupy(t, 2*time.Minute)
		ended := make(chan outcome)
		go func() { ended <- h.deliver(t.Context()) }()
		for range 11 {
			time.Sleep(10 * time.Second)
			if repeat := h.deliver(t.Context()); !isLater(repeat.err) {
				t.Errorf("the repeat is %s", summary(repeat))
			}
		}
		if got := <-ended; got.Verdict != Done || h.count("store started") > 6 {
			t.Errorf("got %s, announced %d times", summary(got), h.count("store started"))
		}
	})
}

func isLater(err error) bool {
	_, ok := errors.AsType[*history.RetryLaterError](err)
	return ok
}
