// Package watermark writes how far a list was swept as the event that stores it.
package watermark

import (
	"cmp"
	"time"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// knownBy is how it is known that a list was published, by its order.
var knownBy = map[sweep.Order]messages.Known{sweep.Unordered: messages.ByWholeLog, sweep.NewestFirst: messages.ByNewestFirst, sweep.OldestFirst: messages.ByOldestFirst}

// Of is the body of the event that stores a mark.
func Of(m sweep.Mark) *messages.Watermark {
	return &messages.Watermark{Common: messages.Common{At: messages.Time{Time: m.At}},
		CompleteThrough: messages.Time{Time: m.CompleteThrough}, Since: optional(m.Since),
		TotalRecord: m.Total, New: m.New, By: knownBy[m.Order], Scanned: m.Scanned}
}

// Mark is the mark that a watermark stored.
func Mark(w messages.Watermark) sweep.Mark {
	m := sweep.Mark{At: w.At.Time, CompleteThrough: w.CompleteThrough.Time, Since: given(w.Since),
		Total: w.TotalRecord, New: w.New, Scanned: w.Scanned}
	for order, by := range knownBy {
		if by == w.By {
			m.Order = order
		}
	}
	return m
}

func optional(t time.Time) *messages.Time {
	if t.IsZero() {
		return nil
	}
	return &messages.Time{Time: t}
}

func given(t *messages.Time) time.Time { return cmp.Or(t, &messages.Time{}).Time }
