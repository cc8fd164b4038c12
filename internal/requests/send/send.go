// Package send divides one request into batches, makes a call for each, and gathers their results into one outcome.
//
//	recipients ─► parsed, duplicates out ─► batches of at most 1,000 ─┬─► attempt ─► mail.batch.<state>
//	                                                                  ├─► attempt ─► …
//	                                          one outcome ◄───────────┘
//
// A message of one batch uses its own history; of more, each batch has one: what was cut off continues where it was.
//
//	send.go      one message: resume, plan, send its batch
//	list.go      where recipients come from; how many long lists at once
//	plan.go      which recipients are valid and distinct, and how they are cut; filter.go: for long lists
//	batches.go   several batches, some at once
//	result.go    what is known of a batch, and the outcome of all
package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/internal/retry"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Handler submits messages. Every field but Secret is required.
type Handler struct {
	Upstream      *mail.Client
	Caller        *attempt.Caller
	Size          int // recipients a batch, at most 1,000
	Parallel      int // batches of one request under way at once
	MaxRecipients int // of one request; 0 for any number

	// Secret makes the keys of addresses in records; nil makes plain hashes.
	Secret *messages.RecipientSecret
	// Open opens the object that holds a recipient list. fs.ErrNotExist means that there
	// is no such object with that digest.
	Open func(context.Context, messages.ObjectRef) (io.ReadCloser, error)
	// Sent stores a record of a call for the readers of the sending log. No call is made before it returned nil.
	Sent func(context.Context, messages.SentBody) error

	planner planner
}

type message struct {
	*Handler
	request attempt.Request[messages.SendRequest]
	encoded mail.Encoded
	from    string // the sender's bare address
	size    int    // of a batch, pinned by the first started event
	plan    plan
	placed  bool         // it has a place among the messages to long lists
	calls   atomic.Int64 // made on this delivery
	before  int          // made on earlier ones
}

// Handle answers one send request. Errors: *history.RetryLaterError, history.ErrFenced, the log's or the object store's.
func (h *Handler) Handle(ctx context.Context, r attempt.Request[messages.SendRequest]) (messages.Event, error) {
	m := &message{Handler: h, request: r, size: h.Size, before: r.History.Attempt}
	defer m.leave()
	started, err := m.resume()
	if err == nil {
		err = m.prepare(ctx, started)
	}
	if err != nil {
		return m.unprepared(err)
	}
	if m.plan.batches > 1 {
		return m.many(ctx)
	}
	return m.single(ctx)
}

// errShifted is for a plan that differs from the one that was begun.
var errShifted = errors.New("send: the recipients differ from those at the beginning")

// errPurged is for a request under way whose plan is gone.
var errPurged = errors.New("send: the events that say how it was begun are gone")

// resume reads the started event; nil if there is none.
func (m *message) resume() (*messages.SendStarted, error) {
	prior := m.request.Prior
	if prior.Started == nil {
		if prior.State == messages.Deferred {
			return nil, errPurged
		}
		return nil, nil
	}
	var started messages.SendStarted
	if err := messages.DecodeEvent(prior.Started, &started); err != nil {
		return nil, err
	}
	if started.BatchSize < 1 || started.BatchSize > mail.MaxRecipients {
		return nil, fmt.Errorf("send: %w: it pins no batch size", history.ErrCorrupt)
	}
	m.size = started.BatchSize // the same batches as before
	return &started, nil
}

// prepare encodes the message and plans the batches.
func (m *message) prepare(ctx context.Context, started *messages.SendStarted) (err error) {
	body := &m.request.Body
	m.encoded, err = mail.Encode(mail.Message{From: body.From, ReplyTo: body.ReplyTo, UnsubscribeLink: body.UnsubscribeLink,
		Subject: body.Subject, Content: body.Content, AsHTML: body.AsHTML, Headers: body.Headers})
	if err != nil {
		return &invalidError{"body", "cannot be encoded"}
	}
	if bare, err := messages.ParseRecipient(body.From); err == nil { // otherwise the record names no sender
		m.from = bare
	}
	if m.plan, err = m.makePlan(ctx, started != nil); err != nil {
		return err
	}
	switch p := m.request.Prior; {
	case started != nil && (m.plan.recipients != started.Recipients || m.plan.batches != started.Batches):
		return errShifted
	case started == nil && p.Acted() && m.plan.batches > 1: // the plan that was begun may have been another
		return errPurged
	}
	return nil
}

// unprepared ends a request whose recipients cannot be read. One under way, maybe sent in part, waits until it is given up.
func (m *message) unprepared(err error) (messages.Event, error) {
	invalid, isInvalid := errors.AsType[*invalidError](err)
	over := !time.Now().Before(m.request.GiveUpAt)
	p := m.request.Prior
	begun := p.Acted() || p.State != "" && p.State != messages.Reopened
	switch {
	case errors.Is(err, errStopping):
		return messages.Event{}, err
	case errors.Is(err, errShifted), errors.Is(err, errPurged), begun && over && !errors.Is(err, history.ErrCorrupt):
		return m.event(messages.Uncertain, &messages.SendOutcome{Reason: messages.ReasonInterrupted,
			Message: "it was under way and cannot go on: " + err.Error()}), nil
	case begun && isInvalid:
		return messages.Event{}, &history.RetryLaterError{At: m.notBefore(), Cause: err}
	case isInvalid:
		fields := map[string][]string{invalid.field: {invalid.rule}}
		return m.event(messages.Failed, &messages.SendOutcome{Reason: messages.ReasonInvalidRequest,
			Message: (&messages.Invalid{Fields: fields}).Error(), Fields: fields}), nil
	case over && !errors.Is(err, history.ErrCorrupt):
		return m.event(messages.Failed, &messages.SendOutcome{Reason: messages.ReasonUnavailable,
			Message: "the recipient list could not be read in time"}), nil
	}
	return messages.Event{}, err
}

// notBefore is when a request that is deferred now comes back.
func (m *message) notBefore() time.Time {
	return retry.NotBefore(m.Caller.Policy.Defer(m.request.Prior.Waited()), m.request.GiveUpAt, m.Caller.Timeout)
}

// single sends a message of one batch: its history is the batch's.
func (m *message) single(ctx context.Context) (messages.Event, error) {
	h := m.request.History
	got, err := m.send(ctx, m.request.Delivery, nil, m.started, batch{number: 1, to: m.plan.kept})
	if err != nil {
		return messages.Event{}, err
	}
	if got.waits() {
		return messages.Event{}, attempt.Defer(ctx, h, got.Result, &messages.DeferredBody{})
	}
	o := &outcome{}
	o.add(got)
	return m.end(o), nil
}

// started is the body of the request's own started event.
func (m *message) started(deadline messages.Time, _ attempt.State) messages.Body {
	return &messages.SendStarted{Deadline: deadline, Fingerprint: m.request.History.Fingerprint,
		Recipients: m.plan.recipients, Batches: m.plan.batches, BatchSize: m.size}
}

// send takes one batch to its end, by what its history (d's) says or by calling; over is the lease of its message, if that has several.
func (m *message) send(ctx context.Context, d attempt.Delivery, over *attempt.Lease, started attempt.Started, b batch) (result, error) {
	onUnknown, again := m.request.Body.OnUnknown, d.Prior.Again
	recorded := false
	r, err := attempt.Run(ctx, m.Caller, attempt.Call[int]{
		Delivery: d, Unknown: attempt.UnknownOf(d.Prior), Started: started, Over: over,
		Record: func(ctx context.Context, begin, until time.Time) error {
			record := m.record(b, d.History.Attempt, begin, until)
			if !recorded {
				record.SetKeys(m.Secret, m.from, b.to)
				recorded = true // if it is not stored, this delivery makes no call
			}
			return m.Sent(ctx, record)
		},
		OnUnknown: func(_ context.Context, fresh bool) (attempt.Verdict, error) {
			again = again && !fresh // it was said about earlier calls
			if again || onUnknown == messages.OnUnknownResend {
				return attempt.Done, nil
			}
			return attempt.Uncertain, nil
		},
		Make: func(ctx context.Context) (int, error) {
			m.calls.Add(1)
			return m.Upstream.Send(ctx, m.encoded, b.to)
		}})
	return resultOf(b, r), err
}

// record is what finds the rows of a batch's call in the sending log, without the keys of its recipients.
func (m *message) record(b batch, attempt int, begin, until time.Time) messages.SentBody {
	record := messages.SentBody{Common: messages.Common{RequestID: m.request.History.ID, At: messages.Time{Time: time.Now()},
		Attempt: attempt},
		Batch: b.number, First: b.first, Count: len(b.to), Begin: messages.Time{Time: begin}, Until: messages.Time{Time: until}}
	if m.Secret == nil {
		record.From = messages.KeyOf(m.from)
	}
	return record
}
