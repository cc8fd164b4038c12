package sweep

import (
	"context"
	"errors"
	"time"
)

// extra is rows from another source than the pages, such as a look-up.
type extra[T any] struct {
	rows []Row[T]
	done chan<- error // has room for one
}

func (s *Sweeper[T]) init() { s.once.Do(func() { s.asked = make(chan extra[T]) }) }

// Publish has rows from another source stored, each state once; they do not move the mark. It waits for Run, and is safe for
// concurrent use.
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

// pause waits, and publishes extra rows meanwhile, even if no page could be read yet. reset: an error was ErrReset.
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

// serve publishes the extra rows that wait. All unknown rows of pages must be under way: another
// sweeper may have published them when serve returns. After an error rows of pages may not be stored.
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
	r.extraRows = true
	defer func() { r.extraRows = false }()
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
