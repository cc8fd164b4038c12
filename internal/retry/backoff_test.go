package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/clients"
	"errand/pkg/messages"
)

var usual = Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5}

// calls runs f as one delivery does, and gives the times of its calls since the first.
func calls(p Policy, f func(n int) error) (at []time.Duration, err error) {
	began := time.Now()
	for waits := p.Waits(); ; {
		at = append(at, time.Since(began))
		if err = f(len(at)); err == nil {
			return at, nil
		}
		wait, again := waits.Next(err)
		if !again {
			return at, err
		}
		time.Sleep(wait)
	}
}

func busy(after time.Duration) error {
	return &clients.Error{Operation: "enroll", Fate: clients.Busy, Reason: messages.ReasonBusy, RetryAfter: after}
}

func TestBusyIsRepeatedWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, err := calls(usual, func(int) error { return busy(0) })
		t.Log(at)
		if len(at) != usual.Tries || clients.FateOf(err) != clients.Busy {
			t.Fatalf("%d calls, %v; want %d and the last error", len(at), err, usual.Tries)
		}
		wait := usual.First // grows by half, and each wait is within half of it
		for i := 1; i < len(at); i++ {
			if got := at[i] - at[i-1]; got < wait/2 || got > wait*3/2 {
				t.Errorf("wait %d: got %v, want about %v", i, got, wait)
			}
			wait = wait * 3 / 2
		}
	})
}

func TestThePolicyWithoutTriesCallsOnce(t *testing.T) {
	if at, _ := calls(Policy{}, func(int) error { return busy(0) }); len(at) != 1 {
		t.Errorf("%d calls, want 1", len(at))
	}
}

func TestReadRepeatsWhatIsUnknownToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		v, err := Read(t.Context(), nil, usual, func(context.Context) (string, error) {
			if n++; n < 3 {
				return "", &clients.Error{Fate: clients.Unknown}
			}
			return "read", nil
		})
		if v != "read" || err != nil || n != 3 {
			t.Fatalf("got %q, %v after %d calls", v, err, n)
		}
	})
}

func TestRetryAfterStretchesAWaitOrEndsTheRepeating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, err := calls(usual, func(n int) error {
			switch n {
			case 1:
				return busy(7 * time.Second)
			case 2:
				return busy(usual.Max + time.Second)
			}
			return nil
		})
		if len(at) != 2 || at[1] != 7*time.Second || clients.FateOf(err) != clients.Busy {
			t.Fatalf("calls at %v, %v", at, err)
		}
	})
}

func TestTheLastErrorOutlivesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := Read(ctx, nil, usual, func(context.Context) (int, error) { return 0, busy(5 * time.Second) })
		if clients.FateOf(err) != clients.Busy || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the last error and why it ended", err)
		}
	})
}

func TestADeferralIsTwiceTheLast(t *testing.T) {
	for last, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, time.Second: 10 * time.Second, 10 * time.Second: 20 * time.Second, 8 * time.Minute: 15 * time.Minute,
		15 * time.Minute: 15 * time.Minute, 24 * time.Hour: 15 * time.Minute,
	} {
		if got := usual.Defer(last); got != want {
			t.Errorf("after %v: got %v, want %v", last, got, want)
		}
	}
	slow := Policy{Max: time.Hour, Tries: 1}
	if got := slow.Defer(0); got != time.Hour {
		t.Errorf("Max above the longest deferral: got %v", got)
	}
}

func TestAScheduleDoublesUpToItsMax(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second,
		4: 40 * time.Second, 5: time.Minute, 1000: time.Minute} {
		if got := Fault.Wait(n); got != want {
			t.Errorf("wait %d: got %v, want %v", n, got, want)
		}
	}
}
