package admission

import (
	"context"
	"errors"
	"maps"
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

// Many calls may end in one moment: what is free then is each lane's by its weight, though each has one who waits.
func TestWhatIsFreeAtOnceIsSharedByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(10, Lane{Name: "a", Weight: 4}, Lane{Name: "b", Weight: 1})
		a, b := slots.In("a"), slots.In("b")
		got := map[string]int{}
		var takers sync.WaitGroup
		var one sync.Mutex
		some := func(name string, of Slots) {
			takers.Go(func() {
				n, err := of.TakeSome(t.Context(), 10)
				if err != nil {
					t.Error(err)
				}
				one.Lock()
				defer one.Unlock()
				got[name] += n
			})
			synctest.Wait()
		}
		some("b", b) // it has all but one
		some("a", a)
		for range 8 {
			b.Free()
		}
		some("a", a)
		some("b", b)
		for slots.Try() {
		}
		clear(got)
		some("b", b)
		some("a", a)
		slots.mu.Lock()
		for range 5 {
			a.free()
		}
		slots.mu.Unlock()
		takers.Wait()
		if want := map[string]int{"a": 4, "b": 1}; !maps.Equal(got, want) {
			t.Errorf("of five slots that are free at once they have %v, want %v", got, want)
		}
	})
}
