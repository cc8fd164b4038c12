// Package attempt alone makes calls that change something upstream. With the history, it repeats no call of unknown fate.
//
//	started stored ─► record left (mail) ─► call ─┬─ answered well ─► Done
//	  ▲    its deadline outlasts the call         ├─ refused ───────► Refused, or Uncertain behind an unknown one
//	  │                                           ├─ busy ──────────► wait, again ──► RetryLater
//	  └───────────────────────────────────────────┼─ held ──────────► RetryLater
//	                                              └─ unknown ───────► what the request says: Uncertain,
//	                                                                  or again after another look
//
// No call begins unless started is stored by this worker and can outlast it, by the wall clock and by the monotonic
// clock, for a batch that of its message as well; none begins after give_up_at or against a hold, and none is repeated after
// the program was asked to stop.
//
//	attempt.go  what a call is; what is due before it, and making it
//	lease.go    announcing it, and how long that holds
//	unknown.go  after a failed one: what follows from its fate, and whether one of unknown fate is repeated
//	giveup.go   nothing happened: defer the request, or give it up
package attempt

import (
	"cmp"
	"context"
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

// Failed is the error of a call that got no answer of its own.
func (d Delivery) Failed(fate clients.Fate, reason, message string, err error) *clients.Error {
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
	// Owe counts a call that did not wait for Throttle; nil means no limit.
	Owe func()
}

// Pause waits between two calls, and not beyond the program's end. It reports false when ctx ended.
func (c *Caller) Pause(ctx context.Context, wait time.Duration) bool {
	return retry.PauseUntil(ctx, c.Stop, wait)
}

// Stopping reports whether the program is to end.
func (c *Caller) Stopping() bool { return retry.Stopped(c.Stop) }

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
	// Record, if set, stores what finds the call in the sending log. It is called when started is stored.
	Record func(ctx context.Context, begin, until time.Time) error
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
	counted bool     // the history's attempt counts the call that comes next
	found   Deadline // until when OnUnknown's answer may be acted upon
	looks   int      // how often OnUnknown was asked for the next call
	slotted bool     // a slot is taken
	allowed Deadline // until when the call that Throttle let pass may begin
	asked   int      // how often Throttle was asked for the next call
}

// Run makes the call, unless something is in the way. Errors: history.ErrFenced when another worker has the request,
// the log's, or the context's cause; then only the history says what is known.
func Run[T any](ctx context.Context, caller *Caller, call Call[T]) (Result[T], error) {
	p := call.Prior
	r := &run[T]{Caller: caller, Call: call, unknown: unknownOf(p),
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
		if !r.Pause(ctx, max(0, min(wait, time.Until(r.GiveUpAt)))) {
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
	defer func() { r.slotted = false; r.Slots.Free() }()
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
		return r.busy("the call did not begin in time", context.DeadlineExceeded), nil
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
		if r.result.Verdict != "" { // the record was not stored
			return true, nil
		}
	}
}

// await waits until the call may be made, and not beyond give_up_at. It comes before everything that ages: look-ups,
// and above all the announcement, since a worker that died while it waited must not leave a call of unknown fate. A
// program that ends gives the request back; if a call was announced and not made, it stores that.
func (r *run[T]) await(ctx context.Context) error {
	limited, cancel := context.WithDeadline(ctx, r.GiveUpAt)
	defer cancel()
	err := r.Throttle(limited)
	switch {
	case err == nil:
		r.allowed = newDeadline(min(retry.MayCall<<min(r.asked, 8), retry.MayCallMax))
		r.asked++
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil: // give_up_at has come
	case !r.lease.Taken():
		return &history.RetryLaterError{At: time.Now(), Cause: err}
	default:
		r.later(r.busy("the program ended before the call could be made", err), r.nextWait())
	}
	return nil
}

// awaitSlot takes a slot before give_up_at. The call is announced again before its deadline passes: else a repeat of the
// request would find a call of unknown fate that was never made. A verdict means that there will be no call; no slot is taken.
func (r *run[T]) awaitSlot(ctx context.Context) error {
	for !r.Slots.Try() {
		wait := min(time.Until(r.lease.until.monotonic)-retry.Margin/2, time.Until(r.GiveUpAt))
		waits, cancel := context.WithTimeout(ctx, wait)
		err := r.Slots.Take(waits)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !time.Now().Before(r.GiveUpAt):
			return r.giveUp(ctx)
		}
		if err := r.announce(ctx); err != nil || r.result.Verdict != "" {
			return err
		}
	}
	return nil
}
