package deliveries

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"errand/internal/history"
	"errand/internal/wire"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// window is how long after its call a row can appear or change and still be matched.
func (l *Log) window() time.Duration { return max(l.ReportAfter, 5*24*time.Hour) + 24*time.Hour }

// update reads what the mail consumer has stored by now; at first as far back as rows not published may be of a call.
func (l *Log) update(ctx context.Context) error {
	if l.unreadable != nil {
		return l.unreadable
	}
	if !l.updated {
		m, err := l.LastMark(ctx)
		if err != nil {
			return fmt.Errorf("deliveries: read the last mark: %w", err)
		}
		if !m.CompleteThrough.IsZero() {
			l.since = slices.MinFunc([]time.Time{m.CompleteThrough, time.Now()}, time.Time.Compare).Add(-l.window())
		}
	}
	err := l.Requests(ctx, l.since, func(record history.Entry) error {
		l.take(record)
		return l.unreadable
	})
	if err != nil {
		return fmt.Errorf("deliveries: read requests: %w", err)
	}
	l.updated = true
	l.held.Store(int64(l.calls.size))
	return nil
}

// Held is how many recipients are kept. It is safe for concurrent use.
func (l *Log) Held() int { return int(l.held.Load()) }

// fact is what is read of an event of the mail consumer: what it does not have is zero.
type fact struct {
	messages.SendOutcome
	First    int                   `json:"first"` // recipient of a batch
	Count    int                   `json:"count"` // recipients of a batch
	Deadline messages.Time         `json:"deadline"`
	Secret   *messages.SecretKeys  `json:"secret"`
	Evidence messages.SendEvidence `json:"evidence"`
}

// take records an event of the mail consumer. Without an unreadable one a match can be less certain, but not wrong.
func (l *Log) take(record history.Entry) {
	subject := messages.ParseSubject(record.Subject)
	op, state, id := subject.Operation, subject.State, subject.ID
	switch isBatch := subject.Batch > 0; {
	case !wire.IsID(id):
	case op == messages.Send && state == messages.Erased:
		if r := l.calls.known(id); r != nil {
			r.erased = true // its rows are published without details
		}
		delete(l.open, id)
	case op == messages.Send, op == messages.Batch && isBatch && state != messages.Erased:
		var f fact
		if messages.DecodeEvent(record.Body, &f) != nil {
			return
		}
		if state == messages.Started {
			if l.unreadable = l.check(id, f.Secret); l.unreadable != nil {
				return
			}
			l.calls.request(id, f.At.Time)
		}
		g, n, ok := l.calls.find(id)
		if !ok {
			return
		}
		r := &g.requests[n]
		if op == messages.Batch {
			l.ofBatch(r, subject, f)
		} else if l.ofRequest(r, id, state, f, record.Sequence); state.Final(op) || state == messages.Resolved {
			g.change(n)
		}
		g.last = max(g.last, r.at)
	}
}

// check looks at the secret of a call's keys, if it has any.
func (l *Log) check(request string, of *messages.SecretKeys) error {
	isKnown := func(known *mailkey.Secret) bool { return known.ID() == of.ID }
	if of == nil || slices.Contains(l.LostSecrets, of.ID) || slices.ContainsFunc(l.Secrets, isKnown) {
		return nil
	}
	return fmt.Errorf("deliveries: a call of request %s has keys of the secret %s, which is not the one of log-poller: "+
		"give it the mail-consumer's RECIPIENT_KEY, or none as there, and start it again", request, of.ID)
}

// called records a call that was announced.
func (l *Log) called(id string, number int, f fact) {
	c := call{request: id, batch: number, first: f.First, begin: f.At.Time, end: f.Deadline.Time}
	var to []mailkey.Key
	if f.Secret != nil {
		c.from, to = mailkey.Parties(f.Secret.Keys)
		c.secret = uint32(maphash.String(seed, f.Secret.ID))
	}
	l.calls.add(c, to)
}

func (l *Log) ofBatch(r *request, batch messages.Subject, f fact) {
	if batch.State == messages.Started {
		l.called(batch.ID, batch.Batch, f)
		return
	}
	if r.ended == running {
		r.accepted += int32(f.Accepted)
	}
	l.callEnded(r, batch.ID, batch.Batch, batch.State, f)
}

func (l *Log) ofRequest(r *request, id string, state messages.State, f fact, sequence uint64) {
	at := f.At.UnixMilli()
	delete(l.open, id)
	switch {
	case state == messages.Started:
		r.opened, r.at, r.ended, r.recipients, r.single = at, at, running, int32(f.Recipients), f.Batches == 1
		if r.single {
			l.called(id, 1, f)
		}
	case state == messages.Deferred && r.single:
		f.Count = int(r.recipients)
		l.callEnded(r, id, 1, state, f)
	case state == messages.Reopened:
		r.opened, r.at = at, at
	case state == messages.Resolved:
		r.ended = ended
		for _, batch := range f.Evidence.Batches {
			r.accepted += int32(batch.Count)
		}
	case state.Final(messages.Send):
		r.at, r.ended, r.recipients, r.accepted = at, ended, int32(f.Recipients), int32(f.Accepted)
		if f.Batches == 1 {
			f.Count = f.Recipients
			l.callEnded(r, id, 1, state, f)
		}
		if state != messages.Uncertain {
			return
		}
		r.ended = uncertain
		if f.UnsettledCount <= len(f.Unsettled) {
			isSettled := func(u messages.Unsettled) bool { return u.State != messages.Uncertain }
			l.open[id] = &unsettled{sequence, f.Fingerprint, slices.DeleteFunc(f.Unsettled, isSettled)}
		}
	}
}

// callEnded records what an event says about a batch's last call. AfterUnknown: calls of unknown fate were made before it.
func (l *Log) callEnded(r *request, id string, number int, state messages.State, f fact) {
	r.at = max(r.at, f.At.UnixMilli())
	taken := state == messages.Accepted || state == messages.Partial
	l.calls.close(id, number, f.At.Time, fate{whole: taken && f.Accepted == f.Count, over: taken && !f.AfterUnknown,
		refused: !taken && !f.AfterUnknown && state != messages.Uncertain})
}
