package hold

import "context"

// Slots bound the calls under way at once, of all operations of a program together.
type Slots chan struct{}

// Take waits for a slot; the error is the context's cause.
func (s Slots) Take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Free gives a slot back.
func (s Slots) Free() { <-s }
