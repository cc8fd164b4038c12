package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlotsAreTakenUntilTheContextEnds(t *testing.T) {
	s := NewSlots(1)
	cause := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	if err := s.Take(ctx); err != nil {
		t.Fatal(err)
	}
	end(cause)
	if err := s.Take(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	s.Free()
	if err := s.Take(ctx); err != nil { // there is one
		t.Errorf("got %v", err)
	}
}

// Who waits is served by weight, whatever was served before; a lane alone has everything but the slot that another can have at once.
func TestLanesThatWaitAreServedByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(8, Lane{"default", 4}, Lane{"bulk", 1})
		served, ctx := map[string]*atomic.Int64{"default": {}, "bulk": {}}, t.Context()
		want := func(lane string, n int) {
			for range n {
				go func() {
					if s.In(lane).Take(ctx) == nil {
						served[lane].Add(1)
						<-time.After(time.Second)
						s.In(lane).Free()
					}
				}()
			}
		}
		want("bulk", 2000)
		<-time.After(100*time.Second + time.Millisecond)
		if n := served["bulk"].Load(); n != 707 {
			t.Errorf("a lane alone has %d of 707", n)
		}
		want("default", 1000) // nothing is owed to it for the time before
		if synctest.Wait(); served["default"].Load() != 1 {
			t.Error("its first waits for the other's")
		}
		<-time.After(100 * time.Second)
		if d, b := served["default"].Load(), served["bulk"].Load()-707; d < 630 || d > 650 || d+b < 800 || d+b > 801 {
			t.Errorf("of 800 the lanes have %d and %d, by weight it is 640 and 160", d, b)
		}
		<-time.After(time.Hour)
		if s.Taken() != 0 {
			t.Errorf("%d slots are taken at the end", s.Taken())
		}
	})
}

func TestWhoNoLongerWaitsIsNotServed(t *testing.T) {
	s := NewSlots(1, Lane{"default", 4}, Lane{"bulk", 1})
	if !s.Try() || s.In("bulk").Try() {
		t.Fatal("there is one")
	}
	ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := s.In("bulk").Take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if s.Free(); s.Taken() != 0 {
		t.Error("it was given to somebody who is gone")
	}
}

func TestALaneAloneLeavesOneSlotToAllOthers(t *testing.T) {
	s := NewSlots(8, Lane{"default", 1}, Lane{"a", 1}, Lane{"b", 1}, Lane{"c", 1})
	for s.Try() {
	}
	if s.Taken() != 7 || !s.In("a").Try() || s.In("b").Try() {
		t.Errorf("%d are taken, want 7 and another lane's first", s.Taken())
	}
	if s.Free(); s.Try() || !s.In("b").Try() {
		t.Error("the next is not for a lane without any")
	}
}

// Where there are fewer slots than lanes, each lane's first waits for nobody as long as one is free.
func TestEachLaneHasItsFirstSlot(t *testing.T) {
	s := NewSlots(2, Lane{"default", 1}, Lane{"a", 1}, Lane{"b", 1}, Lane{"c", 1})
	if !s.Try() || s.Try() || !s.In("a").Try() || s.In("b").Try() {
		t.Errorf("%d are taken, want one each by two lanes", s.Taken())
	}
}

// Many calls may end in one moment: what is free then is not one lane's.
func TestWhatIsFreeBeyondAThirdIsSharedByWeight(t *testing.T) {
	s := NewSlots(90, Lane{"a", 4}, Lane{"b", 1})
	some := func(lane string) int {
		n, err := s.In(lane).TakeSome(t.Context(), 256)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, of := range []struct {
		first, then string
		want        [2]int
	}{{"a", "b", [2]int{89, 1}}, {"a", "b", [2]int{72, 18}}, {"b", "a", [2]int{30, 48}}} {
		got := [2]int{some(of.first), some(of.then)}
		if got != of.want {
			t.Errorf("%s and then %s have %v, want %v", of.first, of.then, got, of.want)
		}
		for i, lane := range []string{of.first, of.then} {
			for range got[i] {
				s.In(lane).Free()
			}
		}
	}
}

// A lane takes what is free at once, so that pulls bring as much as one lane's alone; yet lanes are served by weight.
func TestLanesThatTakeSomeAreServedByWeightAndTakeAsMuchAsOneAlone(t *testing.T) {
	for _, of := range []struct{ pull, call time.Duration }{
		{0, 3 * time.Millisecond},
		{time.Millisecond, 3 * time.Millisecond},
		{2 * time.Millisecond, 6 * time.Millisecond},
		{time.Millisecond, 20 * time.Millisecond},
		{time.Millisecond, 4 * time.Second},
	} {
		alone, pulls := takeSome(t, of.pull, of.call, Lane{"default", 1})
		lanes := []Lane{{"default", 4}, {"a", 1}, {"b", 1}, {"c", 1}}
		served, with := takeSome(t, of.pull, of.call, lanes...)
		all := 0
		for _, n := range served {
			all += n
		}
		t.Logf("pulls of %v, calls of %v: %v in %d pulls, alone %v in %d", of.pull, of.call, served, with, alone, pulls)
		for _, l := range lanes {
			if part := float64(served[l.Name]) / float64(all) / float64(l.Weight) * 7; part < 0.9 || part > 1.1 {
				t.Errorf("%s has %.2f of its part", l.Name, part)
			}
		}
		if all < alone["default"]*19/20 || with > pulls*3/2 {
			t.Errorf("four lanes make %d calls by %d pulls, one makes %d by %d", all, with, alone["default"], pulls)
		}
	}
}

// takeSome has lanes take slots for as long as a thousand calls take, and returns how many each had in how many pulls of all.
func takeSome(t *testing.T, pull, call time.Duration, lanes ...Lane) (served map[string]int, pulls int) {
	served = map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(80, lanes...)
		ctx, end := context.WithTimeout(t.Context(), 1000*call)
		defer end()
		var one sync.Mutex
		var takers sync.WaitGroup
		for _, l := range lanes {
			takers.Go(func() {
				for mine := slots.In(l.Name); ; {
					n, err := mine.TakeSome(ctx, 256)
					if err != nil {
						return
					}
					one.Lock()
					served[l.Name] += n
					pulls++
					one.Unlock()
					<-time.After(pull/2 + rand.N(pull+1))
					for range n {
						takers.Go(func() {
							<-time.After(call/2 + rand.N(call))
							mine.Free()
						})
					}
				}
			})
		}
		takers.Wait()
	})
	return served, pulls
}
