package deliveries

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"time"

	"errand/internal/failpoint"
	"errand/internal/lists"
	"errand/pkg/messages"
)

const (
	summaryEvery = time.Minute // minimum time between two summaries of a request, and between two scans for what is old
	maxAtOnce    = 1000        // events that are stored at once
)

// Swept publishes what is known about requests after a sweep, once there is a time up to which all rows are published.
func (l *Log) Swept(ctx context.Context, completeThrough time.Time) error {
	if err := l.update(ctx); err != nil || completeThrough.IsZero() {
		return err
	}
	now := time.Now()
	if err := l.resolve(ctx, now, completeThrough); err != nil {
		return err
	}
	if now.Sub(l.scanned) >= summaryEvery {
		l.scanned = now
		l.scan(now)
	}
	return l.report(ctx, l.summaries(now, completeThrough))
}

// report stores events, some at once. When ctx ends, those under way are waited for: they would have to be learned.
func (l *Log) report(ctx context.Context, events iter.Seq[messages.Event]) error {
	var page []messages.Event
	store := func() error {
		if len(page) == 0 {
			return nil
		}
		failpoint.Here(failpoint.BeforePublish, "report")
		_, err := l.store(context.WithoutCancel(ctx), page)()
		failpoint.Here(failpoint.AfterPublish, "report")
		page = page[:0]
		return cmp.Or(err, context.Cause(ctx))
	}
	for e := range events {
		if page = append(page, e); len(page) == maxAtOnce {
			if err := store(); err != nil {
				return err
			}
		}
	}
	return store()
}

// scan looks for requests that are too old, or whose summary time alone makes final.
func (l *Log) scan(now time.Time) {
	l.calls.forget(now.Add(-l.window()))
	maps.DeleteFunc(l.open, func(id string, _ *unsettled) bool { return l.calls.known(id) == nil })
	for _, g := range l.calls.generations {
		for n := range g.requests {
			r := &g.requests[n]
			if age := now.Sub(time.UnixMilli(r.at)); !r.summedUp() && age >= l.ReportAfter && age <= l.window() {
				g.change(uint32(n))
			}
		}
	}
}

// summaries yields those that are due.
func (l *Log) summaries(now, through time.Time) iter.Seq[messages.Event] {
	return func(yield func(messages.Event) bool) {
		for _, g := range l.calls.generations {
			for i := 0; i < len(g.changed); {
				r := &g.requests[g.changed[i]]
				if !r.summedUp() && now.Sub(time.UnixMilli(r.reported)) < summaryEvery {
					i++
					continue
				}
				e, due := l.summary(g, g.changed[i], now, through)
				if !due {
					r.changed, g.changed[i] = false, g.changed[len(g.changed)-1]
					g.changed = g.changed[:len(g.changed)-1]
					continue
				}
				if i++; !yield(e) {
					return
				}
			}
		}
	}
}

// summary is the next one of a request; due: it says something new.
func (l *Log) summary(g *generation, n uint32, now, through time.Time) (e messages.Event, due bool) {
	r, id := &g.requests[n], string(g.id(n))
	c := g.counts(r)
	seen := c[delivered] + c[deferred] + c[bounced] + c[unknown]
	b := &messages.SummaryBody{Common: messages.Common{RequestID: id, At: messages.Time{Time: now}},
		Recipients: max(int(r.recipients), seen), Accepted: max(int(r.accepted), seen), Delivered: c[delivered], Deferred: c[deferred],
		Bounced: c[bounced], Unknown: c[unknown], CompleteThrough: messages.Time{Time: through}}
	b.Queued = b.Accepted - seen
	settled := r.ended == ended && b.Delivered+b.Bounced == b.Accepted
	b.Final = settled || r.at != 0 && now.Sub(time.UnixMilli(r.at)) >= l.ReportAfter
	e = messages.Event{Operation: messages.Delivery, State: messages.Summary, ID: id, Body: b}
	return e, !r.erased && !r.summedUp() && b.Accepted > 0 && (b.Queued < b.Accepted || b.Final) &&
		r.summary != maphash.String(seed, lists.IDOf(e))
}

// unsettled is a request that ended uncertain, with an outcome that lists all its batches of unknown fate.
type unsettled struct {
	over        uint64 // sequence of its outcome
	fingerprint string
	batches     []messages.Unsettled // of unknown fate
}

// resolve stores that uncertain requests were sent, where each batch of unknown fate has a row that proves it.
func (l *Log) resolve(ctx context.Context, now, through time.Time) error {
	for id, u := range l.open {
		body := l.resolution(id, u)
		if body == nil {
			continue
		}
		body.At, body.Evidence.CompleteThrough = messages.Time{Time: now}, messages.Time{Time: through}
		failpoint.Here(failpoint.BeforePublish, "resolved")
		e := messages.Event{Operation: messages.Send, State: messages.Resolved, ID: id, Body: body}
		if err := l.Resolve(context.WithoutCancel(ctx), e, u.over); err != nil {
			return fmt.Errorf("deliveries: resolve: %w", err)
		}
		failpoint.Here(failpoint.AfterPublish, "resolved")
	}
	return nil
}

// resolution is what became of a request that ended uncertain; nil if that is not proven.
func (l *Log) resolution(id string, u *unsettled) *messages.SendResolved {
	r := l.calls.known(id)
	if r == nil || len(u.batches) == 0 {
		return nil
	}
	body := &messages.SendResolved{Common: messages.Common{RequestID: id}, Outcome: messages.Partial, By: messages.BySendingLog,
		Fingerprint: u.fingerprint}
	for _, batch := range u.batches {
		b := messages.BatchEvidence{Batch: batch.Batch, Count: batch.Count, Seen: l.calls.proven(id, batch.Batch, batch.Count)}
		if b.Seen == 0 {
			return nil
		}
		body.Evidence.Seen += b.Seen
		body.Evidence.Count += b.Count
		body.Evidence.Batches = append(body.Evidence.Batches, b)
	}
	if int(r.accepted)+body.Evidence.Count >= int(r.recipients) {
		body.Outcome = messages.Accepted
	}
	return body
}
