package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Lease is the right to make calls for a history: its last event is a started event of this worker, whose deadline has not
// passed. A batch's lease is under its message's, so that no batch is sent of a message that another worker has taken over, or
// that was cancelled or corrected. The batches of a message share its lease.
type Lease struct {
	caller  *Caller
	history *history.History
	started Started
	over    *Lease // the message's; nil if this is no batch's

	renewing admission.Slots // of one goroutine at a time, which may wait long for NATS
	until    Deadline
}

// ErrOver means that a batch's call could not be announced because the lease of its message could not be had.
var ErrOver = errors.New("attempt: the message's lease")

// Started returns the body of the event that announces a call; afterUnknown: one of unknown fate was made before.
type Started func(deadline messages.Time, afterUnknown bool) messages.Body

// Lease returns the lease of a message of several batches, not taken yet.
func (c *Caller) Lease(h *history.History, started Started) *Lease {
	return &Lease{caller: c, history: h, started: started, renewing: make(admission.Slots, 1)}
}

// Taken reports whether this worker has announced a call under it.
func (l *Lease) Taken() bool { return l.until != Deadline{} }

// renew stores started with a new deadline over the last event that this worker knows, the message's first where it would end
// before a batch's call. Errors: history.ErrFenced if another worker wrote in between, or the log's.
func (l *Lease) renew(ctx context.Context, afterUnknown bool) error {
	until := l.caller.Deadline()
	if l.over != nil {
		over, err := l.over.outlasting(ctx, l.caller.Timeout+retry.Margin/2)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrOver, err)
		}
		until = until.earlier(over)
	}
	if err := l.history.Store(ctx, messages.Started, l.started(until.Time(), afterUnknown)); err != nil {
		return err
	}
	l.until = until
	return nil
}

// outlasting returns the lease's deadline, at least d ahead: it is renewed if it is not.
func (l *Lease) outlasting(ctx context.Context, d time.Duration) (Deadline, error) {
	if err := l.renewing.Take(ctx); err != nil {
		return Deadline{}, err
	}
	defer l.renewing.Free()
	if l.until.outlasts(time.Now(), d) {
		return l.until, nil
	}
	err := l.renew(ctx, false)
	return l.until, err
}

// Deadline holds by two clocks: the wall clock, which others read, and the monotonic clock, which stands still while
// the machine is suspended and cannot be set. It is a whole millisecond, as in events.
type Deadline struct{ wall, monotonic time.Time }

func newDeadline(d time.Duration) Deadline {
	t := time.Now().Add(d)
	t = t.Add(-time.Duration(t.Nanosecond()) % time.Millisecond)
	return Deadline{wall: t.Round(0), monotonic: t}
}

// Deadline is when a call that is announced now must be over, or followed by that of the next page.
func (c *Caller) Deadline() Deadline { return newDeadline(c.Timeout + retry.Margin) }

// Time is the deadline as events say it.
func (l Deadline) Time() messages.Time { return messages.Time{Time: l.wall} }

// outlasts reports whether d from now on ends before the deadline by both clocks.
func (l Deadline) outlasts(now time.Time, d time.Duration) bool {
	return !now.Add(d).After(l.monotonic) && !now.Round(0).Add(d).After(l.wall)
}

func (l Deadline) passed(now time.Time) bool { return !l.outlasts(now, 0) }

// earlier is until when both hold.
func (l Deadline) earlier(o Deadline) Deadline {
	if o.wall.Before(l.wall) {
		l.wall = o.wall
	}
	if o.monotonic.Before(l.monotonic) {
		l.monotonic = o.monotonic
	}
	return l
}

// announce stores started with a new deadline, and the record of the call that follows.
func (r *run[T]) announce(ctx context.Context) error {
	r.result.AfterUnknown = r.result.AfterUnknown || r.unknown != ""
	if err := r.lease.renew(ctx, r.result.AfterUnknown); err != nil {
		return err
	}
	until, begin := r.lease.until, time.Now()
	if r.Record == nil || until.passed(begin) { // if it has passed, another worker may have it: announcing it again will show
		return nil
	}
	if err := r.Record(ctx, begin, until.wall); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.later(r.busy("the record of the call could not be stored", err), r.nextWait())
	}
	return nil
}
