package deliveries

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"errand/pkg/messages"
)

// Requests is where the mail consumer publishes events about its requests and calls.
type Requests interface {
	// Requests yields the records of calls (mail.log.sent) and then the events of
	// requests, each in order: those since a time, without those that it has yielded
	// before. Everything that was stored before the call is among them, and each outcome
	// comes after the record of its call.
	Requests(ctx context.Context, since time.Time) iter.Seq2[Record, error]
	// Resolve stores mail.send.resolved if the event with the sequence over is still the
	// last one. It is no error if another poller did so.
	Resolve(ctx context.Context, e messages.Event, over uint64) error
}

// Record is one event of the mail consumer.
type Record struct {
	Subject  string
	Sequence uint64
	Body     []byte
}

// unsettled is a request with batches of unknown fate.
type unsettled struct {
	fates       map[int]unknownFate // by the batch's number
	over        uint64              // sequence of the request's outcome
	batches     int                 // uncertain ones in it; negative: unknown
	fingerprint string
}

// unknownFate is what is known about a batch that may or may not have been accepted.
type unknownFate struct {
	waiting   bool      // the request waits for a conclusion from the log
	over      time.Time // its last call had ended by then
	count     int
	concluded string // NoteOf the last conclusion published
}

// window is how long after its call a row can appear or change and still be matched.
func (l *Log) window() time.Duration { return max(l.ReportAfter, 5*24*time.Hour) + 24*time.Hour }

// update reads what the mail consumer has stored by now: the first time as far back as
// rows that were not published may be of a call.
func (l *Log) update(ctx context.Context) error {
	if !l.known {
		w, err := l.Store.Watermark(ctx)
		if err != nil {
			return fmt.Errorf("deliveries: read watermark: %w", err)
		}
		if !w.CompleteThrough.IsZero() {
			l.since = earlier(w.CompleteThrough.Time, time.Now()).Add(-l.window())
			// Earlier versions, whose watermark did not say this, noted a row that is unique
			// like one that is exact.
			if l.trusted = given(w.WatchedSince); l.trusted.IsZero() {
				l.trusted = time.Now()
			}
		}
	}
	now := time.Now()
	for record, err := range l.Requests.Requests(ctx, l.since) {
		if err != nil {
			return fmt.Errorf("deliveries: read requests: %w", err)
		}
		l.take(record)
	}
	l.known, l.updated = true, now
	return nil
}

// take records an event of the mail consumer. An unreadable event is ignored: without it a
// match can be less certain, but not wrong.
func (l *Log) take(record Record) {
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
		l.started(id, record.Body)
	case op == messages.Send && state == messages.Deferred:
		var b messages.DeferredBody
		if _, r := l.calls.find(id); r != nil && r.batches == 1 && messages.DecodeEvent(record.Body, &b) == nil {
			l.ended(r, 1, report{state: state, reason: b.Reason, afterUnknown: b.AfterUnknown, at: b.At.Time, count: int(r.recipients)})
		}
	case op == messages.Send && state == messages.Resolved:
		l.resolved(id, record.Body)
	case op == messages.Send && state.Final(op):
		l.outcome(id, state, record)
	}
	if g, r := l.calls.find(id); r != nil {
		g.last = max(g.last, r.at)
	}
}

func (l *Log) sent(id string, number int, body []byte) {
	var b messages.SentBody
	if messages.DecodeEvent(body, &b) != nil {
		return
	}
	from, to := b.FoldedKeys()
	r := l.calls.add(call{request: id, batch: number, first: b.First, from: from, begin: b.Begin.Time, end: b.Until.Time}, to)
	r.at = max(r.at, b.Begin.UnixMilli())
}

func (l *Log) started(id string, body []byte) {
	var b messages.SendStarted
	if messages.DecodeEvent(body, &b) != nil {
		return
	}
	_, r := l.calls.make(id, b.At.Time)
	r.batches, r.recipients, r.at, r.ended = int32(b.Batches), int32(b.Recipients), b.At.UnixMilli(), running
	if b.Batches == 1 {
		l.clearFate(id, 1)
	}
}

func (l *Log) batch(id string, number int, state messages.State, body []byte) {
	var b messages.BatchBody
	_, r := l.calls.find(id)
	if r == nil || messages.DecodeEvent(body, &b) != nil {
		return
	}
	if state == messages.Started {
		l.clearFate(id, number)
		return
	}
	p := report{state: state, reason: b.Reason, afterUnknown: b.AfterUnknown, at: b.At.Time, count: b.Count}
	if b.Accepted != nil {
		p.accepted = *b.Accepted
		if r.ended == running {
			r.accepted += int32(p.accepted)
		}
	}
	l.ended(r, number, p)
}

// outcome records how a request ended.
func (l *Log) outcome(id string, state messages.State, record Record) {
	var b messages.SendOutcome
	_, r := l.calls.find(id)
	if r == nil || messages.DecodeEvent(record.Body, &b) != nil {
		return
	}
	r.at, r.accepted, r.recipients, r.ended = b.At.UnixMilli(), int32(b.Accepted), int32(b.Recipients), ended
	if state == messages.Uncertain {
		r.ended = uncertain
	}
	if b.Batches == 1 {
		p := report{state: state, reason: b.Reason, afterUnknown: b.AfterUnknown, at: b.At.Time, count: b.Recipients, accepted: b.Accepted}
		switch state {
		case messages.Partial:
			p.state = messages.Accepted
		case messages.Failed:
			p.state = messages.Refused
		}
		l.ended(r, 1, p)
	}
	if u := l.open[id]; u != nil {
		u.over, u.fingerprint, u.batches = record.Sequence, b.Fingerprint, 0
		for _, unsettled := range b.Unsettled {
			if unsettled.State == messages.Uncertain {
				u.batches++
			}
		}
		if b.UnsettledCount > len(b.Unsettled) {
			u.batches = -1
		}
	}
	l.dirty[r.id] = struct{}{}
}

// resolved records that a request is no longer uncertain.
func (l *Log) resolved(id string, body []byte) {
	var b messages.SendResolved
	_, r := l.calls.find(id)
	if r == nil || messages.DecodeEvent(body, &b) != nil {
		return
	}
	r.ended = ended
	for _, batch := range b.Evidence.Batches {
		if batch.Outcome == messages.WasAccepted {
			r.accepted += int32(batch.Count)
		}
	}
	delete(l.open, id)
	l.dirty[r.id] = struct{}{}
}

// report is what an event says about the last call of a batch.
type report struct {
	state        messages.State
	reason       messages.Reason
	afterUnknown bool // calls of unknown fate were made before, perhaps under the same record
	at           time.Time
	count        int
	accepted     int
}

func (p report) fate() fate {
	switch whole := p.accepted == p.count; {
	case p.state == messages.Accepted && whole && p.afterUnknown:
		return repeated
	case p.state == messages.Accepted && whole:
		return accepted
	case p.afterUnknown:
	case p.state == messages.Accepted:
		return partly
	case p.state == messages.Refused, p.state == messages.Deferred:
		return refused
	}
	return open
}

// ended records how a call of a batch ended.
func (l *Log) ended(r *request, number int, p report) {
	r.at = max(r.at, p.at.UnixMilli())
	l.calls.close(r.id, number, p.at, p.fate())
	waiting := p.state == messages.Deferred && p.afterUnknown &&
		(p.reason == messages.ReasonNoAnswer || p.reason == messages.ReasonBadAnswer || p.reason == messages.ReasonInterrupted)
	if !waiting && p.state != messages.Uncertain {
		l.clearFate(r.id, number)
		return
	}
	u := l.open[r.id]
	if u == nil {
		u = &unsettled{fates: map[int]unknownFate{}}
		l.open[r.id] = u
	}
	f, repeated := u.fates[number]
	if !repeated { // otherwise there was no call since
		f.over = p.at
	}
	f.waiting, f.count = waiting, p.count
	u.fates[number] = f
}

// clearFate removes a batch from those of unknown fate: its fate is known, or it is called
// again.
func (l *Log) clearFate(id string, number int) {
	if u := l.open[id]; u != nil {
		if delete(u.fates, number); len(u.fates) == 0 {
			delete(l.open, id)
		}
	}
}
