package errand

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Follow ranges over all events of a published request, stored ones and new ones, in their
// order: also its batches' events, and a conflict under its Position. It goes on after an
// outcome, which may be followed by resolved or reopened: break when you have seen enough,
// or end ctx. It survives reconnects. The last element has an error: the one of ctx, ErrNoEvents, or what kept the server from
// making a consumer, which is gone shortly after.
func (c *Client) Follow(ctx context.Context, r Receipt) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		events, err := c.history(ctx, r)
		if err == nil {
			defer events.Stop()
		}
		for err == nil {
			var m jetstream.Msg
			var e Event
			if m, err = events.Next(jetstream.NextContext(ctx)); err == nil {
				e, err = delivered(m)
			}
			if err == nil && (r.isOwn(e) || !e.Final()) && !yield(e, nil) {
				return
			}
		}
		yield(Event{}, fmt.Errorf("follow %s %s: %w", r.Operation, r.RequestID, err))
	}
}

// history reads the events of a request.
func (c *Client) history(ctx context.Context, r Receipt) (jetstream.MessagesContext, error) {
	stream, err := r.events()
	if err != nil {
		return nil, err
	}
	filters := []string{r.Operation.Filter(r.Position())}
	if r.RequestID != r.Position() {
		filters = append(filters, r.Operation.Filter(r.RequestID))
	}
	if r.Operation == messages.Send {
		filters = append(filters, messages.Batch.Filter(r.RequestID)+".*")
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: filters, InactiveThreshold: 10 * time.Second}
	consumer, err := c.js.OrderedConsumer(ctx, stream, config)
	if err != nil {
		return nil, noEvents(err)
	}
	return consumer.Messages()
}

// noEvents is ErrNoEvents where a stream is missing.
func noEvents(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%w: %w", ErrNoEvents, err)
	}
	return err
}
