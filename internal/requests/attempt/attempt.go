// Package attempt alone makes calls that change something upstream. With the history, it repeats no call of unknown fate.
//
//	started stored ─► call ─┬─ answered well ─► Done
//	  ▲    its deadline outlasts the call         ├─ refused ───────► Refused, or Uncertain behind an unknown one
//	  │                                           ├─ busy ──────────► wait, again ──► RetryLater
//	  └───────────────────────────────────────────┼─ held ──────────► RetryLater
//	                                              └─ unknown ───────► what the request says: Uncertain,
//	                                                                  or again after another look
//
// No call begins unless started is stored by this worker and can outlast it, by the wall clock and by the monotonic
// clock, for a batch its message's as well; no call begins after give_up_at or against a hold, and no call is repeated after
// the program was asked to stop.
//
//	attempt.go  what a call is; announcing and making it
//	failed.go   after a failed one: what follows from its fate, and whether one of unknown fate is repeated; nothing happened:
//	            wait for the rate and a slot, defer the request, or give it up
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// Request is one request on one delivery, as handlers get it.
type Request[R any] struct {
	Body R
	Delivery
}

// Delivery is what is known of a request on one delivery, whatever it asks for.
type Delivery struct {
	Prior     history.Prior
	History   *history.History
	Permit    *hold.Permit
	Published time.Time // when JetStream took it in
	GiveUpAt  time.Time
}

// Failed is the error of a call that got no answer.
func (d Delivery) Failed(fate clients.Fate, reason messages.Reason, message string, err error) *clients.Error {
	return &clients.Error{Operation: string(d.History.Operation), Fate: fate, Reason: reason, Message: message, Err: err}
}

// Caller is what all calls of a program share.
type Caller struct {
	Policy  retry.Policy
	Timeout time.Duration   // of one call, as the client has it
	Slots   admission.Slots // calls under way at once
	Stop    <-chan struct{} // closed when the program is to end: no call is repeated then
	// Throttle waits until a call may be made, within retry.MayCall; nil means no limit. Errors: ctx's cause, or the program's
	// end.
	Throttle func(context.Context) error
	// Turn is taken before Throttle, so that lanes that wait for it are served by weight: few wait there. nil with one lane.
	Turn *admission.Slots
	// Owe counts a call that did not wait for Throttle; nil means no limit.
	Owe func()
}

// Stopping reports whether the program is to end.
func (c *Caller) Stopping() bool { return retry.Stopped(c.Stop) }

// patient ends with ctx, or soon after the program was asked to stop: what was announced would wait until it is cut off, and
// another worker would not know that it was not called.
func (c *Caller) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	go func() { // ends with ctx
		select {
		case <-c.Stop:
			if retry.Pause(ctx, retry.Answer) {
				end()
			}
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// Verdict is how a delivery's calls ended.
type Verdict string

// The verdicts.
const (
	Done       Verdict = "done"        // answered well
	Refused    Verdict = "refused"     // nothing happened, and never will
	Uncertain  Verdict = "uncertain"   // it may have happened, and nothing more can be found out
	RetryLater Verdict = "retry_later" // nothing happened, or that is not found out yet
	GivenUp    Verdict = "given_up"    // nothing happened until give_up_at
)

// Result is what is known after a delivery's calls.
type Result[T any] struct {
	Verdict Verdict
	Value   T // of Done
	// Why the call was not answered well, or is not to be made.
	Reason  messages.Reason
	Message string
	Status  int
	Fields  map[string][]string
	// AfterUnknown is set if a call of unknown fate was made before the last one, or before the wait.
	AfterUnknown bool
	HeldCount    int
	NotBefore    time.Time // of RetryLater
	Cause        error     // likewise, for the log
}

// Call is one thing to be done upstream, at most once.
type Call[T any] struct {
	Delivery
	// OwnKey is set if the request names its own credentials.
	OwnKey bool
	// Before, if set, is asked before each call. An error means that the call can never be made.
	Before func(now time.Time) *clients.Error
	// Started returns the body of the event that announces a call.
	Started Started
	// Over, if set, is the lease of the message that this call's batch belongs to.
	Over *Lease
	// Stale, if set, reports whether what the last started event says no longer holds.
	Stale func(now time.Time) bool
	// OnUnknown says what to do about a call of unknown fate: Done to make it again, or Uncertain. It is asked after such
	// a call (fresh) and right before every later one. An error means that it could not be found out now; a
	// *history.RetryLaterError says when it can.
	OnUnknown func(ctx context.Context, fresh bool) (Verdict, error)
	// LooksUp is set if OnUnknown calls the upstream.
	LooksUp bool
	// Make makes the call.
	Make func(context.Context) (T, error)
}

// run is the making of one Call on one delivery.
type run[T any] struct {
	*Caller
	Call[T]
	result  Result[T]
	unknown messages.Reason // why the fate of an earlier call is unknown; "" if no call's is
	lease   Lease
	counted bool            // the history's attempt counts the call that comes next
	found   Deadline        // until when OnUnknown's answer may be acted upon
	looks   int             // how often OnUnknown was asked for the next call
	slots   admission.Slots // the request's lane's
	slotted bool            // a slot is taken
	allowed Deadline        // until when the call that Throttle let pass may begin
	asked   int             // how often Throttle was asked for the next call
}

// Run makes the call, unless something is in the way. Errors: history.ErrFenced when another worker has the request,
// the log's, or the context's cause; then only the history says what is known.
func Run[T any](ctx context.Context, caller *Caller, call Call[T]) (Result[T], error) {
	p := call.Prior
	r := &run[T]{Caller: caller, Call: call, unknown: unknownOf(p), slots: caller.Slots.In(call.History.Lane),
		lease: Lease{caller: caller, history: call.History, started: call.Started, over: call.Over}}
	last := p.State == messages.Deferred && p.Reason == r.unknown // the call of unknown fate was the last one
	r.result = Result[T]{AfterUnknown: p.AfterUnknown && !last, HeldCount: p.HeldCount, Reason: r.unknown,
		Message: cmp.Or(p.Message, "what became of an earlier call is not known")}
	if r.unknown == messages.ReasonInterrupted {
		r.result.Message = "a worker died between the call's announcement and its outcome"
	}
	waits := caller.Policy.Waits()
	for {
		ended, err := r.prepare(ctx)
		if err != nil || ended {
			return r.finish(err)
		}
		failed, err := r.once(ctx)
		if err != nil || r.result.Verdict != "" {
			return r.finish(err)
		}
		wait, again := waits.Next(failed)
		if ended, err = r.judge(ctx, failed, again); err != nil || ended {
			return r.finish(err)
		}
		if !retry.PauseUntil(ctx, r.Stop, max(0, min(wait, time.Until(r.GiveUpAt)))) {
			return r.finish(context.Cause(ctx))
		}
		r.found, r.looks = Deadline{}, 0 // what was found out before the wait may no longer hold
		if r.Stopping() {
			r.later(failed, r.nextWait())
			return r.finish(nil)
		}
	}
}

// finish takes back what was counted for a call that was not made.
func (r *run[T]) finish(err error) (Result[T], error) {
	if r.counted {
		r.History.Attempt--
	}
	return r.result, err
}

// once makes one call. A verdict means that it was not made; failed is its error.
func (r *run[T]) once(ctx context.Context) (failed, err error) {
	if err := r.awaitSlot(ctx); err != nil || r.result.Verdict != "" {
		return nil, err
	}
	r.slotted = true
	defer func() { r.slotted = false; r.slots.Free() }()
	if ended, err := r.prepare(ctx); err != nil || ended { // the wait for a slot may have been long
		return nil, err
	}
	if err := r.Permit.Call(); err != nil {
		r.held(err)
		return nil, nil
	}
	until := r.lease.until
	ctx, cancel := context.WithDeadline(ctx, until.monotonic) // paused past it, we must not call
	defer cancel()
	if until.passed(time.Now()) { // the worker stood still between announcing and calling
		return r.Failed(clients.Busy, messages.ReasonBusy, "the call did not begin in time", context.DeadlineExceeded), nil
	}
	r.counted, r.allowed, r.asked, r.looks = false, Deadline{}, 0, 0
	r.result.AfterUnknown = r.result.AfterUnknown || r.unknown != ""
	failpoint.Here(failpoint.BeforeCall)
	value, failed := r.Make(ctx)
	failpoint.Here(failpoint.Answer)
	if failed == nil {
		r.Permit.Observe(hold.Call{})
		r.result = Result[T]{Verdict: Done, Value: value, AfterUnknown: r.result.AfterUnknown}
	}
	return failed, nil
}

// PanicError is a panic that was caught, so that one request cannot end the program.
type PanicError struct{ Stack []byte }

// Panicked makes an error of a recovered panic. Its value is left out: it may hold a payer's data.
func Panicked(any) error { return &PanicError{Stack: debug.Stack()} }

func (e *PanicError) Error() string { return "a panic" }

// prepare does what is due before a call: it gives up, looks up what became of an earlier one,
// announces. ended: there will be no call. It does nothing that was done just before.
func (r *run[T]) prepare(ctx context.Context) (ended bool, err error) {
	for {
		now := time.Now()
		if !now.Before(r.GiveUpAt) {
			return true, r.giveUp(ctx)
		}
		look := r.unknown != "" && r.found.passed(now)
		if r.Throttle != nil && r.allowed.passed(now) && !(look && r.LooksUp) {
			if err := r.await(ctx); err != nil || r.result.Verdict != "" {
				return true, err
			}
			continue // that may have taken long
		}
		if look {
			if ended, err := r.look(ctx, false); err != nil || ended {
				return ended, err
			}
			// A look-up waits for the rate itself. If the call waited too, one would be too old, or many calls made at once.
			if r.allowed = r.found; r.LooksUp && r.Owe != nil {
				r.Owe()
			}
			continue // that took its time
		}
		if r.Before != nil {
			if never := r.Before(now); never != nil {
				return true, r.refused(ctx, never)
			}
		}
		if !r.counted {
			r.counted = true
			r.History.Attempt++
		}
		if r.lease.until.outlasts(now, r.Timeout) && (r.Stale == nil || !r.Stale(now)) {
			return false, nil
		}
		if err := r.announce(ctx); err != nil {
			return false, err
		}
	}
}

// Lease is the right to make calls for a history: its last event is a started event of this worker, whose deadline has not
// passed. A batch's lease is under its message's, so that no batch is sent of a message that another worker has taken over, or
// that was cancelled or corrected. The batches of a message share its lease.
type Lease struct {
	caller  *Caller
	history *history.History
	started Started
	over    *Lease // the message's; nil if this is not a batch

	renewing admission.Slots // of one goroutine at a time, which may wait long for NATS
	until    Deadline
}

// ErrOver means that a batch's call could not be announced because the lease of its message could not be had.
var ErrOver = errors.New("attempt: the message's lease")

// Started returns the body of the event that announces a call; afterUnknown: one of unknown fate was made before.
type Started func(deadline messages.Time, afterUnknown bool) messages.Body

// Lease returns the lease of a message of several batches, not taken yet.
func (c *Caller) Lease(h *history.History, started Started) *Lease {
	return &Lease{caller: c, history: h, started: started, renewing: admission.NewSlots(1)}
}

// Taken reports whether this worker has announced a call under it.
func (l *Lease) Taken() bool { return l.until != Deadline{} }

// renew stores started with a new deadline over the last event that this worker knows, the message's first where it would end
// before a batch's call. Errors: history.ErrFenced if another worker wrote in between, or the log's.
func (l *Lease) renew(ctx context.Context, afterUnknown bool) error {
	until := l.caller.Deadline()
	if l.over != nil {
		over, err := l.over.Take(ctx)
		if err != nil {
			return err
		}
		until = until.earlier(over)
	}
	if err := l.history.Store(ctx, messages.Started, l.started(until.Time(), afterUnknown)); err != nil {
		return err
	}
	l.until = until
	return nil
}

// Take returns the deadline of a message's lease, ahead by a call: it is renewed if it is not. Errors: renew's, in ErrOver.
func (l *Lease) Take(ctx context.Context) (Deadline, error) {
	err := l.renewing.Take(ctx)
	if err == nil {
		defer l.renewing.Free()
		if l.until.outlasts(time.Now(), l.caller.Timeout+retry.Margin/2) {
			return l.until, nil
		}
		err = l.renew(ctx, false)
	}
	if err != nil {
		return Deadline{}, fmt.Errorf("%w: %w", ErrOver, err)
	}
	return l.until, nil
}

// Deadline holds by two clocks: the wall clock, which others read, and the monotonic clock, which stands still while
// the machine is suspended and cannot be set. It is a whole millisecond, as in events.
type Deadline struct{ wall, monotonic time.Time }

func newDeadline(d time.Duration) Deadline {
	t := time.Now().Add(d)
	t = t.Add(-time.Duration(t.Nanosecond()) % time.Millisecond)
	return Deadline{wall: t.Round(0), monotonic: t}
}

// Deadline is when a call that is announced now must be over, or followed by the next page's.
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

// announce stores started with a new deadline.
func (r *run[T]) announce(ctx context.Context) error {
	r.result.AfterUnknown = r.result.AfterUnknown || r.unknown != ""
	return r.lease.renew(ctx, r.result.AfterUnknown)
}
