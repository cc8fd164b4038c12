package poll

import (
	"strconv"
	"strings"
	"time"

	"errand/internal/match"
	"errand/pkg/messages"
)

// take records an event of the mail consumer. An unreadable event is ignored: without it a
// match can be less certain, but not wrong.
func (l *tracker) take(record Record) {
	parts := strings.Split(record.Subject, ".")
	if len(parts) < 4 {
		return
	}
	op, state, id, number := messages.Operation(parts[0]+"."+parts[1]), messages.State(parts[2]), parts[3], 0
	if len(parts) == 5 {
		number, _ = strconv.Atoi(parts[4])
	}
	switch {
	case op == messages.Log && state == messages.Sent && number > 0:
		l.sent(id, number, record.Body)
	case op == messages.Batch && number > 0:
		l.batch(id, number, state, record.Body)
	case op == messages.Send && state == messages.Started:
		var b messages.SendStarted
		if messages.DecodeEvent(record.Body, &b) == nil {
			r := l.request(id)
			r.batches, r.recipients, r.fingerprint, r.at = b.Batches, b.Recipients, b.Fingerprint, b.At.Time
			if b.Batches == 1 {
				l.clearFate(id, r, 1)
			}
		}
	case op == messages.Send && state == messages.Deferred:
		var b messages.DeferredBody
		if r := l.requests[id]; r != nil && r.batches == 1 && messages.DecodeEvent(record.Body, &b) == nil {
			l.call(id, r, 1, call{state: state, reason: b.Reason, afterUnknown: b.AfterUnknown, at: b.At.Time, count: r.recipients})
		}
	case op == messages.Send && state == messages.Resolved:
		l.resolved(id, record.Body)
	case op == messages.Send && state.Final(op):
		l.outcome(id, state, record)
	}
}

func (l *tracker) request(id string) *request {
	r := l.requests[id]
	if r == nil {
		r = &request{}
		l.requests[id] = r
	}
	return r
}

func (l *tracker) sent(id string, number int, body []byte) {
	var b messages.SentBody
	if messages.DecodeEvent(body, &b) != nil {
		return
	}
	r := l.request(id)
	r.at = later(r.at, b.Begin.Time)
	l.index.Add(match.Call{Request: id, Batch: number, First: b.First, From: b.From, Begin: b.Begin.Time, End: b.Until.Time}, messages.Keys(b.Keys))
}

func (l *tracker) batch(id string, number int, state messages.State, body []byte) {
	var b messages.BatchBody
	r := l.requests[id]
	if r == nil || messages.DecodeEvent(body, &b) != nil {
		return
	}
	if state == messages.Started {
		l.clearFate(id, r, number)
		return
	}
	c := call{state: state, reason: b.Reason, afterUnknown: b.AfterUnknown, at: b.At.Time, count: b.Count}
	if b.Accepted != nil {
		c.accepted = *b.Accepted
		if r.outcome == "" {
			r.accepted += c.accepted
		}
	}
	l.call(id, r, number, c)
}

// outcome records how a request ended.
func (l *tracker) outcome(id string, state messages.State, record Record) {
	var b messages.SendOutcome
	r := l.requests[id]
	if r == nil || messages.DecodeEvent(record.Body, &b) != nil {
		return
	}
	r.outcome, r.sequence, r.at, r.accepted, r.recipients = state, record.Sequence, b.At.Time, b.Accepted, b.Recipients
	r.unknown = 0
	for _, u := range b.Unsettled {
		if u.State == messages.Uncertain {
			r.unknown++
		}
	}
	if b.UnsettledCount > len(b.Unsettled) {
		r.unknown = -1
	}
	if b.Batches == 1 {
		if state == messages.Partial || state == messages.Accepted {
			state = messages.Accepted
		} else if state == messages.Failed {
			state = messages.Refused
		}
		l.call(id, r, 1, call{state: state, reason: b.Reason, afterUnknown: b.AfterUnknown, at: b.At.Time, count: b.Recipients, accepted: b.Accepted})
	}
	l.dirty[id] = r
}

// resolved records that a request is no longer uncertain.
func (l *tracker) resolved(id string, body []byte) {
	var b messages.SendResolved
	r := l.requests[id]
	if r == nil || messages.DecodeEvent(body, &b) != nil {
		return
	}
	r.outcome = messages.Resolved
	for _, batch := range b.Evidence.Batches {
		if batch.Outcome == messages.WasAccepted {
			r.accepted += batch.Count
		}
	}
	delete(l.open, id)
	l.dirty[id] = r
}

// call is what an event says about the last call of a batch.
type call struct {
	state        messages.State
	reason       messages.Reason
	afterUnknown bool // calls of unknown fate were made before, perhaps under the same record
	at           time.Time
	count        int
	accepted     int
}

func (l *tracker) call(id string, r *request, number int, c call) {
	r.at = later(r.at, c.at)
	ended := match.Open
	switch c.state {
	case messages.Accepted:
		switch {
		case c.accepted == c.count && c.afterUnknown:
			ended = match.Repeated
		case c.accepted == c.count:
			ended = match.Accepted
		case !c.afterUnknown:
			ended = match.Partly
		}
	case messages.Refused, messages.Deferred:
		if !c.afterUnknown {
			ended = match.Refused
		}
	}
	l.index.Close(id, number, c.at, ended)
	unknown := c.state == messages.Uncertain || c.state == messages.Deferred && c.afterUnknown &&
		(c.reason == messages.ReasonNoAnswer || c.reason == messages.ReasonBadAnswer || c.reason == messages.ReasonInterrupted)
	if !unknown {
		l.clearFate(id, r, number)
		return
	}
	if r.fates == nil {
		r.fates = map[int]fate{}
	}
	f, repeated := r.fates[number]
	if !repeated { // otherwise there was no call since
		f.over = c.at
	}
	f.waiting, f.count = c.state == messages.Deferred, c.count
	r.fates[number], l.open[id] = f, r
}

// clearFate removes a batch from those of unknown fate: its fate is known, or it is called
// again.
func (l *tracker) clearFate(id string, r *request, number int) {
	delete(r.fates, number)
	if len(r.fates) == 0 {
		delete(l.open, id)
	}
}
