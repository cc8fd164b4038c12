package send

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"errand/pkg/clients"
	"errand/pkg/messages"
)

// finish ends a delivery of a request of several batches: with its outcome, or
// put off because some batches wait.
func (t *task) finish(ctx context.Context) (messages.Event, error) {
	switch {
	case t.broken != nil:
		return messages.Event{}, t.broken
	case t.later == nil && t.awaited == nil:
		return t.outcome(), nil
	case t.later == nil:
		return t.putOff(ctx, *t.awaited)
	}
	why := result{reason: messages.ReasonBusy, message: t.later.Error()}
	if t.later.Cause == nil { // another worker had a batch on its way: nobody knows more before its deadline
		why.reason = messages.ReasonInterrupted
	}
	if failed, ok := errors.AsType[*clients.Error](t.later.Cause); ok {
		why = judge(batch{}, 0, failed)
	}
	err := t.History.Store(ctx, messages.Deferred, &messages.DeferredBody{Reason: why.reason, Message: why.message,
		HTTPStatus: why.status, NotBefore: messages.Time{Time: t.later.At}, AfterUnknown: t.after})
	if err != nil {
		return messages.Event{}, err
	}
	return messages.Event{}, t.later
}

// outcome is the one final event of a request whose batches are all settled.
func (t *task) outcome() messages.Event {
	slices.SortFunc(t.results, func(a, b result) int { return cmp.Compare(a.number, b.number) })
	body := &messages.SendOutcome{}
	took := t.plan.batches // batches that the upstream took, whole or in part
	var uncertain, refused *result
	for i := range t.results {
		r := &t.results[i]
		if r.state != messages.Accepted {
			took--
		}
		if r.state == messages.Uncertain && uncertain == nil {
			uncertain = r
		}
		if r.state != messages.Accepted && refused == nil {
			refused = r
		}
	}
	state := messages.Accepted
	switch {
	case uncertain != nil:
		state = messages.Uncertain
		body.Reason, body.Message, body.HTTPStatus = uncertain.reason, uncertain.message, uncertain.status
	case took == 0:
		state = messages.Failed
		body.Reason, body.Message, body.HTTPStatus, body.Fields = refused.reason, refused.message, refused.status, refused.fields
	case len(t.results) > 0:
		state = messages.Partial
	}
	body.AfterUnknown = t.after
	t.list(body)
	return t.event(state, body)
}

// room is how many bytes of unsettled batches an outcome lists at most: with all
// else in it, it stays under the smallest usual max_payload of NATS.
const room = 384 << 10

// list fills in the batches that were not accepted whole, as many as fit.
func (t *task) list(body *messages.SendOutcome) {
	size := 0
	for _, r := range t.results {
		text := messages.Cut(r.message)
		if size += 200 + len(text); size > room {
			break
		}
		body.Unsettled = append(body.Unsettled, messages.Unsettled{Batch: r.number, First: r.first, Count: r.count,
			State: r.state, Reason: r.reason, HTTPStatus: r.status, Message: text})
	}
	body.UnsettledCount = len(t.results)
}

// event is a final event with what every outcome says.
func (t *task) event(s messages.State, body *messages.SendOutcome) messages.Event {
	body.Recipients, body.Batches, body.Accepted = t.plan.recipients, t.plan.batches, t.accepted
	body.Duplicates, body.InvalidCount, body.Invalid = t.plan.duplicates, t.plan.faults, t.plan.invalid
	body.Fingerprint = t.History.Fingerprint
	return t.History.Event(s, body)
}
