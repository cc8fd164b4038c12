// Package send turns one request into batches, batches into calls, and their
// fates into one outcome.
//
//	recipients ─► parsed, duplicates out ─► batches of at most 1,000 ─┬─► call ─► mail.batch.<state>
//	                                                                  ├─► call ─► …
//	                                          one outcome ◄───────────┘
//
// A request of one batch keeps its ledger in its own history; with more, each
// batch has a history of its own, so that a request that was cut off half-way
// goes on where it stood.
package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Handler submits messages. Every field is required.
type Handler struct {
	Upstream *mail.Client
	Policy   retry.Policy
	Timeout  time.Duration // of one call, as the client has it
	Size     int           // recipients a batch, at most 1,000
	Parallel int           // batches of one request on their way at once

	// Open opens the object that holds a recipient list. fs.ErrNotExist: there
	// is no such object with that digest.
	Open func(context.Context, messages.ObjectRef) (io.ReadCloser, error)
}

// task is one request in hand.
type task struct {
	*Handler
	history.Request[messages.SendRequest]
	encoded mail.Encoded
	plan    plan
	giveUp  time.Time
	after   bool         // a call of unknown fate was made before
	calls   atomic.Int64 // made on this delivery
	before  int          // calls made on earlier ones

	mu       sync.Mutex // guards what follows and the request's history while batches run
	deadline time.Time
	accepted int
	results  []result       // of batches that were not accepted whole
	later    *history.Later // why and until when the rest waits
	broken   error          // ends the work on this delivery
}

// Handle answers one send request. Errors: *history.Later when it was put off,
// history.ErrConflict when it is in another hand, the log's or the object store's.
func (h *Handler) Handle(ctx context.Context, r history.Request[messages.SendRequest]) (messages.Event, error) {
	t := &task{Handler: h, Request: r, giveUp: r.GiveUpAt}
	if !r.Body.GiveUpAt.IsZero() {
		t.giveUp = r.Body.GiveUpAt
	}
	if err := t.prepare(ctx); err != nil {
		return t.unprepared(err)
	}
	if t.plan.batches == 1 {
		return t.single(ctx)
	}
	return t.many(ctx)
}

// prepare encodes the message, resumes what stands, and plans the batches.
func (t *task) prepare(ctx context.Context) (err error) {
	m := &t.Body
	t.encoded, err = mail.Encode(mail.Message{From: m.From, ReplyTo: m.ReplyTo, UnsubscribeLink: m.UnsubscribeLink,
		Subject: m.Subject, Content: m.Content, AsHTML: m.AsHTML, Headers: m.Headers})
	if err != nil {
		return &unfit{"body", "cannot be encoded"}
	}
	t.plan.size = t.Size
	if t.Prior.Started != nil {
		var started messages.SendStarted
		if err := messages.DecodeEvent(t.Prior.Started, &started); err != nil {
			return err
		}
		if started.BatchSize < 1 || started.BatchSize > mail.MaxRecipients {
			return fmt.Errorf("send: %w: it pins no batch size", history.ErrForged)
		}
		t.plan.size = started.BatchSize // pinned: the same batches as before
	}
	if t.Prior.State == messages.Deferred {
		var deferred messages.DeferredBody
		if err := messages.DecodeEvent(t.Prior.Last, &deferred); err != nil {
			return err
		}
		t.after = deferred.AfterUnknown
	}
	return t.makePlan(ctx)
}

// unprepared is what becomes of a request whose recipients cannot be read. One
// that is under way may have been sent in part, so it waits for its list.
func (t *task) unprepared(err error) (messages.Event, error) {
	why := invalid(err)
	switch {
	case why == nil && t.Prior.State == "" && !time.Now().Before(t.giveUp):
		return t.event(messages.Failed, &messages.SendOutcome{Reason: messages.ReasonUnavailable, Message: "the recipient list could not be read in time"}), nil
	case why == nil:
		return messages.Event{}, err
	case t.Prior.State == "":
		return t.event(messages.Failed, &messages.SendOutcome{Reason: messages.ReasonInvalidRequest, Message: why.Error(), Fields: why.Fields}), nil
	case time.Now().Before(t.giveUp):
		return messages.Event{}, &history.Later{At: time.Now().Add(t.Policy.Wait(t.History.Attempt)), Cause: err}
	}
	return t.event(messages.Uncertain, &messages.SendOutcome{Reason: messages.ReasonInterrupted,
		Message: "the recipient list is gone while the request was under way: " + why.Error(), Fields: why.Fields}), nil
}

// single sends a request of one batch: its own history is the batch's ledger.
func (t *task) single(ctx context.Context) (messages.Event, error) {
	b := batch{number: 1, to: t.plan.only}
	got, err := t.decide(ctx, t.History, b, t.Prior.State, t.after, func(ctx context.Context, deadline time.Time) error {
		return t.store(ctx, deadline)
	})
	if err != nil {
		return messages.Event{}, err
	}
	if got.waits() {
		return t.putOff(ctx, got)
	}
	t.take(got)
	return t.outcome(), nil
}

// store stores started with a new deadline; the attempt is the history's.
func (t *task) store(ctx context.Context, deadline time.Time) error {
	t.deadline = deadline
	return t.History.Store(ctx, messages.Started, &messages.SendStarted{Deadline: messages.Time{Time: deadline},
		Fingerprint: t.History.Fingerprint, Recipients: t.plan.recipients, Batches: t.plan.batches, BatchSize: t.plan.size})
}

// decide gives a batch's result: from what stands, or by calling. announce stores
// the started event that each call needs; its error means that the batch is not in
// our hand.
func (t *task) decide(ctx context.Context, h *history.History, b batch, stands messages.State, after bool, announce func(context.Context, time.Time) error) (result, error) {
	if stands == messages.Started { // its caller died
		if t.Body.OnUnknown != "resend" {
			return interrupted(b), nil
		}
		after = true
	}
	if !time.Now().Before(t.giveUp) {
		return t.unsent(b, after), nil
	}
	var deadline time.Time
	var stored error
	call := func(ctx context.Context) (int, error) {
		h.Attempt++
		for time.Now().Add(t.Timeout).After(deadline) { // again if storing it took too long
			deadline = time.Now().Add(t.Timeout + history.Margin)
			if stored = announce(ctx, deadline); stored != nil {
				return 0, stored
			}
		}
		ctx, cancel := context.WithDeadline(ctx, deadline) // paused past it, we must not call
		defer cancel()
		t.calls.Add(1)
		failpoint.Here(failpoint.BeforeCall)
		accepted, err := t.Upstream.Send(ctx, t.encoded, b.to)
		failpoint.Here(failpoint.Answer)
		return accepted, err
	}
	for calls := 1; ; calls++ {
		accepted, err := retry.Do(ctx, t.Policy, call)
		if stored != nil {
			return result{}, stored
		}
		if t.Body.OnUnknown == "resend" && ctx.Err() != nil && clients.FateOf(err) == clients.Unknown {
			return result{}, context.Cause(ctx) // cut off by our own end: whoever takes it over sends again
		}
		got := judge(b, accepted, err)
		got.after = after
		if got.state != messages.Uncertain || t.Body.OnUnknown != "resend" {
			return got, nil
		}
		after = true
		if calls >= max(t.Policy.Tries, 1) || t.Policy.Halted() {
			got.state, got.after = messages.Deferred, true
			return got, nil
		}
	}
}

// putOff stores deferred and gives the error that puts the request back.
func (t *task) putOff(ctx context.Context, why result) (messages.Event, error) {
	at := t.notBefore(t.History.Attempt, why)
	err := t.History.Store(ctx, messages.Deferred, &messages.DeferredBody{Reason: why.reason, Message: why.message,
		HTTPStatus: why.status, NotBefore: messages.Time{Time: at}, AfterUnknown: why.after})
	if err != nil {
		return messages.Event{}, err
	}
	return messages.Event{}, &history.Later{At: at, Cause: why.cause}
}

// notBefore is when it is worth trying again; never after the request is given up.
func (t *task) notBefore(attempt int, why result) time.Time {
	wait := t.Policy.Wait(attempt)
	if failed, ok := errors.AsType[*clients.Error](why.cause); ok {
		wait = max(wait, failed.RetryAfter)
		if failed.Fate == clients.Held {
			wait = t.Policy.Max // it comes back when the hold ends
		}
	}
	at := time.Now().Add(wait)
	if at.After(t.giveUp) {
		at = t.giveUp
	}
	return at
}
