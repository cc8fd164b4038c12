package bus

import (
	"context"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Uncertain gives the first enrollment that ended uncertain at or behind a sequence of
// the events stream or, where that is 0, a time; a zero one when there is none. It asks
// for one event at a time: there is no consumer that could be lost or left behind.
func (s EventStore) Uncertain(ctx context.Context, from uint64, since time.Time) (history.Open, error) {
	for {
		open, err := s.uncertain(ctx, from, since)
		if err != nil {
			return history.Open{}, fmt.Errorf("bus: read the uncertain enrollments: %w", err)
		}
		if open.Sequence == 0 || !open.Began.IsZero() {
			return open, nil
		}
		// It was removed in between, or the replica that answered lags behind.
		if !retry.Pause(ctx, retry.Store.First) {
			return history.Open{}, fmt.Errorf("bus: read the uncertain enrollments: %w", context.Cause(ctx))
		}
	}
}

// uncertain leaves Began zero where no event of the history is found.
func (s EventStore) uncertain(ctx context.Context, from uint64, since time.Time) (open history.Open, err error) {
	what := map[string]any{"next_by_subj": messages.Enroll.Subject(messages.Uncertain, "*"), "seq": from}
	if from == 0 {
		delete(what, "seq")
		what["start_time"] = since.UTC()
	}
	got, err := s.insist(ctx, messages.Enroll, what)
	if err != nil || got == nil {
		return open, err
	}
	open = history.Open{ID: got.subject[len(messages.Enroll.Subject(messages.Uncertain, ""))+1:], Sequence: got.seq, At: got.at,
		Trace: history.Trace{Parent: got.header.Get("traceparent"), State: got.header.Get("tracestate")}}
	first, err := s.insist(ctx, messages.Enroll, map[string]any{"next_by_subj": messages.Enroll.Filter(open.ID), "seq": 1})
	if err != nil || first == nil || first.seq > got.seq {
		return open, err
	}
	open.Began = first.at
	return open, nil
}
