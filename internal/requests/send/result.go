package send

import (
	"cmp"
	"slices"
	"sync"

	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/internal/wire"
	"errand/pkg/messages"
)

type result struct {
	batch
	attempt.Result[int] // its Value is how many recipients were accepted
	count               int
}

func resultOf(b batch, r attempt.Result[int]) result {
	got := result{batch: b, Result: r, count: len(b.to)}
	if got.Value = min(max(r.Value, 0), got.count); r.Verdict == attempt.Done && got.Value < got.count {
		got.Reason = messages.ReasonShortCount
	}
	return got
}

func (r result) waits() bool { return r.Verdict == attempt.RetryLater }

func (r result) complete() bool { return r.Verdict == attempt.Done && r.Reason == "" }

// state is how the batch's events and the outcome name its verdict.
func (r result) state() messages.State {
	switch r.Verdict {
	case attempt.Done:
		return messages.Accepted
	case attempt.Refused:
		return messages.Refused
	case attempt.Uncertain:
		return messages.Uncertain
	}
	return messages.Deferred // waits, or was given up before it was sent
}

// settledBefore is what the events of a batch say of it.
func settledBefore(b batch, count int, state messages.State, f history.Facts) result {
	r := result{batch: b, count: count, Result: attempt.Result[int]{Verdict: attempt.Uncertain, Value: min(max(f.Accepted, 0), count),
		Reason: f.Reason, Status: f.HTTPStatus, Message: f.Message, AfterUnknown: f.AfterUnknown}}
	switch state {
	case messages.Accepted:
		r.Verdict = attempt.Done
	case messages.Refused:
		r.Verdict = attempt.Refused
	case messages.Deferred, "":
		r.Verdict = attempt.GivenUp
	}
	return r
}

// outcome gathers what came of a request's batches; safe for concurrent use.
type outcome struct {
	mu           sync.Mutex
	accepted     int
	afterUnknown bool
	results      []result    // of batches that were not accepted completely
	empty        int         // batches with nobody left
	left         map[int]int // by batch: how many it leaves out
	invalid      []leftOut   // the first hundred of these
}

func (o *outcome) add(r result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.accepted += r.Value
	o.afterUnknown = o.afterUnknown || r.AfterUnknown
	if r.count == 0 {
		o.empty++
	}
	o.leaveOut(r.batch)
	if !r.complete() {
		r.to, r.left = nil, nil // the addresses are no longer needed
		o.results = append(o.results, r)
	}
}

// maxUnsettled bounds the bytes of unsettled batches, so that an outcome fits in the smallest usual max_payload of NATS.
const maxUnsettled = 384 << 10

// end is the state and the outcome of a message of so many batches, all of them settled.
func (o *outcome) end(batches int) (messages.State, *messages.SendOutcome) {
	slices.SortFunc(o.results, func(a, b result) int { return cmp.Compare(a.number, b.number) })
	first := func(is func(result) bool) *result {
		if i := slices.IndexFunc(o.results, is); i >= 0 {
			return &o.results[i]
		}
		return nil
	}
	accepted := batches - o.empty // completely or in part
	for _, r := range o.results {
		if r.Verdict != attempt.Done {
			accepted--
		}
	}
	state, why := messages.Accepted, first(func(r result) bool { return r.Verdict == attempt.Uncertain })
	switch {
	case why != nil:
		state = messages.Uncertain
	case accepted == 0:
		state, why = messages.Failed, first(func(r result) bool { return r.Verdict != attempt.Done })
	case len(o.results) > 0:
		state = messages.Partial
	}
	body := &messages.SendOutcome{Accepted: o.accepted, AfterUnknown: o.afterUnknown, Batches: batches}
	if why != nil {
		body.Reason, body.Message, body.HTTPStatus = why.Reason, why.Message, why.Status
		if state == messages.Failed {
			body.Fields = why.Fields
		}
	}
	body.UnsettledCount = len(o.results)
	size := 0
	for _, r := range o.before() { // as many as fit
		text := wire.Cut(r.Message)
		if size += 200 + len(text); size > maxUnsettled {
			break
		}
		body.Unsettled = append(body.Unsettled, messages.Unsettled{Batch: r.number, First: r.first, Count: r.count,
			State: r.state(), Reason: r.Reason, HTTPStatus: r.Status, Message: text})
	}
	return state, body
}

// Ended is the outcome of a message that is not run, or no longer, by what was done for it.
func Ended(_ messages.SendRequest, why messages.FailedBody, e history.Effect) (messages.State, messages.Body) {
	return ended(why, e)
}

func ended(why messages.FailedBody, e history.Effect) (messages.State, *messages.SendOutcome) {
	began := e.Began
	o := &outcome{}
	for _, b := range e.Batches {
		if b.State == "" {
			b.Reason, b.Message = why.Reason, why.Message
		}
		first := (b.Number - 1) * began.BatchSize
		of := batch{number: b.Number, first: first}
		if b.State != "" && b.State != messages.Deferred { // else nobody was left out yet, or of batches that are cut otherwise
			of = of.without(b.Suppressed)
		}
		o.add(settledBefore(of, min(began.BatchSize, began.Recipients-first)-len(of.left), b.State, b.Facts))
	}
	o.leaveOut(batch{number: 1}.without(began.Suppressed))
	state, body := o.end(len(e.Batches))
	switch {
	case len(e.Batches) > 0:
	case e.None():
		state = messages.Failed
	default:
		state, body.AfterUnknown = messages.Uncertain, true
	}
	if state == messages.Failed || len(e.Batches) == 0 {
		body.Fields = why.Fields
	}
	body.Reason, body.Message = why.Reason, why.Message
	if state == messages.Uncertain {
		body.Reason, body.Message = messages.ReasonInterrupted, why.Message+attempt.MayBeDone
	}
	body.Recipients, body.Fingerprint, body.ConflictsWith = began.Recipients-o.suppressed(), why.Fingerprint, why.ConflictsWith
	return state, body
}

// end is the one final event of a message whose batches are all settled.
func (m *message) end(o *outcome) messages.Event {
	state, body := o.end(m.plan.batches)
	body.Recipients = m.plan.recipients - o.suppressed()
	body.Duplicates, body.InvalidCount, body.Invalid = m.plan.duplicates, m.plan.faults+o.suppressed(), m.plan.invalid
	for _, l := range o.invalid {
		body.Invalid = append(body.Invalid, messages.InvalidAddress{Address: l.address, Reason: messages.ReasonOfSuppressed,
			At: l.At, Why: l.Why})
	}
	if body.Recipients == 0 && state != messages.Uncertain {
		state, body.Batches, body.Reason = messages.Failed, 0, messages.ReasonInvalidRequest
		body.Fields = map[string][]string{m.field(): {"holds no address that is not suppressed"}}
		body.Message = (&messages.Invalid{Fields: body.Fields}).Error()
	}
	body.Fingerprint = m.request.History.Fingerprint
	return m.request.History.Event(state, body)
}
