package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Operation is the operation whose requests the queue has; of scheduled ones it begins with scheduled.
func (q Queue) Operation() messages.Operation {
	if op := scheduledOperation(q.Filter); op != "" {
		return "scheduled." + op
	}
	return messages.ParseSubject(q.Filter).Operation
}

// Forgotten reads how many of a queue's requests its consumer has neither in flight nor before it: a server's fault can put a
// consumer ahead of messages that it never delivered. The counts are not of one instant. Each reading may be wrong by the requests
// that come and end meanwhile, in either direction, so only what several readings agree on is forgotten.
func Forgotten(ctx context.Context, js jetstream.JetStream, q Queue) (int, error) {
	before, err := stored(ctx, js.Conn(), q)
	if err != nil {
		return 0, err
	}
	consumer, err := js.Consumer(ctx, q.Stream, q.Name)
	if err != nil {
		return 0, err
	}
	after, err := stored(ctx, js.Conn(), q)
	info := consumer.CachedInfo()
	return max(min(before, after)-int(info.NumPending)-info.NumAckPending, 0), err
}

func stored(ctx context.Context, nc *nats.Conn, q Queue) (n int, err error) {
	has, err := askIndex(ctx, nc, q.Stream, q.Filter)
	for _, of := range has.State.Subjects {
		n += int(of)
	}
	return n, err
}

// readings is how many readings Stranded takes.
const readings = 5

// Stranded is what several readings within a second agree on; it takes one where that finds nothing.
func Stranded(ctx context.Context, js jetstream.JetStream, q Queue) (int, error) {
	least := math.MaxInt
	for range readings {
		n, err := Forgotten(ctx, js, q)
		if err != nil {
			return 0, fmt.Errorf("queue %s: %w", q.Name, err)
		}
		least = min(least, n)
		if least == 0 || !retry.Pause(ctx, retry.Follow) {
			break
		}
	}
	return least, nil
}

// StartOver has a queue deliver everything that its stream has. The queue stays as it is, with its configuration and pause, and
// there is no moment without it. What is in flight is delivered a second time: the history lets no call be made twice.
func StartOver(ctx context.Context, js jetstream.JetStream, q Queue) error {
	_, err := js.ResetConsumerToSequence(ctx, q.Stream, q.Name, 1)
	return err
}

// Younger returns when the history of a queue was made, if that was after its oldest request, else zero. Nobody knows then which
// requests of that queue were run, and delivering one may run it a second time. The history has the time of a scheduled one.
func Younger(ctx context.Context, js jetstream.JetStream, q Queue, oldest time.Time) (made time.Time, err error) {
	if q == EnrollSchedules || q == SendSchedules {
		return made, nil
	}
	events, err := js.Stream(ctx, EventsOf(q.Operation()))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return time.Now(), nil
	case err == nil && oldest.Before(events.CachedInfo().Created):
		return events.CachedInfo().Created, nil
	}
	return time.Time{}, err
}

// PlanRepairs starts the queues over that have forgotten requests. That is destructive where the history is younger: see Younger.
func PlanRepairs(ctx context.Context, js jetstream.JetStream) (plan []Change, err error) {
	have, err := inspect(ctx, js, func(installed) []Queue { return nil }, MandateRequests, MailRequests)
	if err != nil {
		return nil, err
	}
	for _, q := range Queues(have.lanes()...) {
		n, err := Stranded(ctx, js, q)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound): // a new one delivers all
		case err != nil:
			return nil, err
		case n > 0:
			change := Change{Kind: "consumer", Name: q.Name, Fields: []Field{{"Forgotten", show(n), show(0)}},
				apply: patient(js, func(ctx context.Context) error { return StartOver(ctx, js, q) })}
			made, err := Younger(ctx, js, q, have.streams[q.Stream].State.FirstTime)
			if err != nil {
				return nil, err
			}
			if change.Destructive = !made.IsZero(); change.Destructive {
				change.Why = "its history is younger than its requests: what was run before runs again; first see docs/on-call/disaster.md"
			}
			plan = append(plan, change)
		}
	}
	return plan, nil
}
