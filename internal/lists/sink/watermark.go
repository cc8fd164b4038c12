package sink

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"

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
var knownBy = map[sweep.Order]messages.Known{
	sweep.Unordered: messages.ByWholeLog, sweep.NewestFirst: messages.ByNewestFirst, sweep.OldestFirst: messages.ByOldestFirst}

func watermarkOf(m sweep.Mark) *messages.Watermark {
	w := &messages.Watermark{Common: messages.Common{At: messages.Time{Time: m.At}}, CompleteThrough: messages.Time{Time: m.CompleteThrough},
		TotalRecord: m.Total, New: m.New, By: knownBy[m.Order], Scanned: m.Scanned,
		Anchor: encodeAnchor(m.Anchor)}
	if !m.Since.IsZero() {
		w.Since = &messages.Time{Time: m.Since}
	}
	return w
}

func markOf(w messages.Watermark) sweep.Mark {
	m := sweep.Mark{At: w.At.Time, CompleteThrough: w.CompleteThrough.Time, Since: cmp.Or(w.Since, &messages.Time{}).Time,
		Total: w.TotalRecord, New: w.New, Scanned: w.Scanned, Anchor: decodeAnchor(w.Anchor)}
	for order, by := range knownBy {
		if by == w.By {
			m.Order = order
		}
	}
	return m
}

func encodeAnchor(keys []uint64) (text []byte) {
	for _, key := range keys {
		text = binary.BigEndian.AppendUint64(text, key)
	}
	return text
}

func decodeAnchor(text []byte) (keys []uint64) {
	for key := range slices.Chunk(text, 8) {
		if len(key) == 8 {
			keys = append(keys, binary.BigEndian.Uint64(key))
		}
	}
	return keys
}

func watermarkID(e messages.Event, w *messages.Watermark) string {
	return e.Type() + "." + strconv.FormatInt(w.CompleteThrough.UnixMilli(), 10) + "." + strconv.FormatInt(w.At.UnixMilli(), 10)
}
