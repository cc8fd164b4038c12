package deliveries

import (
	"context"
	"fmt"

	"errand/internal/lists/sweep"
	"errand/internal/lists/watermark"
	"errand/pkg/messages"
)

// Mark stores a watermark.
func (l *Log) Mark(ctx context.Context, m sweep.Mark) error {
	_, err := l.Store.Publish(ctx, []messages.Event{{Operation: messages.Log, State: messages.Marked, Body: watermark.Of(m)}})()
	return l.heed(err)
}

// LastMark returns the last watermark.
func (l *Log) LastMark(ctx context.Context) (sweep.Mark, error) {
	w, err := l.Store.Watermark(ctx)
	if err != nil {
		return sweep.Mark{}, fmt.Errorf("deliveries: read watermark: %w", err)
	}
	return watermark.Mark(w), nil
}
