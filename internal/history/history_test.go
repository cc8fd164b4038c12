package history_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// worker is one worker's history of the request r1.
func worker(l history.Log, fingerprint string) *history.History {
	return &history.History{Log: l, Operation: messages.Enroll, ID: "r1", Fingerprint: fingerprint}
}

// start is a handler that announces a call and ends well.
func start(h *history.History, calls *int) func(history.Prior) (messages.Event, error) {
	return func(history.Prior) (messages.Event, error) {
		h.Attempt++
		err := h.Store(context.Background(), messages.Started, &messages.EnrollStarted{
			Deadline: messages.Time{Time: time.Now().Add(time.Minute)}, Fingerprint: h.Fingerprint, OrderNumber: "o"})
		if err != nil {
			return messages.Event{}, err
		}
		*calls++
		return h.Event(messages.Succeeded, &messages.EnrollSucceeded{APIVersion: "v3", OrderNumber: "o",
			Enrollment: []byte(`{}`), Fingerprint: h.Fingerprint}), nil
	}
}

func TestFreshRequestIsNotRead(t *testing.T) {
	s, calls := &historytest.Log{}, 0
	h := worker(s, "f")
	if _, err := h.Settle(t.Context(), true, start(h, &calls)); err != nil {
		t.Fatal(err)
	}
	if s.Reads() != 0 || len(s.Events()) != 2 || calls != 1 {
		t.Fatalf("reads %d, events %d, calls %d; want 0, 2, 1", s.Reads(), len(s.Events()), calls)
	}
}

func TestRepeatedRequestFindsItsOutcome(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		s, calls := &historytest.Log{}, 0
		for range 3 {
			h := worker(s, "f")
			_, err := h.Settle(t.Context(), fresh, start(h, &calls))
			var answered *history.AlreadyDoneError
			if calls != 1 || err != nil && !errors.As(err, &answered) {
				t.Fatalf("fresh %v: calls %d, %v", fresh, calls, err)
			}
		}
	}
}

func TestSameIDWithOtherContentsIsForeign(t *testing.T) {
	s, calls := &historytest.Log{}, 0
	h := worker(s, "one")
	if _, err := h.Settle(t.Context(), true, start(h, &calls)); err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{true, false} {
		h = worker(s, "two")
		_, err := h.Settle(t.Context(), fresh, start(h, &calls))
		var foreign *history.ConflictError
		if !errors.As(err, &foreign) || calls != 1 || len(s.Events()) != 2 {
			t.Fatalf("got %v, calls %d, events %d; want ConflictError, 1, 2", err, calls, len(s.Events()))
		}
	}
}

func TestForeignIsSeenBehindADeferral(t *testing.T) {
	s := &historytest.Log{}
	h := worker(s, "one")
	_, err := h.Settle(t.Context(), true, func(history.Prior) (messages.Event, error) {
		_ = h.Store(t.Context(), messages.Started, &messages.EnrollStarted{Fingerprint: "one"})
		_ = h.Store(t.Context(), messages.Deferred, &messages.DeferredBody{})
		return messages.Event{}, &history.RetryLaterError{At: time.Now()}
	})
	if _, ok := errors.AsType[*history.RetryLaterError](err); !ok {
		t.Fatal(err)
	}
	h = worker(s, "two")
	var foreign *history.ConflictError
	if _, err := h.Read(t.Context()); !errors.As(err, &foreign) {
		t.Fatalf("got %v, want ConflictError", err)
	}
	h = worker(s, "one")
	if p, err := h.Read(t.Context()); err != nil || p.State != messages.Deferred || p.Started == nil {
		t.Fatalf("got %+v, %v; want deferred with its started", p, err)
	}
}

func TestOfManyWorkersOneCalls(t *testing.T) {
	for round := range 50 {
		s := &historytest.Log{}
		var mu sync.Mutex
		calls := 0
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				h := worker(s, "f")
				_, err := h.Settle(context.Background(), i%2 == 0, func(history.Prior) (messages.Event, error) {
					h.Attempt++
					err := h.Store(context.Background(), messages.Started, &messages.EnrollStarted{
						Deadline: messages.Time{Time: time.Now().Add(time.Minute)}, Fingerprint: "f"})
					if err != nil {
						return messages.Event{}, err
					}
					mu.Lock()
					calls++
					mu.Unlock()
					return h.Event(messages.Failed, &messages.FailedBody{Fingerprint: "f"}), nil
				})
				var later *history.RetryLaterError
				var answered *history.AlreadyDoneError
				if err != nil && !errors.As(err, &later) && !errors.As(err, &answered) && !errors.Is(err, history.ErrFenced) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if calls != 1 || len(s.Events()) != 2 {
			t.Fatalf("round %d: calls %d, events %d; want 1, 2", round, calls, len(s.Events()))
		}
	}
}

func TestHolderThatWasReplacedCannotStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &historytest.Log{}
		old := worker(s, "f")
		calls := 0
		_, err := old.Settle(t.Context(), true, func(history.Prior) (messages.Event, error) {
			ev, err := start(old, &calls)(history.Prior{})
			if err != nil {
				return ev, err
			}
			// While it sleeps, another worker finds it in flight, and takes over after the deadline.
			other := worker(s, "f")
			var later *history.RetryLaterError
			if _, err := other.Read(t.Context()); !errors.As(err, &later) || time.Until(later.At) < 59*time.Second {
				return ev, fmt.Errorf("in flight: got %w, want RetryLaterError at the deadline", err)
			}
			time.Sleep(time.Minute + time.Second)
			p, err := other.Read(t.Context())
			if err != nil || p.State != messages.Started || other.Attempt != 1 {
				return ev, fmt.Errorf("taken over: got %v %w", p, err)
			}
			return ev, other.Store(t.Context(), messages.Uncertain, &messages.EnrollUncertain{Fingerprint: "f"})
		})
		if !errors.Is(err, history.ErrFenced) {
			t.Fatalf("got %v, want ErrFenced", err)
		}
		want := []messages.State{messages.Started, messages.Uncertain}
		if diff := cmp.Diff(want, s.States()); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
	})
}

// Two workers have one correction, as it was delivered again while the first stood still. The second must not take what the
// first one opened for another request's: the message would have two outcomes.
func TestTwoWorkersOpenOneCorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &historytest.Log{}
		published := time.Now()
		s.Put("mandate.enroll.failed.r1", []byte(`{"reason":"refused","fingerprint":"one"}`))
		time.Sleep(time.Second)
		stopped := errors.New("stopped")
		deliver := func(corrects func(context.Context) (bool, error)) error {
			h := worker(s, "two")
			h.Corrects, h.Published = corrects, published
			_, err := h.Settle(t.Context(), false, func(history.Prior) (messages.Event, error) { return messages.Event{}, stopped })
			return err
		}
		err := deliver(func(ctx context.Context) (bool, error) {
			if err := deliver(historytest.Corrects); !errors.Is(err, stopped) {
				t.Errorf("the first one: %v", err)
			}
			return true, nil
		})
		if !errors.Is(err, history.ErrFenced) {
			t.Errorf("the second one: %v, want ErrFenced", err)
		}
	})
}

// A message that is delivered again after it was corrected, since its acknowledgement was
// lost, does not run over the correction: it had its outcome.
func TestWhatWasCorrectedDoesNotCorrectItsCorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ran := &historytest.Log{}, map[string]int{}
		deliver := func(contents string, published time.Time) error {
			h := worker(s, contents)
			h.Corrects, h.Published = historytest.Corrects, published
			_, err := h.Settle(t.Context(), false, func(history.Prior) (messages.Event, error) {
				ran[contents]++
				return h.Event(messages.Failed, &messages.FailedBody{Reason: messages.ReasonRefused, Fingerprint: contents}), nil
			})
			return err
		}
		first := time.Now()
		for _, contents := range []string{"one", "two"} {
			if err := deliver(contents, time.Now()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if done, ok := errors.AsType[*history.AlreadyDoneError](deliver("one", first)); !ok || done.Sequence != 1 || ran["one"] != 1 {
			t.Errorf("delivered again it does not find how it ended, or ran: %v", ran)
		}
		// A person had run it again, where it failed once more: its dead letter may not be stored yet.
		s.Put("mandate.enroll.failed.r1", []byte(`{"reason":"unavailable","fingerprint":"one"}`))
		again := s.Put("mandate.enroll.failed.r1", []byte(`{"reason":"refused","fingerprint":"two"}`)) - 1
		time.Sleep(time.Second)
		if done, ok := errors.AsType[*history.AlreadyDoneError](deliver("one", first)); !ok || done.Sequence != again {
			t.Errorf("delivered again after it failed twice: %+v, want the event %d", done, again)
		}
		if _, ok := errors.AsType[*history.ConflictError](deliver("three", first)); !ok || ran["three"] > 0 {
			t.Errorf("older than the correction it is not a conflict, or ran: %v", ran)
		}
		if err := deliver("one", time.Now()); err != nil || ran["one"] != 2 { // somebody wants it after all
			t.Errorf("published again after the correction failed: %v, %v", err, ran)
		}
	})
}
