package send

import (
	"context"
	"errors"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// calls are those of one batch on one delivery of its request.
type calls struct {
	*task
	h        *history.History
	b        batch
	announce func(context.Context, time.Time) error

	deadline time.Time
	told     bool  // the recipients are in a record of this delivery
	stored   error // started was not stored: the batch is not in our hand
	kept     error // the record of the call was not: the batch was not sent
}

// decide gives a batch's result: from what stands, or by calling. announce stores
// the started event that each call needs; its error means that the batch is not in
// our hand.
func (t *task) decide(ctx context.Context, h *history.History, b batch, last stands, announce func(context.Context, time.Time) error) (result, error) {
	onUnknown := t.Body.OnUnknown
	after := last.after || last.state == messages.Started
	if onUnknown != messages.OnUnknownResend && (last.state == messages.Started || t.awaits(last.result)) {
		if err := t.leave(ctx, h, last); err != nil {
			return result{}, err
		}
		if got, err := t.fate(ctx, last); err != nil || got.state != "" {
			return got, err
		}
	}
	if !time.Now().Before(t.giveUp) {
		return t.unsent(b, after), nil
	}
	c := &calls{task: t, h: h, b: b, announce: announce}
	for n := 1; ; n++ {
		accepted, err := retry.Do(ctx, t.Policy, c.call)
		if c.stored != nil {
			return result{}, c.stored
		}
		if onUnknown == messages.OnUnknownResend && ctx.Err() != nil && clients.FateOf(err) == clients.Unknown {
			return result{}, context.Cause(ctx) // cut off by our own end: whoever takes it over sends again
		}
		got := judge(b, accepted, err)
		if c.kept != nil {
			got.state, got.reason, got.message = messages.Deferred, messages.ReasonBusy, "the record of the call could not be stored"
		}
		got.after = after
		if got.state != messages.Uncertain || onUnknown == messages.OnUnknownReport {
			return got, nil
		}
		after = true
		if onUnknown == messages.OnUnknownConclude || n >= max(t.Policy.Tries, 1) || t.Policy.Halted() {
			got.state, got.after = messages.Deferred, true
			return got, nil
		}
	}
}

// leave leaves the record of a call whose caller died, who may have left none: then it
// made no call, but the sending log's reader knows nothing of the batch and would never
// conclude that. The same record twice says the same twice.
func (t *task) leave(ctx context.Context, h *history.History, last stands) error {
	if last.state != messages.Started {
		return nil
	}
	r := t.record(last.batch, h.Attempt, last.begin, last.end)
	r.Keys = keys(last.to)
	if err := t.Sent(ctx, r); err != nil && ctx.Err() != nil {
		return err
	} // what NATS does not take now it did not take before: there was no call
	return nil
}

// fate says what became of a batch's last call, which nobody knows from its answer. A
// zero result: the sending log says that it was not sent.
func (t *task) fate(ctx context.Context, last stands) (result, error) {
	if t.Body.OnUnknown != messages.OnUnknownConclude {
		return interrupted(last.batch), nil
	}
	said, err := t.Concluded(ctx, t.History.ID, last.number)
	if err != nil {
		return result{}, err
	}
	if said.Until.Before(last.end) {
		said.Outcome = "" // it is about an earlier call
	}
	got := last.result
	got.state, got.after, got.cause = messages.Deferred, true, errAwaits
	switch {
	case said.Outcome == messages.WasAccepted:
		return result{batch: last.batch, count: last.count, state: messages.Accepted, accepted: last.count, after: true}, nil
	case said.Outcome == messages.WasNotSent:
		return result{}, nil
	case said.Outcome == messages.Unclear || !time.Now().Before(t.giveUp):
		got.state = messages.Uncertain
	}
	return got, nil
}

// errAwaits is why a batch waits that is neither called nor given up.
var errAwaits = errors.New("send: the sending log does not say yet what became of a call")

// call makes one call. It lies within a started event and a record of it, both stored
// before; calls in quick succession share them.
func (c *calls) call(ctx context.Context) (int, error) {
	c.h.Attempt++
	for time.Now().Add(c.Timeout).After(c.deadline) { // again if storing it took too long
		c.deadline = time.Now().Add(c.Timeout + history.Margin)
		if c.stored = c.announce(ctx, c.deadline); c.stored != nil {
			return 0, c.stored
		}
		if c.kept = c.keep(ctx); c.kept != nil {
			c.h.Attempt--
			return 0, c.kept
		}
	}
	ctx, cancel := context.WithDeadline(ctx, c.deadline) // paused past it, we must not call
	defer cancel()
	c.calls.Add(1)
	failpoint.Here(failpoint.BeforeCall)
	accepted, err := c.Upstream.Send(ctx, c.encoded, c.b.to)
	failpoint.Here(failpoint.Answer)
	return accepted, err
}

// keep leaves the record of the call. It comes after started: who finds the request
// answered leaves nothing.
func (c *calls) keep(ctx context.Context) error {
	begin := time.Now()
	if begin.After(c.deadline) { // somebody else may have it by now: announcing it again will tell
		return nil
	}
	r := c.record(c.b, c.h.Attempt, begin, c.deadline)
	if !c.told {
		r.Keys, c.told = keys(c.b.to), true // not stored: this delivery makes no call
	}
	return c.Sent(ctx, r)
}

// record is what it takes to find the rows of a batch's call in the sending log, but for
// the keys of its recipients.
func (t *task) record(b batch, attempt int, begin, until time.Time) messages.SentBody {
	return messages.SentBody{Common: messages.Common{RequestID: t.History.ID, At: messages.Time{Time: time.Now()}, Attempt: attempt},
		Batch: b.number, First: b.first, Count: len(b.to), From: t.from, Begin: messages.Time{Time: begin}, Until: messages.Time{Time: until}}
}

func keys(to []string) (all []byte) {
	for _, address := range to {
		all = messages.AppendKey(all, messages.KeyOf(address))
	}
	return all
}
