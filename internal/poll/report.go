package poll

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"errand/internal/failpoint"
	"errand/internal/match"
	"errand/pkg/messages"
)

const (
	summaryEvery = time.Minute // minimum time between two summaries of a request
	scanEvery    = time.Minute // between two scans of all requests
	maxAtOnce    = 1000        // events about requests after one sweep
	finalSuffix  = ".final"
)

// NoteOf identifies the contents of a summary or a conclusion, so that the same is not
// published twice.
func NoteOf(e messages.Event) string {
	note := e.Subject()
	number := func(n int) { note += "." + strconv.Itoa(n) }
	switch b := e.Body.(type) {
	case *messages.SummaryBody:
		for _, n := range []int{b.Recipients, b.Accepted, b.Delivered, b.Deferred, b.Bounced, b.Unknown} {
			number(n)
		}
		if b.Final {
			note += finalSuffix
		}
	case *messages.ConcludedBody:
		note += "." + strconv.FormatInt(b.Until.UnixMilli(), 10) + "." + string(b.Outcome)
	}
	return note
}

// report publishes what a sweep changed for requests, after the rows themselves. more:
// there may be rows that the sweep did not see.
func (s *sweep) report(ctx context.Context, more bool) error {
	l, m := s.memory.tracker, s.memory
	if l == nil {
		return nil
	}
	if err := l.update(ctx, m.complete); err != nil {
		return err
	}
	// Rows are late by at most Overlap: a log without new rows is complete up to then.
	through := later(m.complete, s.began.Add(-s.Overlap))
	for try := 1; ; try++ {
		events := l.events(time.Now(), through, m.complete, !more)
		if len(events) == 0 {
			break
		}
		failpoint.Here(failpoint.BeforePublish, "report")
		stored, err := s.Sink.Publish(context.WithoutCancel(ctx), events)
		failpoint.Here(failpoint.AfterPublish, "report")
		for _, e := range events[:stored] {
			l.published(e)
		}
		if err == nil && stored == len(events) {
			break
		}
		l.scanned = time.Time{} // so that overdue recipients are looked for again
		if err := s.relearn(ctx, "report", err, try); err != nil {
			return err
		}
	}
	if more {
		return nil
	}
	for id, r := range l.open {
		e, ok := l.resolution(id, r, through)
		if !ok {
			continue
		}
		failpoint.Here(failpoint.BeforePublish, "resolved")
		if err := l.Requests.Resolve(context.WithoutCancel(ctx), e, r.sequence); err != nil {
			return fmt.Errorf("poll: resolve: %w", err)
		}
		failpoint.Here(failpoint.AfterPublish, "resolved")
	}
	return nil
}

// events returns the events to publish about requests. marked is the last watermark.
func (l *tracker) events(now, through, marked time.Time, whole bool) (events []messages.Event) {
	if whole {
		for id, r := range l.open {
			events = l.conclusions(events, id, r, now, through)
		}
	}
	if scan := now.Sub(l.scanned) >= scanEvery; scan && whole {
		l.scan(now)
		if l.OverdueAfter > 0 {
			for s := range l.index.Silent(through.Add(-l.OverdueAfter)) {
				events = append(events, messages.Event{Operation: messages.Delivery, State: messages.Overdue, ID: s.Request, Body: &messages.OverdueBody{
					Common: messages.Common{RequestID: s.Request, At: messages.Time{Time: now}},
					Batch:  s.Batch, Recipient: s.Recipient, AcceptedAt: messages.Time{Time: s.AcceptedAt}, CompleteThrough: messages.Time{Time: through}}})
				if len(events) >= maxAtOnce {
					break
				}
			}
		}
		if len(events) < maxAtOnce {
			l.scanned = now
		}
	}
	for id, r := range l.dirty {
		if len(events) >= maxAtOnce {
			break
		}
		body := l.summary(id, r, now, marked)
		e := messages.Event{Operation: messages.Delivery, State: messages.Summary, ID: id, Body: body}
		switch {
		case r.final || NoteOf(e) == r.summary || body.Accepted == 0 || body.Queued == body.Accepted && !body.Final:
			delete(l.dirty, id)
		case now.Sub(r.summaryAt) >= summaryEvery:
			events = append(events, e)
		}
	}
	return events
}

// scan looks for requests that are too old, or whose summary becomes final.
func (l *tracker) scan(now time.Time) {
	l.index.Forget(now.Add(-l.window()))
	for id, r := range l.requests {
		switch age := now.Sub(r.at); {
		case age > l.window():
			delete(l.requests, id)
			delete(l.dirty, id)
			delete(l.open, id)
		case !r.final && age >= l.ReportAfter:
			l.dirty[id] = r
		}
	}
}

func (l *tracker) summary(id string, r *request, now, marked time.Time) *messages.SummaryBody {
	c := r.counts
	seen := c[match.Delivered] + c[match.Deferred] + c[match.Bounced] + c[match.Unknown]
	b := &messages.SummaryBody{Common: messages.Common{RequestID: id, At: messages.Time{Time: now}},
		Recipients: max(r.recipients, seen), Accepted: max(r.accepted, seen), Delivered: c[match.Delivered], Deferred: c[match.Deferred],
		Bounced: c[match.Bounced], Unknown: c[match.Unknown], CompleteThrough: messages.Time{Time: marked}}
	b.Queued = b.Accepted - seen
	settled := r.outcome != "" && r.outcome != messages.Uncertain && b.Delivered+b.Bounced == b.Accepted
	b.Final = settled || !r.at.IsZero() && now.Sub(r.at) >= l.ReportAfter
	return b
}

// evidence is what the log shows about a batch of unknown fate; ok: it is enough for a
// conclusion.
func (l *tracker) evidence(id string, n int, f fate, through time.Time) (b messages.BatchEvidence, until time.Time, ok bool) {
	e, known := l.index.Evidence(id, n)
	if !known || e.Count != f.count {
		return b, until, false
	}
	until = later(e.Until, f.over)
	b = messages.BatchEvidence{Batch: n, Count: e.Count, Seen: e.Seen}
	switch {
	case e.Seen > 0:
		b.Outcome = messages.WasAccepted
	case through.Before(until.Add(l.ConcludeAfter)):
		return b, until, false
	case e.Doubted:
		b.Outcome = messages.Unclear
	default:
		b.Outcome = messages.WasNotSent
	}
	return b, until, true
}

// conclusions adds the conclusions for batches of a request that wait for one.
func (l *tracker) conclusions(events []messages.Event, id string, r *request, now, through time.Time) []messages.Event {
	for n, f := range r.fates {
		evidence, until, ok := l.evidence(id, n, f, through)
		if !f.waiting || !ok {
			continue
		}
		e := messages.Event{Operation: messages.Log, State: messages.Concluded, ID: messages.BatchID(id, n), Body: &messages.ConcludedBody{
			Common:        messages.Common{RequestID: id, At: messages.Time{Time: now}},
			BatchEvidence: evidence, Until: messages.Time{Time: until}, CompleteThrough: messages.Time{Time: through}}}
		if NoteOf(e) != f.concluded {
			events = append(events, e)
		}
	}
	return events
}

// resolution is what became of a request that ended uncertain; ok: it is known for all its
// batches.
func (l *tracker) resolution(id string, r *request, through time.Time) (e messages.Event, ok bool) {
	if r.outcome != messages.Uncertain || len(r.fates) != r.unknown {
		return e, false
	}
	body := &messages.SendResolved{Common: messages.Common{RequestID: id, At: messages.Time{Time: time.Now()}},
		By: messages.BySendingLog, Fingerprint: r.fingerprint, Evidence: messages.SendEvidence{CompleteThrough: messages.Time{Time: through}}}
	accepted := r.accepted
	for _, n := range slices.Sorted(maps.Keys(r.fates)) {
		b, _, ok := l.evidence(id, n, r.fates[n], through)
		if !ok || b.Outcome == messages.Unclear {
			return e, false
		}
		if b.Outcome == messages.WasAccepted {
			accepted += b.Count
		}
		body.Evidence.Seen += b.Seen
		body.Evidence.Count += b.Count
		body.Evidence.Batches = append(body.Evidence.Batches, b)
	}
	switch {
	case accepted == 0:
		body.Outcome = messages.Failed
	case accepted < r.recipients:
		body.Outcome = messages.Partial
	default:
		body.Outcome = messages.Accepted
	}
	return messages.Event{Operation: messages.Send, State: messages.Resolved, ID: id, Body: body}, true
}
