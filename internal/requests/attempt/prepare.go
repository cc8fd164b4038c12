package attempt

import (
	"context"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

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

// giveUp ends a request after give_up_at. After a call of unknown fate it is looked up once more.
func (r *run[T]) giveUp(ctx context.Context) error {
	r.result.Verdict, r.result.Reason, r.result.Status = GivenUp, messages.ReasonUnavailable, 0
	r.result.Message = fmt.Sprintf("given up after %s", messages.Time{Time: r.GiveUpAt})
	if r.unknown == "" {
		return nil
	}
	r.result.Verdict, r.result.Reason = Uncertain, r.unknown
	_, err := r.ask(ctx, false)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.Message += "; what became of its call could not be found out: " + err.Error()
	}
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

// MayBeDone follows why a request is not run, where something may have been done for it.
const MayBeDone = "; a call may have been made"

// Defer stores that a request waits, as r says, and returns the error that tells the queue.
func Defer[T any](ctx context.Context, h *history.History, r Result[T], body *messages.DeferredBody) error {
	body.Reason, body.Message, body.HTTPStatus, body.NotBefore = r.Reason, r.Message, r.Status, messages.Time{Time: r.NotBefore}
	body.AfterUnknown, body.HeldCount, body.Fingerprint = r.AfterUnknown, r.HeldCount, h.Fingerprint
	if err := h.Store(ctx, messages.Deferred, body); err != nil {
		return err
	}
	return &history.RetryLaterError{At: r.NotBefore, Cause: r.Cause}
}
