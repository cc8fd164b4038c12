package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/enroll"
	"errand/internal/history"
	"errand/pkg/messages"
)

// Uncertain gives the first enrollment that ended uncertain at or behind a sequence of
// the events stream or, where that is 0, a time; a zero one when there is none. It asks
// for one event at a time: there is no consumer that could be lost or left behind.
func (l Log) Uncertain(ctx context.Context, from uint64, since time.Time) (enroll.Open, error) {
	what := map[string]any{"next_by_subj": messages.Enroll.Subject(messages.Uncertain, "*")}
	if what["seq"] = from; from == 0 {
		delete(what, "seq")
		what["start_time"] = since.UTC()
	}
	got, err := l.insist(ctx, messages.Enroll, what)
	if err == nil && got == nil {
		return enroll.Open{}, nil
	}
	var at time.Time
	if err == nil {
		at, err = time.Parse(time.RFC3339Nano, got.header.Get(jetstream.TimeStampHeaer))
	}
	if err != nil {
		return enroll.Open{}, fmt.Errorf("bus: read the uncertain enrollments: %w", err)
	}
	return enroll.Open{ID: got.subject[len(messages.Enroll.Subject(messages.Uncertain, ""))+1:], Sequence: got.seq, At: at,
		Trace: history.Trace{Parent: got.header.Get("traceparent"), State: got.header.Get("tracestate")}}, nil
}
