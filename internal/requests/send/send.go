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
//	suppress.go  whom a batch leaves out since mail to them bounced
//	batches.go   which recipients are valid and distinct, and how they are cut into batches
//	parallel.go  several batches, some at once
//	result.go    what is known of a batch, and the outcome of all
package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/retry"
	"errand/internal/wire/mailkey"
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

	// Secret makes the keys of addresses by which readers of the sending log find a call's rows.
	Secret *mailkey.Secret
	// Open opens the object that holds a recipient list. fs.ErrNotExist means that there
	// is no such object with that digest. It returns the object's size, too.
	Open func(context.Context, messages.ObjectRef) (io.Reader, int64, error)
	// Suppressed, if set, reports whether nothing is to be sent to an address, and since when and why.
	Suppressed func(address string) (since time.Time, why string, yes bool)

	long          sync.Map        // by lane, *admission.Share of calls: messages to long lists
	comparing     admission.Share // lists that take memory
	comparingLong admission.Share // long lists, which take more
}

type message struct {
	*Handler
	request attempt.Request[messages.SendRequest]
	encoded mail.Encoded
	from    string // the sender's bare address
	size    int    // of a batch, pinned by the first started event
	plan    plan
	decided []messages.Suppressed // of the one batch
	share   int                   // of the calls of long work that it has taken
	calls   atomic.Int64          // made on this delivery
	before  int                   // made on earlier ones
	unknown atomic.Int64          // batches of unknown fate in a row
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
		return m.unprepared(ctx, err)
	}
	if m.plan.batches > 1 {
		return m.many(ctx)
	}
	return m.single(ctx)
}

// errShifted is for a plan that differs from the one that was begun.
var errShifted = errors.New("the recipients differ from those at the beginning")

// errPurged is for a request that was begun, of which no event says how.
var errPurged = errors.New("the events that say how it was begun are gone")

// resume returns how the message was begun; nil if it was not. What a person's redrive says of that outlives the events.
func (m *message) resume() (begun *messages.SendStarted, err error) {
	prior := m.request.Prior
	switch {
	case prior.Started != nil:
		begun = &messages.SendStarted{}
		err = messages.DecodeEvent(prior.Started, begun)
	case prior.State == messages.Deferred && prior.Reason != messages.ReasonScheduled,
		prior.State == messages.Reopened && prior.Was.State != messages.Failed && prior.BatchSize == 0:
		return nil, errPurged
	case prior.State == messages.Reopened && prior.BatchSize > 0:
		begun = &messages.SendStarted{BatchSize: prior.BatchSize}
	default:
		return nil, nil
	}
	if err == nil && (begun.BatchSize < 1 || begun.BatchSize > messages.MaxBatch) {
		err = fmt.Errorf("send: %w: it pins no batch size", history.ErrCorrupt)
	}
	if err == nil {
		m.size = begun.BatchSize // the same batches as before
	}
	return begun, err
}

// prepare encodes the message and plans the batches.
func (m *message) prepare(ctx context.Context, started *messages.SendStarted) (err error) {
	body := &m.request.Body
	m.encoded, err = mail.Encode(mail.Message{From: body.From, ReplyTo: body.ReplyTo, UnsubscribeLink: body.UnsubscribeLink,
		Subject: body.Subject, Content: body.Content, AsHTML: body.AsHTML, Headers: body.Headers})
	if err != nil {
		return &invalidError{"body", "cannot be encoded"}
	}
	if bare, err := messages.ParseRecipient(body.From); err == nil { // otherwise its calls name no sender
		m.from = bare
	}
	if m.plan, err = m.makePlan(ctx, started != nil); err != nil {
		return err
	}
	if started != nil {
		m.decided = started.Suppressed
	}
	if started != nil && started.Batches > 0 && (m.plan.recipients != started.Recipients || m.plan.batches != started.Batches) {
		return errShifted
	}
	return nil
}

// unprepared decides about a request whose recipients cannot be read. One that was begun waits until it is given up.
func (m *message) unprepared(ctx context.Context, err error) (messages.Event, error) {
	invalid, isInvalid := errors.AsType[*invalidError](err)
	cannotGoOn := errors.Is(err, errShifted) || errors.Is(err, errPurged)
	over := !time.Now().Before(m.request.GiveUpAt) && !errors.Is(err, history.ErrCorrupt) && !errors.Is(err, errStopping)
	if !isInvalid && !cannotGoOn && !over {
		return messages.Event{}, err
	}
	h, p := m.request.History, m.request.Prior
	effect, unread := history.EffectOf(ctx, h.Log, messages.Send, h.ID, p)
	if unread != nil {
		return messages.Event{}, unread
	}
	why := messages.FailedBody{Reason: messages.ReasonInvalidRequest, Message: err.Error(), Fingerprint: h.Fingerprint}
	begun := p.State == messages.Started || p.State == messages.Deferred && p.Reason != messages.ReasonScheduled
	switch {
	case isInvalid && !over && (begun || !effect.None()):
		return messages.Event{}, &history.RetryLaterError{At: m.notBefore(), Cause: err}
	case isInvalid:
		why.Fields = map[string][]string{invalid.field: {invalid.rule}}
		why.Message = (&messages.Invalid{Fields: why.Fields}).Error()
	case cannotGoOn:
		why.Message = "it was under way and cannot go on: " + why.Message
	default:
		why.Reason, why.Message = messages.ReasonUnavailable, "the recipient list could not be read in time"
	}
	state, outcome := ended(why, effect)
	outcome.Recipients = max(outcome.Recipients, m.plan.recipients)
	outcome.Duplicates, outcome.InvalidCount, outcome.Invalid = m.plan.duplicates, m.plan.faults, m.plan.invalid
	return h.Event(state, outcome), nil
}

// notBefore is when a request that is deferred now comes back.
func (m *message) notBefore() time.Time {
	return retry.NotBefore(m.Caller.Policy.Defer(m.request.Prior.Waited()), m.request.GiveUpAt, m.Caller.Timeout)
}

// single sends a message of one batch: its history is the batch's.
func (m *message) single(ctx context.Context) (messages.Event, error) {
	h := m.request.History
	p := m.request.Prior
	b := m.suppress(batch{number: 1, to: m.plan.kept}, p, m.decided, p.Started != nil)
	m.decided = b.suppressed()
	got := resultOf(b, attempt.Result[int]{Verdict: attempt.Done})
	switch {
	case len(b.to) == 0 && p.AfterUnknown:
		got = resultOf(b, attempt.Result[int]{Verdict: attempt.Uncertain, Reason: messages.ReasonInterrupted, AfterUnknown: true,
			Message: "mail to all its recipients bounced; what became of an earlier call is not known"})
	case len(b.to) > 0:
		var err error
		if got, err = m.send(ctx, m.request.Delivery, nil, m.started, b); err != nil {
			return messages.Event{}, err
		}
	}
	if got.waits() {
		return messages.Event{}, attempt.Defer(ctx, h, got.Result)
	}
	o := &outcome{}
	o.add(got)
	return m.end(o), nil
}

// started is the body of the request's own started event.
func (m *message) started(deadline messages.Time, _ bool) messages.Body {
	return &messages.SendStarted{Deadline: deadline, Fingerprint: m.request.History.Fingerprint,
		Recipients: m.plan.recipients, Batches: m.plan.batches, BatchSize: m.size,
		Suppressed: m.decided}
}

// send takes one batch to its end, by what its history (d's) says or by calling; over is the lease of its message, if that has several.
func (m *message) send(ctx context.Context, d attempt.Delivery, over *attempt.Lease, started attempt.Started, b batch) (result, error) {
	onUnknown, again := m.request.Body.OnUnknown, d.Prior.Again
	r, err := attempt.Run(ctx, m.Caller, attempt.Call[int]{
		Delivery: d, Started: m.keyed(started, b), Over: over,
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
	switch {
	case r.Verdict == attempt.Done || r.Verdict == attempt.Refused:
		m.unknown.Store(0)
	case r.Verdict == attempt.Uncertain && r.Reason != messages.ReasonInterrupted: // a worker that died says nothing of the upstream
		m.unknown.Add(1)
	}
	return resultOf(b, r), err
}

// keyed adds to the first event that announces a batch's call on this delivery what finds its rows in the sending log. If it is not
// stored, this delivery makes no call.
func (m *message) keyed(started attempt.Started, b batch) attempt.Started {
	keyed := false
	return func(deadline messages.Time, afterUnknown bool) messages.Body {
		body := started(deadline, afterUnknown)
		if keyed {
			return body
		}
		keyed = true
		switch keys := history.KeysOf(m.Secret, m.from, b.to); body := body.(type) {
		case *messages.SendStarted:
			body.Secret = keys
		case *messages.BatchBody:
			body.Secret = keys
		}
		return body
	}
}
