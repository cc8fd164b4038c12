// Package enroll decides one enrollment: calls the upstream at most once as long
// as a call's fate is unknown, and finds out what became of such a call.
//
//	started ─► call ─┬─ success ──► succeeded
//	                 ├─ refused ──► failed
//	                 ├─ busy, held ► deferred, put back
//	                 └─ unknown ──► look the order number up ─┬─ listed ───────► uncertain, link lost
//	                                                          ├─ report ───────► uncertain
//	                                                          └─ retry: not listed, call again
package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// secondLook is how long after a look-up that found nothing the list is read once
// more: a call that timed out may still be at work upstream.
const secondLook = 2 * time.Second

// Handler enrolls payers. Every field is required.
type Handler struct {
	Upstream *mandate.Client
	Policy   retry.Policy
	Timeout  time.Duration  // of one call, as the client has it
	Zone     *time.Location // of the document's dates
}

// task is one request in hand.
type task struct {
	*Handler
	history.Request[messages.EnrollRequest]
	pinned   messages.Defaults
	giveUp   time.Time
	deadline time.Time       // of our own started event; zero before it is stored
	unknown  messages.Reason // why the last call's fate is unknown; "" when it is known
	message  string
	status   int
	after    bool // a call of unknown fate was made and the list does not show it
	stored   error
}

// Handle answers one enrollment request. Errors: *history.Later when it was put
// off, history.ErrConflict when it is in another hand, or the log's.
func (h *Handler) Handle(ctx context.Context, r history.Request[messages.EnrollRequest]) (messages.Event, error) {
	t := &task{Handler: h, Request: r, giveUp: r.GiveUpAt}
	if !r.Body.GiveUpAt.IsZero() {
		t.giveUp = r.Body.GiveUpAt
	}
	if err := t.resume(ctx); err != nil {
		return messages.Event{}, err
	}
	for calls := 0; ; calls++ {
		if t.unknown != "" {
			if ev, err := t.findOut(ctx, calls); err != nil || ev.Body != nil {
				return ev, err
			}
		}
		if !time.Now().Before(t.giveUp) {
			return t.givenUp(), nil
		}
		enrolled, err := retry.Do(ctx, t.Policy, t.call)
		if t.stored != nil {
			return messages.Event{}, t.stored
		}
		var failed *clients.Error
		if err != nil && !errors.As(err, &failed) {
			failed = &clients.Error{Operation: "enroll", Fate: clients.Unknown, Reason: string(messages.ReasonNoAnswer), Err: err}
		}
		switch clients.FateOf(err) {
		case clients.Success:
			return t.event(messages.Succeeded, &messages.EnrollSucceeded{APIVersion: enrolled.Version, OrderNumber: t.Body.OrderNumber,
				Enrollment: enrolled.Body, AfterUnknown: t.after, Fingerprint: t.History.Fingerprint}), nil
		case clients.Refused:
			return t.failed(messages.ReasonRefused, failed), nil
		case clients.Busy, clients.Held:
			return t.putOff(ctx, messages.Reason(failed.Reason), failed)
		}
		t.unknown, t.message, t.status = messages.Reason(failed.Reason), failed.Message, failed.Status
	}
}

// resume takes up what stands in the history: the pinned defaults, a call whose
// maker died, an earlier call of unknown fate.
func (t *task) resume(ctx context.Context) error {
	if t.Prior.State == "" {
		t.pinned = t.defaults(time.Now().In(t.Zone))
		return nil
	}
	var started messages.EnrollStarted
	if err := messages.DecodeEvent(t.Prior.Started, &started); err != nil {
		return err
	}
	t.pinned = started.Defaults
	switch t.Prior.State {
	case messages.Started:
		t.after, t.unknown, t.message = started.AfterUnknown, started.Unknown, "the call's answer never came"
		if t.unknown == "" {
			t.unknown, t.message = messages.ReasonInterrupted, "a worker died between the call's announcement and its outcome"
		}
		return t.announce(ctx) // fences the old holder
	case messages.Deferred:
		var deferred messages.DeferredBody
		if err := messages.DecodeEvent(t.Prior.Last, &deferred); err != nil {
			return err
		}
		t.after = deferred.AfterUnknown
	}
	return nil
}

// defaults are the document's defaults for what the request left out, as of now.
func (t *task) defaults(now time.Time) (d messages.Defaults) {
	if t.Body.MaxFrequency == "" {
		d.MaxFrequency = "9"
	}
	if t.Body.EffectiveDate == "" {
		d.EffectiveDate = now.AddDate(0, 0, 1).Format(time.DateOnly)
	}
	if t.Body.LinkExpiredAt == "" {
		d.LinkExpiredAt = now.Add(time.Hour).Format(time.DateTime)
	}
	return d
}

// announce stores started: from now on a call may be made, by us alone.
func (t *task) announce(ctx context.Context) error {
	t.deadline = time.Now().Add(t.Timeout + history.Margin)
	return t.History.Store(ctx, messages.Started, &messages.EnrollStarted{Deadline: messages.Time{Time: t.deadline},
		Fingerprint: t.History.Fingerprint, OrderNumber: t.Body.OrderNumber, Defaults: t.pinned, AfterUnknown: t.after, Unknown: t.unknown})
}

// call makes one call, announced by a started event that outlasts it.
func (t *task) call(ctx context.Context) (mandate.Enrolled, error) {
	t.unknown = ""
	t.History.Attempt++
	for time.Now().Add(t.Timeout).After(t.deadline) { // again if storing it took too long
		if t.stored = t.announce(ctx); t.stored != nil {
			return mandate.Enrolled{}, t.stored
		}
	}
	e := mandate.Enrollment(t.Body.Enrollment)
	if e.MaxFrequency == "" {
		e.MaxFrequency = t.pinned.MaxFrequency
	}
	if e.EffectiveDate == "" {
		e.EffectiveDate = t.pinned.EffectiveDate
	}
	if e.LinkExpiredAt == "" {
		e.LinkExpiredAt = t.pinned.LinkExpiredAt
	}
	ctx, cancel := context.WithDeadline(ctx, t.deadline) // paused past it, we must not call
	defer cancel()
	failpoint.Here(failpoint.BeforeCall)
	enrolled, err := t.Upstream.Enroll(ctx, e)
	failpoint.Here(failpoint.Answer)
	return enrolled, err
}

// findOut looks a call of unknown fate up in the transaction list. A zero event
// means that the list does not show it and the request wants it made again.
func (t *task) findOut(ctx context.Context, calls int) (messages.Event, error) {
	records, err := t.lookUp(ctx)
	if err == nil && len(records) == 0 && t.unknown != messages.ReasonInterrupted {
		if !retry.Pause(ctx, secondLook) {
			return messages.Event{}, context.Cause(ctx)
		}
		records, err = t.lookUp(ctx)
	}
	late := !time.Now().Before(t.giveUp)
	switch {
	case err != nil && late:
		t.message = "the transaction list could not be read to find out: " + t.message
		return t.uncertain(t.unknown, nil), nil
	case err != nil:
		// The started event keeps the request ours until its deadline; then it is looked up again.
		if t.stored = t.announce(ctx); t.stored != nil {
			return messages.Event{}, t.stored
		}
		return messages.Event{}, &history.Later{At: t.deadline, Cause: err}
	case len(records) > 0:
		t.message = "the order number is listed upstream, but the answer with the link never came"
		return t.uncertain(messages.ReasonLinkLost, records), nil
	case t.Body.OnUnknown == "report" || late:
		return t.uncertain(t.unknown, nil), nil
	}
	t.after = true
	if calls >= max(t.Policy.Tries, 1) || calls > 0 && t.Policy.Halted() {
		return t.putOff(ctx, t.unknown, &clients.Error{Operation: "enroll", Fate: clients.Unknown, Status: t.status, Message: t.message})
	}
	return messages.Event{}, nil
}

// lookUp lists the transactions under the request's order number.
func (t *task) lookUp(ctx context.Context) ([]json.RawMessage, error) {
	found, err := lookUp(ctx, t.Upstream, t.Policy, t.Body.OrderNumber, math.MaxInt)
	return found.records, err
}

// listing is what the transaction list shows under an order number.
type listing struct {
	records []json.RawMessage
	others  bool // there are records of others too: it is not narrowed
	cut     bool // there may be more
	hidden  bool // nothing at all is listed, whatever the order number
}

// lookUp reads at most so many pages of the list under an order number.
func lookUp(ctx context.Context, upstream *mandate.Client, p retry.Policy, order string, pages int) (listing, error) {
	return retry.Read(ctx, p, func(ctx context.Context) (found listing, err error) {
		size, read, total := 0, 0, 0
		for page, err := range upstream.Transactions(ctx, mandate.Filter{OrderNumber: order}, 1) {
			if err != nil {
				return listing{}, err
			}
			read, total = read+len(page.Records), page.Total
			for _, record := range page.Records {
				if orderOf(record) != order { // an upstream that ignores the filter proves nothing
					found.others = true
					continue
				}
				if size += len(record); size <= mostEvidence || len(found.records) == 0 {
					found.records = append(found.records, record)
				}
			}
			if size >= mostEvidence || page.Number >= pages {
				found.cut = true
				break
			}
		}
		found.cut = found.cut || read < total
		return found, nil
	})
}

// mostEvidence is how many bytes of records an uncertain event carries, if there
// is more than one.
const mostEvidence = 256 << 10

func orderOf(record json.RawMessage) string {
	var r struct {
		OrderNumber string `json:"order_number"`
	}
	_ = json.Unmarshal(record, &r) // unreadable: not ours
	return r.OrderNumber
}

// putOff stores deferred and gives the error that puts the request back.
func (t *task) putOff(ctx context.Context, reason messages.Reason, why *clients.Error) (messages.Event, error) {
	now := time.Now()
	if !now.Before(t.giveUp) {
		return t.givenUp(), nil
	}
	wait := max(t.Policy.Wait(t.History.Attempt), why.RetryAfter)
	if why.Fate == clients.Held {
		wait = t.Policy.Max // it comes back when the hold ends
	}
	at := now.Add(wait)
	if at.After(t.giveUp) {
		at = t.giveUp
	}
	err := t.History.Store(ctx, messages.Deferred, &messages.DeferredBody{Reason: reason, Message: why.Message,
		HTTPStatus: why.Status, NotBefore: messages.Time{Time: at}, AfterUnknown: t.after})
	if err != nil {
		return messages.Event{}, err
	}
	return messages.Event{}, &history.Later{At: at, Cause: why}
}

// givenUp is the outcome after give_up_at: failed, or uncertain when a call of
// unknown fate was made on the way.
func (t *task) givenUp() messages.Event {
	t.message = fmt.Sprintf("given up after %s", messages.Time{Time: t.giveUp})
	if t.after {
		return t.uncertain(messages.ReasonNoAnswer, nil)
	}
	return t.failed(messages.ReasonUnavailable, &clients.Error{Message: t.message})
}

func (t *task) failed(reason messages.Reason, why *clients.Error) messages.Event {
	return t.event(messages.Failed, &messages.FailedBody{Reason: reason, Message: why.Message, HTTPStatus: why.Status,
		Fields: why.Fields, OrderNumber: t.Body.OrderNumber, Fingerprint: t.History.Fingerprint, AfterUnknown: t.after})
}

func (t *task) uncertain(reason messages.Reason, evidence []json.RawMessage) messages.Event {
	return t.event(messages.Uncertain, &messages.EnrollUncertain{Reason: reason, Message: t.message, OrderNumber: t.Body.OrderNumber,
		Evidence: evidence, Fingerprint: t.History.Fingerprint, AfterUnknown: t.after})
}

func (t *task) event(s messages.State, b messages.Body) messages.Event { return t.History.Event(s, b) }
