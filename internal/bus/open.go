package bus

import (
	"context"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/pkg/messages"
)

// Open gives the first event of an operation in a state at or behind a sequence of the
// events stream or, where that is 0, a time; a zero one when there is none. It asks
// for one event at a time: there is no consumer that could be lost or left behind.
func (s EventStore) Open(ctx context.Context, op messages.Operation, state messages.State, from uint64, since time.Time) (history.Open, error) {
	what := map[string]any{"next_by_subj": op.Subject(state, "*"), "seq": from}
	if from == 0 {
		delete(what, "seq")
		what["start_time"] = since.UTC()
	}
	got, err := s.insist(ctx, op, what)
	if err != nil {
		return history.Open{}, fmt.Errorf("bus: read %s: %w", op.Subject(state, "*"), err)
	}
	if got == nil {
		return history.Open{}, nil
	}
	return history.Open{ID: got.subject[len(op.Subject(state, ""))+1:], Sequence: got.seq, At: got.at, Body: got.data,
		Trace: history.Trace{Parent: got.header.Get("traceparent"), State: got.header.Get("tracestate")}}, nil
}

// Began gives when the first event of a request before a sequence was stored; zero: there is
// none, or the replica that answered lags behind.
func (s EventStore) Began(ctx context.Context, op messages.Operation, id string, before uint64) (time.Time, error) {
	first, err := s.insist(ctx, op, map[string]any{"next_by_subj": op.Filter(id), "seq": 1})
	if err != nil || first == nil || first.seq > before {
		return time.Time{}, err
	}
	return first.at, nil
}
