package deliveries

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"errand/internal/sweep"
	"errand/pkg/messages"
)

// orders are how it is known that the log was published, by its order.
var orders = map[sweep.Order]messages.Known{sweep.Unordered: messages.ByWholeLog, sweep.NewestFirst: messages.ByNewestFirst, sweep.OldestFirst: messages.ByOldestFirst}

// Mark stores a watermark.
func (l *Log) Mark(ctx context.Context, m sweep.Mark) error {
	_, err := l.Store.Publish(ctx, []messages.Event{{Operation: messages.Log, State: messages.Marked, Body: &messages.Watermark{
		Common:          messages.Common{At: messages.Time{Time: m.At}},
		CompleteThrough: messages.Time{Time: m.CompleteThrough}, WatchedSince: optional(m.WatchedSince), Since: optional(m.Since),
		TotalRecord: m.Total, New: m.New, By: orders[m.Order], Scanned: m.Scanned,
	}}})()
	return err
}

// LastMark returns the last watermark.
func (l *Log) LastMark(ctx context.Context) (sweep.Mark, error) {
	w, err := l.Store.Watermark(ctx)
	if err != nil {
		return sweep.Mark{}, fmt.Errorf("deliveries: read watermark: %w", err)
	}
	m := sweep.Mark{At: w.At.Time, CompleteThrough: w.CompleteThrough.Time, WatchedSince: given(w.WatchedSince), Since: given(w.Since),
		Total: w.TotalRecord, New: w.New, Scanned: w.Scanned}
	for order, by := range orders {
		if by == w.By {
			m.Order = order
		}
	}
	return m, nil
}

func optional(t time.Time) *messages.Time {
	if t.IsZero() {
		return nil
	}
	return &messages.Time{Time: t}
}

func given(t *messages.Time) time.Time { return cmp.Or(t, &messages.Time{}).Time }
