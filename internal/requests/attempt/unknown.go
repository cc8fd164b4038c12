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
