package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// judge takes a failed call to its end, or reports that it may be repeated; again says whether
// this delivery has a try left.
func (r *run[T]) judge(ctx context.Context, failed error, again bool) (ended bool, err error) {
	e, ok := errors.AsType[*clients.Error](failed)
	if !ok {
		e = r.Failed(clients.Unknown, messages.ReasonNoAnswer, "no answer", failed)
	}
	seen := hold.Call{Err: e, Exhausted: !again}
	switch e.Fate {
	case clients.Refused:
		r.Permit.Observe(seen)
		return true, r.refused(ctx, e)
	case clients.Held:
		return true, r.accountFault(ctx, e)
	}
	if ctx.Err() != nil { // cut off by this program's end, which says nothing of the upstream: the next worker finds out
		return false, context.Cause(ctx)
	}
	r.Permit.Observe(seen)
	if e.Fate == clients.Busy {
		if !again {
			r.later(e, max(r.nextWait(), retry.Asked(e)))
		}
		return !again, nil
	}
	r.describe(e)
	r.unknown = r.result.Reason
	if ended, err := r.look(ctx, true); err != nil || ended || again {
		return ended, err
	}
	r.later(e, r.nextWait())
	return true, nil
}

// look asks what to do about a call of unknown fate.
func (r *run[T]) look(ctx context.Context, fresh bool) (ended bool, err error) {
	verdict, err := r.ask(ctx, fresh)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		wait := max(r.nextWait(), retry.Asked(err))
		if later, ok := errors.AsType[*history.RetryLaterError](err); ok {
			wait, err = max(wait, time.Until(later.At)), later.Cause
		}
		r.later(err, wait)
		r.result.Reason, r.result.Message = r.unknown, "it could not be found out what became of a call: "+err.Error()
		return true, nil
	case verdict == Done:
		return false, nil
	}
	r.result.Verdict = verdict
	return true, nil
}

func (r *run[T]) ask(ctx context.Context, fresh bool) (Verdict, error) {
	if r.LooksUp && !r.slotted {
		if err := r.slots.Take(ctx); err != nil {
			return "", err
		}
		defer r.slots.Free()
	}
	defer func() {
		r.found = newDeadline(min(retry.LookIsGood<<min(r.looks, 8), retry.LookIsGoodMax))
		r.looks++
	}()
	return r.OnUnknown(ctx, fresh)
}

// refused ends a request that the upstream refused. An earlier call of unknown fate may have done what was refused now.
func (r *run[T]) refused(ctx context.Context, e *clients.Error) error {
	if r.unknown == "" {
		r.describe(e)
		r.result.Verdict = Refused
		return nil
	}
	if ended, err := r.look(ctx, false); err != nil || ended {
		return err
	}
	r.result.Verdict, r.result.Message = Uncertain, "refused after a call of unknown fate: "+e.Message
	r.result.Status, r.result.Fields = e.Status, e.Fields
	return nil
}

// heldTries is how often a request may meet held, while others succeed, until the fault is taken to be the request's.
const heldTries = 5

// accountFault defers a request that met held, or ends it if its own credentials are at fault: held while others succeeded.
func (r *run[T]) accountFault(ctx context.Context, e *clients.Error) error {
	own := r.OwnKey && (e.Status == 401 || e.Status == 402 || e.Status == 403)
	alone := r.result.HeldCount > 0 && r.Prior.State == messages.Deferred && r.Prior.Reason == messages.ReasonHeld &&
		r.Permit.SucceededSince(r.Prior.At.Time)
	switch {
	case r.result.HeldCount == 0:
		r.result.HeldCount = 1
	case alone:
		r.result.HeldCount++
	}
	if own || r.result.HeldCount >= heldTries {
		refused := *e
		refused.Fate, refused.Reason = clients.Refused, messages.ReasonRefused
		return r.refused(ctx, &refused)
	}
	r.Permit.Observe(hold.Call{Err: e, Suspect: alone})
	r.later(e, max(r.Policy.Max, retry.Asked(e)))
	return nil
}

// held defers a request whose call was not made because of a hold. It comes back soon: meanwhile it stays in its queue.
func (r *run[T]) held(err error) {
	e := r.Failed(clients.Held, messages.ReasonHeld, err.Error(), err)
	if active, ok := errors.AsType[*hold.ActiveError](err); ok {
		e.Status = active.Status
	}
	wait := r.Policy.Max
	if r.unknown != "" { // each further call is a risk: rather seldom than soon
		wait = r.nextWait()
	}
	r.later(e, wait)
	r.result.Cause = err // which says that it is held
}

// later defers the request for a while, so that a call is possible before give_up_at.
func (r *run[T]) later(why error, wait time.Duration) {
	if e, ok := errors.AsType[*clients.Error](why); ok {
		r.describe(e)
	}
	r.result.Verdict, r.result.Cause = RetryLater, why
	r.result.AfterUnknown = r.result.AfterUnknown || r.unknown != ""
	r.result.NotBefore = retry.NotBefore(wait, r.GiveUpAt, r.Timeout)
}

func (r *run[T]) describe(e *clients.Error) {
	r.result.Reason, r.result.Message, r.result.Status, r.result.Fields = e.Reason, e.Message, e.Status, e.Fields
	if r.result.Message == "" {
		r.result.Message = e.Error()
	}
}

// nextWait is how long the request waits when it is deferred now.
func (r *run[T]) nextWait() time.Duration { return r.Policy.Defer(r.Prior.Waited()) }

// giveUp ends a request after give_up_at. After a call of unknown fate it is looked up once more.
func (r *run[T]) giveUp(ctx context.Context) error {
	r.result.Verdict, r.result.Reason, r.result.Status = GivenUp, messages.ReasonUnavailable, 0
	r.result.Message = fmt.Sprintf("given up after %s", messages.Time{Time: r.GiveUpAt})
	if r.unknown == "" {
		return nil
	}
	r.result.Verdict, r.result.Reason, r.result.AfterUnknown = Uncertain, r.unknown, true
	_, err := r.ask(ctx, false)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.Message += "; what became of its call could not be found out: " + err.Error()
	}
	return nil
}

// MayBeDone follows why a request is not run, where something may have been done for it.
const MayBeDone = "; a call may have been made"

// Defer stores that a request waits, as r says, and returns the error that tells the queue.
func Defer[T any](ctx context.Context, h *history.History, r Result[T]) error {
	if err := h.Store(ctx, messages.Deferred, &messages.DeferredBody{Reason: r.Reason, Message: r.Message, HTTPStatus: r.Status,
		NotBefore: messages.Time{Time: r.NotBefore}, AfterUnknown: r.AfterUnknown, HeldCount: r.HeldCount, Fingerprint: h.Fingerprint,
	}); err != nil {
		return err
	}
	return &history.RetryLaterError{At: r.NotBefore, Cause: r.Cause}
}

// await waits until the call may be made, and not beyond give_up_at. It comes before everything that ages: look-ups,
// and above all the announcement, since a worker that died while it waited must not leave a call of unknown fate. A
// program that ends gives the request back; if a call was announced and not made, it stores that.
func (r *run[T]) await(ctx context.Context) error {
	limited, cancel := context.WithDeadline(ctx, r.GiveUpAt)
	defer cancel()
	err := r.throttle(limited)
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
		r.stopped(err)
	}
	return nil
}

func (r *run[T]) throttle(ctx context.Context) error {
	if r.Turn != nil && r.asked == 0 { // what asks again had its turn, and may be announced
		turn := r.Turn.In(r.History.Lane)
		if err := turn.Take(ctx); err != nil {
			return err
		}
		defer turn.Free()
	}
	return r.Throttle(ctx)
}

// awaitSlot takes a slot before give_up_at. The call is announced again before its deadline passes: else a repeat of the
// request would find a call of unknown fate that was never made. A verdict means that there will be no call; no slot is taken.
func (r *run[T]) awaitSlot(ctx context.Context) error {
	if r.slots.Try() {
		return nil
	}
	patient, end := r.patient(ctx)
	defer end()
	for {
		wait := min(time.Until(r.lease.until.monotonic)-retry.Margin/2, time.Until(r.GiveUpAt))
		waits, cancel := context.WithTimeout(patient, wait)
		err := r.slots.Take(waits)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !time.Now().Before(r.GiveUpAt):
			return r.giveUp(ctx)
		case patient.Err() != nil:
			r.stopped(err)
			return nil
		}
		if err := r.announce(ctx); err != nil || r.result.Verdict != "" {
			return err
		}
	}
}

// stopped defers a request whose call was announced and will not be made.
func (r *run[T]) stopped(err error) {
	r.later(r.Failed(clients.Busy, messages.ReasonBusy, "the program ended before the call could be made", err), r.nextWait())
}

// unknownOf is why the fate of a call in a history is unknown; "" if no call's is.
func unknownOf(p history.Prior) messages.Reason {
	switch {
	case p.State == messages.Started: // its maker died
		return messages.ReasonInterrupted
	case !p.AfterUnknown:
		return ""
	case p.Reason == messages.ReasonBadAnswer || p.Reason == messages.ReasonInterrupted:
		return p.Reason
	}
	return messages.ReasonNoAnswer
}
