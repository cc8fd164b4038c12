package send

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/pkg/messages"
)

// delivery is the work on a message of several batches on one delivery.
type delivery struct {
	*message
	outcome
	reopened uint64 // sequence of the event that reopened the request, or 0
	named    []int  // the batches that this event allows to be sent; empty if it names none

	lease *attempt.Lease // the message's: each batch is sent under it

	submitted atomic.Int64 // of the batches that had their turn, whichever worker did it

	mu       sync.Mutex // guards what follows
	deferred *result    // the batch that waits longest
	broken   error      // ends the work
}

// many sends a message of several batches, some of them at once.
func (m *message) many(ctx context.Context) (messages.Event, error) {
	d := &delivery{message: m}
	if m.request.Prior.State == messages.Started { // the last one that it counts was a batch's to make, which counts it if it was made
		m.before--
	}
	d.lease = m.Caller.Lease(m.request.History, func(deadline messages.Time, afterUnknown bool) messages.Body {
		m.request.History.Attempt = d.attempts() + 1
		return m.started(deadline, afterUnknown)
	})
	if err := d.findReopened(ctx); err != nil {
		return messages.Event{}, err
	}
	work := make(chan batch)
	var workers sync.WaitGroup
	for range min(max(m.Parallel, 1), m.plan.batches) {
		workers.Go(func() {
			for b := range work {
				d.settle(ctx, b)
			}
		})
	}
	for b, err := range m.plan.cut(m.texts(ctx)) {
		if err != nil {
			d.stop(err)
		}
		failpoint.Here(failpoint.NextBatch)
		if !d.goesOn() {
			break
		}
		if m.calls.Load() == 0 && m.findsOut() {
			d.settle(ctx, b)
			continue
		}
		work <- b
	}
	close(work)
	workers.Wait()
	m.request.History.Attempt = d.attempts()
	return d.finish(ctx)
}

// attempts is how many submissions were made for the message, as far as this delivery knows.
func (d *delivery) attempts() int {
	return max(d.message.before+int(d.calls.Load()), int(d.submitted.Load()))
}

// findsOut reports whether one call must show that the upstream works again before others are made.
func (m *message) findsOut() bool {
	p := m.request.Prior
	return m.request.Permit.Probe() || p.State == messages.Deferred && (p.Reason == messages.ReasonHeld || p.Reason == messages.ReasonBusy)
}

// findReopened finds out whether the request was reopened.
func (d *delivery) findReopened(ctx context.Context) error {
	h := d.request.History
	if d.request.Prior.State == "" {
		return nil
	}
	e, err := h.Log.Leader(ctx, messages.Send, messages.Send.Subject(messages.Reopened, h.ID))
	if err != nil || e.Body == nil {
		return err
	}
	var said messages.ReopenedBody
	err = messages.DecodeEvent(e.Body, &said)
	d.reopened, d.named = e.Sequence, said.Batches
	return err
}

// goesOn reports whether to begin another batch.
func (d *delivery) goesOn() bool {
	d.mu.Lock()
	ended := d.broken != nil || d.deferred != nil
	d.mu.Unlock()
	switch {
	case ended:
	case d.calls.Load() > 0 && d.Caller.Stopping():
		d.wait(waiting(errStopping, time.Now(), errStopping))
	case d.unknown.Load() >= unknownBatches:
		d.wait(waiting(errNoAnswers, d.notBefore(), errNoAnswers))
	default:
		return true
	}
	return false
}

// unknownBatches is after how many batches of unknown fate in a row the others wait: one message alone begins no hold.
const unknownBatches = 3

var errNoAnswers = errors.New("send: what became of the last batches is unknown")

// errStopping is why a batch waits that could have been sent, or a list that could have been read.
var errStopping = errors.New("send: the program ends")

func (d *delivery) stop(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken == nil {
		d.broken = err
	}
}

// wait notes that a batch waits. Then no other is begun.
func (d *delivery) wait(r result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deferred == nil || r.NotBefore.After(d.deferred.NotBefore) {
		d.deferred = &r
	}
}

// settle takes one batch to its end over its own history.
func (d *delivery) settle(ctx context.Context, b batch) {
	defer func() {
		if p := recover(); p != nil {
			d.stop(attempt.Panicked(p))
		}
	}()
	r := d.request
	h := &history.History{Log: r.History.Log, Operation: messages.Batch, ID: messages.BatchID(r.History.ID, b.number),
		Trace: r.History.Trace, Lane: r.History.Lane}
	leftOut := history.LeftOut(d.named, b.number)
	if !leftOut {
		h.ReopenedAt, h.Named = d.reopened, len(d.named) > 0
	}
	var got result
	_, err := h.Settle(ctx, r.Prior.State == "", func(p history.Prior) (messages.Event, error) {
		of := r.Delivery
		of.History, of.Prior = h, p
		var err error
		if r.Prior.State == "" && p.State != "" { // of another request perhaps, or of one that is cut otherwise: the message's history says so
			if _, err = d.lease.Take(ctx); err != nil {
				return messages.Event{}, err
			}
		}
		if leftOut {
			got = unnamed(b.without(p.Suppressed), p)
		} else if got, err = d.sendRest(ctx, of, d.suppress(b, p, p.Suppressed, true)); err != nil {
			if errors.Is(err, attempt.ErrOver) { // what the batch's history says is for the worker that has the message
				d.stop(err)
			}
			return messages.Event{}, err
		}
		if got.waits() {
			return messages.Event{}, deferBatch(ctx, h, got)
		}
		return h.Event(got.state(), bodyOf(got)), nil
	})
	d.submitted.Add(int64(h.Attempt))
	if done, ok := errors.AsType[*history.AlreadyDoneError](err); ok {
		var f history.Facts
		f, err = history.ReadFacts(done.Body)
		b = b.without(f.Suppressed)
		got = settledBefore(b, len(b.to), done.State, f)
	}
	later, ok := errors.AsType[*history.RetryLaterError](err)
	switch {
	case ok && got.Verdict == "": // it waits since an earlier delivery, or another worker has it
		d.wait(waiting(later, later.At, later.Cause))
	case ok:
		d.wait(got)
	case err != nil:
		d.stop(err)
	default:
		d.add(got)
	}
}

// sendRest sends a batch to whom it leaves. If that is nobody, its event says so, under the lease that pins how the message is cut.
func (d *delivery) sendRest(ctx context.Context, of attempt.Delivery, b batch) (result, error) {
	if len(b.to) > 0 {
		started := func(deadline messages.Time, afterUnknown bool) messages.Body {
			return &messages.BatchBody{Batch: b.number, First: b.first, Count: len(b.to), Deadline: &deadline, AfterUnknown: afterUnknown,
				Suppressed: b.suppressed()}
		}
		return d.send(ctx, of, d.lease, started, b)
	}
	_, err := d.lease.Take(ctx)
	return resultOf(b, attempt.Result[int]{Verdict: attempt.Done}), err
}

// unnamed is the result of a batch that a person's redrive left out and whose history has no end.
func unnamed(b batch, p history.Prior) result {
	if history.Unfinished(p.State, p.Facts) == messages.Deferred {
		return resultOf(b, attempt.Result[int]{Verdict: attempt.GivenUp, Reason: p.Reason, Status: p.HTTPStatus, Message: p.Message})
	}
	return resultOf(b, attempt.Result[int]{Verdict: attempt.Uncertain, Reason: messages.ReasonInterrupted,
		Message: "it is not among the batches that were to be sent again, and its events do not show what became of it"})
}

// waiting is the result of a batch that must not be touched until a time.
func waiting(why error, until time.Time, cause error) result {
	r := attempt.Result[int]{Verdict: attempt.RetryLater, Reason: messages.ReasonBusy, Message: why.Error(), NotBefore: until, Cause: cause}
	if cause == nil { // another worker may be calling: nothing more is known before its deadline
		r.Reason = messages.ReasonInterrupted
	}
	return result{Result: r}
}

// deferBatch stores that a batch waits, and returns the error that says so.
func deferBatch(ctx context.Context, h *history.History, got result) error {
	body := bodyOf(got)
	body.NotBefore = &messages.Time{Time: got.NotBefore}
	if err := h.Store(ctx, messages.Deferred, body); err != nil {
		return err
	}
	return &history.RetryLaterError{At: got.NotBefore, Cause: got.Cause}
}

func bodyOf(r result) *messages.BatchBody {
	b := &messages.BatchBody{Batch: r.number, First: r.first, Count: r.count, Reason: r.Reason, HTTPStatus: r.Status,
		Message: r.Message, AfterUnknown: r.AfterUnknown, HeldCount: r.HeldCount, Suppressed: r.suppressed()}
	if r.Verdict == attempt.Done {
		b.Accepted = &r.Value
	}
	return b
}

// finish ends a delivery: with its outcome, or deferred because some batches wait.
func (d *delivery) finish(ctx context.Context) (messages.Event, error) {
	h := d.request.History
	switch {
	case d.broken != nil:
		return messages.Event{}, d.broken
	case d.deferred == nil:
		return d.message.end(&d.outcome), nil
	}
	if !d.lease.Taken() { // nothing was done, and no event says how it is cut
		return messages.Event{}, &history.RetryLaterError{At: d.deferred.NotBefore, Cause: d.deferred.Cause}
	}
	d.deferred.AfterUnknown = d.deferred.AfterUnknown || d.afterUnknown
	return messages.Event{}, attempt.Defer(ctx, h, d.deferred.Result)
}
