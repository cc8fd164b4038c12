package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/messages"
)

// shelf is a Log in memory, fenced as JetStream is.
type shelf struct {
	mu     sync.Mutex
	events []Entry
	reads  int
}

func (s *shelf) Append(_ context.Context, r Record) (uint64, error) {
	body, err := r.Event.Encode()
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last(r.Event.Operation.Filter(r.Event.ID)).Sequence != r.Last {
		return 0, ErrConflict
	}
	s.events = append(s.events, Entry{r.Event.Subject(), uint64(len(s.events) + 1), body})
	return uint64(len(s.events)), nil
}

func (s *shelf) Last(_ context.Context, _ messages.Operation, filter string) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.last(filter), nil
}

func (s *shelf) last(filter string) (e Entry) {
	want := strings.Split(filter, ".")
next:
	for _, have := range s.events {
		tokens := strings.Split(have.Subject, ".")
		for i, w := range want {
			if len(tokens) != len(want) || w != "*" && w != tokens[i] {
				continue next
			}
		}
		e = have
	}
	return e
}

func (s *shelf) hand(fingerprint string) *History {
	return &History{Log: s, Operation: messages.Enroll, ID: "r1", Fingerprint: fingerprint}
}

// start is a handler that announces a call and ends well.
func start(h *History, calls *int) func(Prior) (messages.Event, error) {
	return func(Prior) (messages.Event, error) {
		h.Attempt++
		err := h.Store(context.Background(), messages.Started, &messages.EnrollStarted{
			Deadline: messages.Time{Time: time.Now().Add(time.Minute)}, Fingerprint: h.Fingerprint, OrderNumber: "o"})
		if err != nil {
			return messages.Event{}, err
		}
		*calls++
		return h.Event(messages.Succeeded, &messages.EnrollSucceeded{APIVersion: "v3", OrderNumber: "o", Enrollment: []byte(`{}`), Fingerprint: h.Fingerprint}), nil
	}
}

func TestFreshRequestIsNotRead(t *testing.T) {
	s, calls := &shelf{}, 0
	h := s.hand("f")
	if _, err := h.Settle(t.Context(), true, start(h, &calls)); err != nil {
		t.Fatal(err)
	}
	if s.reads != 0 || len(s.events) != 2 || calls != 1 {
		t.Fatalf("reads %d, events %d, calls %d; want 0, 2, 1", s.reads, len(s.events), calls)
	}
}

func TestRepeatedRequestFindsItsOutcome(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		s, calls := &shelf{}, 0
		for range 3 {
			h := s.hand("f")
			_, err := h.Settle(t.Context(), fresh, start(h, &calls))
			var answered *Answered
			if calls != 1 || err != nil && !errors.As(err, &answered) {
				t.Fatalf("fresh %v: calls %d, %v", fresh, calls, err)
			}
		}
	}
}

func TestSameIDWithOtherContentsIsForeign(t *testing.T) {
	s, calls := &shelf{}, 0
	h := s.hand("one")
	if _, err := h.Settle(t.Context(), true, start(h, &calls)); err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{true, false} {
		h = s.hand("two")
		_, err := h.Settle(t.Context(), fresh, start(h, &calls))
		var foreign *Foreign
		if !errors.As(err, &foreign) || calls != 1 || len(s.events) != 2 {
			t.Fatalf("got %v, calls %d, events %d; want Foreign, 1, 2", err, calls, len(s.events))
		}
	}
}

func TestForeignIsSeenBehindADeferral(t *testing.T) {
	s := &shelf{}
	h := s.hand("one")
	_, err := h.Settle(t.Context(), true, func(Prior) (messages.Event, error) {
		_ = h.Store(t.Context(), messages.Started, &messages.EnrollStarted{Fingerprint: "one"})
		_ = h.Store(t.Context(), messages.Deferred, &messages.DeferredBody{})
		return messages.Event{}, &Later{At: time.Now()}
	})
	if _, ok := errors.AsType[*Later](err); !ok {
		t.Fatal(err)
	}
	h = s.hand("two")
	var foreign *Foreign
	if _, err := h.Read(t.Context()); !errors.As(err, &foreign) {
		t.Fatalf("got %v, want Foreign", err)
	}
	h = s.hand("one")
	if p, err := h.Read(t.Context()); err != nil || p.State != messages.Deferred || p.Started == nil {
		t.Fatalf("got %+v, %v; want deferred with its started", p, err)
	}
}

func TestOfManyWorkersOneCalls(t *testing.T) {
	for round := range 50 {
		s := &shelf{}
		var mu sync.Mutex
		calls := 0
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				h := s.hand("f")
				_, err := h.Settle(context.Background(), i%2 == 0, func(Prior) (messages.Event, error) {
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
				var later *Later
				var answered *Answered
				if err != nil && !errors.As(err, &later) && !errors.As(err, &answered) && !errors.Is(err, ErrConflict) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if calls != 1 || len(s.events) != 2 {
			t.Fatalf("round %d: calls %d, events %d; want 1, 2", round, calls, len(s.events))
		}
	}
}

func TestHolderThatWasReplacedCannotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		old := s.hand("f")
		calls := 0
		_, err := old.Settle(t.Context(), true, func(Prior) (messages.Event, error) {
			ev, err := start(old, &calls)(Prior{})
			if err != nil {
				return ev, err
			}
			// While it sleeps, somebody else finds it in hand, and after the deadline takes over.
			other := s.hand("f")
			var later *Later
			if _, err := other.Read(t.Context()); !errors.As(err, &later) || time.Until(later.At) < 59*time.Second {
				return ev, fmt.Errorf("in hand: got %w, want Later at the deadline", err)
			}
			time.Sleep(time.Minute + time.Second)
			p, err := other.Read(t.Context())
			if err != nil || p.State != messages.Started || other.Attempt != 1 {
				return ev, fmt.Errorf("taken over: got %v %w", p, err)
			}
			return ev, other.Store(t.Context(), messages.Uncertain, &messages.EnrollUncertain{Fingerprint: "f"})
		})
		if !errors.Is(err, ErrConflict) {
			t.Fatalf("got %v, want ErrConflict", err)
		}
		if last := s.last("mandate.enroll.*.r1"); messages.StateOf(last.Subject) != messages.Uncertain {
			t.Fatalf("last is %s", last.Subject)
		}
	})
}
