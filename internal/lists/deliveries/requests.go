package deliveries

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"errand/pkg/messages"
)

// Requests is where the mail consumer publishes events about its requests and calls.
type Requests interface {
	// Requests yields the records of calls (mail.log.sent) and then the events of requests, each in order: those stored
	// since a time that it has not yielded before, or all again after sweep.ErrReset. It yields everything that was stored
	// before it is called, and each outcome after the record of its call.
	Requests(ctx context.Context, since time.Time) iter.Seq2[Record, error]
	// Resolve stores mail.send.resolved over the event with a sequence. Another poller's before it is not an error.
	Resolve(ctx context.Context, e messages.Event, over uint64) error
}

// Record is one event of the mail consumer.
type Record struct {
	Subject  string
	Sequence uint64
	Body     []byte
}

// window is how long after its call a row can appear or change and still be matched.
func (l *Log) window() time.Duration { return max(l.ReportAfter, 5*24*time.Hour) + 24*time.Hour }

// update reads what the mail consumer has stored by now; at first as far back as rows not published may be of a call.
func (l *Log) update(ctx context.Context) error {
	if l.unreadable != nil {
		return l.unreadable
	}
	if l.updated.IsZero() {
		m, err := l.LastMark(ctx)
		if err != nil {
			return fmt.Errorf("deliveries: read the last mark: %w", err)
		}
		if !m.CompleteThrough.IsZero() {
			l.since = slices.MinFunc([]time.Time{m.CompleteThrough, time.Now()}, time.Time.Compare).Add(-l.window())
		}
	}
	now := time.Now()
	for record, err := range l.Requests.Requests(ctx, l.since) {
		if err != nil {
			return fmt.Errorf("deliveries: read requests: %w", err)
		}
		if l.take(record); l.unreadable != nil {
			return l.unreadable
		}
	}
	l.updated = now
	l.measure()
	for _, e := range l.unmatched {
		l.note(e)
	}
	l.unmatched = nil
	return nil
}

// Held is how many recipients are kept. It is safe for concurrent use.
func (l *Log) Held() int { return int(l.held.Load()) }

// measure reports how many recipients are kept and what was forgotten.
func (l *Log) measure() {
	size := l.calls.size
	before, nearly := int(l.held.Swap(int64(size))), l.Recipients*4/5
	if l.Recipients > 0 && size > nearly && before <= nearly && l.Full != nil {
		l.Full(size)
	}
	if n := l.calls.dropped; n > 0 && l.Dropped != nil {
		l.Dropped(n, l.calls.generations[0].first)
	}
	l.calls.dropped = 0
}

// fact is what is read of an event of the mail consumer: what it does not have is zero.
type fact struct {
	messages.SendOutcome
	Count    int                   `json:"count"` // recipients of a batch
	Evidence messages.SendEvidence `json:"evidence"`
}

// take records an event of the mail consumer. Without an unreadable one a match can be less certain, but not wrong.
func (l *Log) take(record Record) {
	subject := messages.ParseSubject(record.Subject)
	op, state, id, number := subject.Operation, subject.State, subject.ID, subject.Batch
	if !messages.IsID(id) {
		return
	}
	if op == messages.Log && state == messages.Sent && number > 0 {
		var b messages.SentBody
		if messages.DecodeEvent(record.Body, &b) != nil {
			return
		}
		if l.unreadable = l.Secrets.check(id, b); l.unreadable == nil {
			from, to := b.Parties()
			c := call{request: id, batch: number, first: b.First, from: from, begin: b.Begin.Time, end: b.Until.Time}
			if b.Secret != nil {
				c.secret = uint32(maphash.String(seed, b.Secret.ID))
			}
			l.calls.add(c, to)
		}
		return
	}
	if state == messages.Erased {
		if op == messages.Send {
			l.erase(id)
		}
		return
	}
	isBatch, starts := op == messages.Batch && number > 0, op == messages.Send && state == messages.Started
	g, r := l.calls.find(id)
	if !isBatch && op != messages.Send || r == nil && !starts {
		return
	}
	var f fact
	if messages.DecodeEvent(record.Body, &f) != nil {
		return
	}
	switch {
	case isBatch && state == messages.Started:
		l.clearFate(id, number)
	case isBatch:
		if r.ended == running {
			r.accepted += int32(f.Accepted)
		}
		l.callEnded(id, r, number, state, f)
	case starts:
		var n uint32
		g, n = l.calls.request(id, f.At.Time)
		r = &g.requests[n]
		r.opened, r.batches, r.recipients, r.at, r.ended = f.At.UnixMilli(), int32(f.Batches), int32(f.Recipients), f.At.UnixMilli(), running
		if f.Batches == 1 {
			l.clearFate(id, 1)
		}
	case state == messages.Deferred && r.batches == 1:
		f.Count = int(r.recipients)
		l.callEnded(id, r, 1, state, f)
	case state == messages.Reopened:
		r.opened, r.at = f.At.UnixMilli(), f.At.UnixMilli()
	case state == messages.Resolved:
		l.resolved(id, r, f)
	case state.Final(op):
		l.outcome(id, r, state, f, record.Sequence)
	}
	g.last = max(g.last, r.at)
}

func (l *Log) outcome(id string, r *request, state messages.State, f fact, sequence uint64) {
	r.at, r.accepted, r.recipients, r.ended = f.At.UnixMilli(), int32(f.Accepted), int32(f.Recipients), ended
	if state == messages.Uncertain {
		r.ended = uncertain
	}
	if f.Batches == 1 {
		f.Count = f.Recipients
		l.callEnded(id, r, 1, state, f)
	}
	if u := l.open[id]; u != nil {
		u.over, u.fingerprint, u.batches = sequence, f.Fingerprint, 0
		for _, unsettled := range f.Unsettled {
			if unsettled.State == messages.Uncertain {
				u.batches++
			}
		}
		if f.UnsettledCount > len(f.Unsettled) {
			u.batches = -1
		}
	}
	l.calls.change(id)
}

// resolved records that a request is no longer uncertain.
func (l *Log) resolved(id string, r *request, f fact) {
	r.ended = ended
	for _, batch := range f.Evidence.Batches {
		r.accepted += int32(batch.Count)
	}
	delete(l.open, id)
	l.calls.change(id)
}

// fateIn is what an event says about a batch's last call. AfterUnknown: calls of unknown fate were made before it.
func fateIn(state messages.State, f fact) fate {
	taken := state == messages.Accepted || state == messages.Partial
	switch whole := f.Accepted == f.Count; {
	case taken && whole && f.AfterUnknown:
		return repeated
	case taken && whole:
		return accepted
	case f.AfterUnknown:
		return open
	case taken:
		return partly
	case state == messages.Refused, state == messages.Failed, state == messages.Deferred:
		return refused
	}
	return open
}

func (l *Log) callEnded(id string, r *request, number int, state messages.State, f fact) {
	r.at = max(r.at, f.At.UnixMilli())
	l.calls.close(id, number, f.At.Time, fateIn(state, f))
	if state != messages.Uncertain {
		l.clearFate(id, number)
		return
	}
	u := l.open[id]
	if u == nil {
		u = &unsettled{counts: map[int]int{}}
		l.open[id] = u
	}
	u.counts[number] = f.Count
}
