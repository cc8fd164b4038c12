package attempt

import (
	"context"
	"time"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Deadline holds by two clocks: the wall clock, which others read, and the monotonic clock, which stands still while
// the machine is suspended and cannot be set. It is a whole millisecond, as in events.
type Deadline struct{ wall, monotonic time.Time }

func newDeadline(d time.Duration) Deadline {
	t := time.Now().Add(d)
	t = t.Add(-time.Duration(t.Nanosecond()) % time.Millisecond)
	return Deadline{wall: t.Round(0), monotonic: t}
}

// Time is the deadline as events say it.
func (l Deadline) Time() messages.Time { return messages.Time{Time: l.wall} }

// Outlasts reports whether d from now on ends before the deadline by both clocks.
func (l Deadline) Outlasts(now time.Time, d time.Duration) bool {
	return !now.Add(d).After(l.monotonic) && !now.Round(0).Add(d).After(l.wall)
}

func (l Deadline) passed(now time.Time) bool { return !l.Outlasts(now, 0) }

// Deadline is when a call that is announced now must be over.
func (c *Caller) Deadline() Deadline { return newDeadline(c.Timeout + retry.Margin) }

// Started returns the body of the event that announces a call.
type Started func(deadline messages.Time, s State) messages.Body

// State is what a started event says beside its deadline.
type State struct {
	AfterUnknown bool
	Unknown      messages.Reason // why the previous call's fate is unknown, while it is found out
}

// Announce stores started with a new deadline over the last event of a history.
func (c *Caller) Announce(ctx context.Context, h *history.History, started Started, s State) (Deadline, error) {
	until := c.Deadline()
	return until, h.Store(ctx, messages.Started, started(until.Time(), s))
}
