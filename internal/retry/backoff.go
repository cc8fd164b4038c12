// Package retry is the home of every wait: each has a name here, and what it is for.
//
//	inner ring   seconds, within one delivery of a request: [Policy.Waits]
//	outer ring   minutes to hours, the request waits in its queue: [Policy.Defer]
//	schedules    everything else that is tried again: [Schedule], see durations.go
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"errand/pkg/clients"
)

// Policy says how upstream calls are repeated. The zero value calls once and never waits.
type Policy struct {
	First time.Duration // wait before the second call; grows by half each time, with jitter
	Max   time.Duration // longest wait between two calls of one delivery
	Tries int           // calls a delivery; less than one counts as one

	Steady bool // without jitter, for simulations
}

// Waits returns the waits of one delivery; do not share them.
func (p Policy) Waits() *Waits {
	w := &Waits{policy: p, left: max(p.Tries, 1) - 1, grow: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(max(p.First, time.Nanosecond)), backoff.WithMaxInterval(max(p.Max, time.Nanosecond)),
		backoff.WithMaxElapsedTime(0))}
	if p.Steady {
		w.grow.RandomizationFactor = 0
	}
	return w
}

// Waits is the inner ring of one delivery.
type Waits struct {
	policy Policy
	left   int
	grow   *backoff.ExponentialBackOff
}

// Next returns the wait before the next call after one that failed with err. It reports false when the tries are used up, or
// when the upstream asks for a longer wait than Max: then the request waits in its queue and not in memory.
func (w *Waits) Next(err error) (time.Duration, bool) {
	if w.left--; w.left < 0 {
		return 0, false
	}
	asked := Asked(err)
	if asked > w.policy.Max {
		return 0, false
	}
	return max(w.grow.NextBackOff(), asked), true
}

// Asked is how long the upstream asked to wait in an error, at most Longest.
func Asked(err error) time.Duration {
	if e, ok := errors.AsType[*clients.Error](err); ok {
		return min(e.RetryAfter, Longest)
	}
	return 0
}

// Defer is how long a request is deferred after a deferral of last, 0 for none: twice as long, from Max to fifteen minutes.
func (p Policy) Defer(last time.Duration) time.Duration {
	return min(max(2*last, p.Max, time.Millisecond), max(Longest, p.Max))
}

// NotBefore is when a request's wait that begins now ends: while there is time for one more call before giveUp, and at
// giveUp at the latest.
func NotBefore(wait time.Duration, giveUp time.Time, call time.Duration) time.Time {
	now, end := time.Now(), giveUp
	if last := giveUp.Add(-call - Margin); now.Before(last) {
		end = last
	}
	if at := now.Add(wait); at.Before(end) {
		return at
	}
	return end
}

// Schedule is a growing wait: First, then twice as long each time, up to Max.
type Schedule struct{ First, Max time.Duration }

// Wait returns the n-th wait, from 1.
func (s Schedule) Wait(n int) time.Duration {
	wait := s.First
	for ; n > 1 && wait < s.Max; n-- {
		wait *= 2
	}
	return min(wait, s.Max)
}

// Read calls f, which changes nothing upstream, until it succeeds, fails with a fate other than busy or unknown, or runs out
// of tries. The error is f's last one, joined with the context's cause if that ended a wait. stop, which may be nil, ends it too.
func Read[T any](ctx context.Context, stop <-chan struct{}, p Policy, f func(context.Context) (T, error)) (T, error) {
	for waits := p.Waits(); ; {
		value, err := f(ctx)
		if fate := clients.FateOf(err); fate != clients.Busy && fate != clients.Unknown {
			return value, err
		}
		wait, again := waits.Next(err)
		if again && !PauseUntil(ctx, stop, wait) {
			return value, errors.Join(err, context.Cause(ctx))
		}
		if !again || Stopped(stop) {
			return value, err
		}
	}
}

// Pause waits for d and reports whether it passed before ctx ended.
func Pause(ctx context.Context, d time.Duration) bool { return PauseUntil(ctx, nil, d) }

// PauseUntil waits for d, or until stop is closed, which may be nil. It reports whether that was before ctx ended.
func PauseUntil(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-stop:
	case <-ctx.Done():
		return false
	}
	return true
}

// Stopped reports whether stop, which may be nil, is closed.
func Stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
