package sink

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// Mark stores how far the list was published, as a watermark. Errors: as for Publish.
func (s *Store) Mark(ctx context.Context, m sweep.Mark) error {
	_, err := s.Publish(ctx, []messages.Event{{Operation: s.Operation, State: messages.Marked, Body: watermarkOf(m)}})()
	return err
}

// LastMark returns what the last watermark says; a zero mark if there is none.
func (s *Store) LastMark(ctx context.Context) (sweep.Mark, error) {
	var w messages.Watermark
	e, err := s.last(ctx, s.Operation.Subject(messages.Marked, ""))
	if err == nil && e.Sequence != 0 {
		err = messages.DecodeEvent(e.Body, &w)
	}
	if err != nil || e.Sequence == 0 {
		return sweep.Mark{}, err
	}
	return markOf(w), nil
}

// knownBy is how it is known that a list was published, by its order.
var knownBy = [...]messages.Known{
	sweep.Unordered: messages.ByWholeLog, sweep.NewestFirst: messages.ByNewestFirst, sweep.OldestFirst: messages.ByOldestFirst}

func watermarkOf(m sweep.Mark) *messages.Watermark {
	w := &messages.Watermark{Common: messages.Common{At: messages.Time{Time: m.At}}, CompleteThrough: messages.Time{Time: m.CompleteThrough},
		TotalRecord: m.Total, New: m.New, By: knownBy[m.Order], Scanned: m.Scanned}
	if m.Anchor != nil {
		w.Anchor, _ = binary.Append(nil, binary.BigEndian, m.Anchor) // numbers always encode
	}
	if !m.Since.IsZero() {
		w.Since = &messages.Time{Time: m.Since}
	}
	return w
}

func markOf(w messages.Watermark) sweep.Mark {
	m := sweep.Mark{At: w.At.Time, CompleteThrough: w.CompleteThrough.Time, Since: cmp.Or(w.Since, &messages.Time{}).Time,
		Total: w.TotalRecord, New: w.New, Scanned: w.Scanned, Order: sweep.Order(max(0, slices.Index(knownBy[:], w.By)))}
	for key := range slices.Chunk(w.Anchor[:len(w.Anchor)/8*8], 8) {
		m.Anchor = append(m.Anchor, binary.BigEndian.Uint64(key))
	}
	return m
}
