package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/clients"
)

var usual = Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5}

// calls runs f under Do and gives the times of its calls since the first.
func calls(ctx context.Context, p Policy, f func(n int) error) (at []time.Duration, err error) {
	began := time.Now()
	_, err = Do(ctx, p, func(context.Context) (int, error) {
		at = append(at, time.Since(began))
		return 0, f(len(at))
	})
	return at, err
}

func busy(after time.Duration) error {
	return &clients.Error{Operation: "enroll", Fate: clients.Busy, Reason: clients.ReasonBusy, RetryAfter: after}
}

func TestBusyIsRepeatedWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, err := calls(t.Context(), usual, func(int) error { return busy(0) })
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

func TestOnlyBusyIsRepeated(t *testing.T) {
	for _, fate := range []clients.Fate{clients.Refused, clients.Held, clients.Unknown} {
		want := &clients.Error{Fate: fate}
		if at, err := calls(t.Context(), usual, func(int) error { return want }); len(at) != 1 || !errors.Is(err, want) {
			t.Errorf("%s: %d calls, %v", fate, len(at), err)
		}
	}
	if at, err := calls(t.Context(), usual, func(int) error { return nil }); len(at) != 1 || err != nil {
		t.Errorf("success: %d calls, %v", len(at), err)
	}
	if at, _ := calls(t.Context(), Policy{}, func(int) error { return busy(0) }); len(at) != 1 {
		t.Errorf("zero policy: %d calls", len(at))
	}
}

func TestReadRepeatsWhatIsUnknownToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		v, err := Read(t.Context(), usual, func(context.Context) (string, error) {
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
		at, err := calls(t.Context(), usual, func(n int) error {
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

func TestHaltEndsTheRepeating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 50 * time.Millisecond} { // before the first wait, and within it
			began, p := time.Now(), usual
			p.Halt = func() bool { return time.Since(began) >= after }
			if at, err := calls(t.Context(), p, func(int) error { return busy(0) }); len(at) != 1 || clients.FateOf(err) != clients.Busy {
				t.Errorf("halted after %v: calls at %v, %v", after, at, err)
			}
		}
	})
}

func TestTheLastErrorOutlivesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := calls(ctx, usual, func(int) error { return busy(5 * time.Second) })
		if clients.FateOf(err) != clients.Busy || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the last error and why it ended", err)
		}
	})
}

func TestWaitDoublesWithEveryDelivery(t *testing.T) {
	for made, want := range map[int]time.Duration{
		0: 10 * time.Second, 1: 10 * time.Second, 5: 10 * time.Second, 6: 20 * time.Second, 10: 20 * time.Second, 15: 40 * time.Second,
		35: 640 * time.Second, 40: 15 * time.Minute, 1_000_000: 15 * time.Minute,
	} {
		if got := usual.Wait(made); got != want {
			t.Errorf("after %d calls: got %v, want %v", made, got, want)
		}
	}
	slow := Policy{Max: time.Hour, Tries: 1}
	if got := slow.Wait(3); got != time.Hour {
		t.Errorf("Max above the longest wait: got %v", got)
	}
}
