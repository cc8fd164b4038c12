package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

type cancelling struct {
	op          messages.Operation
	id          string
	last        history.Entry // that failed follows; of one that nobody had yet, only the trace
	lane        string
	fingerprint string
	order       string // order number
	says        string
	scheduled   bool
}

// Release is for a scheduled request that was cancelled: a program acknowledges it and stores its dead letter. What fails before that
// leaves it to its time.
func (q queues) Release(ctx context.Context, op messages.Operation, id string) error {
	var kept []bus.Message
	err := q.Scheduled(ctx, op, id, 0, func(m bus.Message) bool {
		kept = append(kept, m)
		return true
	})
	for i := 0; i < len(kept) && err == nil; i++ {
		if _, err = q.Publish(ctx, bus.Due(kept[i].Subject, kept[i].Header, kept[i].Data)); err == nil {
			err = remove(ctx, q.JS, bus.ScheduledOf(op), kept[i].Sequence)
		}
	}
	if err != nil {
		return fmt.Errorf("it is cancelled; its message stays until its time: %w", err)
	}
	return nil
}

// Cancel ends a request as failed for the reason cancelled: one that is queued, or deferred with
// nothing done. Its message is acknowledged when a program meets it. A request that a call
// was announced for is refused, and one with a call of unknown fate behind it: nobody could say
// that nothing came of it. So is an id that nobody has seen, since it would be blocked.
//
// op may be left out where one operation alone has the id. Errors: ErrNothingDone with what is
// in the way, ErrNoReason, ErrNotRecorded, or the connection's.
func (r Requests) Cancel(ctx context.Context, op messages.Operation, id, why string) (messages.Operation, error) {
	c, err := onlyOne(ctx, op, id, r.cancellable)
	if errors.Is(err, errUnseen) {
		err = refuse("%s was never seen: no queue has it, and no event of it is kept. To cancel it now would block the id", id)
	}
	if err != nil {
		return op, err
	}
	_, err = r.Do(ctx, Act{Verb: Cancel, Operation: c.op, Target: id, Why: why, Plan: c.says}, func(ctx context.Context) (string, error) {
		if err := c.store(ctx, r.Log, r.Name, why); err != nil || !c.scheduled {
			return "cancelled", err
		}
		return "cancelled", r.Queues.Release(context.WithoutCancel(ctx), c.op, id) // begun is finished
	})
	return c.op, err
}

// onlyOne looks for the one operation whose request of an id can be acted on: the one named, or any. Errors: errUnseen, ErrNothingDone
// with what is in the way, or look's.
func onlyOne[T any](ctx context.Context, op messages.Operation, id string,
	look func(ctx context.Context, op messages.Operation, id string) (T, error),
) (found T, err error) {
	if !inspect.IsID(id) {
		return found, refuse("%q is not a valid request id", id)
	}
	err = errUnseen
	for _, of := range inspect.Operations {
		if op != "" && op != of {
			continue
		}
		switch one, why := look(ctx, of, id); {
		case why == nil && err == nil:
			return found, refuse("requests of several operations have the id %s: say which (--op)", id)
		case why == nil:
			found, err = one, nil
		case !errors.Is(why, ErrNothingDone):
			return found, why
		case err != nil && !errors.Is(why, errUnseen):
			err = why
		}
	}
	return found, err
}

var errUnseen = fmt.Errorf("%w: never seen", ErrNothingDone)

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrNothingDone, fmt.Errorf(format, args...))
}

func (r Requests) cancellable(ctx context.Context, op messages.Operation, id string) (cancelling, error) {
	c := cancelling{op: op, id: id}
	last, err := r.Log.Leader(ctx, op, op.Filter(id))
	if err != nil {
		return c, err
	}
	if last.Sequence > 0 {
		if err = c.over(ctx, r.Log, last); err == nil && c.scheduled { // no event of it names its order yet
			err = r.Queues.Scheduled(ctx, op, id, 0, func(m bus.Message) bool {
				if fingerprintOf(op, m.Data) != c.fingerprint { // its id had other contents before
					return true
				}
				f, _ := history.ReadFacts(m.Data)
				c.order = f.OrderNumber
				return false
			})
		}
		return c, err
	}
	waiting, err := r.Queues.Waiting(ctx, op, id)
	if long, ok := errors.AsType[*inspect.SkippedError](err); ok {
		return c, refuse("no event of %s is kept, and %w", id, long)
	}
	if err != nil {
		return c, err
	}
	for _, m := range waiting {
		print := fingerprintOf(op, m.Data)
		if c.fingerprint != "" && c.fingerprint != print {
			return c, refuse("its queue has the id %s more than once, with other contents: the first to be taken would be corrected", id)
		}
		f, _ := history.ReadFacts(m.Data) // what cannot be read names no order
		c.order, c.fingerprint, c.says = f.OrderNumber, print, "it is queued, and nobody had it yet"
		c.last.Trace, c.lane = bus.TraceOf(m.Header), messages.ParseSubject(m.Subject).Lane
	}
	if len(waiting) == 0 {
		return c, errUnseen
	}
	return c, nil
}

func (c *cancelling) over(ctx context.Context, log history.Log, last history.Entry) error {
	state := messages.StateOf(last.Subject)
	facts, err := history.ReadFacts(last.Body)
	if err != nil {
		return refuse("the last event of %s cannot be read", c.id)
	}
	switch {
	case state.Final(c.op):
		return refuse("%s has its outcome already: %s", c.id, state)
	case state == messages.Started || state == messages.Page:
		return refuse("%s is started: a call is under way or was made. Wait for its outcome", c.id)
	case state != messages.Deferred && state != messages.Reopened:
		return refuse("%s is %s", c.id, state)
	}
	effect, err := history.EffectOf(ctx, log, c.op, c.id, history.Prior{State: state, Last: last.Body, Facts: facts})
	if err != nil {
		return err
	}
	if !effect.None() {
		return refuse("a call of unknown fate is behind %s, or a part of it was done: as cancelled it would be said that nothing was", c.id)
	}
	c.last, c.lane, c.fingerprint, c.says = last, facts.Lane, facts.Fingerprint, "it is "+string(state)+", with nothing done"
	c.scheduled = facts.Reason == messages.ReasonScheduled
	c.order, c.fingerprint = effect.Began.OrderNumber, cmp.Or(c.fingerprint, effect.Began.Fingerprint)
	return nil
}

// store ends the request over the event that it was looked at with.
func (c *cancelling) store(ctx context.Context, log history.Log, by, why string) error {
	message := "cancelled by " + by + ": " + why
	var body messages.Body = &messages.FailedBody{Reason: messages.ReasonCancelled, Message: message,
		OrderNumber: c.order, Fingerprint: c.fingerprint}
	if c.op == messages.Send {
		body = &messages.SendOutcome{Reason: messages.ReasonCancelled, Message: message, Fingerprint: c.fingerprint}
	}
	h := &history.History{Log: log, Operation: c.op, ID: c.id, Trace: c.last.Trace, Lane: c.lane}
	return storeOver(ctx, h, c.last.Sequence, messages.Failed, body)
}

// storeOver stores an event over the one of a sequence, with which the request was looked at. Errors: errMeanwhile if there is another one
// now, or the log's.
func storeOver(ctx context.Context, h *history.History, last uint64, state messages.State, body messages.Body) error {
	_, err := h.Read(ctx)
	done, later := new(history.AlreadyDoneError), new(history.RetryLaterError)
	switch {
	case err != nil && !errors.As(err, &done) && !errors.As(err, &later):
		return err
	case h.Sequence() != last:
		return errMeanwhile
	}
	if err = h.Store(ctx, state, body); errors.Is(err, history.ErrFenced) {
		return errMeanwhile
	}
	return err
}
