package sweep

import (
	"context"
	"errors"
	"time"
)

// extra is rows that were read otherwise than page by page.
type extra[T any] struct {
	rows []Row[T]
	done chan<- error // has room for one
}

func (s *Sweeper[T]) init() { s.once.Do(func() { s.asked = make(chan extra[T]) }) }

// Publish has rows published that somebody has read otherwise, as if a page had shown them: each
// state once. It waits until Run has the leadership, and until they are stored. They say nothing
// of how far the list is known. It may be called at any time, by several.
func (s *Sweeper[T]) Publish(ctx context.Context, rows []Row[T]) error {
	s.init()
	done := make(chan error, 1)
	select {
	case s.asked <- extra[T]{rows, done}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits, and publishes meanwhile what others have read, also where no page could be read yet:
// whoever has read it can read the list. reset: see ErrReset.
func (r *run[T]) pause(ctx context.Context, wait time.Duration) (reset bool) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		select {
		case <-end.C:
			return false
		case <-ctx.Done():
			return false
		case e := <-r.asked:
			err := r.extra(ctx, e.rows)
			if e.done <- err; errors.Is(err, ErrReset) {
				return true
			}
		}
	}
}

// serve publishes what others have read and wait with. No rows may have been found unknown that
// are not being published yet: others may have published them when this returns. After an error
// rows of pages may not be stored.
func (r *run[T]) serve(ctx context.Context) error {
	for {
		select {
		case e := <-r.asked:
			err := r.extra(ctx, e.rows)
			if e.done <- err; err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (r *run[T]) extra(ctx context.Context, rows []Row[T]) error {
	if !r.started() {
		if err := r.lead(ctx); err != nil {
			return err
		}
	}
	if err := r.collect(ctx, 0); err != nil { // of pages
		return err
	}
	r.otherwise = true
	defer func() { r.otherwise = false }()
	before := r.stored
	err := r.publish(ctx, r.unknown(rows))
	if err == nil {
		err = r.collect(ctx, 0)
	}
	if !r.sweeping {
		r.state.New += r.stored - before
	}
	return err
}
