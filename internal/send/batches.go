package send

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// result is what is known of one batch.
type result struct {
	batch
	count    int
	state    messages.State // accepted, refused, uncertain or deferred
	accepted int
	reason   messages.Reason
	status   int
	message  string
	fields   map[string][]string
	after    bool  // a call of unknown fate was made before
	cause    error // of a batch that waits
}

// waits reports whether the batch is to be sent later.
func (r result) waits() bool {
	return r.state == messages.Deferred && r.reason != messages.ReasonUnavailable
}

// judge turns the end of a batch's calls into its result.
func judge(b batch, accepted int, err error) result {
	r := result{batch: b, count: len(b.to), cause: err}
	if failed, ok := errors.AsType[*clients.Error](err); ok {
		r.reason, r.status, r.message, r.fields = messages.Reason(failed.Reason), failed.Status, failed.Message, failed.Fields
		if r.message == "" {
			r.message = failed.Error()
		}
	}
	switch clients.FateOf(err) {
	case clients.Success:
		r.state, r.accepted = messages.Accepted, min(accepted, r.count)
		if accepted < r.count {
			r.reason = messages.ReasonShortCount
		}
	case clients.Refused:
		r.state = messages.Refused
	case clients.Busy, clients.Held:
		r.state = messages.Deferred
	default:
		r.state = messages.Uncertain
		if r.reason == "" {
			r.reason = messages.ReasonNoAnswer
		}
	}
	return r
}

// interrupted is the result of a batch whose caller died.
func interrupted(b batch) result {
	return result{batch: b, count: len(b.to), state: messages.Uncertain, reason: messages.ReasonInterrupted,
		message: "a worker died between the call's announcement and its outcome"}
}

// unsent is the result of a batch that was given up before a call of known fate.
func (t *task) unsent(b batch, after bool) result {
	r := result{batch: b, count: len(b.to), state: messages.Deferred, reason: messages.ReasonUnavailable, after: after,
		message: fmt.Sprintf("given up after %s", messages.Time{Time: t.giveUp})}
	if after {
		r.state, r.reason = messages.Uncertain, messages.ReasonNoAnswer
	}
	return r
}

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
	return t.conclude(ctx)
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
		var before messages.BatchBody
		if p.Last != nil {
			if err := messages.DecodeEvent(p.Last, &before); err != nil {
				return messages.Event{}, err
			}
		}
		var err error
		got, err = t.decide(ctx, h, b, p.State, before.AfterUnknown, func(ctx context.Context, deadline time.Time) error {
			return h.Store(ctx, messages.Started, &messages.BatchBody{Batch: b.number, First: b.first, Count: len(b.to),
				Deadline: &messages.Time{Time: deadline}, AfterUnknown: before.AfterUnknown})
		})
		if err == nil && got.waits() {
			err = t.deferBatch(ctx, h, got)
		}
		if err != nil {
			return messages.Event{}, err
		}
		return h.Event(got.state, got.body()), nil
	})
	if answered, ok := errors.AsType[*history.Answered](err); ok {
		got, err = settledBefore(b, answered)
	}
	if err != nil {
		t.stop(err)
		return
	}
	t.take(got)
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

// deferBatch stores that the batch waits, and gives the error that says so.
func (t *task) deferBatch(ctx context.Context, h *history.History, got result) error {
	at := t.notBefore(h.Attempt, got)
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
