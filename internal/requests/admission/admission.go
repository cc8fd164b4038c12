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

// Slots bound what is under way at once, of all operations of a program together.
type Slots chan struct{}

// Try takes a slot if one is free.
func (s Slots) Try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// Take waits for a slot; the error is the context's cause.
func (s Slots) Take(ctx context.Context) error {
	if s.Try() {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TakeSome waits for a slot, and takes as many as are free up to n.
func (s Slots) TakeSome(ctx context.Context, n int) (taken int, err error) {
	if err := s.Take(ctx); err != nil {
		return 0, err
	}
	for taken = 1; taken < n && s.Try(); taken++ {
	}
	return taken, nil
}

// Free gives a slot back.
func (s Slots) Free() { <-s }
