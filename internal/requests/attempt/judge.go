package attempt

import (
	"context"
	"errors"
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
		e = r.Failed(clients.Unknown, clients.ReasonNoAnswer, "no answer", failed)
	}
	seen := hold.Call{Err: e, Exhausted: !again}
	switch e.Fate {
	case clients.Refused:
		r.Permit.Observe(seen)
		return true, r.refused(ctx, e)
	case clients.Busy:
		r.Permit.Observe(seen)
		if !again {
			r.later(e, max(r.nextWait(), retry.Asked(e)))
		}
		return !again, nil
	case clients.Held:
		return true, r.accountFault(ctx, e)
	}
	r.Permit.Observe(seen)
	if ctx.Err() != nil { // cut off by this program's end: the next worker finds out
		return false, context.Cause(ctx)
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
		if err := r.Slots.Take(ctx); err != nil {
			return "", err
		}
		defer r.Slots.Free()
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
	h := r.Permit.Hold()
	own := r.OwnKey && (e.Status == 401 || e.Status == 402 || e.Status == 403)
	alone := r.result.HeldCount > 0 && r.Prior.State == messages.Deferred && r.Prior.Reason == messages.ReasonHeld &&
		h.SucceededSince(r.Prior.At.Time)
	switch {
	case r.result.HeldCount == 0:
		r.result.HeldCount = 1
	case alone:
		r.result.HeldCount++
	}
	if own || r.result.HeldCount >= heldTries {
		refused := *e
		refused.Fate, refused.Reason = clients.Refused, clients.ReasonRefused
		return r.refused(ctx, &refused)
	}
	r.Permit.Observe(hold.Call{Err: e, Suspect: alone})
	r.later(e, max(r.Policy.Max, retry.Asked(e)))
	return nil
}

// held defers a request whose call was not made because of a hold. It comes back soon: meanwhile it stays in its queue.
func (r *run[T]) held(err error) {
	e := r.Failed(clients.Held, clients.ReasonHeld, err.Error(), err)
	if active, ok := errors.AsType[*hold.ActiveError](err); ok {
		e.Status = active.Status
	}
	wait := r.Policy.Max
	if r.unknown != "" { // each further call is a risk: rather seldom than soon
		wait = r.nextWait()
	}
	r.later(e, wait)
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
	r.result.Reason, r.result.Message, r.result.Status, r.result.Fields = messages.Reason(e.Reason), e.Message, e.Status, e.Fields
	if r.result.Message == "" {
		r.result.Message = e.Error()
	}
}

// nextWait is how long the request waits when it is deferred now.
func (r *run[T]) nextWait() time.Duration { return r.Policy.Defer(r.Prior.Waited()) }

// busy is the error of a call that was not made because of err.
func (r *run[T]) busy(message string, err error) *clients.Error {
	return r.Failed(clients.Busy, clients.ReasonBusy, message, err)
}
