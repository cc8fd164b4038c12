package sweep

import (
	"context"
	"time"

	"errand/internal/retry"
)

// extra is rows from another source than the pages, such as a look-up.
type extra[T any] struct {
	rows []Row[T]
	done chan<- error // has room for one
}

func (s *Sweeper[T]) init() { s.once.Do(func() { s.asked = make(chan extra[T]) }) }

// Publish has rows from another source stored, each state once; they do not move the mark. It waits for Run, and is safe for
// concurrent use. ErrLed: another sweeper leads.
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

// Leads waits until this sweeper leads. Its error is the context's.
func (s *Sweeper[T]) Leads(ctx context.Context) error {
	for {
		if err := s.Publish(ctx, nil); err == nil {
			return nil
		}
		if !retry.Pause(ctx, retry.StandBy) {
			return context.Cause(ctx)
		}
	}
}

// passed is a wait that is over.
var passed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// pause waits, and publishes extra rows meanwhile if this sweeper leads. It ends with the first error. All unknown rows of pages
// must be under way: after an error they may not be stored.
func (r *run[T]) pause(ctx context.Context, wait time.Duration, leads bool) error {
	end := passed
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		end = t.C
	}
	for {
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		case e := <-r.asked:
			if !leads {
				e.done <- ErrLed
				continue
			}
			err := r.extra(ctx, e.rows)
			if e.done <- err; err != nil {
				return err
			}
		}
	}
}

func (r *run[T]) extra(ctx context.Context, rows []Row[T]) error {
	if err := r.collect(ctx, 0); err != nil { // of pages
		return err
	}
	if err := r.publish(ctx, r.unknown(rows, nil)); err != nil {
		return err
	}
	return r.collect(ctx, 0)
}
