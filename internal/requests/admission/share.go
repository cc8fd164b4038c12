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
	"slices"
	"sync"
)

// Share is what work has taken of something that a program has little of. The zero value is ready.
type Share struct {
	mu      sync.Mutex
	taken   int
	refused int // how many Try in all
	waiting []*waiter
}

type waiter struct {
	n, whole int
	admitted chan struct{}
}

// fits admits the first, even if it takes more than the whole.
func (s *Share) fits(n, whole int) bool { return s.taken == 0 || s.taken+n <= whole }

// Try takes n of the whole, if as much is left. The caller frees it.
func (s *Share) Try(n, whole int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.fits(n, whole)
	if ok {
		s.taken += n
	} else {
		s.refused++
	}
	return ok
}

// Refused is how many Try have failed: work that has taken its part for long sees that others need it.
func (s *Share) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Take waits until it can take n of the whole, in the order of the calls. The caller frees it. The error is the context's
// cause; nothing is taken then.
func (s *Share) Take(ctx context.Context, n, whole int) error {
	w := &waiter{n, whole, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.admit()
	s.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 { // admitted meanwhile
		return nil
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.admit()
	return context.Cause(ctx)
}

// Free gives back what was taken.
func (s *Share) Free(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
	s.admit()
}

func (s *Share) admit() {
	for len(s.waiting) > 0 && s.fits(s.waiting[0].n, s.waiting[0].whole) {
		s.taken += s.waiting[0].n
		close(s.waiting[0].admitted)
		s.waiting = s.waiting[1:]
	}
}
