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
	"time"

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
	turn  float64     // of the lane that was served last
	queue bool        // made by NewTurn
	hurry bool        // whoever waits for a third of the slots has waited long enough
	late  *time.Timer // sets hurry
	lanes []*lane
}

type lane struct {
	name    string
	weight  float64
	next    float64 // its turn
	eager   bool    // it asked for several last
	taken   int
	waiting []waiting
}

type waiting struct {
	got  chan int
	most int
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
		s.lanes = append(s.lanes, &lane{name: l.Name, weight: float64(l.Weight)})
	}
	if len(lanes) == 0 {
		s.lanes = []*lane{{weight: 1}}
	}
	s.late = time.AfterFunc(math.MaxInt64, s.hurryUp)
	s.late.Stop()
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
	s.lane = max(0, slices.IndexFunc(s.lanes, func(l *lane) bool { return l.name == name }))
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
	mine := s.lanes[s.lane]
	if !s.may(mine) {
		return false
	}
	s.serve(mine, 1)
	return true
}

// may reports whether a lane may take a slot: its first, or one that leaves one to lanes that have none.
func (s *slots) may(l *lane) bool {
	kept := 0
	if !s.queue && l.taken > 0 && slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.taken == 0 }) {
		kept = 1
	}
	return s.whole-s.taken > kept
}

// patience is for how long a third of the slots is waited for since a lane began to, or had it: of few slots less.
func (s *slots) patience() {
	s.hurry = false
	s.late.Reset(min(time.Duration(s.whole)*50*time.Microsecond, 4*time.Millisecond))
}

func (s *slots) third() int { return (s.whole + 2) / 3 }

// serve gives a lane slots up to a number, as many as it may take. A lane that was idle for a while has saved up nothing.
func (s *slots) serve(l *lane, most int) (n int) {
	for ; n < most && s.may(l); n++ {
		s.taken++
		l.taken++
	}
	s.turn = max(s.turn, l.next)
	l.next = s.turn + float64(n)/l.weight
	return n
}

// Take waits for a slot; the error is the context's cause.
func (s Slots) Take(ctx context.Context) error {
	_, err := s.take(ctx, 1)
	return err
}

// TakeSome waits for a slot, and takes as many as are free up to n. If that is several, it waits for a third of the slots, for some
// milliseconds at most. One lane has that third, so that it pulls as many requests at once as a lane alone does; others have the next.
// Of what is free beyond a third each has its part.
func (s Slots) TakeSome(ctx context.Context, n int) (taken int, err error) {
	s.mu.Lock()
	s.lanes[s.lane].eager = n > 1
	s.mu.Unlock()
	return s.take(ctx, n)
}

func (s Slots) take(ctx context.Context, most int) (taken int, err error) {
	s.mu.Lock()
	mine, got := s.lanes[s.lane], make(chan int, 1)
	mine.next = max(mine.next, s.turn)
	if most > 1 {
		s.patience()
	}
	mine.waiting = append(mine.waiting, waiting{got, most})
	s.next()
	s.mu.Unlock()
	select {
	case taken = <-got:
		return taken, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(mine.waiting, waiting{got, most}); i >= 0 {
		mine.waiting = slices.Delete(mine.waiting, i, i+1)
		return 0, context.Cause(ctx)
	}
	return <-got, nil // they came in the same moment
}

// Free gives a slot of the lane back: to whom it is due of those that wait.
func (s Slots) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.lanes[s.lane].taken--
	s.next()
}

// next gives the free slots to the lanes that wait, first to the one whose turn is earliest.
func (s *slots) next() {
	for {
		var due *lane
		first := 0
		room := s.hurry || s.whole-s.taken >= s.third()
		for _, l := range s.lanes {
			w := slices.IndexFunc(l.waiting, func(w waiting) bool { return room || w.most == 1 })
			if w >= 0 && (due == nil || l.next < due.next) && s.may(l) {
				due, first = l, w
			}
		}
		if due == nil {
			return
		}
		w := due.waiting[first]
		due.waiting = slices.Delete(due.waiting, first, first+1)
		if w.most > 1 {
			w.most = min(w.most, max(s.third(), s.part(due)))
			s.patience()
		}
		w.got <- s.serve(due, w.most)
	}
}

// hurryUp ends the wait for a third.
func (s *slots) hurryUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry = true
	s.next()
}

// part is how much a lane has of what is free beside others that could use more.
func (s *slots) part(mine *lane) int {
	all := 0.0
	for _, l := range s.lanes {
		if l == mine || l.eager {
			all += l.weight
		}
	}
	return int(math.Ceil(float64(s.whole-s.taken) * mine.weight / all))
}
