package mandates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
)

// events is a stream in memory.
type events struct {
	mu  sync.Mutex
	all []history.Entry
}

func (e *events) add(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, history.Entry{Subject: "mandate.enroll.uncertain." + id, Sequence: uint64(len(e.all) + 1), At: time.Now()})
}

func (e *events) next(_ context.Context, from uint64, since time.Time) (history.Entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.all {
		if o.Sequence >= from && (from > 0 || !o.At.Before(since)) {
			return o, nil
		}
	}
	return history.Entry{}, nil
}

// seen are the looks: whose, and at what age.
type seen []string

func (s *seen) look(_ context.Context, o history.Entry, _, age time.Duration) (bool, error) {
	*s = append(*s, fmt.Sprintf("%s after %v, for %v", o.ID(), time.Since(o.At).Round(time.Second), age))
	return true, nil
}

func looks(e *events, s *seen) *FollowUp {
	return &FollowUp{What: "a thing", Ages: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
		Policy: retry.Policy{Max: 10 * time.Second}, Logger: zerolog.Nop(),
		Next: e.next, Look: s.look}
}

func (l *FollowUp) runFor(t *testing.T, d time.Duration) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	l.Run(ctx)
}

func equal(t *testing.T, what string, got seen, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Each is looked at once at each age, by a program that was there all the time, and by two that followed each other.
func TestEachIsLookedAtAtEachAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e events
		var s seen
		e.add("a")
		go func() { time.Sleep(5 * time.Minute); e.add("b") }()
		looks(&e, &s).runFor(t, 30*time.Minute)
		equal(t, "the first half hour", s, "a after 1m0s, for 1m0s", "b after 1m0s, for 1m0s", "a after 10m0s, for 10m0s",
			"b after 10m0s, for 10m0s")
		s = nil
		looks(&e, &s).runFor(t, time.Hour)
		equal(t, "the hour after", s, "a after 30m0s, for 10m0s", "b after 25m0s, for 10m0s", "a after 1h0m0s, for 1h0m0s",
			"b after 1h0m0s, for 1h0m0s")
	})
}

// One that is so late that its next look is due is left out, so that a slow service gets no
// queue that grows; what is older than Back is not looked at by a new program.
func TestALateLookIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e events
		var s seen
		for _, id := range []string{"a", "b", "c"} {
			e.add(id)
		}
		l, late := looks(&e, &s), time.Duration(0)
		l.Late = func(d time.Duration) { late = max(late, d.Truncate(time.Minute)) }
		l.Look = func(ctx context.Context, o history.Entry, before, age time.Duration) (bool, error) {
			_, _ = s.look(ctx, o, before, age)
			time.Sleep(5 * time.Minute)
			return true, nil
		}
		l.runFor(t, 30*time.Minute)
		equal(t, "a slow service", s, "a after 1m0s, for 1m0s", "b after 6m0s, for 1m0s", "a after 11m1s, for 10m0s",
			"b after 16m1s, for 10m0s", "c after 21m1s, for 10m0s")
		if late != 11*time.Minute {
			t.Errorf("the latest look was %v late", late)
		}
		s = nil
		time.Sleep(2 * time.Hour)
		e.add("d")
		l = looks(&e, &s)
		l.Back = time.Hour
		l.runFor(t, 5*time.Minute)
		equal(t, "what is recent", s, "d after 1m0s, for 1m0s")
	})
}

// While the service answers nobody, or is not to be asked, nothing is left out but what is late;
// what it says of one says nothing of the others.
func TestAServiceThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		held bool
		want []string
	}{
		"busy":    {&clients.Error{Fate: clients.Busy}, false, []string{"a after 5m0s, for 1m0s", "b after 5m0s, for 1m0s"}},
		"held":    {&clients.Error{Fate: clients.Held}, false, []string{"a after 5m0s, for 1m0s", "b after 5m0s, for 1m0s"}},
		"not now": {nil, true, []string{"a after 5m0s, for 1m0s", "b after 5m0s, for 1m0s"}},
		"refused": {&clients.Error{Fate: clients.Refused}, false, nil},
		"unknown": {&clients.Error{Fate: clients.Unknown}, false, nil},
		"ours":    {errors.New("not stored"), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e events
				var s seen
				e.add("a")
				e.add("b")
				began, asked := time.Now(), 0
				l := looks(&e, &s)
				ill := func() bool { return time.Since(began) < 5*time.Minute-5*time.Second }
				l.Held = func() bool { return c.held && ill() }
				l.Look = func(ctx context.Context, o history.Entry, before, age time.Duration) (bool, error) {
					if asked++; c.err != nil && ill() {
						return true, c.err
					}
					return s.look(ctx, o, before, age)
				}
				l.runFor(t, 9*time.Minute)
				equal(t, "looks", s, c.want...)
				if asked > 30 {
					t.Errorf("it was asked %d times in 5 minutes", asked)
				}
			})
		})
	}
}

// What the service answers to one for ever keeps no other waiting for ever.
func TestOneThatIsNeverAnsweredDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e events
		var s seen
		e.add("ill")
		go func() {
			for i := range 5 {
				time.Sleep(2 * time.Hour)
				e.add(fmt.Sprint(i))
			}
		}()
		l := looks(&e, &s)
		l.Look = func(ctx context.Context, o history.Entry, before, age time.Duration) (bool, error) {
			if o.ID() == "ill" {
				return true, &clients.Error{Fate: clients.Held}
			}
			return s.look(ctx, o, before, age)
		}
		l.runFor(t, 20*time.Hour)
		if len(s) != 15 {
			t.Errorf("5 were looked up %d times, not at 3 ages each: %q", len(s), s)
		}
	})
}

// Those that are late at one age do not keep those waiting that are due at another.
func TestManyThatAreLateKeepNoOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e events
		var s seen
		for range 1000 {
			e.add("late")
		}
		time.Sleep(30 * time.Minute)
		e.add("young")
		l := looks(&e, &s)
		l.Look = func(ctx context.Context, o history.Entry, before, age time.Duration) (bool, error) {
			time.Sleep(time.Second)
			if o.ID() == "young" {
				return s.look(ctx, o, before, age)
			}
			return true, nil
		}
		l.runFor(t, 15*time.Minute)
		equal(t, "the young one", s, "young after 1m1s, for 1m0s")
	})
}

// A stream that was made again begins with its first sequence.
func TestAStreamThatWasMadeAgainIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e events
		var s seen
		for _, id := range []string{"a", "b", "c"} {
			e.add(id)
		}
		go func() {
			time.Sleep(30 * time.Minute)
			e.mu.Lock()
			e.all = nil
			e.mu.Unlock()
			e.add("d")
			e.add("e")
		}()
		l := looks(&e, &s)
		l.runFor(t, 50*time.Minute)
		equal(t, "looks", s[6:], "d after 1m0s, for 1m0s", "e after 1m0s, for 1m0s", "d after 10m0s, for 10m0s", "e after 10m0s, for 10m0s")
	})
}
