package send

import (
	"errors"
	"fmt"
	"time"

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

// stands is what is known of a batch before it is looked at on this delivery: the
// result of its last call, if one was announced, and between when and when that may have
// been at work.
type stands struct {
	result
	begin, end time.Time
}

// standing reads what stands in a batch's history.
func standing(b batch, p history.Prior) (stands, error) {
	s := stands{result: result{batch: b, count: len(b.to), state: p.State}}
	if p.State == messages.Started { // its caller died
		s.result = interrupted(b)
		s.state = messages.Started
	}
	// The events of a request of one batch have the same fields.
	var last, started messages.BatchBody
	if p.Last != nil {
		if err := messages.DecodeEvent(p.Last, &last); err != nil {
			return stands{}, err
		}
		s.after = last.AfterUnknown
	}
	if p.Started != nil {
		if err := messages.DecodeEvent(p.Started, &started); err != nil {
			return stands{}, err
		}
	}
	s.begin = started.At.Time
	if started.Deadline != nil {
		s.end = started.Deadline.Time
	}
	if p.State == messages.Deferred {
		s.reason, s.status, s.message = last.Reason, last.HTTPStatus, last.Message
	}
	return s, nil
}

// awaits reports whether the sending log has to say first what became of the last call.
func (t *task) awaits(r result) bool {
	return t.Body.OnUnknown == messages.OnUnknownConclude && r.waits() && r.after &&
		r.reason != messages.ReasonBusy && r.reason != messages.ReasonHeld
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
	if after && t.Body.OnUnknown != messages.OnUnknownConclude { // else the log said that it was not sent
		r.state, r.reason = messages.Uncertain, messages.ReasonNoAnswer
	}
	return r
}
