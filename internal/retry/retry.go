// Package retry is the inner ring of repetition: it waits seconds inside one
// delivery of a request. The outer ring, minutes to hours, puts the request back
// into its queue; [Policy.Wait] computes its waits. There is no third ring.
//
//	call ── busy ──► wait First … Max, call again, at most Tries times ──► put back for Wait
package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"errand/pkg/clients"
)

// longestWait is the longest pause between two deliveries of one request.
const longestWait = 15 * time.Minute

// Policy is a schedule of waits. The zero value calls once and never waits.
type Policy struct {
	First time.Duration // wait before the second call; grows by half each time, with jitter
	Max   time.Duration // longest wait between two calls of one delivery
	Tries int           // calls a delivery; less than one counts as one

	// Halt, if set, is asked before each wait and after it; true ends the repeating.
	Halt func() bool
}

// Halted reports whether no call is to be repeated now.
func (p Policy) Halted() bool { return p.Halt != nil && p.Halt() }

// Wait is how long a request stays away after so many calls without an answer: it
// doubles with every delivery from Max to fifteen minutes.
func (p Policy) Wait(calls int) time.Duration {
	wait := max(p.Max, time.Millisecond)
	for n := max(p.Tries, 1); n < calls && wait < longestWait; n += max(p.Tries, 1) {
		wait *= 2
	}
	return max(min(wait, longestWait), p.Max)
}

// Do calls f until it succeeds, fails with a fate other than busy, or runs out of
// tries. A Retry-After within Max is waited for; a longer one ends the repeating,
// so that the request waits in its queue and not in memory. The error is f's last
// one, joined with the context's cause when the context ended the waiting.
func Do[T any](ctx context.Context, p Policy, f func(context.Context) (T, error)) (T, error) {
	return repeat(ctx, p, f, func(fate clients.Fate) bool { return fate == clients.Busy })
}

// Read is Do for calls that change nothing upstream: an unknown fate is repeated too.
func Read[T any](ctx context.Context, p Policy, f func(context.Context) (T, error)) (T, error) {
	return repeat(ctx, p, f, func(fate clients.Fate) bool { return fate == clients.Busy || fate == clients.Unknown })
}

func repeat[T any](ctx context.Context, p Policy, f func(context.Context) (T, error), again func(clients.Fate) bool) (T, error) {
	value, last := f(ctx)
	if last == nil || !again(clients.FateOf(last)) || p.Tries <= 1 {
		return value, last
	}
	schedule := &waits{policy: p, last: &last, grow: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(p.First), backoff.WithMaxInterval(p.Max), backoff.WithMaxElapsedTime(0))}
	first := true
	value, err := backoff.RetryWithData(func() (T, error) {
		if first { // the call above was the first
			first = false
			return value, last
		}
		if p.Halted() { // while it waited
			return value, backoff.Permanent(last)
		}
		value, last = f(ctx)
		if last != nil && !again(clients.FateOf(last)) {
			return value, backoff.Permanent(last)
		}
		return value, last
	}, backoff.WithContext(backoff.WithMaxRetries(schedule, uint64(p.Tries-1)), ctx))
	if err != nil && ctx.Err() != nil && !errors.Is(err, last) {
		err = fmt.Errorf("%w: %w", last, context.Cause(ctx)) // v4 drops the last error when the context ends
	}
	return value, err
}

// waits is the growing schedule, stretched by what the upstream asked for.
type waits struct {
	policy Policy
	grow   *backoff.ExponentialBackOff
	last   *error
}

func (w *waits) Reset() { w.grow.Reset() }

func (w *waits) NextBackOff() time.Duration {
	if w.policy.Halted() {
		return backoff.Stop
	}
	wait := w.grow.NextBackOff()
	var e *clients.Error
	if errors.As(*w.last, &e) && e.RetryAfter > 0 {
		if e.RetryAfter > w.policy.Max {
			return backoff.Stop
		}
		wait = max(wait, e.RetryAfter)
	}
	return wait
}

// Pause waits for d and reports whether it passed before ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
