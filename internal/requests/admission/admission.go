// Package admission bounds how much a program works on at once.
//
//	a request in flight   CONCURRENCY and a quarter     Slots, taken before it is pulled
//	a call                CONCURRENCY                   Slots, taken right before it
//	long work             half of the calls             Share: messages to long lists, listings beyond their first page
//	memory                see its users                 Share: bodies of large requests, lists that are compared
//
// Long work would keep its place in flight for minutes or hours. It makes at most half of the calls, so that other requests
// have the other half: what finds no share goes back to its queue, and resumes later where it was. How many calls a program
// makes in a second is another matter, see package throttle.
package admission

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Share is what work has taken of something that a program has little of. The zero value is ready; its users agree about the
// whole. Who asks for more than that gets all of it.
type Share struct {
	once    sync.Once
	room    *semaphore.Weighted
	whole   int
	refused atomic.Int64 // how many Try in all
}

// part is the room to take n of the whole from, and how much that takes.
func (s *Share) part(n, whole int) (room *semaphore.Weighted, weight int64) {
	s.once.Do(func() {
		s.whole = max(whole, 1)
		s.room = semaphore.NewWeighted(int64(s.whole))
	})
	return s.room, int64(min(n, s.whole))
}

// Try takes n of the whole, if as much is left. The caller frees it.
func (s *Share) Try(n, whole int) bool {
	room, weight := s.part(n, whole)
	ok := room.TryAcquire(weight)
	if !ok {
		s.refused.Add(1)
	}
	return ok
}

// Refused is how many Try have failed: work that has taken its part for long sees that others need it.
func (s *Share) Refused() int { return int(s.refused.Load()) }

// Take waits until it can take n of the whole, in the order of the calls. The caller frees it. The error is the context's
// cause; nothing is taken then.
func (s *Share) Take(ctx context.Context, n, whole int) error {
	if room, weight := s.part(n, whole); room.Acquire(ctx, weight) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Free gives back what was taken, if anything was.
func (s *Share) Free(n int) {
	if n > 0 {
		s.room.Release(int64(min(n, s.whole)))
	}
}

// Slots bound what is under way at once, of all operations of a program together. Where several lanes wait, each is served in
// proportion to its weight (start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996); what a lane leaves, others have, but for
// one slot that a lane without any can have at once. A Slots is one lane's view of them.
type Slots struct {
	*slots
	lane int
}

type slots struct {
	mu    sync.Mutex
	whole int
	taken int
	turn  float64 // of the lane that was served last
	queue bool    // made by NewTurn
	room  chan struct{}
	lanes []lane
}

type lane struct {
	name    string
	weight  float64
	next    float64 // its turn
	eager   bool    // it has had as many as it asked for
	taking  int     // of those that waited for some, how many are about to take more
	taken   int
	waiting []waiting
}

type waiting struct {
	got  chan struct{}
	some bool // not one alone
}

// Lane is a name and how many calls it has for each one of a lane of weight 1, where both wait.
type Lane struct {
	Name   string
	Weight int
}

// NewSlots makes so many slots. Without lanes they are of one.
func NewSlots(whole int, lanes ...Lane) Slots {
	s := &slots{whole: whole}
	for _, l := range lanes {
		s.lanes = append(s.lanes, lane{name: l.Name, weight: float64(l.Weight)})
	}
	if len(lanes) == 0 {
		s.lanes = []lane{{weight: 1}}
	}
	return Slots{slots: s}
}

// NewTurn makes slots of those who wait in a queue: lanes get there by weight alone.
func NewTurn(whole int, lanes ...Lane) Slots {
	s := NewSlots(whole, lanes...)
	s.queue = true
	return s
}

// In are the same slots for a lane; for the first one if there is none of that name.
func (s Slots) In(name string) Slots {
	s.lane = 0
	for i := range s.lanes { // their names never change
		if s.lanes[i].name == name {
			s.lane = i
		}
	}
	return s
}

// Whole is how many slots there are.
func (s Slots) Whole() int { return s.whole }

// Taken is how many of them are taken.
func (s Slots) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Try takes a slot if one is free.
func (s Slots) Try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.try()
}

func (s Slots) try() bool {
	mine := &s.lanes[s.lane]
	if !s.may(mine) {
		return false
	}
	s.taken++
	s.serve(mine)
	return true
}

// may reports whether a lane may take a slot: its first, or one that leaves one to lanes that have none.
func (s *slots) may(l *lane) bool {
	kept := 0
	if !s.queue && l.taken > 0 && slices.ContainsFunc(s.lanes, func(l lane) bool { return l.taken == 0 }) {
		kept = 1
	}
	return s.whole-s.taken > kept
}

// serve counts that a lane got a slot. A lane that was idle for a while has saved up nothing.
func (s *slots) serve(l *lane) {
	l.taken++
	s.turn = max(s.turn, l.next)
	l.next = s.turn + 1/l.weight
}

// Take waits for a slot; the error is the context's cause.
func (s Slots) Take(ctx context.Context) error { return s.take(ctx, false) }

func (s Slots) take(ctx context.Context, some bool) error {
	s.mu.Lock()
	mine, got := &s.lanes[s.lane], make(chan struct{})
	if s.try() {
		if some {
			mine.taking++
		}
		s.mu.Unlock()
		return nil
	}
	mine.next = max(mine.next, s.turn)
	mine.waiting = append(mine.waiting, waiting{got, some})
	s.mu.Unlock()
	select {
	case <-got:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(mine.waiting, waiting{got, some}); i >= 0 {
		mine.waiting = slices.Delete(mine.waiting, i, i+1)
		return context.Cause(ctx)
	}
	return nil // it came in the same moment
}

// TakeSome waits for a slot, and takes as many as are free up to n: of several lanes that could use more, each its part.
func (s Slots) TakeSome(ctx context.Context, n int) (taken int, err error) {
	if err := s.take(ctx, n > 1); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &s.lanes[s.lane]
	mine.eager = n > 1
	most := min(n, int(math.Ceil(s.part(mine, s.whole-s.taken+1))))
	for taken = 1; taken < most && s.try(); taken++ {
	}
	if n > 1 {
		mine.taking--
	}
	for s.next() { // what was left for it
	}
	return taken, nil
}

// Due reports whether the lane may take slots now: no lane that could use more has an earlier turn, or so many are free that its part
// is more than one.
func (s Slots) Due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &s.lanes[s.lane]
	return s.part(mine, s.whole-s.taken) > 1 || !slices.ContainsFunc(s.lanes, func(l lane) bool { return l.eager && l.next < mine.next })
}

// part is how much a lane has of some slots beside others that could use more.
func (s *slots) part(mine *lane, some int) float64 {
	all := 0.0
	for i := range s.lanes {
		if l := &s.lanes[i]; l == mine || l.eager {
			all += l.weight
		}
	}
	return float64(some) * mine.weight / all
}

// Room is closed when a third of the slots is free.
func (s Slots) Room() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room == nil {
		s.room = make(chan struct{})
	}
	room := s.room
	s.makeRoom()
	return room
}

func (s *slots) makeRoom() {
	if s.room != nil && 3*s.taken <= 2*s.whole {
		close(s.room)
		s.room = nil
	}
}

// Free gives a slot of the lane back: to whom it is due of those that wait.
func (s Slots) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free()
}

func (s Slots) free() {
	s.taken--
	s.lanes[s.lane].taken--
	if !s.next() {
		s.makeRoom()
	}
}

// next gives a free slot to the waiting lane whose turn is earliest, and reports whether it did. While a lane with an earlier turn is
// about to take more, the slot is left for that lane.
func (s *slots) next() bool {
	var due *lane
	for i := range s.lanes {
		if l := &s.lanes[i]; len(l.waiting)+l.taking > 0 && (due == nil || l.next < due.next) && s.may(l) {
			due = l
		}
	}
	if due == nil || len(due.waiting) == 0 {
		return false
	}
	s.taken++
	s.serve(due)
	if due.waiting[0].some {
		due.taking++
	}
	close(due.waiting[0].got)
	due.waiting = slices.Delete(due.waiting, 0, 1)
	return true
}
