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
	"math"
	"sync"
	"sync/atomic"
	"time"

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
	// Sent leaves a record of a call for whoever reads the sending log. No call is
	// made before it gave nil.
	Sent func(context.Context, messages.SentBody) error
	// Concluded gives what the sending log last said of batch n of a request; a
	// zero body: nothing yet.
	Concluded func(ctx context.Context, request string, n int) (messages.ConcludedBody, error)
}

// task is one request in hand.
type task struct {
	*Handler
	history.Request[messages.SendRequest]
	encoded mail.Encoded
	from    messages.Key // of the sender
	plan    plan
	giveUp  time.Time
	waited  time.Duration // for the sending log to speak, the last time
	after   bool          // a call of unknown fate was made before
	calls   atomic.Int64  // made on this delivery
	before  int           // calls made on earlier ones

	mu       sync.Mutex // guards what follows and the request's history while batches run
	deadline time.Time
	accepted int
	results  []result       // of batches that were not accepted whole
	later    *history.Later // why and until when the rest waits
	awaited  *result        // of a batch of which the sending log has to speak first
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
	if bare, err := messages.ParseRecipient(m.From); err == nil { // else none is named
		t.from = messages.KeyOf(bare)
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
		if t.after = deferred.AfterUnknown; t.after {
			t.waited = deferred.NotBefore.Sub(deferred.At.Time)
		}
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
	stands, err := standing(b, t.Prior)
	if err != nil {
		return messages.Event{}, err
	}
	got, err := t.decide(ctx, t.History, b, stands, func(ctx context.Context, deadline time.Time) error {
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
	if t.awaits(why) { // there is no call to count: each wait is twice the last
		wait = min(max(2*t.waited, t.Policy.Max), t.Policy.Wait(math.MaxInt))
	}
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
