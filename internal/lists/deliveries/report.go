package deliveries

import (
	"cmp"
	"context"
	"hash/maphash"
	"iter"
	"maps"
	"time"

	"errand/internal/failpoint"
	"errand/internal/lists"
	"errand/pkg/messages"
)

const (
	summaryEvery = time.Minute // minimum time between two summaries of a request
	scanEvery    = time.Minute // between two scans for what is old
	maxAtOnce    = 1000        // events that are stored at once
)

// Swept publishes what is known about requests after a sweep.
func (l *Log) Swept(ctx context.Context, completeThrough time.Time) error {
	if err := l.update(ctx); err != nil {
		return err
	}
	now := time.Now()
	if err := l.resolve(ctx, now, completeThrough); err != nil {
		return err
	}
	if now.Sub(l.scanned) >= scanEvery {
		l.scanned = now
		l.scan(now)
	}
	return l.publish(ctx, l.summaries(now, completeThrough))
}

// publish stores events, some at once. When ctx ends, those under way are waited for: they would have to be learned.
func (l *Log) publish(ctx context.Context, events iter.Seq[messages.Event]) error {
	page := make([]messages.Event, 0, maxAtOnce)
	for e := range events {
		if page = append(page, e); len(page) < maxAtOnce {
			continue
		}
		if err := l.report(ctx, page); err != nil {
			return err
		}
		page = page[:0]
	}
	return l.report(ctx, page)
}

func (l *Log) report(ctx context.Context, events []messages.Event) error {
	if len(events) == 0 {
		return nil
	}
	failpoint.Here(failpoint.BeforePublish, "report")
	_, err := l.store(context.WithoutCancel(ctx), events)()
	failpoint.Here(failpoint.AfterPublish, "report")
	return cmp.Or(err, context.Cause(ctx))
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
	due = !r.erased && !r.summedUp() && b.Accepted > 0 && (b.Queued < b.Accepted || b.Final) &&
		r.summary != maphash.String(seed, lists.IDOf(e))
	return e, due
}
