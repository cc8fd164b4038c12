package deliveries

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/internal/failpoint"
	"errand/internal/sweep"
	"errand/pkg/messages"
)

const (
	summaryEvery = time.Minute // minimum time between two summaries of a request
	scanEvery    = time.Minute // between two scans of all requests
	maxAtOnce    = 1000        // events that are stored at once
)

// Swept publishes what is known about requests after a sweep.
func (l *Log) Swept(ctx context.Context, s sweep.Swept) (wanted time.Time, err error) {
	if err := l.update(ctx); err != nil {
		return time.Time{}, err
	}
	j := &judge{Swept: s, calls: &l.calls, after: l.ConcludeAfter, offset: l.clock.offset(), now: time.Now()}
	if err := l.publish(ctx, l.conclusions(j)); err != nil {
		return time.Time{}, err
	}
	if err := l.resolve(ctx, j); err != nil {
		return time.Time{}, err
	}
	if j.now.Sub(l.scanned) >= scanEvery {
		l.scan(j.now)
		if !s.Reading.Missing && l.OverdueAfter > 0 {
			if err := l.publish(ctx, l.overdue(j.now, latest(s.CompleteThrough, s.Reading.Began))); err != nil {
				return time.Time{}, err
			}
		}
		l.scanned = j.now
	}
	return j.wanted, l.publish(ctx, l.summaries(j.now, s.CompleteThrough))
}

// publish stores events, some at once.
func (l *Log) publish(ctx context.Context, all iter.Seq[messages.Event]) error {
	page := make([]messages.Event, 0, maxAtOnce)
	flush := func() error {
		if len(page) == 0 {
			return nil
		}
		// When ctx ends, the events under way are waited for: they would have to be learned again.
		failpoint.Here(failpoint.BeforePublish, "report")
		stored, err := l.Store.Publish(context.WithoutCancel(ctx), page)()
		failpoint.Here(failpoint.AfterPublish, "report")
		for _, e := range page[:stored] {
			l.note(storedEvent(e, time.Now()))
		}
		if page = page[:0]; err != nil {
			return err
		}
		return context.Cause(ctx)
	}
	for e := range all {
		if page = append(page, e); len(page) == maxAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// noteReport records a summary or a conclusion that was stored.
func (l *Log) noteReport(e StoredEvent) bool {
	id, number, _ := strings.Cut(e.Request, ".")
	_, r := l.calls.find(id)
	if r == nil {
		return false
	}
	if e.State == messages.Summary {
		r.reported = reported{maphash.String(seed, e.Note), e.At.UnixMilli(), strings.HasSuffix(e.Note, finalSuffix)}
		return true
	}
	n, _ := strconv.Atoi(number)
	if u := l.open[id]; u != nil {
		if f, ok := u.fates[n]; ok {
			f.concluded = e.Note
			u.fates[n] = f
		}
	}
	return true
}

// scan looks for requests that are too old, or whose summary becomes final.
func (l *Log) scan(now time.Time) {
	l.calls.forget(now.Add(-l.window()))
	for _, id := range l.calls.settle() {
		l.dirty[id] = struct{}{}
	}
	for id := range l.open {
		if _, r := l.calls.find(id); r == nil || now.Sub(time.UnixMilli(r.at)) > l.window() {
			delete(l.open, id)
		}
	}
	for _, g := range l.calls.generations {
		for id, r := range g.requests {
			if age := now.Sub(time.UnixMilli(r.at)); !r.reported.final && age >= l.ReportAfter && age <= l.window() {
				l.dirty[id] = struct{}{}
			}
		}
	}
}

// overdue yields the recipients that were accepted and have no row in a log that was read
// through a time.
func (l *Log) overdue(now, through time.Time) iter.Seq[messages.Event] {
	return func(yield func(messages.Event) bool) {
		for p, at := range l.calls.silent(through.Add(-l.OverdueAfter)) {
			if !yield(messages.Event{Operation: messages.Delivery, State: messages.Overdue, ID: p.request, Body: &messages.OverdueBody{
				Common: messages.Common{RequestID: p.request, At: messages.Time{Time: now}}, Batch: p.batch, Recipient: p.recipient,
				AcceptedAt: messages.Time{Time: at}, CompleteThrough: messages.Time{Time: through}}}) {
				return
			}
		}
	}
}

// summaries yields those that are due.
func (l *Log) summaries(now, through time.Time) iter.Seq[messages.Event] {
	return func(yield func(messages.Event) bool) {
		for id := range l.dirty {
			g, r := l.calls.find(id)
			if r == nil || r.reported.final {
				delete(l.dirty, id)
				continue
			}
			if now.Sub(time.UnixMilli(r.reported.at)) < summaryEvery {
				continue
			}
			body := l.summary(g, r, now, through)
			e := messages.Event{Operation: messages.Delivery, State: messages.Summary, ID: id, Body: body}
			if body.Accepted == 0 || body.Queued == body.Accepted && !body.Final || r.reported.note == maphash.String(seed, NoteOf(e)) {
				delete(l.dirty, id)
				continue
			}
			if !yield(e) {
				return
			}
		}
	}
}

func (l *Log) summary(g *generation, r *request, now, through time.Time) *messages.SummaryBody {
	c := g.counts(r)
	seen := c[delivered] + c[deferred] + c[bounced] + c[unknown]
	b := &messages.SummaryBody{Common: messages.Common{RequestID: r.id, At: messages.Time{Time: now}},
		Recipients: max(int(r.recipients), seen), Accepted: max(int(r.accepted), seen), Delivered: c[delivered], Deferred: c[deferred],
		Bounced: c[bounced], Unknown: c[unknown], CompleteThrough: messages.Time{Time: through}}
	b.Queued = b.Accepted - seen
	settled := r.ended == ended && b.Delivered+b.Bounced == b.Accepted
	b.Final = settled || r.at != 0 && now.Sub(time.UnixMilli(r.at)) >= l.ReportAfter
	return b
}

// conclusions yields the conclusions for batches that wait for one.
func (l *Log) conclusions(j *judge) iter.Seq[messages.Event] {
	return func(yield func(messages.Event) bool) {
		for id, u := range l.open {
			for n, f := range u.fates {
				if !f.waiting {
					continue
				}
				v := j.verdict(id, n, f)
				e := messages.Event{Operation: messages.Log, State: messages.Concluded, ID: messages.BatchID(id, n), Body: &messages.ConcludedBody{
					Common: messages.Common{RequestID: id, At: messages.Time{Time: j.now}}, BatchEvidence: v.BatchEvidence,
					Until: messages.Time{Time: v.until}, CompleteThrough: messages.Time{Time: j.CompleteThrough}}}
				switch {
				case v.Outcome == "":
					if !strings.HasPrefix(f.concluded, NoteOf(e)) { // nothing was concluded since the last call
						j.want(v.wanted)
					}
				case NoteOf(e) != f.concluded && !yield(e):
					return
				}
			}
		}
	}
}

// resolve stores what became of requests that ended uncertain, where it is known for all
// their batches.
func (l *Log) resolve(ctx context.Context, j *judge) error {
	for id, u := range l.open {
		_, r := l.calls.find(id)
		e, ok := j.resolution(r, u)
		if !ok {
			continue
		}
		failpoint.Here(failpoint.BeforePublish, "resolved")
		if err := l.Requests.Resolve(context.WithoutCancel(ctx), e, u.over); err != nil {
			return fmt.Errorf("deliveries: resolve: %w", err)
		}
		failpoint.Here(failpoint.AfterPublish, "resolved")
	}
	return nil
}

// resolution is what became of a request that ended uncertain; ok: it is known.
func (j *judge) resolution(r *request, u *unsettled) (e messages.Event, ok bool) {
	if r == nil || r.ended != uncertain || len(u.fates) != u.batches {
		return e, false
	}
	body := &messages.SendResolved{Common: messages.Common{RequestID: r.id, At: messages.Time{Time: j.now}}, Outcome: messages.Partial,
		By: messages.BySendingLog, Fingerprint: u.fingerprint, Evidence: messages.SendEvidence{CompleteThrough: messages.Time{Time: j.CompleteThrough}}}
	taken, pending, unclear := int(r.accepted), []time.Time(nil), false
	for _, n := range slices.Sorted(maps.Keys(u.fates)) {
		v := j.verdict(r.id, n, u.fates[n])
		switch v.Outcome {
		case messages.WasAccepted:
			taken += v.Count
		case "":
			pending = append(pending, v.wanted)
		}
		unclear = unclear || v.Outcome == messages.Unclear || v.doubted
		body.Evidence.Seen += v.Seen
		body.Evidence.Count += v.Count
		body.Evidence.Batches = append(body.Evidence.Batches, v.BatchEvidence)
	}
	switch {
	case unclear: // reading more shows no more
		return e, false
	case len(pending) > 0:
		for _, since := range pending {
			j.want(since)
		}
		return e, false
	case taken == 0:
		body.Outcome = messages.Failed
	case taken >= int(r.recipients):
		body.Outcome = messages.Accepted
	}
	return messages.Event{Operation: messages.Send, State: messages.Resolved, ID: r.id, Body: body}, true
}
