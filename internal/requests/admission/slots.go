package admission

import "context"

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
