// Package enroll decides one enrollment. Its calls are made through attempt; the transaction list shows unknown fates.
//
//	attempt ─┬─ done ────────► succeeded
//	         ├─ refused ─────► failed
//	         ├─ retry later ─► deferred
//	         └─ unknown ─────► look the order number up ─┬─ listed, or report ───────────────────► uncertain
//	                                                     │  with retry, or after a person's redrive:
//	                                                     ├─ the list proves that it was not taken ─► call again
//	                                                     └─ it does not prove it yet ────────────► deferred
package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/mandates"
	"errand/internal/requests/attempt"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Handler enrolls payers. Every field but ReturnURL and WithoutPayer is required.
type Handler struct {
	Upstream *mandate.Client
	List     *mandates.List
	Caller   *attempt.Caller
	Zone     *time.Location // of the document's dates
	// ReturnURL, if set, returns the return_url of a request without one.
	ReturnURL    func(id string) string
	WithoutPayer bool // events hold nothing of the payer
}

type enrollment struct {
	*Handler
	request  attempt.Request[messages.EnrollRequest]
	defaults messages.Defaults // of the call that was announced last
	evidence []json.RawMessage // what is listed under the order number
	message  string            // what a look-up found
	again    bool              // a person said to make it again if it is not listed
	ended    time.Time         // when this delivery's last call of unknown fate was over; zero if there was none
	answered bool              // it was then over for certain
}

// Handle answers one enrollment request. Errors: *history.RetryLaterError, history.ErrFenced, or the log's.
func (h *Handler) Handle(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
	e := &enrollment{Handler: h, request: r, again: r.Prior.Again}
	result, err := attempt.Run(ctx, h.Caller, attempt.Call[mandate.Enrolled]{
		Delivery: r.Delivery, OwnKey: r.Body.PortalKey != "",
		Before: e.before, Started: e.started, Stale: e.stale, OnUnknown: e.lookUp, LooksUp: true, Make: e.call})
	if err != nil {
		return messages.Event{}, err
	}
	return e.event(ctx, result)
}

// before refuses a call whose link would have expired already.
func (e *enrollment) before(now time.Time) *clients.Error {
	at := e.request.Body.LinkExpiredAt
	if at == "" {
		return nil
	}
	expires, err := time.ParseInLocation(time.DateTime, at, e.Zone)
	if err != nil || now.Before(expires) {
		return nil
	}
	return &clients.Error{Operation: "enroll", Fate: clients.Refused, Reason: messages.ReasonUnavailable,
		Message: "link_expired_at has passed before the call", Fields: map[string][]string{"link_expired_at": {"has passed before the call"}}}
}

// started is the body of the event that announces a call, with the document's defaults for what the request left out.
func (e *enrollment) started(deadline messages.Time, afterUnknown bool) messages.Body {
	body := &e.request.Body
	e.defaults = messages.Defaults{}
	if body.MaxFrequency == "" {
		e.defaults.MaxFrequency = "9"
	}
	if body.EffectiveDate == "" {
		e.defaults.EffectiveDate = e.tomorrow(time.Now())
	}
	return &messages.EnrollStarted{Deadline: deadline, Fingerprint: e.request.History.Fingerprint,
		OrderNumber: body.OrderNumber, Defaults: e.defaults, AfterUnknown: afterUnknown}
}

// tomorrow is the next day of the zone's calendar, of which some hour may not exist there.
func (e *enrollment) tomorrow(now time.Time) string {
	year, month, day := now.In(e.Zone).Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
}

// stale reports whether the day on which a call was announced has passed.
func (e *enrollment) stale(now time.Time) bool {
	return e.request.Body.EffectiveDate == "" && e.defaults.EffectiveDate != e.tomorrow(now)
}

// call makes the call as announced. An omitted link_expired_at stays so: the service's default, an hour later, is always
// right.
func (e *enrollment) call(ctx context.Context) (mandate.Enrolled, error) {
	body := e.request.Body.Enrollment
	if body.MaxFrequency == "" {
		body.MaxFrequency = e.defaults.MaxFrequency
	}
	if body.EffectiveDate == "" {
		body.EffectiveDate = e.defaults.EffectiveDate
	}
	if body.ReturnURL == "" && e.ReturnURL != nil {
		body.ReturnURL = e.ReturnURL(e.request.History.ID)
	}
	enrolled, err := e.Upstream.Enroll(ctx, body)
	failed, _ := errors.AsType[*clients.Error](err)
	if failed != nil && failed.Fate == clients.Unknown {
		// Any other answer, or none, may come from something in between while the service is still at work.
		e.ended, e.answered = time.Now(), failed.Status == http.StatusInternalServerError || failed.Reason == messages.ReasonBadAnswer
	}
	if e.WithoutPayer && enrolled.Body != nil {
		enrolled.Body = history.WithoutPayer(enrolled.Body)
	}
	if e.WithoutPayer && failed != nil {
		digits := func(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }
		err = failed.Without(body.PayerName, body.PayerEmail, digits(body.PayerID), digits(body.PayerTelephoneNumber),
			body.PayerBankCode, body.PayerBankCodeHashed, body.Metadata)
	}
	return enrolled, err
}

// callsOver is when the calls of a history were over at the latest. What was stored after them says so, or the last one's deadline.
func callsOver(p history.Prior) time.Time {
	if p.State == messages.Started && p.Deadline.After(p.At.Time) {
		return p.Deadline.Time
	}
	started, err := history.ReadFacts(p.Started)
	if err != nil || started.Deadline.IsZero() || p.At.Before(started.Deadline.Time) {
		return p.At.Time
	}
	return started.Deadline.Time
}

// lookUp finds out what became of a call of unknown fate. Just after the call it looks twice: it may still be at work.
func (e *enrollment) lookUp(ctx context.Context, fresh bool) (attempt.Verdict, error) {
	e.again = e.again && !fresh // it was said about earlier calls
	retries := e.request.Body.OnUnknown == messages.OnUnknownRetry
	look := e.List.Look
	if retries || e.again {
		look = e.List.Prove
	}
	if e.ended.IsZero() {
		e.ended = callsOver(e.request.Prior)
	}
	call := mandates.Call{Order: e.request.Body.OrderNumber, Redact: e.request.Body.PortalKey, Ended: e.ended, Answered: e.answered}
	found, err := look(ctx, call)
	if err == nil && fresh && found.Proof() != mandates.Listed {
		if !retry.Pause(ctx, retry.SecondLook) {
			return "", context.Cause(ctx)
		}
		found, err = look(ctx, call)
	}
	if err != nil {
		return "", err
	}
	if e.WithoutPayer {
		found.Records = history.WithoutPayers(found.Records)
	}
	unproven := fmt.Errorf("the transaction list proves nothing: %s", found.Flaw)
	switch proof := found.Proof(); {
	case proof == mandates.Listed:
		e.evidence, e.message = found.Records, "the order number is listed upstream, but the answer with the link never came"
	case proof == mandates.NotListed && (retries || e.again):
		return attempt.Done, nil
	case found.Early: // with the time that it takes to store the deferral, after which the call was over
		return "", &history.RetryLaterError{At: time.Now().Add(e.List.Settle + time.Second), Cause: unproven}
	case proof == mandates.Nothing && retries:
		return "", unproven
	case proof == mandates.Nothing:
		e.message = "the transaction list does not show what became of the call: " + found.Flaw
	}
	return attempt.Uncertain, nil
}

// event is the outcome, or stores a deferral.
func (e *enrollment) event(ctx context.Context, r attempt.Result[mandate.Enrolled]) (messages.Event, error) {
	h, order := e.request.History, e.request.Body.OrderNumber
	switch r.Verdict {
	case attempt.Done:
		return h.Event(messages.Succeeded, &messages.EnrollSucceeded{APIVersion: r.Value.Version, OrderNumber: order,
			Enrollment: r.Value.Body, LinkExpiredAt: e.request.Body.LinkExpiredAt, AfterUnknown: r.AfterUnknown, Fingerprint: h.Fingerprint}), nil
	case attempt.Refused, attempt.GivenUp:
		return h.Event(messages.Failed, &messages.FailedBody{Reason: r.Reason, Message: r.Message, HTTPStatus: r.Status,
			Fields: r.Fields, OrderNumber: order, Fingerprint: h.Fingerprint, AfterUnknown: r.AfterUnknown}), nil
	case attempt.Uncertain:
		body := &messages.EnrollUncertain{Reason: r.Reason, Message: r.Message, OrderNumber: order, Evidence: e.evidence,
			Fingerprint: h.Fingerprint, AfterUnknown: r.AfterUnknown}
		if e.message != "" {
			body.Message = e.message
		}
		if len(e.evidence) > 0 {
			body.Reason = messages.ReasonLinkLost
		}
		return h.Event(messages.Uncertain, body), nil
	}
	return messages.Event{}, attempt.Defer(ctx, h, r)
}

// Ended is the outcome of an enrollment that is not run, or no longer, by what was done for it.
func Ended(r messages.EnrollRequest, why messages.FailedBody, e history.Effect) (messages.State, messages.Body) {
	if !e.None() {
		return messages.Uncertain, &messages.EnrollUncertain{Reason: messages.ReasonInterrupted, Message: why.Message + attempt.MayBeDone,
			OrderNumber: r.OrderNumber, Fingerprint: why.Fingerprint, AfterUnknown: true}
	}
	why.OrderNumber = r.OrderNumber
	return messages.Failed, &why
}

// Resolver looks enrollments that ended uncertain up again, and publishes what the transaction list shows of them.
//
//	uncertain ─► look at each age ─┬─ listed, or its state is final ─► resolved
//	                               ├─ not listed, a day old ─────────► resolved: failed
//	                               └─ else ──────────────────────────► the next age
//
// Several programs may look at once; the history takes one answer.
type Resolver struct {
	List *mandates.List // by Settle what is not listed was not made
	// Held reports whether the service is not to be asked now.
	Held func() bool
	Log  history.Log
	// Next returns the enrollments that ended uncertain: see mandates.FollowUp.
	Next     func(ctx context.Context, from uint64, since time.Time) (history.Entry, error)
	Resolved func(outcome messages.State)
	Logger   zerolog.Logger
	Ages     []time.Duration // retry.ResolveAges, but in tests in real time

	WithoutPayer bool // events hold nothing of the payer
}

// Run works until ctx ends. What is open then is looked at again by the next program.
func (r *Resolver) Run(ctx context.Context) {
	looks := &mandates.FollowUp{What: "an uncertain enrollment", Ages: r.Ages, Policy: r.List.Policy, Logger: r.Logger,
		Next: r.Next, Held: r.Held, Look: r.look}
	looks.Run(ctx)
}

// look looks one enrollment up if it is still uncertain, and stores what the list shows. asked: the service was.
func (r *Resolver) look(ctx context.Context, o history.Entry, _, age time.Duration) (looked bool, err error) {
	h := &history.History{Log: r.Log, Operation: messages.Enroll, ID: o.ID(), Trace: o.Trace}
	_, err = h.Read(ctx)
	answered, ok := errors.AsType[*history.AlreadyDoneError](err)
	switch {
	case !ok && (errors.Is(err, history.ErrCorrupt) || ctx.Err() != nil):
		return false, err
	case !ok || answered.State != messages.Uncertain: // a read may lag behind: then the next look sees it
		return false, nil
	}
	var was messages.EnrollUncertain
	if err := messages.DecodeEvent(answered.Body, &was); err != nil {
		return false, err
	}
	first, err := r.Log.Next(ctx, messages.Enroll, messages.Enroll.Filter(o.ID()), 1)
	if err != nil || first.Sequence == 0 || first.Sequence > o.Sequence {
		return false, err
	}
	found, err := r.List.Prove(ctx, mandates.Call{Order: was.OrderNumber, Began: first.At.Add(-retry.Margin), Ended: o.At})
	if err != nil {
		return true, err
	}
	outcome := became(found, was, age)
	if outcome == "" {
		return true, nil
	}
	if r.WithoutPayer {
		found.Records = history.WithoutPayers(found.Records)
	}
	h.Lane = was.Lane
	err = h.Store(ctx, messages.Resolved, &messages.EnrollResolved{Outcome: outcome, By: messages.ByTransactionList,
		OrderNumber: was.OrderNumber, Evidence: found.Records, Fingerprint: was.Fingerprint})
	if err != nil {
		if errors.Is(err, history.ErrFenced) { // another program was first
			err = nil
		}
		return true, err
	}
	r.Logger.Info().Str("op", string(messages.Enroll)).Str("request_id", o.ID()).Str("outcome", string(outcome)).
		Dur("after", age).Msg("resolved")
	r.Resolved(outcome)
	return true, nil
}

// became is what the list says of an uncertain enrollment at an age; "" if it says nothing yet.
//
// Succeeded means, as for a call, that the service accepted the enrollment. Failed means that there is no mandate and
// will be none: it is not listed after a day, or every record of it has ended without approval. An enrollment whose
// link was lost is known to have been accepted; there the question is what came of it.
func became(found mandates.Listing, was messages.EnrollUncertain, age time.Duration) messages.State {
	taken := was.Reason == messages.ReasonLinkLost || len(was.Evidence) > 0
	if len(found.Records) == 0 {
		if found.Proof() != mandates.NotListed || taken { // what was listed once is not undone
			return ""
		}
		return messages.Failed
	}
	ended, approved := true, false
	for _, record := range found.Records {
		r := mandates.ReadRecord(record)
		state := r.Decided()
		if r.Deduction() { // even one that failed has a mandate
			state = messages.Succeeded
		}
		approved = approved || state == messages.Succeeded
		ended = ended && state == messages.Failed
	}
	switch {
	case ended && found.Cut:
		return ""
	case ended:
		return messages.Failed
	case approved || !taken || age >= retry.ResolveEnough:
		return messages.Succeeded
	}
	return ""
}
