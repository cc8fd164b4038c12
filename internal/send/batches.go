package send

import (
	"context"
	"errors"
	"sync"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/pkg/messages"
)

// many sends a request of several batches, some of them at once.
func (t *task) many(ctx context.Context) (messages.Event, error) {
	t.before = t.History.Attempt
	t.History.Attempt++
	if err := t.store(ctx, time.Now().Add(t.Timeout+history.Margin)); err != nil {
		return messages.Event{}, err
	}
	work := make(chan batch)
	var hands sync.WaitGroup
	for range min(max(t.Parallel, 1), t.plan.batches) {
		hands.Go(func() {
			for b := range work {
				t.settle(ctx, b)
			}
		})
	}
	for b, err := range t.cut(ctx) {
		if err != nil {
			t.stop(err)
		}
		failpoint.Here(failpoint.NextBatch)
		if !t.renew(ctx) {
			break
		}
		switch halted := t.Policy.Halt != nil && t.Policy.Halt(); {
		case halted && t.calls.Load() > 0:
			t.stop(&history.Later{At: time.Now(), Cause: errHalted})
		case halted:
			t.settle(ctx, b) // one call finds out whether the upstream works again
		default:
			work <- b
		}
	}
	close(work)
	hands.Wait()
	t.History.Attempt = t.before + int(t.calls.Load())
	return t.finish(ctx)
}

// errHalted is why batches wait that could have been sent.
var errHalted = errors.New("send: stopped between two batches, since the upstream is held or the program ends")

// renew keeps the request ours while batches remain, and tells whether to go on.
func (t *task) renew(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil && t.later == nil && time.Now().Add(t.Timeout).After(t.deadline) {
		t.History.Attempt = t.before + int(t.calls.Load()) + 1
		t.broken = t.store(ctx, time.Now().Add(t.Timeout+history.Margin))
	}
	return t.broken == nil && t.later == nil
}

func (t *task) stop(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var later *history.Later
	switch {
	case errors.As(err, &later):
		if t.later == nil || later.At.After(t.later.At) {
			t.later = later
		}
	case t.broken == nil:
		t.broken = err
	}
}

// settle takes one batch to its end over its own history.
func (t *task) settle(ctx context.Context, b batch) {
	h := &history.History{Log: t.History.Log, Operation: messages.Batch, ID: messages.BatchID(t.History.ID, b.number), Trace: t.History.Trace}
	var got result
	_, err := h.Settle(ctx, t.Prior.State == "", func(p history.Prior) (messages.Event, error) {
		stands, err := standing(b, p)
		if err != nil {
			return messages.Event{}, err
		}
		got, err = t.decide(ctx, h, b, stands, func(ctx context.Context, deadline time.Time) error {
			return h.Store(ctx, messages.Started, &messages.BatchBody{Batch: b.number, First: b.first, Count: len(b.to),
				Deadline: &messages.Time{Time: deadline}, AfterUnknown: stands.after})
		})
		if err == nil && got.waits() {
			err = t.deferBatch(ctx, h, got, t.awaits(stands.result))
		}
		if err != nil {
			return messages.Event{}, err
		}
		return h.Event(got.state, got.body()), nil
	})
	if answered, ok := errors.AsType[*history.Answered](err); ok {
		got, err = settledBefore(b, answered)
	}
	if later, ok := errors.AsType[*history.Later](err); ok && t.awaits(got) {
		t.await(got, later)
		return
	}
	if err != nil {
		t.stop(err)
		return
	}
	t.take(got)
}

// await keeps that a batch waits for the sending log. The others go on.
func (t *task) await(got result, later *history.Later) {
	t.mu.Lock()
	defer t.mu.Unlock()
	got.cause = later.Cause
	t.after, t.awaited = true, &got
}

// take counts a batch's result.
func (t *task) take(got result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepted += got.accepted
	t.after = t.after || got.after
	if got.state != messages.Accepted || got.reason != "" {
		got.to = nil // the addresses are not needed any more
		t.results = append(t.results, got)
	}
}

// deferBatch stores that the batch waits, and gives the error that says so. One that
// waits for the sending log may be looked after whenever its request comes back; that
// is stored once.
func (t *task) deferBatch(ctx context.Context, h *history.History, got result, stored bool) error {
	at := t.notBefore(h.Attempt, got)
	if t.awaits(got) {
		at = time.Now()
	}
	if t.awaits(got) && stored {
		return &history.Later{At: at, Cause: got.cause}
	}
	body := got.body()
	body.NotBefore = &messages.Time{Time: at}
	if err := h.Store(ctx, messages.Deferred, body); err != nil {
		return err
	}
	return &history.Later{At: at, Cause: got.cause}
}

func (r result) body() *messages.BatchBody {
	b := &messages.BatchBody{Batch: r.number, First: r.first, Count: r.count, Reason: r.reason, HTTPStatus: r.status, Message: r.message, AfterUnknown: r.after}
	if r.state == messages.Accepted {
		b.Accepted = &r.accepted
	}
	return b
}

// settledBefore is the result that an earlier delivery of the request stored.
func settledBefore(b batch, a *history.Answered) (result, error) {
	var body messages.BatchBody
	if err := messages.DecodeEvent(a.Body, &body); err != nil {
		return result{}, err
	}
	r := result{batch: b, count: len(b.to), state: a.State, reason: body.Reason, status: body.HTTPStatus, message: body.Message, after: body.AfterUnknown}
	if body.Accepted != nil {
		r.accepted = min(max(*body.Accepted, 0), r.count)
	}
	return r, nil
}
