package poll

import (
	"strconv"
	"strings"
	"time"

	"errand/internal/match"
	"errand/pkg/messages"
)

// take notes an event of the consumer of messages. What cannot be read is left out: it
// can make a match less sure, but none wrong.
func (l *ledger) take(record Record) {
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
			r.batches, r.recipients, r.print, r.at = b.Batches, b.Recipients, b.Fingerprint, b.At.Time
			if b.Batches == 1 {
				l.known(id, r, 1)
			}
		}
	case op == messages.Send && state == messages.Deferred:
		var b messages.DeferredBody
		if r := l.requests[id]; r != nil && r.batches == 1 && messages.DecodeEvent(record.Body, &b) == nil {
			l.call(id, r, 1, call{state: state, reason: b.Reason, after: b.AfterUnknown, at: b.At.Time, count: r.recipients})
		}
	case op == messages.Send && state == messages.Resolved:
		l.resolved(id, record.Body)
	case op == messages.Send && state.Final(op):
		l.outcome(id, state, record)
	}
}

func (l *ledger) request(id string) *request {
	r := l.requests[id]
	if r == nil {
		r = &request{}
		l.requests[id] = r
	}
	return r
}

func (l *ledger) sent(id string, number int, body []byte) {
	var b messages.SentBody
	if messages.DecodeEvent(body, &b) != nil {
		return
	}
	r := l.request(id)
	r.at = later(r.at, b.Begin.Time)
	l.index.Add(match.Call{Request: id, Batch: number, First: b.First, From: b.From, Begin: b.Begin.Time, End: b.Until.Time}, messages.Keys(b.Keys))
}

func (l *ledger) batch(id string, number int, state messages.State, body []byte) {
	var b messages.BatchBody
	r := l.requests[id]
	if r == nil || messages.DecodeEvent(body, &b) != nil {
		return
	}
	if state == messages.Started {
		l.known(id, r, number)
		return
	}
	c := call{state: state, reason: b.Reason, after: b.AfterUnknown, at: b.At.Time, count: b.Count}
	if b.Accepted != nil {
		c.accepted = *b.Accepted
		if r.outcome == "" {
			r.accepted += c.accepted
		}
	}
	l.call(id, r, number, c)
}

// outcome notes how a request ended.
func (l *ledger) outcome(id string, state messages.State, record Record) {
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
		l.call(id, r, 1, call{state: state, reason: b.Reason, after: b.AfterUnknown, at: b.At.Time, count: b.Recipients, accepted: b.Accepted})
	}
	l.dirty[id] = r
}

// resolved notes that a request is uncertain no more.
func (l *ledger) resolved(id string, body []byte) {
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

// call is what an event says of the last call of a batch.
type call struct {
	state    messages.State
	reason   messages.Reason
	after    bool // calls of unknown fate were made before, perhaps under the same record
	at       time.Time
	count    int
	accepted int
}

func (l *ledger) call(id string, r *request, number int, c call) {
	r.at = later(r.at, c.at)
	known := match.Open
	switch c.state {
	case messages.Accepted:
		switch known = match.Partly; {
		case c.accepted == c.count && c.after:
			known = match.Repeated
		case c.accepted == c.count:
			known = match.Accepted
		case c.after:
			known = match.Open
		}
	case messages.Refused, messages.Deferred:
		if !c.after {
			known = match.Refused
		}
	}
	l.index.Close(id, number, c.at, known)
	unknown := c.state == messages.Uncertain || c.state == messages.Deferred && c.after &&
		(c.reason == messages.ReasonNoAnswer || c.reason == messages.ReasonBadAnswer || c.reason == messages.ReasonInterrupted)
	if !unknown {
		l.known(id, r, number)
		return
	}
	if r.fates == nil {
		r.fates = map[int]fate{}
	}
	f, waits := r.fates[number]
	if f.waiting, f.count = c.state == messages.Deferred, c.count; !waits { // else nothing was called since
		f.over = c.at
	}
	r.fates[number], l.open[id] = f, r
}

// known takes a batch from those of unknown fate: it is known now, or called again.
func (l *ledger) known(id string, r *request, number int) {
	if delete(r.fates, number); len(r.fates) == 0 {
		delete(l.open, id)
	}
}
